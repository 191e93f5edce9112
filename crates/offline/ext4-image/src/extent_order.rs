//! Extents of a damaged mapping, brought into logical order.

use ext4_format::extent::Extent;

/// Keeps the extents of a damaged mapping in logical order. An extent that begins inside the previous one is dropped, because its
/// beginning may be wrong. If two extents in order begin there, the length of the previous one is wrong, and is reduced.
///
/// ```
/// use ext4_format::{BlockNr, extent::Extent};
/// use ext4_image::ExtentOrder;
/// let extent = |logical, len| Extent {
///     logical,
///     len,
///     physical: BlockNr(100 + u64::from(logical)),
///     unwritten: false,
/// };
/// let (mut order, mut kept) = (ExtentOrder::default(), Vec::new());
/// let in_order = [extent(0, 90), extent(2, 2), extent(5, 1)].map(|next| order.push(&mut kept, next));
/// assert_eq!(in_order, [true, false, false]);
/// assert_eq!(kept, [extent(0, 2), extent(2, 2), extent(5, 1)]);
/// ```
#[derive(Debug, Default)]
pub struct ExtentOrder {
    /// The extent that was read last, if it begins inside the one before.
    covered: Option<Extent>,
}

impl ExtentOrder {
    /// Appends the next extent of the mapping if it can be kept, and returns whether it begins after all extents before.
    pub fn push(&mut self, kept: &mut Vec<Extent>, extent: Extent) -> bool {
        let last = kept.last_mut();
        let Some(last) = last.filter(|last| u64::from(extent.logical) < last.end()) else {
            self.covered = None;
            kept.push(extent);
            return true;
        };
        match self.covered.take() {
            Some(first) if u64::from(extent.logical) >= first.end() => {
                let len = u64::from(first.logical - last.logical);
                // Often the next blocks of the device are those of the next extent.
                let to_next = first.physical.0.checked_sub(last.physical.0);
                let to_next = to_next.filter(|blocks| *blocks > 0);
                last.len = len.min(to_next.unwrap_or(len)) as u32; // at most `len`
                kept.extend([first, extent]);
            }
            _ if extent.logical > last.logical => self.covered = Some(extent),
            _ => {}
        }
        false
    }
}
