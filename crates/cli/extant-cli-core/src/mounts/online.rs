//! An image in use: the snapshot that its mount keeps, read over the mount's socket.

use crate::mounts::mounted::Mounted;
use anyhow::{Context, Result};
use blockdev::{BlockDevice, MemDevice, Overlay};
use ext4_format::features::{Features, RoCompat};
use ext4_format::superblock::{RawSuperblock, SUPERBLOCK_OFFSET, SUPERBLOCK_SIZE};
use extant::{Volume, VolumeOptions};
use extant_fuse::control::Client;
use lockmeter::{Mutex, MutexGuard, lock_class};
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

lock_class!(
    /// Connections to a mount whose snapshot is read.
    Connections = "snapshot connections"
);

/// Opens the image of a mount as of now. Files that are unlinked but still open have been deleted in it, as when a
/// volume is opened after a crash; that happens in memory.
pub fn image(mounted: &Mounted, threads: usize) -> Result<Arc<dyn BlockDevice>> {
    let snapshot: Arc<dyn BlockDevice> = Arc::new(OnlineSnapshot::take(mounted, threads)?);
    if !has_orphans(&*snapshot)? {
        return Ok(snapshot);
    }
    let store = MemDevice::new(Overlay::<MemDevice, MemDevice>::store_len(snapshot.len()));
    let overlay = Arc::new(Overlay::create(Arc::clone(&snapshot), store)?);
    let opened = VolumeOptions::new()
        .background(false)
        .open_device(Arc::clone(&overlay) as _);
    Ok(match opened.and_then(Volume::close) {
        Ok(()) => overlay,
        // The snapshot is too broken to open; the caller reports the damage.
        Err(_) => snapshot,
    })
}

fn has_orphans(device: &dyn BlockDevice) -> Result<bool> {
    let mut bytes = [0; SUPERBLOCK_SIZE];
    device.read_at(SUPERBLOCK_OFFSET, &mut bytes)?;
    let Ok(sb) = RawSuperblock::parse(&bytes) else {
        return Ok(false);
    };
    let present = Features::of(&sb)
        .ro_compat
        .contains(RoCompat::ORPHAN_PRESENT);
    Ok(sb.last_orphan.get() != 0 || present)
}

/// The snapshot of a mounted image, as a device to read. Dropping the device ends the snapshot.
struct OnlineSnapshot {
    len: u64,
    connections: Vec<Mutex<Client, Connections>>,
    turn: AtomicUsize,
}

impl OnlineSnapshot {
    /// Asks the mount for a snapshot of this moment. `threads` is the number of threads that can read at once.
    fn take(mounted: &Mounted, threads: usize) -> Result<Self> {
        let mut first = mounted.client()?;
        let len = first.snapshot(false).with_context(|| mounted.name())?;
        let mut connections = vec![Mutex::new(first)];
        for _ in 1..threads.clamp(1, 16) {
            let mut more = mounted.client()?;
            more.snapshot(true).with_context(|| mounted.name())?;
            connections.push(Mutex::new(more));
        }
        Ok(Self {
            len,
            connections,
            turn: AtomicUsize::new(0),
        })
    }

    /// Returns an idle connection, or waits for the next one.
    fn connection(&self) -> Option<MutexGuard<'_, Client, Connections>> {
        let free = self.connections.iter().find_map(Mutex::try_lock);
        free.or_else(|| {
            let turn = self.turn.fetch_add(1, Ordering::Relaxed);
            let next = self.connections.get(turn % self.connections.len().max(1));
            next.map(Mutex::lock)
        })
    }
}

impl BlockDevice for OnlineSnapshot {
    fn len(&self) -> u64 {
        self.len
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        let connection = self.connection();
        let mut connection = connection.ok_or(io::ErrorKind::NotConnected)?;
        connection.read_snapshot(offset, buf)
    }

    blockdev::only_read!();
}
