//! The image whose changes go to an undo file.

use blockdev::BlockDevice;
use ext4_image::{LoggedDevice, UndoLog};
use lockmeter::{Mutex, lock_class};
use std::path::{Path, PathBuf};
use std::sync::Arc;

lock_class!(
    /// The undo file that is being written.
    UndoLogs = "undo file"
);

/// An image and its undo file.
type Logged = (PathBuf, Arc<UndoLog>);

static LOG: Mutex<Option<Logged>, UndoLogs> = Mutex::new(None);

/// Sets the image of the command.
pub fn set(logged: Option<Logged>) {
    *LOG.lock() = logged;
}

/// Returns whether changes of the image go to an undo file.
pub fn is_logged(image: &Path) -> bool {
    log_of(image).is_some()
}

fn log_of(image: &Path) -> Option<Arc<UndoLog>> {
    let log = LOG.lock();
    let (logged, log) = log.as_ref()?;
    (logged == image).then(|| Arc::clone(log))
}

/// Returns the device of an image that is opened for writing. If the image has an undo file, the device writes old bytes to it.
pub fn logged(image: &Path, device: Arc<dyn BlockDevice>) -> Arc<dyn BlockDevice> {
    match log_of(image) {
        Some(log) => Arc::new(LoggedDevice::new(device, log)),
        None => device,
    }
}
