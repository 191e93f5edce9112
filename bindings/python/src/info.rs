//! Properties of a volume, with the keys of `extant info --json`.

use crate::error::raise;
use extant::Volume;
use extant::format::superblock::{STATE_ERROR, STATE_VALID};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict};

/// Returns a time of the superblock in seconds since 1970, or `None` for never.
fn when(low: u32, high: u8) -> Option<i64> {
    Some(i64::from(low) | i64::from(high) << 32).filter(|&seconds| seconds != 0)
}

/// Returns the text before the first NUL.
fn text(bytes: &[u8]) -> String {
    let end = bytes.iter().position(|&byte| byte == 0);
    String::from_utf8_lossy(&bytes[..end.unwrap_or(bytes.len())]).into_owned()
}

pub fn info<'py>(py: Python<'py>, volume: &Volume) -> PyResult<Bound<'py, PyDict>> {
    let geometry = volume.geometry();
    let found = py.detach(|| Ok((volume.superblock()?, volume.statfs()?, volume.label()?)));
    let (sb, statfs, label) = found.map_err(|e| raise(&e, None))?;
    let out = PyDict::new(py);
    let state = sb.state.get();
    out.set_item("label", label)?;
    out.set_item("uuid", PyBytes::new(py, &sb.uuid))?;
    out.set_item("last_mounted", text(&sb.last_mounted))?;
    out.set_item("features", geometry.features.names())?;
    out.set_item("clean", state & STATE_VALID != 0)?;
    out.set_item("errors", state & STATE_ERROR != 0)?;
    out.set_item("block_size", geometry.block_size)?;
    out.set_item("blocks", geometry.blocks_count)?;
    out.set_item("reserved_blocks", geometry.reserved_blocks)?;
    out.set_item("free_blocks", statfs.free_blocks)?;
    out.set_item("overhead_blocks", sb.overhead_blocks.get())?;
    out.set_item("inode_size", geometry.inode_size)?;
    out.set_item("inodes", geometry.inodes_count)?;
    out.set_item("free_inodes", statfs.free_inodes)?;
    out.set_item("first_inode", geometry.first_ino)?;
    out.set_item("groups", geometry.groups)?;
    out.set_item("blocks_per_group", geometry.blocks_per_group)?;
    out.set_item("inodes_per_group", geometry.inodes_per_group)?;
    out.set_item("descriptor_size", geometry.desc_size)?;
    out.set_item("created", when(sb.mkfs_time.get(), sb.mkfs_time_hi))?;
    out.set_item("written", when(sb.wtime.get(), sb.wtime_hi))?;
    out.set_item("mounted", when(sb.mtime.get(), sb.mtime_hi))?;
    out.set_item("checked", when(sb.lastcheck.get(), sb.lastcheck_hi))?;
    out.set_item("mounts", sb.mnt_count.get())?;
    out.set_item("orphans", volume.orphans_left())?;
    let journal = volume.journal().map(|found| {
        let (out, recovery) = (PyDict::new(py), volume.recovery());
        out.set_item("inode", geometry.journal_ino)?;
        out.set_item("blocks", found.max_len)?;
        let bytes = u64::from(found.max_len) * u64::from(found.block_size);
        out.set_item("bytes", bytes)?;
        out.set_item("features", found.features.names())?;
        out.set_item("sequence", found.sequence.0)?;
        out.set_item("transactions_to_replay", recovery.transactions)?;
        out.set_item("blocks_to_replay", recovery.blocks)?;
        Ok::<_, PyErr>(out)
    });
    out.set_item("journal", journal.transpose()?)?;
    Ok(out)
}
