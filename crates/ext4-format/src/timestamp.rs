//! Times of inodes: 32 signed bits of seconds, and in inodes with room for it an extra word with
//! two more bits of seconds and the nanoseconds.

/// A point in time: seconds since 1970 and nanoseconds below 10^9.
///
/// ```
/// use ext4_format::timestamp::Timestamp;
/// let t = Timestamp { secs: 1 << 32, nanos: 5 };
/// let (low, extra) = t.encode();
/// assert_eq!(Timestamp::decode(low, Some(extra)), t);
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Timestamp {
    /// Seconds since 1970-01-01 UTC.
    pub secs: i64,
    /// Nanoseconds, below 1 000 000 000.
    pub nanos: u32,
}

impl Timestamp {
    /// Earliest second that can be stored.
    pub const MIN_SECS: i64 = i32::MIN as i64;
    /// Latest second that fits an inode with the extra word (in the year 2446).
    pub const MAX_SECS: i64 = Self::MIN_SECS + (1 << 34) - 1;
    /// Latest second that fits an inode without it (in the year 2038).
    pub const MAX_SECS_SHORT: i64 = i32::MAX as i64;

    /// A time, clamped to what can be stored; nanoseconds out of range become the last one.
    ///
    /// ```
    /// use ext4_format::timestamp::Timestamp;
    /// assert_eq!(Timestamp::new(i64::MAX, 0).secs, Timestamp::MAX_SECS);
    /// ```
    pub fn new(secs: i64, nanos: u32) -> Self {
        Self {
            secs: secs.clamp(Self::MIN_SECS, Self::MAX_SECS),
            nanos: nanos.min(999_999_999),
        }
    }

    /// From the 32-bit seconds and the extra word, where there is one. Nanoseconds beyond the
    /// allowed range (only broken writers leave them) are read as the last nanosecond.
    pub fn decode(low: u32, extra: Option<u32>) -> Self {
        let base = i64::from(low.cast_signed());
        match extra {
            None => Self {
                secs: base,
                nanos: 0,
            },
            Some(extra) => Self {
                // The epoch bits count 2^32 s from the *signed* low word.
                secs: base + (i64::from(extra & 3) << 32),
                nanos: (extra >> 2).min(999_999_999),
            },
        }
    }

    /// The 32-bit seconds and the extra word. A time out of range is clamped.
    pub fn encode(self) -> (u32, u32) {
        let t = Self::new(self.secs, self.nanos);
        let low = t.secs as u32;
        let epoch = ((t.secs - i64::from(low.cast_signed())) >> 32) as u32 & 3;
        (low, (t.nanos << 2) | epoch)
    }

    /// The seconds alone, for an inode without room for the extra word; clamped to 32 bits.
    pub fn encode_short(self) -> u32 {
        self.secs.clamp(Self::MIN_SECS, Self::MAX_SECS_SHORT) as u32
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
            assert_eq!(t, Timestamp { secs, nanos: 0 });
            assert_eq!(t.encode(), (low, epoch));
        }
    }

    #[test]
    fn out_of_range_is_clamped() {
        let t = Timestamp {
            secs: i64::MIN,
            nanos: u32::MAX,
        };
        let (low, extra) = t.encode();
        assert_eq!(
            Timestamp::decode(low, Some(extra)),
            Timestamp::new(i64::MIN, 999_999_999)
        );
        assert_eq!(Timestamp::new(1 << 40, 0).encode_short(), 0x7fff_ffff);
    }
}
