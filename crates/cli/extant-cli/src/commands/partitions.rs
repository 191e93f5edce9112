//! The partitions of a disk, as `extant info` lists them.

use anyhow::{Result, bail};
use extant_cli_core::format::show::{HostPath, ShowPath, human, show};
use extant_cli_core::image::present_content::content;
use extant_cli_core::image::store;
use extant_disk::{Partition, Table};
use extant_terminal::output;
use serde::Serialize;
use std::io::Write;
use std::path::Path;

#[derive(Serialize)]
struct Disk {
    disk: HostPath,
    size: u64,
    table: String,
    sector: u64,
    id: String,
    note: Option<String>,
    partitions: Vec<Row>,
}

#[derive(Serialize)]
struct Row {
    number: u32,
    address: HostPath,
    start: u64,
    size: u64,
    r#type: String,
    type_id: String,
    label: Option<String>,
    uuid: Option<String>,
    holds: Option<String>,
    problem: Option<String>,
}

impl Row {
    fn of(image: &Path, disk: u64, partition: &Partition) -> Self {
        let address = HostPath::from(image).partition(partition.number);
        let problem = partition.range(disk).err().map(|e| e.to_string());
        let holds = match problem {
            None => content(address.path()).unwrap_or(None),
            Some(_) => None,
        };
        Self {
            number: partition.number,
            start: partition.start,
            size: partition.len,
            r#type: partition.type_name.clone(),
            type_id: partition.type_id.clone(),
            label: partition.label.clone(),
            uuid: partition.uuid.clone(),
            address,
            holds,
            problem,
        }
    }
}

/// Lists the partitions of a disk.
pub fn list(image: &Path, json: bool) -> Result<()> {
    let Some((table, size)) = store::table(image)? else {
        bail!("{}: there is no partition table", image.shown());
    };
    let disk = disk(image, size, &table);
    if json {
        output::json(&disk)
    } else {
        print(&disk)
    }
}

fn disk(image: &Path, size: u64, table: &Table) -> Disk {
    Disk {
        disk: image.into(),
        size,
        table: table.scheme.to_string(),
        sector: table.sector,
        id: table.id.clone(),
        note: table.note.clone(),
        partitions: table
            .partitions
            .iter()
            .map(|p| Row::of(image, size, p))
            .collect(),
    }
}

fn print(disk: &Disk) -> Result<()> {
    let mut out = output::stdout();
    writeln!(
        out,
        "{}: {}, {} partition table {}",
        disk.disk,
        human(disk.size),
        disk.table,
        disk.id
    )?;
    if let Some(note) = &disk.note {
        writeln!(out, "damaged: {note}")?;
    }
    let rows = disk.partitions.iter();
    let width = rows.map(|p| p.address.to_string().chars().count());
    let width = width.max().unwrap_or(0);
    for p in &disk.partitions {
        let holds = p.problem.as_ref().or(p.holds.as_ref());
        writeln!(
            out,
            "{:width$}  {:>6} at {:>6}  {}{}: {}",
            p.address,
            human(p.size),
            human(p.start),
            p.r#type,
            p.label
                .as_ref()
                .map_or_else(String::new, |l| format!(" {}", show(l.as_bytes()))),
            holds.map_or("empty", |h| h),
        )?;
    }
    Ok(out.flush()?)
}
