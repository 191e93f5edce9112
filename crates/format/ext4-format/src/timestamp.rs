//! Times of inodes: 32 signed bits of seconds, and in larger inodes an extra word with two more bits of seconds and
//! the nanoseconds.

use core::fmt;

/// A point in time: seconds since 1970 and nanoseconds, as far as an inode can store it. Eight bytes, in the order of
/// time.
///
/// ```
/// use ext4_format::timestamp::Timestamp;
/// let t = Timestamp::new(1 << 32, 5);
/// assert_eq!((t.secs(), t.nanos()), (1 << 32, 5));
/// let (low, extra) = t.encode();
/// assert_eq!(Timestamp::decode(low, Some(extra)), t);
/// assert!(t < Timestamp::new(1 << 32, 6));
/// ```
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Timestamp(u64);

/// Bits of the nanoseconds; the seconds since [`Timestamp::MIN_SECS`] have the others.
const NANOS: u32 = 30;
const LAST_NANO: u32 = 999_999_999;

impl Timestamp {
    /// The beginning of 1970.
    pub const EPOCH: Self = Self::packed(0, 0);
    /// Earliest second that can be stored.
    pub const MIN_SECS: i64 = i32::MIN as i64;
    /// Latest second that fits an inode with the extra word (in the year 2446).
    pub const MAX_SECS: i64 = Self::MIN_SECS + (1 << 34) - 1;
    /// Latest second that fits an inode without it (in the year 2038).
    pub const MAX_SECS_SHORT: i64 = i32::MAX as i64;

    /// Packs seconds and nanoseconds that are in range.
    const fn packed(secs: i64, nanos: u32) -> Self {
        Self(((secs - Self::MIN_SECS) as u64) << NANOS | nanos as u64)
    }

    /// Creates a time, clamped to the range that can be stored; nanoseconds out of range become the last one.
    ///
    /// ```
    /// use ext4_format::timestamp::Timestamp;
    /// assert_eq!(Timestamp::new(i64::MAX, 0).secs(), Timestamp::MAX_SECS);
    /// ```
    #[inline]
    pub fn new(secs: i64, nanos: u32) -> Self {
        let secs = secs.clamp(Self::MIN_SECS, Self::MAX_SECS);
        Self::packed(secs, nanos.min(LAST_NANO))
    }

    /// Seconds since 1970-01-01 UTC.
    pub const fn secs(self) -> i64 {
        (self.0 >> NANOS) as i64 + Self::MIN_SECS
    }

    /// Returns the nanoseconds, below 1 000 000 000.
    pub const fn nanos(self) -> u32 {
        self.0 as u32 & ((1 << NANOS) - 1)
    }

    /// Packs the time in a word; a later time has a larger word.
    ///
    /// ```
    /// use ext4_format::timestamp::Timestamp;
    /// let t = Timestamp::new(7, 8);
    /// assert_eq!(Timestamp::from_bits(t.to_bits()), t);
    /// ```
    pub const fn to_bits(self) -> u64 {
        self.0
    }

    /// Decodes a packed word; nanoseconds out of range become the last one.
    pub fn from_bits(bits: u64) -> Self {
        let time = Self(bits);
        Self::packed(time.secs(), time.nanos().min(LAST_NANO))
    }

    /// Decodes the 32-bit seconds and the optional extra word. Nanoseconds beyond the allowed range (only broken
    /// writers leave them) are read as the last nanosecond.
    #[inline(always)]
    pub fn decode(low: u32, extra: Option<u32>) -> Self {
        let base = i64::from(low.cast_signed());
        match extra {
            None => Self::packed(base, 0),
            // The epoch bits count 2^32 s from the *signed* low word.
            Some(extra) => Self::packed(
                base + (i64::from(extra & 3) << 32),
                (extra >> 2).min(LAST_NANO),
            ),
        }
    }

    /// Returns the 32-bit seconds and the extra word.
    pub const fn encode(self) -> (u32, u32) {
        let epoch = (self.0 >> (NANOS + 32)) as u32;
        (self.secs() as u32, self.nanos() << 2 | epoch)
    }

    /// Returns the seconds alone, for an inode without room for the extra word; clamped to 32 bits.
    pub fn encode_short(self) -> u32 {
        self.secs().min(Self::MAX_SECS_SHORT) as u32
    }
}

impl Default for Timestamp {
    /// Returns the beginning of 1970.
    fn default() -> Self {
        Self::EPOCH
    }
}

impl fmt::Debug for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{:09}", self.secs(), self.nanos())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The borders given in the kernel's documentation of inode timestamps.
    #[test]
    fn borders_of_the_epoch_bits() {
        for (epoch, low, secs) in [
            (0, 0x8000_0000u32, -0x8000_0000i64),
            (0, 0xffff_ffff, -1),
            (0, 0x7fff_ffff, 0x7fff_ffff),
            (1, 0x8000_0000, 0x8000_0000),
            (1, 0, 0x1_0000_0000),
            (2, 0x8000_0000, 0x1_8000_0000),
            (3, 0x7fff_ffff, 0x3_7fff_ffff),
        ] {
            let t = Timestamp::decode(low, Some(epoch));
            assert_eq!(t, Timestamp::new(secs, 0));
            assert_eq!(t.encode(), (low, epoch));
        }
    }

    #[test]
    fn out_of_range_is_clamped() {
        let t = Timestamp::new(i64::MIN, u32::MAX);
        let (low, extra) = t.encode();
        assert_eq!(
            Timestamp::decode(low, Some(extra)),
            Timestamp::new(i64::MIN, 999_999_999)
        );
        assert_eq!(Timestamp::new(1 << 40, 0).encode_short(), 0x7fff_ffff);
    }
}
