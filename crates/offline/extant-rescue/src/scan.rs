//! Searches through the whole device.

use crate::notes::Progress;
use blockdev::BlockDevice;

/// Bytes that are read at once: a multiple of every block size.
const WINDOW: u64 = 1 << 20;

/// Shows every piece of `size` bytes, a power of two up to 64 KiB, with its place, until `look` returns false. A
/// window that cannot be read is read piece by piece, and unreadable pieces are left out.
pub(crate) fn pieces(
    dev: &dyn BlockDevice,
    size: u64,
    progress: Progress<'_>,
    look: &mut dyn FnMut(u64, &[u8]) -> bool,
) {
    let total = dev.len() / size * size;
    let mut bytes = vec![0; WINDOW as usize];
    let mut at = 0;
    while at < total {
        progress(at, total);
        let len = (total - at).min(WINDOW);
        let Some(window) = bytes.get_mut(..len as usize) else {
            return;
        };
        let whole = dev.read_at(at, window).is_ok();
        for (i, piece) in (0..).zip(window.chunks_exact_mut(size as usize)) {
            let place = at + i * size;
            if (whole || dev.read_at(place, piece).is_ok()) && !look(place, piece) {
                return;
            }
        }
        at += len;
    }
    progress(total, total);
}
