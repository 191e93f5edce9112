//! Steps common to all copies: removing existing files, copying content, skipping refused attributes.

use crate::layers::remove_all;
use crate::meta::{Meta, Xattr};
use crate::monitor::Monitor;
use crate::paths::show;
use crate::rules::Rules;
use crate::side::{Keep, Reason, Side, SidePath, Sink, Source};
use anyhow::{Context, Result};
use ext4_format::FileType;
use rustix::io::Errno;

/// Bytes per read.
const CHUNK: usize = 1 << 20;

/// Removes an existing file at the path of a new file that is not a regular one.
pub(crate) fn clear_destination(
    dst: &dyn Side,
    to: &[u8],
    rules: &Rules,
    monitor: &dyn Monitor,
) -> Result<()> {
    let context = || dst.place(to);
    match dst.meta(to, false).with_context(context)? {
        None => Ok(()),
        Some(_) if rules.layer => remove_all(dst, to, monitor),
        Some(there) if there.kind == FileType::Directory => {
            Err(Reason::DirectoryInTheWay).with_context(context)
        }
        Some(_) => dst.remove(to).with_context(context),
    }
}

/// Returns true if the host refused a call because it needs root, or because the file system does not support it.
pub(crate) fn is_refused(errno: Errno) -> bool {
    [Errno::PERM, Errno::ACCESS, Errno::OPNOTSUPP].contains(&errno)
}

/// Calls `set` to set the attributes of a file, and warns of attributes that the destination refuses.
pub(crate) fn set_attributes_with(
    (meta, xattrs): (&Meta, &[Xattr]),
    rules: &Rules,
    place: &SidePath,
    monitor: &dyn Monitor,
    set: impl FnOnce(&mut Keep<'_>) -> Result<()>,
) -> Result<()> {
    let mut refused = |name: &[u8]| {
        let what = format!("attribute {} cannot be set here", show(name));
        monitor.refused(&what, &place.shown);
    };
    set(&mut Keep {
        meta,
        xattrs,
        rules,
        refused: &mut refused,
    })
    .with_context(|| place.clone())
}

/// Writes bytes to a new file. Blocks of zeros are left out, unless the rules keep them. Returns the end of the
/// written bytes, or 0.
pub(crate) fn write_data(sink: &dyn Sink, rules: &Rules, at: u64, data: &[u8]) -> Result<u64> {
    let hole = sink.hole().filter(|_| !rules.keep_zeros);
    let Some(block) = hole.filter(|&block| block > 0) else {
        sink.write_at(at, data)?;
        return Ok(at + data.len() as u64);
    };
    // The first block may have begun in an earlier piece.
    let first = block - (at % block as u64) as usize;
    let (head, rest) = data.split_at(first.min(data.len()));
    let (mut end, mut start, mut now) = (0, 0, 0);
    for part in std::iter::once(head).chain(rest.chunks(block)) {
        if blockdev::is_zero(part) {
            if let Some(run) = data.get(start..now).filter(|run| !run.is_empty()) {
                sink.write_at(at + start as u64, run)?;
                end = at + now as u64;
            }
            start = now + part.len();
        }
        now += part.len();
    }
    if let Some(run) = data.get(start..).filter(|run| !run.is_empty()) {
        sink.write_at(at + start as u64, run)?;
        end = at + data.len() as u64;
    }
    Ok(end)
}

/// Copies the data ranges of a file, and leaves holes out.
pub(crate) fn content(
    source: &dyn Source,
    sink: &dyn Sink,
    meta: &Meta,
    rules: &Rules,
    monitor: &dyn Monitor,
) -> Result<()> {
    let mut buf = vec![
        0;
        CHUNK
            .min(usize::try_from(meta.size).unwrap_or(CHUNK))
            .max(1)
    ];
    let (mut at, mut written) = (0, 0);
    // If the file shrinks during the copy, its data end early.
    'stretches: while at < meta.size {
        let stretch = if meta.dense {
            Some((at, meta.size))
        } else {
            source.next_data(at, meta.size)?
        };
        let Some((start, end)) = stretch else { break };
        at = start;
        while at < end {
            monitor.check()?;
            let want = usize::try_from(end - at).unwrap_or(CHUNK).min(CHUNK);
            let n = source.read_at(at, &mut buf[..want])?;
            written = write_data(sink, rules, at, &buf[..n])?.max(written);
            monitor.moved(n as u64);
            at += n as u64;
            if n < want {
                break 'stretches;
            }
        }
    }
    let size = if meta.dense { at } else { meta.size };
    if written < size {
        sink.set_size(size)?;
    }
    Ok(())
}
