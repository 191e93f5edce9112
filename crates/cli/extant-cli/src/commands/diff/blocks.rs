//! Comparison by blocks, with the owners of differing blocks in each image.

use super::{Difference, Field, Sink};
use crate::commands::inspect::text;
use anyhow::{Result, anyhow, ensure};
use blockdev::BlockDevice;
use ext4_format::superblock::{RawSuperblock, SUPERBLOCK_OFFSET, SUPERBLOCK_SIZE};
use extant_check::inspect::{Inspector, Record, Request, Value};
use extant_cli_core::image::images;
use extant_terminal::interrupt;
use extant_terminal::progress::Progress;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

/// Bytes compared at once.
const PIECE: usize = 1 << 20;

/// Number of blocks whose owners are looked up; of further blocks only the numbers are shown.
const OWNED: usize = 100_000;

pub(super) fn compare(a: &Path, b: &Path, sink: &mut Sink) -> Result<()> {
    let (device_a, device_b) = (images::device(a)?, images::device(b)?);
    let (size_a, size_b) = (block_size(&device_a)?, block_size(&device_b)?);
    ensure!(
        size_a == size_b,
        "blocks of {size_a} and of {size_b} bytes are not compared"
    );
    let different = different(&device_a, &device_b, size_a)?;
    if device_a.len() != device_b.len() {
        sink.add(Difference {
            place: "image".into(),
            path: None,
            change: super::Change::Changed,
            fields: vec![Field {
                name: "bytes".into(),
                a: device_a.len().to_string(),
                b: device_b.len().to_string(),
            }],
        })?;
    }
    let (owners_a, owners_b) = (
        owners(&device_a, &different)?,
        owners(&device_b, &different)?,
    );
    // Adjacent blocks with the same owners in both images share one line.
    let owner = |owners: &BTreeMap<u64, String>, block: u64| {
        owners
            .get(&block)
            .cloned()
            .unwrap_or_else(|| "not looked for".into())
    };
    let mut blocks = different.iter().copied().peekable();
    while let Some(first) = blocks.next() {
        let (of_a, of_b) = (owner(&owners_a, first), owner(&owners_b, first));
        let mut last = first;
        while let Some(next) = blocks.next_if(|&next| {
            next == last + 1 && owner(&owners_a, next) == of_a && owner(&owners_b, next) == of_b
        }) {
            last = next;
        }
        let place = if last == first {
            format!("block {first}")
        } else {
            format!("blocks {first}-{last}")
        };
        let same = of_a == of_b;
        sink.add(Difference {
            place,
            path: None,
            change: super::Change::Changed,
            fields: vec![Field {
                name: if same { String::new() } else { "from".into() },
                a: if same { String::new() } else { of_a },
                b: of_b,
            }],
        })?;
    }
    Ok(())
}

fn block_size(device: &dyn BlockDevice) -> Result<usize> {
    let mut bytes = vec![0; SUPERBLOCK_SIZE];
    device.read_at(SUPERBLOCK_OFFSET, &mut bytes)?;
    let size = RawSuperblock::parse(&bytes)?.block_size();
    let size = size.ok_or_else(|| anyhow!("a block size that there is not"))?;
    Ok(size as usize)
}

/// Returns the blocks that differ, up to the length of the shorter device.
fn different(a: &dyn BlockDevice, b: &dyn BlockDevice, size: usize) -> Result<Vec<u64>> {
    let len = a.len().min(b.len());
    let progress = Progress::bytes("compare", len);
    let (mut from_a, mut from_b) = (vec![0; PIECE], vec![0; PIECE]);
    let (mut at, mut different) = (0, Vec::new());
    while at < len {
        interrupt::check()?;
        let n = (len - at).min(PIECE as u64) as usize;
        a.read_at(at, &mut from_a[..n])?;
        b.read_at(at, &mut from_b[..n])?;
        if from_a[..n] != from_b[..n] {
            let first = at / size as u64;
            let pairs = from_a[..n].chunks(size).zip(from_b[..n].chunks(size));
            let changed = pairs.zip(first..).filter(|((a, b), _)| a != b);
            different.extend(changed.map(|(_, block)| block));
        }
        at += n as u64;
        progress.add(n as u64);
    }
    progress.done();
    Ok(different)
}

/// Returns the owners of blocks in an image.
fn owners(device: &dyn BlockDevice, blocks: &[u64]) -> Result<BTreeMap<u64, String>> {
    let mut owners = BTreeMap::new();
    if blocks.is_empty() {
        return Ok(owners);
    }
    let inspector = Inspector::open(device, !images::journals_are_left())?;
    let mut words = vec![b"icheck".to_vec()];
    words.extend(
        blocks
            .iter()
            .take(OWNED)
            .map(|b| b.to_string().into_bytes()),
    );
    let request = Request::new(words)?;
    let mut roles: Vec<(u64, String, Option<u64>)> = Vec::new();
    answer(&inspector, &request, &mut |record| {
        let number = |name| match field(&record, name) {
            Some(Value::Number(number)) => Some(*number),
            _ => None,
        };
        let what = field(&record, "what").map(text).unwrap_or_default();
        let what = match number("group") {
            Some(group) => format!("{what} of group {group}"),
            None => what,
        };
        roles.extend(number("block").map(|block| (block, what, number("inode"))));
    })?;
    let names = names(&inspector, roles.iter().filter_map(|(.., ino)| *ino))?;
    for (block, what, ino) in roles {
        let said = match ino {
            Some(ino) => match names.get(&ino) {
                Some(path) => format!("{what} of {path}"),
                None => format!("{what} of <{ino}>"),
            },
            None => what,
        };
        let owner: &mut String = owners.entry(block).or_default();
        owner.push_str(if owner.is_empty() { "" } else { " and " });
        owner.push_str(&said);
    }
    Ok(owners)
}

fn field<'r>(record: &'r Record, name: &str) -> Option<&'r Value> {
    let found = record.fields.iter().find(|field| field.0 == name);
    found.map(|(_, value)| value)
}

fn answer(
    inspector: &Inspector<'_>,
    request: &Request,
    take: &mut dyn FnMut(Record),
) -> Result<()> {
    let answered = inspector.answer(request, &mut |record| {
        take(record);
        Ok(())
    });
    answered.map_err(|e| anyhow!("{e}"))
}

/// Returns the paths of inodes that have paths.
fn names(
    inspector: &Inspector<'_>,
    inodes: impl Iterator<Item = u64>,
) -> Result<BTreeMap<u64, String>> {
    let inodes: BTreeSet<u64> = inodes.collect();
    let mut names = BTreeMap::new();
    if inodes.is_empty() {
        return Ok(names);
    }
    let mut words = vec![b"ncheck".to_vec()];
    words.extend(inodes.iter().map(|ino| ino.to_string().into_bytes()));
    let request = Request::new(words)?;
    answer(inspector, &request, &mut |record| {
        let path = field(&record, "path").or_else(|| field(&record, "name"));
        if let (Some(Value::Number(ino)), Some(path)) = (field(&record, "inode"), path) {
            names.entry(*ino).or_insert_with(|| text(path));
        }
    })?;
    Ok(names)
}
