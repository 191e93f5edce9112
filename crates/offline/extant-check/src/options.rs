//! How an image is checked.

/// How an image is checked.
///
/// ```
/// use extant_check::CheckOptions;
/// let options = CheckOptions { threads: 1, ..CheckOptions::default() };
/// assert!(options.replay);
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CheckOptions {
    /// Threads that work on the image; 0 is as many as the machine has processors.
    pub threads: usize,
    /// Findings of each severity that are kept with their text; the others are only counted.
    pub max_findings: usize,
    /// Whether an image whose journal was not replayed is seen as it will be after that. Nothing is written.
    /// Otherwise the image is checked without a replay.
    pub replay: bool,
    /// Whether a journal on another device is known to be there. It is not checked; otherwise it counts as missing.
    pub external_journal: bool,
}

impl Default for CheckOptions {
    fn default() -> Self {
        Self {
            threads: 0,
            max_findings: 1000,
            replay: true,
            external_journal: false,
        }
    }
}
