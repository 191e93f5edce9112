//! The report of `extant mkfs` about a new file system.

use anyhow::Result;
use extant::mkfs::{MkfsReport, Prepared};
use extant_cli_core::format::show::{HostPath, count, human};
use extant_terminal::output;
use serde::Serialize;
use std::io::Write;
use std::path::Path;

/// A planned file system.
#[derive(Serialize)]
pub struct WouldMake {
    pub image: HostPath,
    pub size: u64,
    pub block_size: u32,
    pub blocks: u64,
    pub inodes: u32,
    pub groups: u32,
    pub features: Vec<String>,
    pub uuid: String,
    pub warnings: Vec<String>,
}

impl WouldMake {
    pub fn of(image: &Path, prepared: &Prepared) -> Self {
        let geo = prepared.geometry();
        Self {
            image: image.into(),
            size: prepared.size(),
            block_size: geo.block_size,
            blocks: geo.blocks_count,
            inodes: geo.inodes_count,
            groups: geo.groups,
            features: geo.features.names(),
            uuid: uuid::Uuid::from_bytes(geo.uuid).to_string(),
            warnings: prepared.warnings(),
        }
    }
}

/// The result of making a file system.
pub struct Written {
    pub report: MkfsReport,
    pub packed_bytes: Option<u64>,
    pub sync_seconds: f64,
}

/// The result as printed.
#[derive(Serialize)]
pub struct MkfsResult {
    image: HostPath,
    size: u64,
    block_size: u32,
    blocks: u64,
    free_blocks: u64,
    inodes: u32,
    free_inodes: u32,
    groups: u32,
    journal_blocks: u32,
    features: Vec<String>,
    uuid: String,
    /// The root hash of the tree of dm-verity, if one was made.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub root_hash: Option<String>,
    directories: u64,
    files: u64,
    symlinks: u64,
    specials: u64,
    hard_links: u64,
    data_bytes: u64,
    /// The size of the file, if it is packed.
    packed_bytes: Option<u64>,
    /// The total time in seconds, and the part of it for the final flush.
    seconds: f64,
    sync_seconds: f64,
    warnings: Vec<String>,
}

impl MkfsResult {
    pub fn of(image: &Path, written: Written, seconds: f64) -> Self {
        let Written {
            report: r,
            packed_bytes,
            sync_seconds,
        } = written;
        Self {
            image: image.into(),
            size: r.size,
            block_size: r.block_size,
            blocks: r.blocks,
            free_blocks: r.free_blocks,
            inodes: r.inodes,
            free_inodes: r.free_inodes,
            groups: r.groups,
            journal_blocks: r.journal_blocks,
            features: r.features.names(),
            uuid: uuid::Uuid::from_bytes(r.uuid).to_string(),
            root_hash: None,
            directories: r.directories,
            files: r.files,
            symlinks: r.symlinks,
            specials: r.specials,
            hard_links: r.hard_links,
            data_bytes: r.data_bytes,
            packed_bytes,
            seconds,
            sync_seconds,
            warnings: r.warnings,
        }
    }
}

/// Verbosity of the report.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Words {
    None,
    Few,
    Many,
}

/// Prints the report with the given verbosity.
pub fn tell(made: &MkfsResult, json: bool, words: Words, from_source: bool) -> Result<()> {
    match (json, words) {
        (true, _) => return output::json(made),
        (_, Words::None) => return Ok(()),
        _ => {}
    }
    let mut out = output::stdout();
    let MkfsResult {
        blocks,
        block_size,
        inodes,
        files,
        directories,
        data_bytes,
        ..
    } = made;
    let packed = made
        .packed_bytes
        .map(|bytes| format!(" in {}", human(bytes)));
    writeln!(
        out,
        "{}: {}{}, {blocks} blocks of {block_size} bytes, {inodes} inodes",
        made.image,
        human(made.size),
        packed.unwrap_or_default()
    )?;
    writeln!(out, "UUID {}", made.uuid)?;
    if let Some(root) = &made.root_hash {
        writeln!(out, "root hash {root}")?;
    }
    if words == Words::Many {
        let journal = match made.journal_blocks {
            0 => "no journal".to_owned(),
            blocks => format!("journal of {blocks} blocks"),
        };
        let groups = count(made.groups.into(), "group", "groups");
        writeln!(
            out,
            "{groups}, {journal}, {} blocks and {} inodes free",
            made.free_blocks, made.free_inodes
        )?;
        writeln!(out, "features {}", made.features.join(" "))?;
    }
    if from_source {
        writeln!(
            out,
            "{}, {}, {} of data",
            count(*files, "file", "files"),
            count(*directories, "directory", "directories"),
            human(*data_bytes)
        )?;
    }
    Ok(out.flush()?)
}
