//! The time that new and changed images are stamped with: the clock's, or a fixed time for reproducible builds.

use anyhow::{Context, Result};
use std::sync::{Mutex, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

/// The variable of reproducible builds. A new file system also clamps the times of its files to this time.
const EPOCH: &str = "SOURCE_DATE_EPOCH";

/// The variable of e2fsprogs, which takes precedence over `SOURCE_DATE_EPOCH`.
const FAKE: &str = "E2FSPROGS_FAKE_TIME";

/// Reads a variable as a number of seconds.
fn said(name: &str) -> Result<Option<i64>> {
    let Some(text) = std::env::var_os(name) else {
        return Ok(None);
    };
    let seconds = text.to_str().and_then(|text| text.parse().ok());
    seconds
        .map(Some)
        .with_context(|| format!("{name} is not a number of seconds"))
}

/// Reads `SOURCE_DATE_EPOCH`.
pub fn source_date_epoch() -> Result<Option<i64>> {
    said(EPOCH)
}

/// Reads `E2FSPROGS_FAKE_TIME`.
pub fn fake() -> Result<Option<i64>> {
    said(FAKE)
}

/// The time that [`set`] has set.
static SET: Mutex<Option<i64>> = Mutex::new(None);

/// Sets the time to stamp with from now on. This time overrides the environment.
pub fn set(seconds: i64) {
    // A panic cannot leave a number half written.
    *SET.lock().unwrap_or_else(PoisonError::into_inner) = Some(seconds);
}

/// Returns the fixed time to stamp with, if the clock is not to be used.
pub fn fixed() -> Result<Option<i64>> {
    let set = *SET.lock().unwrap_or_else(PoisonError::into_inner);
    Ok(set.or(fake()?).or(source_date_epoch()?))
}

/// Returns the time to stamp with, in seconds since 1970.
pub fn stamp() -> Result<i64> {
    if let Some(seconds) = fixed()? {
        return Ok(seconds);
    }
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    Ok(since.map_or(0, |since| {
        i64::try_from(since.as_secs()).unwrap_or(i64::MAX)
    }))
}
