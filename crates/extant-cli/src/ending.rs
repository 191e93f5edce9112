//! An image whose process is about to end: umount(8) returns before the server of a mount has closed the image, and who
//! mounts it again at once finds it locked.

use crate::mounted::Mounted;
use std::io::{self, ErrorKind};
use std::path::Path;
use std::thread::sleep;
use std::time::{Duration, Instant};

/// How long such a process may take.
const PATIENCE: Duration = Duration::from_secs(2);
/// How long to wait before looking again.
const PAUSE: Duration = Duration::from_millis(20);

/// An error of opening that may say that the image is locked.
pub trait MayBeLocked {
    /// Whether it does.
    fn is_locked(&self) -> bool;
}

impl MayBeLocked for io::Error {
    fn is_locked(&self) -> bool {
        self.kind() == ErrorKind::ResourceBusy
    }
}

impl MayBeLocked for extant::Error {
    fn is_locked(&self) -> bool {
        matches!(self, Self::Io { source, .. } if source.is_locked())
    }
}

/// Opens an image. While it is locked, and not because it is mounted, it is tried again for two seconds.
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
