//! SIGINT, SIGTERM and SIGHUP raise a flag that long work looks at between files, so that volumes are
//! closed and images stay consistent. A second signal ends the process at once; the journal then
//! recovers the image.

pub use crate::interrupted::{Interrupted, check};

use crate::interrupted::RAISED;
use crate::output::{complain, note};
use anyhow::{Context, Result};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::flag;
use std::io::Read;
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread;

/// The next signal ends the process.
static LAST: LazyLock<Arc<AtomicBool>> = LazyLock::new(Arc::default);

/// Registers the handlers.
pub fn install() -> Result<()> {
    for signal in [SIGINT, SIGTERM, SIGHUP] {
        // The order matters: every signal sets the flag first, and ends the process only if an earlier signal set
        // `LAST`.
        flag::register(signal, Arc::clone(&RAISED))
            .and_then(|_| {
                flag::register_conditional_shutdown(signal, 128 + signal, Arc::clone(&LAST))
            })
            .and_then(|_| flag::register(signal, Arc::clone(&LAST)))
            .context("install signal handlers")?;
    }
    Ok(())
}

/// Returns the flag itself.
pub fn flag() -> Arc<AtomicBool> {
    Arc::clone(&RAISED)
}

/// Effect of a signal on the current work.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Work {
    /// The work polls the flag.
    Asks,
    /// Nothing was changed yet: the process exits.
    Ends,
    /// A change is being written: the user is notified.
    Finishes,
}

/// The current work. Locked while the process exits.
static WORK: Mutex<Work> = Mutex::new(Work::Asks);

fn work() -> MutexGuard<'static, Work> {
    // The value is valid even if another thread panicked.
    WORK.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Work during which a signal ends the process at once, because nothing is changed yet: reading, planning, questions.
pub struct Harmless(());

/// Begins such work, which lasts until the value is dropped.
///
/// # Errors
/// The user has asked to stop already.
pub fn harmless() -> Result<Harmless> {
    static LISTENS: OnceLock<Result<(), String>> = OnceLock::new();
    let listens = LISTENS.get_or_init(|| listen().map_err(|error| format!("{error:#}")));
    listens.clone().map_err(anyhow::Error::msg)?;
    *work() = Work::Ends;
    let guard = Harmless(());
    check()?;
    Ok(guard)
}

impl Harmless {
    /// Switches to writing a change. From then on a first signal is reported, and a second one ends the process; the next
    /// command takes an unfinished change back.
    ///
    /// # Errors
    /// The user has asked to stop.
    pub fn now_write(self) -> Result<Writing> {
        std::mem::forget(self);
        *work() = Work::Finishes;
        let guard = Writing(());
        check()?;
        Ok(guard)
    }
}

/// Guard for work that must be finished, until it is dropped.
pub struct Writing(());

impl Drop for Harmless {
    fn drop(&mut self) {
        *work() = Work::Asks;
    }
}

impl Drop for Writing {
    fn drop(&mut self) {
        *work() = Work::Asks;
    }
}

/// Starts a thread that calls `work` after each of these signals, until it returns false.
fn after(signals: &[i32], mut work: impl FnMut() -> bool + Send + 'static) -> Result<()> {
    let (mut woken, waker) = UnixStream::pair().context("a pair of sockets")?;
    for &signal in signals {
        let waker = waker.try_clone().context("a pair of sockets")?;
        signal_hook::low_level::pipe::register(signal, waker).context("install signal handlers")?;
    }
    thread::Builder::new()
        .name("signals".into())
        // After an error no signal will arrive, so there is nothing to do.
        .spawn(move || while woken.read_exact(&mut [0]).is_ok() && work() {})
        .context("a thread for signals")?;
    Ok(())
}

/// Starts the thread that handles signals by the current work.
fn listen() -> Result<()> {
    after(&[SIGINT, SIGTERM, SIGHUP], || {
        // The lock is held while the process exits, so that no write begins.
        let work = work();
        match *work {
            Work::Asks => {}
            Work::Ends => {
                complain(Interrupted);
                std::process::exit(130);
            }
            Work::Finishes => note(
                "interrupted: the change is being finished; a second signal stops it, and the next command reverts it",
            ),
        }
        true
    })
}

/// Makes this process ignore any number of SIGINT from now on: they are meant for the command in the foreground,
/// which gets it from the terminal as well, while this process serves the command's mount.
pub fn leave_to_child() -> Result<()> {
    after(&[SIGINT], || {
        RAISED.store(false, Ordering::Relaxed);
        LAST.store(false, Ordering::Relaxed);
        true
    })
}

/// Runs `work` once, on a separate thread, when the user asks to stop: for work that waits for something
/// other than this flag.
pub fn on_signal(work: impl FnOnce() + Send + 'static) -> Result<()> {
    let mut work = Some(work);
    after(&[SIGINT, SIGTERM, SIGHUP], move || {
        if let Some(work) = work.take() {
            work();
        }
        false
    })
}
