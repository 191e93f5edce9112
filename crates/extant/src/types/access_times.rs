//! The rule for access times.

/// Which reads change the time of the last access.
///
/// ```
/// use extant::{AccessTimes, VolumeOptions};
/// let as_linux_mounts = VolumeOptions::new().access_times(AccessTimes::Relative).lazy_times(true);
/// # let _ = as_linux_mounts;
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum AccessTimes {
    /// No read.
    #[default]
    None,
    /// The first read after a change, and the first in a day.
    Relative,
    /// Every read.
    Strict,
}
