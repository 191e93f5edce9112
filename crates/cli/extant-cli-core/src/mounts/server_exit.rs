//! Waits for an image whose server is about to exit. umount(8) returns before the server of a mount has closed the
//! image, so that mounting the image again at once finds the image locked.

use crate::mounts::mounted::Mounted;
use std::io::{self, ErrorKind};
use std::path::Path;
use std::thread::sleep;
use std::time::{Duration, Instant};

/// Longest wait for the server to exit.
const PATIENCE: Duration = Duration::from_secs(2);
/// Pause between two attempts.
const PAUSE: Duration = Duration::from_millis(20);

/// An error of opening an image that may mean that the image is locked.
pub trait MayBeLocked {
    /// Returns whether the image is locked.
    fn is_locked(&self) -> bool;
}

impl MayBeLocked for io::Error {
    fn is_locked(&self) -> bool {
        self.kind() == ErrorKind::ResourceBusy
    }
}

impl MayBeLocked for extant::Error {
    fn is_locked(&self) -> bool {
        matches!(self, Self::Open { source, .. } if source.is_locked())
    }
}

/// Opens an image. Retries for two seconds while the image is locked but not mounted.
pub fn open_when_free<T, E: MayBeLocked>(
    image: &Path,
    open: impl Fn() -> Result<T, E>,
) -> Result<T, E> {
    let begin = Instant::now();
    loop {
        match open() {
            Err(e)
                if e.is_locked()
                    && begin.elapsed() < PATIENCE
                    && Mounted::of_image(image).is_none() =>
            {
                sleep(PAUSE);
            }
            done => return done,
        }
    }
}
