//! Steps common to all moves: freeing names, copying content, skipping refused attributes.

use super::layers::remove_all;
use super::{Meta, Monitor, Rules, Side, Sink, Source};
use anyhow::{Context, Result, anyhow};
use extant::FileType;

/// Bytes per read.
const CHUNK: usize = 1 << 20;

/// Frees a name for a file that is not a regular file.
pub fn make_way(dst: &dyn Side, to: &[u8], rules: &Rules) -> Result<()> {
    let context = || dst.show(to);
    match dst.meta(to, false).with_context(context)? {
        None => Ok(()),
        Some(_) if rules.layer => remove_all(dst, to),
        Some(there) if there.kind == FileType::Directory => Err(anyhow!(
            "{}: a directory is in the way: remove it first",
            context()
        )),
        Some(_) => dst.remove(to).with_context(context),
    }
}

/// Returns whether the host refused: only root may do this, or the file system does not support it.
pub fn is_refusal(e: &anyhow::Error) -> bool {
    use rustix::io::Errno as E;
    e.downcast_ref::<E>()
        .is_some_and(|e| [E::PERM, E::ACCESS, E::OPNOTSUPP].contains(e))
}

/// Skips an attribute that the other side refuses, with a warning.
pub fn skip_refused(set: Result<()>, name: &[u8], place: &str, monitor: &Monitor) -> Result<()> {
    match set {
        Err(e) if is_refusal(&e) => {
            monitor.warn(
                &format!("attribute {} cannot be set here", crate::show::show(name)),
                place,
            );
            Ok(())
        }
        other => other.with_context(|| place.to_string()),
    }
}

/// Copies the content of a file without its holes.
pub fn content(source: &dyn Source, sink: &dyn Sink, meta: &Meta, monitor: &Monitor) -> Result<()> {
    let mut buf = vec![
        0;
        CHUNK
            .min(usize::try_from(meta.size).unwrap_or(CHUNK))
            .max(1)
    ];
    let mut at = 0;
    // The ranges were data when they were listed; a file that shrinks meanwhile ends early.
    'stretches: while at < meta.size {
        let stretch = if meta.dense {
            Some((at, meta.size))
        } else {
            source.next_data(at, meta.size)?
        };
        let Some((start, end)) = stretch else { break };
        at = start;
        while at < end {
            crate::interrupt::check()?;
            let want = usize::try_from(end - at).unwrap_or(CHUNK).min(CHUNK);
            let n = source.read_at(at, &mut buf[..want])?;
            sink.write_at(at, &buf[..n])?;
            monitor.moved(n as u64);
            at += n as u64;
            if n < want {
                break 'stretches;
            }
        }
    }
    if at < meta.size && !meta.dense {
        sink.set_size(meta.size)?;
    }
    Ok(())
}
