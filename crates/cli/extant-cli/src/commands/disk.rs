//! `extant disk`.

use super::mkfs;
use crate::commands::mkfs_sources::{Gathering, ReadArgs};
use crate::transfer::OwnerArgs;
use anyhow::{Context, Result, bail, ensure};
use blockdev::{BlockDevice, PartDevice};
use extant::mkfs::{MkfsOptions, Prepared};
use extant_cli_core::address::schemes::is_remote;
use extant_cli_core::format::clock;
use extant_cli_core::format::show::{HostPath, ShowPath, count, human, show};
use extant_cli_core::image::new_file::{Format, NewFile};
use extant_cli_core::image::{store, streams};
use extant_cli_core::messages::mkfs_progress::Bar;
use extant_disk::{NewDisk, NewPartition, Purpose, Scheme};
use extant_terminal::numbers::size;
use extant_terminal::output;
use serde::Serialize;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use uuid::Uuid;

/// Make a disk image with partitions and file systems in them
///
/// The disk is a new file with a GPT, or with an MBR for --label-type dos. Partitions are in the order of the options,
/// after an EFI system partition. The same input, SOURCE_DATE_EPOCH and -U yield the same bytes.
#[derive(clap::Args, Debug)]
#[command(
    after_help = "Examples:\n  extant disk disk.img --esp 64M --ext4 root=rootfs/ --ext4 data=:1G\n  \
                  extant disk disk.img --ext4 root=image.tar:4G && extant ls disk.img@p1:\n  \
                  extant disk disk.img --label-type dos --ext4 root=base.tar --from root=app.tar"
)]
pub struct Args {
    /// File to make. A name ending in .zst, .simg, .qcow2, .vhd or .vmdk selects that format
    disk: PathBuf,
    /// Format of the file [default: by the file's suffix]
    #[arg(long, value_enum, value_name = "FORMAT")]
    format: Option<Format>,
    /// Size of an EFI system partition, which is left empty
    #[arg(long, value_parser = partition_size, value_name = "SIZE")]
    esp: Option<u64>,
    /// Add a partition with an ext4 file system: its label, and a source as for mkfs --from, or a size, or both.
    /// Without a size, the partition is as large as its content needs
    #[arg(long, value_parser = wanted, value_name = "LABEL=[SOURCE][:SIZE]", required = true)]
    ext4: Vec<WantedPart>,
    /// Add a source to the partition with this label. Sources are layers, in the order of the options, as with mkfs
    #[arg(long, value_parser = further, value_name = "LABEL=SOURCE")]
    from: Vec<(String, PathBuf)>,
    /// Kind of the partition table
    #[arg(long, value_enum, default_value_t = TableKind::Gpt, value_name = "TYPE", alias = "label")]
    label_type: TableKind,
    /// Free space to leave in a file system whose size depends on its content
    #[arg(long, value_name = "PERCENT%", value_parser = mkfs::percent)]
    free: Option<f64>,
    /// GUID of the disk, from which all other IDs are derived; an MBR has its first 32 bits as disk signature
    #[arg(short = 'U', value_name = "UUID")]
    uuid: Option<Uuid>,
    /// Overwrite a file that holds data
    #[arg(short = 'F', long)]
    force: bool,
    /// Number of threads [0: the number of CPUs]
    #[arg(long, default_value_t = 0, value_parser = store::threads_given)]
    threads: usize,
    /// Print the result as JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    reading: ReadArgs,
    #[command(flatten)]
    owner: OwnerArgs,
}

/// A kind of partition table, named as by sfdisk.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum TableKind {
    /// GPT, the table of UEFI
    Gpt,
    /// MBR: at most four partitions, below 2 TiB
    #[value(alias = "mbr", alias = "msdos")]
    Dos,
}

impl TableKind {
    const fn scheme(self) -> Scheme {
        match self {
            Self::Gpt => Scheme::Gpt,
            Self::Dos => Scheme::Mbr,
        }
    }
}

/// A partition as given on the command line.
#[derive(Clone, Debug, PartialEq, Eq)]
struct WantedPart {
    label: String,
    sources: Vec<PathBuf>,
    size: Option<u64>,
}

/// Partition sizes are whole MiB.
const LEAST: u64 = 1 << 20;

/// Parses the size of a partition. Rejects sizes below 1 MiB, because such a number most likely means MiB.
fn partition_size(text: &str) -> Result<u64> {
    let bytes = size(text)?;
    ensure!(
        bytes >= LEAST,
        "a partition of {bytes} bytes: write {bytes}M for MiB"
    );
    Ok(bytes)
}

/// Returns whether a source with a colon must end with a size, because only its part before the colon exists.
fn is_size_meant(whole: &str, source: &str) -> bool {
    !Path::new(whole).exists() && Path::new(source).exists()
}

fn wanted(text: &str) -> Result<WantedPart> {
    let form = "write LABEL=SOURCE, LABEL=:SIZE or LABEL=SOURCE:SIZE";
    let (label, rest) = text.split_once('=').context(form)?;
    let (source, len) = match rest.rsplit_once(':') {
        Some((source, len))
            if source.is_empty() || size(len).is_ok() || is_size_meant(rest, source) =>
        {
            (source, Some(partition_size(len)?))
        }
        _ => (rest, None),
    };
    ensure!(!source.is_empty() || len.is_some(), "{form}");
    ensure!(
        label.len() <= 16,
        "{label}: a label of ext4 has at most 16 bytes"
    );
    Ok(WantedPart {
        label: label.into(),
        sources: Vec::from_iter((!source.is_empty()).then(|| source.into())),
        size: len,
    })
}

fn further(text: &str) -> Result<(String, PathBuf)> {
    let (label, source) = text.split_once('=').context("write LABEL=SOURCE")?;
    ensure!(!source.is_empty(), "write LABEL=SOURCE");
    Ok((label.into(), source.into()))
}

/// Returns the partitions with all their sources.
fn all_wanted(args: &Args) -> Result<Vec<WantedPart>> {
    let mut all = args.ext4.clone();
    for (label, source) in &args.from {
        let mut named = all.iter_mut().filter(|wanted| wanted.label == *label);
        let (Some(one), None) = (named.next(), named.next()) else {
            let label = show(label.as_bytes());
            bail!("--from {label}=: one partition of --ext4 must have this label");
        };
        one.sources.push(source.clone());
    }
    Ok(all)
}

#[derive(Serialize)]
struct MadePart {
    disk: HostPath,
    size: u64,
    id: String,
    partitions: Vec<Row>,
}

#[derive(Serialize)]
struct Row {
    number: usize,
    address: HostPath,
    label: String,
    start: u64,
    size: u64,
    files: Option<u64>,
    data_bytes: Option<u64>,
}

impl Args {
    fn options(&self, disk: Uuid, number: usize, wanted: &WantedPart) -> Result<MkfsOptions> {
        let mut options = MkfsOptions {
            size: wanted.size.map(|size| size.next_multiple_of(1 << 20)),
            label: wanted.label.clone(),
            uuid: Some(*file_system_id(disk, number).as_bytes()),
            free_percent: self.free.unwrap_or(0.0),
            threads: self.threads,
            zeroed_device: true,
            ..MkfsOptions::default()
        };
        let from = &wanted.sources;
        mkfs::common(&mut options, &self.reading, &self.owner, from, &self.disk)?;
        if from.is_empty() {
            options.root_owner = Some((0, 0));
        }
        Ok(options)
    }
}

/// Returns the UUID of the file system in the partition with this number.
fn file_system_id(disk: Uuid, number: usize) -> Uuid {
    Uuid::new_v5(&disk, format!("file system {number}").as_bytes())
}

/// Returns the GUID of the disk: the given one, one derived from `SOURCE_DATE_EPOCH` and the labels, or a random one.
fn disk_id(args: &Args) -> Result<Uuid> {
    Ok(match (args.uuid, clock::source_date_epoch()?) {
        (Some(id), _) => id,
        (None, Some(epoch)) => {
            let labels = args.ext4.iter().map(|wanted| wanted.label.as_str());
            let labels: Vec<_> = labels.collect();
            let name = format!("disk {epoch} {}", labels.join(","));
            Uuid::new_v5(&Uuid::nil(), name.as_bytes())
        }
        (None, None) => Uuid::new_v4(),
    })
}

/// Fails if the disk must not be made. Returns whether the file does not exist yet.
fn may_be_made(args: &Args) -> Result<bool> {
    let path = &args.disk;
    let name = || path.shown();
    streams::no_image(path)?;
    ensure!(
        !store::has_suffix(path),
        "{}: name a file, without @...",
        name()
    );
    let there = path.metadata().ok();
    if let Some(meta) = &there {
        ensure!(
            meta.is_file(),
            "{}: exists and is not a regular file",
            name()
        );
        mkfs::may_overwrite(path, args.force)?;
    }
    Ok(there.is_none())
}

pub fn run(args: &Args) -> Result<()> {
    let path = &args.disk;
    let name = || path.shown();
    ensure!(
        !is_remote(path),
        "{}: extant disk makes a file, and extant push copies it to a server",
        name()
    );
    let format = Format::of(args.format, path)?;
    let new = may_be_made(args)?;
    let id = disk_id(args)?;
    let bar = Arc::new(Bar::default());
    let mut partitions = Vec::new();
    if let Some(size) = args.esp {
        partitions.push(NewPartition {
            purpose: Purpose::EfiSystem,
            label: "esp".into(),
            size,
        });
    }
    let first = partitions.len();
    let mut prepared = Vec::new();
    // Unpacked archives are kept until everything is written.
    let mut unpacked = Vec::new();
    for (number, wanted) in (first + 1..).zip(&all_wanted(args)?) {
        let mut options = args.options(id, number, wanted)?;
        options.progress = Some(Arc::clone(&bar) as _);
        let made = match &wanted.sources[..] {
            [] => extant::mkfs::prepare(&options),
            sources => {
                let scratch = options.spool_dir.clone().unwrap_or_else(|| ".".into());
                let (sources, keeps) = Gathering {
                    image: path,
                    scratch: &scratch,
                    reading: &args.reading,
                }
                .sources(sources)?;
                unpacked.extend(keeps);
                extant::mkfs::prepare_from(&options, sources)
            }
        };
        let made = made
            .map_err(mkfs::failed)
            .with_context(|| wanted.label.clone())?;
        partitions.push(NewPartition {
            purpose: Purpose::Linux,
            label: wanted.label.clone(),
            size: made.size(),
        });
        prepared.push(made);
    }
    let disk = NewDisk::with_table(args.label_type.scheme(), id, partitions.clone())?;
    let written = NewFile::create(path, format, disk.size()).and_then(|file| {
        let reports = write(file.device(), &disk, first, prepared)?;
        file.finish(args.threads, &bar)?;
        Ok(reports)
    });
    bar.change(None);
    if written.is_err() && new {
        let _ = std::fs::remove_file(path);
    }
    let mut reports = vec![None; first];
    reports.extend(written.with_context(name)?.into_iter().map(Some));
    let rows = (1..).zip(partitions.iter().zip(disk.ranges()).zip(reports));
    let rows = rows.map(|(number, ((partition, range), report))| Row {
        number,
        address: HostPath::from(&**path).partition(number),
        label: partition.label.clone(),
        start: range.start,
        size: range.end - range.start,
        files: report.map(|(files, _)| files),
        data_bytes: report.map(|(_, bytes)| bytes),
    });
    tell(args, &disk, rows.collect())
}

/// Writes the file systems, and the partition tables last. Returns the files and bytes of data of each.
fn write(
    device: &dyn BlockDevice,
    disk: &NewDisk,
    first: usize,
    prepared: Vec<Prepared>,
) -> Result<Vec<(u64, u64)>> {
    let mut reports = Vec::new();
    for (prepared, range) in prepared.into_iter().zip(disk.ranges().iter().skip(first)) {
        let report = prepared.write(&PartDevice::new(device, range.clone())?);
        let report = report.map_err(mkfs::failed)?;
        for warning in &report.warnings {
            output::warn(warning);
        }
        reports.push((report.files, report.data_bytes));
    }
    disk.write(device)?;
    device.flush()?;
    Ok(reports)
}

fn tell(args: &Args, disk: &NewDisk, partitions: Vec<Row>) -> Result<()> {
    let made = MadePart {
        disk: HostPath::from(&*args.disk),
        size: disk.size(),
        id: disk.table_id(),
        partitions,
    };
    if args.json {
        return output::json(&made);
    }
    let mut out = output::stdout();
    let partitions = count(made.partitions.len() as u64, "partition", "partitions");
    writeln!(
        out,
        "{}: {}, {partitions}, {} {}",
        made.disk,
        human(made.size),
        args.label_type.scheme(),
        made.id
    )?;
    for row in &made.partitions {
        let held = match (row.files, row.data_bytes) {
            (Some(files), Some(bytes)) => {
                format!(
                    "{}, {} of data",
                    count(files, "file", "files"),
                    human(bytes)
                )
            }
            _ => "left to others".into(),
        };
        writeln!(
            out,
            "{}  {:>6}  {}: {held}",
            row.address,
            human(row.size),
            show(row.label.as_bytes())
        )?;
    }
    Ok(out.flush()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn partitions_as_they_are_written() {
        let is = |text: &str, label: &str, source: Option<&str>, size: Option<u64>| {
            let label = label.to_string();
            let sources = Vec::from_iter(source.map(PathBuf::from));
            assert_eq!(
                wanted(text).unwrap(),
                WantedPart {
                    label,
                    sources,
                    size
                }
            );
        };
        is("root=rootfs/", "root", Some("rootfs/"), None);
        is("data=:1G", "data", None, Some(1 << 30));
        is("a=b:c:2M", "a", Some("b:c"), Some(2 << 20));
        is("a=b:c", "a", Some("b:c"), None);
        for wrong in [
            "root",
            "root=",
            "root=:x",
            "root=x:64",
            "a234567890123456x=:1M",
        ] {
            assert!(wanted(wrong).is_err(), "{wrong}");
        }
    }
}
