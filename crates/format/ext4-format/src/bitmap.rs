//! Bitmaps of blocks and inodes: bit `n` is bit `n % 8` of byte `n / 8`; 1 is "in use".
//!
//! All functions take any range: bits beyond the slice read as in use and are not written, so a
//! hostile number cannot reach past a bitmap.

use crate::checksum::crc32c;
use crate::error::{FormatError, Result, Where};
use crate::geometry::Geometry;
use crate::group_desc::GroupDesc;
use crate::types::{BlockNr, GroupNr};

/// Returns whether a bit is set; bits beyond the slice count as set.
///
/// ```
/// use ext4_format::bitmap;
/// let mut map = [0; 4];
/// bitmap::set_range(&mut map, 3, 10);
/// assert!(bitmap::test(&map, 3) && bitmap::test(&map, 12) && !bitmap::test(&map, 13));
/// assert_eq!(bitmap::find_zero_run(&map, 0, 32, 4), Some(13));
/// assert_eq!(bitmap::count_zeros(&map, 32), 22);
/// ```
#[inline]
pub fn test(map: &[u8], bit: u32) -> bool {
    map.get(bit as usize / 8)
        .is_none_or(|byte| byte >> (bit % 8) & 1 != 0)
}

/// Sets a bit; returns whether it was clear before. Beyond the slice: no effect, `false`.
#[inline]
pub fn set(map: &mut [u8], bit: u32) -> bool {
    let Some(byte) = map.get_mut(bit as usize / 8) else {
        return false;
    };
    let mask = 1 << (bit % 8);
    let was_clear = *byte & mask == 0;
    *byte |= mask;
    was_clear
}

/// Clears a bit; returns whether it was set before. Beyond the slice: no effect, `false`.
#[inline]
pub fn clear(map: &mut [u8], bit: u32) -> bool {
    let Some(byte) = map.get_mut(bit as usize / 8) else {
        return false;
    };
    let mask = 1 << (bit % 8);
    let was_set = *byte & mask != 0;
    *byte &= !mask;
    was_set
}

/// Sets `len` bits from `start`; returns how many were clear before.
pub fn set_range(map: &mut [u8], start: u32, len: u32) -> u32 {
    for_bytes(map, start, len, |byte, mask| {
        let fresh = (!*byte & mask).count_ones();
        *byte |= mask;
        fresh
    })
}

/// Clears `len` bits from `start`; returns how many were set before.
pub fn clear_range(map: &mut [u8], start: u32, len: u32) -> u32 {
    for_bytes(map, start, len, |byte, mask| {
        let gone = (*byte & mask).count_ones();
        *byte &= !mask;
        gone
    })
}

/// Calls `f` with each byte of a range of bits and the mask of the range's bits in it.
fn for_bytes(map: &mut [u8], start: u32, len: u32, f: impl Fn(&mut u8, u8) -> u32) -> u32 {
    let end = (u64::from(start) + u64::from(len)).min(map.len() as u64 * 8);
    let mut at = u64::from(start);
    let mut sum = 0;
    while at < end {
        let low = at % 8;
        let n = (8 - low).min(end - at); // 1..=8
        let mask = (0xffu8 >> (8 - n)) << low;
        // at < end <= bits of the slice
        sum += f(&mut map[(at / 8) as usize], mask);
        at += n;
    }
    sum
}

/// Returns the number of clear bits among the first `bits`; bits beyond the slice are not clear.
pub fn count_zeros(map: &[u8], bits: u32) -> u32 {
    let bits = (bits as usize).min(map.len() * 8);
    let (whole, rest) = map.split_at(bits / 8);
    let (words, bytes) = whole.as_chunks::<8>();
    let zeros: u32 = words
        .iter()
        .map(|word| u64::from_ne_bytes(*word).count_zeros())
        .chain(bytes.iter().map(|byte| byte.count_zeros()))
        .sum();
    let tail = rest
        .first()
        .map_or(0, |b| (!b & ((1u16 << (bits % 8)) - 1) as u8).count_ones());
    zeros + tail
}

/// Returns the first clear bit in `from..to`.
#[inline]
pub fn find_zero(map: &[u8], from: u32, to: u32) -> Option<u32> {
    find(map, from, to, 0xff)
}

/// Returns the first set bit in `from..to`; bits beyond the slice do not count.
#[inline]
pub fn find_one(map: &[u8], from: u32, to: u32) -> Option<u32> {
    find(map, from, to, 0)
}

/// Returns the first bit in `from..to` that differs from those of `skip`, 0 or 0xff.
fn find(map: &[u8], from: u32, to: u32, skip: u8) -> Option<u32> {
    let to = u64::from(to).min(map.len() as u64 * 8);
    let mut at = u64::from(from);
    while at < to {
        let i = (at / 8) as usize;
        if at % 8 == 0 {
            // Whole words that hold nothing new are skipped; the slice bounds i + 8.
            if let Some(word) = map.get(i..i + 8)
                && word.iter().all(|&b| b == skip)
            {
                at += 64;
                continue;
            }
        }
        let fresh = (map[i] ^ skip) >> (at % 8); // at < to <= bits of the slice
        if fresh != 0 {
            at += u64::from(fresh.trailing_zeros());
            return (at < to).then_some(at as u32);
        }
        at = (at / 8 + 1) * 8;
    }
    None
}

/// Returns the start of the first run of at least `len` clear bits inside `from..to`.
pub fn find_zero_run(map: &[u8], from: u32, to: u32, len: u32) -> Option<u32> {
    let mut from = from;
    loop {
        let start = find_zero(map, from, to)?;
        let need = start.checked_add(len)?;
        if need > to || need as usize > map.len() * 8 {
            return None;
        }
        match find_one(map, start, need) {
            None => return Some(start),
            Some(used) => from = used + 1,
        }
    }
}

/// Sets all bits from `bits` to the end, as the bits beyond a group's end must be.
pub fn pad(map: &mut [u8], bits: u32) {
    // Whole bytes at once: of a million groups nearly all of the inode bitmap is padding.
    let whole = bits.div_ceil(8);
    set_range(map, bits, whole.saturating_mul(8) - bits);
    if let Some(rest) = map.get_mut(whole as usize..) {
        rest.fill(0xff);
    }
}

/// Returns whether all bits from `bits` to the end are set.
pub fn is_padded(map: &[u8], bits: u32) -> bool {
    find_zero(map, bits, u32::MAX).is_none()
}

/// Returns the checksum of a block bitmap, to be stored in the group's descriptor; `None` without `metadata_csum`.
/// Short descriptors keep the low 16 bits; for them this function truncates the checksum.
pub fn block_bitmap_csum(map: &[u8], geo: &Geometry) -> Option<u32> {
    csum(map, geo.blocks_per_group / geo.cluster_ratio, geo)
}

/// Returns the checksum of an inode bitmap, like [`block_bitmap_csum`].
pub fn inode_bitmap_csum(map: &[u8], geo: &Geometry) -> Option<u32> {
    csum(map, geo.inodes_per_group, geo)
}

fn csum(map: &[u8], bits: u32, geo: &Geometry) -> Option<u32> {
    if !geo.features.has_metadata_csum() {
        return None;
    }
    let n = (bits as usize / 8).min(map.len());
    let crc = crc32c(geo.csum_seed, &map[..n]);
    Some(if geo.desc_size >= 64 {
        crc
    } else {
        crc & 0xffff
    })
}

/// Checks a block bitmap against the checksum in its descriptor. A group with
/// [`BLOCK_UNINIT`](crate::group_desc::BLOCK_UNINIT) has no bitmap to check.
///
/// # Errors
/// [`FormatError::Checksum`].
pub fn verify_block_bitmap(map: &[u8], d: &GroupDesc, geo: &Geometry, g: GroupNr) -> Result<()> {
    verify(
        block_bitmap_csum(map, geo),
        d.block_bitmap_csum,
        "block bitmap",
        g,
    )
}

/// Checks an inode bitmap, like [`verify_block_bitmap`].
///
/// # Errors
/// [`FormatError::Checksum`].
pub fn verify_inode_bitmap(map: &[u8], d: &GroupDesc, geo: &Geometry, g: GroupNr) -> Result<()> {
    verify(
        inode_bitmap_csum(map, geo),
        d.inode_bitmap_csum,
        "inode bitmap",
        g,
    )
}

fn verify(computed: Option<u32>, stored: u32, what: &'static str, group: GroupNr) -> Result<()> {
    match computed {
        Some(computed) if computed != stored => Err(FormatError::Checksum {
            what,
            at: Where::Group(group),
            stored,
            computed,
        }),
        _ => Ok(()),
    }
}

/// Fills `map` (a whole block) as the block bitmap of a group in which only superblock, descriptors, and the group's
/// own bitmaps and inode table are allocated. [`BLOCK_UNINIT`](crate::group_desc::BLOCK_UNINIT) implies this bitmap.
pub fn init_block_bitmap(map: &mut [u8], geo: &Geometry, group: GroupNr, desc: &GroupDesc) {
    map.fill(0);
    let ratio = geo.cluster_ratio;
    set_range(map, 0, geo.group_base_meta_blocks(group).div_ceil(ratio));
    let mut mark = |start: BlockNr, len: u32| {
        for b in 0..u64::from(len) {
            // Tables of a flex group may be in other groups, or extend over a group's end.
            if let Some((g, bit)) = geo.group_of_block(BlockNr(start.0.saturating_add(b)))
                && g == group
            {
                set(map, bit);
            }
        }
    };
    mark(desc.block_bitmap, 1);
    mark(desc.inode_bitmap, 1);
    mark(desc.inode_table, geo.itable_blocks());
    pad(map, geo.bits_in_group(group));
}

/// Fills `map` (a whole block) as the inode bitmap of a group whose first `used` inodes are.
pub fn init_inode_bitmap(map: &mut [u8], geo: &Geometry, used: u32) {
    map.fill(0);
    set_range(map, 0, used);
    pad(map, geo.inodes_per_group);
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn agrees_with_a_vector_of_bools(
            bytes in proptest::collection::vec(prop_oneof![Just(0u8), Just(255), any::<u8>()], 0..40),
            from in 0u32..400, len in 0u32..400, run in 1u32..40,
        ) {
            let n = bytes.len() as u32 * 8;
            let model: Vec<bool> = (0..n).map(|i| bytes[i as usize / 8] >> (i % 8) & 1 == 1).collect();
            let to = from + len;
            let inside = |i: &u32| *i >= from && *i < to;
            prop_assert_eq!(find_zero(&bytes, from, to), (0..n).filter(inside).find(|&i| !model[i as usize]));
            prop_assert_eq!(find_one(&bytes, from, to), (0..n).filter(inside).find(|&i| model[i as usize]));
            prop_assert_eq!(count_zeros(&bytes, to), (0..n.min(to)).filter(|&i| !model[i as usize]).count() as u32);
            let end = n.min(to);
            let first = (from..end).find(|&i| i + run <= end && (i..i + run).all(|k| !model[k as usize]));
            prop_assert_eq!(find_zero_run(&bytes, from, to, run), first);
            let mut set = bytes.clone();
            let fresh = set_range(&mut set, from, len);
            for i in 0..n {
                prop_assert_eq!(test(&set, i), model[i as usize] || inside(&i));
            }
            prop_assert_eq!(fresh, count_zeros(&bytes, n) - count_zeros(&set, n));
            let mut gone = bytes.clone();
            clear_range(&mut gone, from, len);
            for i in 0..n {
                prop_assert_eq!(test(&gone, i), model[i as usize] && !inside(&i));
            }
        }
    }

    #[test]
    fn padding_and_bits_beyond() {
        let mut map = [0; 2];
        pad(&mut map, 11);
        assert_eq!(map, [0, 0xf8]);
        for bits in 0..20 {
            let (mut map, mut expected) = ([0; 2], [0; 2]);
            pad(&mut map, bits);
            set_range(&mut expected, bits, u32::MAX);
            assert_eq!(map, expected);
        }
        assert!(is_padded(&map, 11) && !is_padded(&map, 10));
        assert!(test(&map, 1000) && !set(&mut map, 1000) && !clear(&mut map, 1000));
        assert_eq!(set_range(&mut map, u32::MAX, u32::MAX), 0);
    }
}
