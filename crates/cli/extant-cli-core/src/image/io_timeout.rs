//! Time after which requests to a server fail (`--io-timeout`, or the variable `EXTANT_IO_TIMEOUT`).

use anyhow::{Context, Result};
use extant_nbd::Options;
use extant_terminal::{interrupt, output};
use std::ffi::OsString;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

/// Name of the variable. `extant-remote` reads it, too.
pub const VARIABLE: &str = "EXTANT_IO_TIMEOUT";

/// The time, and its text.
static TIME: OnceLock<(Duration, OsString)> = OnceLock::new();

/// Whether this process is about to lose the right to connect.
static CONFINED: AtomicBool = AtomicBool::new(false);

/// Whether waits for a server that is silent or gone end.
static BOUND: AtomicBool = AtomicBool::new(false);

/// Sets the time from the option, or from the variable if the option is not given.
///
/// # Errors
/// The text is not a time.
pub fn set(option: Option<&str>) -> Result<()> {
    let variable = || std::env::var_os(VARIABLE).filter(|text| !text.is_empty());
    let (text, name) = match option {
        Some(text) => (OsString::from(text), "--io-timeout"),
        None => match variable() {
            Some(text) => (text, VARIABLE),
            None => return Ok(()),
        },
    };
    let time = Options::parse_io_timeout(&text.to_string_lossy()).context(name)?;
    TIME.get_or_init(|| (time, text));
    Ok(())
}

/// Returns the time, if it is set.
pub fn get() -> Option<Duration> {
    TIME.get().map(|(time, _)| *time)
}

/// Returns the text of the time, for another process.
pub fn text() -> Option<&'static OsString> {
    TIME.get().map(|(_, text)| text)
}

/// Notes that this process is about to lose the right to connect.
pub fn will_be_confined() {
    CONFINED.store(true, Ordering::Relaxed);
}

/// Returns whether a lost connection must be replaced by another process.
pub fn needs_other_process() -> bool {
    get().is_some() && CONFINED.load(Ordering::Relaxed)
}

/// Bounds the waits for a server that is silent or gone, because the mount has ended: without a user, nobody would end them. Each request has
/// the time of [`options`] from then on, so that a server that is only slow gets all data.
pub fn bound() {
    BOUND.store(true, Ordering::Relaxed);
}

/// Length of a wait after which a note is printed for a user who wants to wait.
const NOTED_AFTER: Duration = Duration::from_secs(5);

/// Whether the note was printed.
static NOTED: AtomicBool = AtomicBool::new(false);

/// Prints a note about the first long wait, if the user has set a time: the address may be wrong.
pub fn note_wait(address: &str, waited: Duration) {
    if get().is_some() && waited >= NOTED_AFTER && !NOTED.swap(true, Ordering::Relaxed) {
        output::note(format_args!(
            "{address}: no answer from the server for {} s: still waiting, and Ctrl-C ends it",
            NOTED_AFTER.as_secs()
        ));
    }
}

/// Returns options of a connection that waits for as long as the user wants. After the end of a mount a request waits for `at_end`.
pub fn options(address: &str, at_end: Duration) -> Options {
    let address = address.to_owned();
    let keep_waiting = move |waited| {
        if !BOUND.load(Ordering::Relaxed) {
            note_wait(&address, waited);
            return interrupt::check().map_err(io::Error::other);
        }
        // The signal that ended the mount, or that of `extant umount`, does not end the last writes to a slow server.
        if waited < at_end {
            return Ok(());
        }
        let why = "the mount has ended, and the server is silent or gone: changes since the last sync are lost";
        Err(io::Error::other(why))
    };
    Options {
        io_timeout: get(),
        keep_waiting: Some(Arc::new(keep_waiting)),
        ..Options::default()
    }
}
