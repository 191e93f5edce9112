//! The time that new and changed images are stamped with: the clock's, or that of a build that is to come to the same bytes
//! whenever it runs.

use anyhow::{Context, Result};
use std::sync::{Mutex, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

/// The variable of reproducible builds. A new file system takes it for the latest time of its files, too.
const EPOCH: &str = "SOURCE_DATE_EPOCH";

/// The variable of e2fsprogs, which goes before the other.
const FAKE: &str = "E2FSPROGS_FAKE_TIME";

/// The seconds that a variable says.
fn said(name: &str) -> Result<Option<i64>> {
    let Some(text) = std::env::var_os(name) else {
        return Ok(None);
    };
    let seconds = text.to_str().and_then(|text| text.parse().ok());
    seconds
        .map(Some)
        .with_context(|| format!("{name} is no number of seconds"))
}

/// `SOURCE_DATE_EPOCH`.
pub fn source_date_epoch() -> Result<Option<i64>> {
    said(EPOCH)
}

/// `E2FSPROGS_FAKE_TIME`.
pub fn fake() -> Result<Option<i64>> {
    said(FAKE)
}

/// The time that [`set`] has set.
static SET: Mutex<Option<i64>> = Mutex::new(None);

/// Sets the time to stamp with from now on, over what the environment says.
pub fn set(seconds: i64) {
    // A panic cannot leave a number half written.
    *SET.lock().unwrap_or_else(PoisonError::into_inner) = Some(seconds);
}

/// The time to stamp with that is not the clock's, if one is said.
pub fn fixed() -> Result<Option<i64>> {
    let set = *SET.lock().unwrap_or_else(PoisonError::into_inner);
    Ok(set.or(fake()?).or(source_date_epoch()?))
}

/// The time to stamp with, in seconds since 1970.
pub fn stamp() -> Result<i64> {
    if let Some(seconds) = fixed()? {
        return Ok(seconds);
    }
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    Ok(since.map_or(0, |since| {
        i64::try_from(since.as_secs()).unwrap_or(i64::MAX)
    }))
}
