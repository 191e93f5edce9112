//! The overlay of the command's image (`--overlay FILE`): writes go to the file, and the image is only read.
//!
//! The file is the one that `extant mount --scratch --keep` writes and `extant apply` merges into the image.

use crate::format::show::ShowPath;
use crate::messages::advised::advised;
use crate::mounts::server_exit::open_when_free;
use anyhow::{Result, anyhow, bail};
use blockdev::{Access, BlockDevice, FileDevice, Overlay};
use extant::scratch::{self, Changes};
use lockmeter::{Mutex, lock_class};
use std::io::ErrorKind;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Weak};

lock_class!(
    /// The overlay of the command's image.
    Overlays = "overlay"
);

/// Bytes of an overlay file without a changed block: both copies of its header.
const HEADERS: u64 = 2 * 4096;

/// An image and its overlay.
struct Overlaid {
    /// The address of the image, as written and in its canonical form.
    names: Vec<PathBuf>,
    /// The file of the overlay.
    file: PathBuf,
    /// The absolute path of the file, if this process made it: a server changes its directory.
    made: Option<PathBuf>,
    /// The device, if it is open.
    open: Weak<dyn BlockDevice>,
}

static OVERLAY: Mutex<Option<Overlaid>, Overlays> = Mutex::new(None);

/// Gives an image, which has these names, an overlay in a file.
pub fn set(names: Vec<PathBuf>, file: &Path) {
    *OVERLAY.lock() = Some(Overlaid {
        names,
        file: file.to_path_buf(),
        made: None,
        open: Weak::<FileDevice>::new(),
    });
}

/// Returns whether the image has an overlay.
pub fn is_overlaid(image: &Path) -> bool {
    file(image).is_some()
}

/// Returns the file of the image's overlay.
pub fn file(image: &Path) -> Option<PathBuf> {
    let overlay = OVERLAY.lock();
    let overlay = overlay.as_ref()?;
    let is_it = overlay.names.iter().any(|name| name == image);
    is_it.then(|| overlay.file.clone())
}

/// Opens the overlay over the command's image. `base` opens the image for reading, and `holder` is the file that has the image.
/// All users in this process share the device.
pub fn open(
    holder: &Path,
    access: Access,
    base: impl FnOnce() -> Result<Arc<dyn BlockDevice>>,
) -> Result<Arc<dyn BlockDevice>> {
    let mut overlay = OVERLAY.lock();
    let Some(overlay) = overlay.as_mut() else {
        return base();
    };
    if let Some(device) = overlay.open.upgrade()
        && !(access == Access::ReadWrite && device.read_only())
    {
        return Ok(device);
    }
    let file = &overlay.file;
    let shown = file.shown();
    let id = |path: &Path| path.metadata().map(|m| (m.dev(), m.ino())).ok();
    if id(file).is_some_and(|file| Some(file) == id(holder)) {
        return Err(advised(
            format_args!("{shown}: it is the image itself"),
            "name another file for the overlay",
        ));
    }
    let base = base()?;
    let is_new = id(file).is_none();
    let device: Arc<dyn BlockDevice> = match access {
        Access::ReadOnly => {
            let store = open_when_free(file, || FileDevice::open(file, access));
            let opened = store.and_then(|store| Overlay::open(base, store));
            Arc::new(opened.map_err(|e| told(file, e, access))?)
        }
        Access::ReadWrite => {
            let kept = || scratch::device_over(base.clone(), holder, Changes::KeptIn(file));
            open_when_free(file, kept).map_err(|e| match e {
                extant::Error::Open { source, .. } => told(file, source, access),
                e => anyhow!("{shown}: {e}"),
            })?
        }
    };
    if is_new && access == Access::ReadWrite {
        overlay.made = std::path::absolute(file).ok();
    }
    overlay.open = Arc::downgrade(&device);
    Ok(device)
}

/// Returns an error of the file of an overlay, with advice.
fn told(file: &Path, error: std::io::Error, access: Access) -> anyhow::Error {
    let shown = file.shown();
    match error.kind() {
        ErrorKind::NotFound
            if access == Access::ReadOnly && !file.parent().is_some_and(is_missing) =>
        {
            advised(
                format_args!("{shown}: no such file or directory"),
                "a command that writes makes the overlay",
            )
        }
        ErrorKind::InvalidData
            if ["not an overlay", "too short for an overlay"]
                .contains(&error.to_string().as_str()) =>
        {
            advised(
                format_args!("{shown}: not an overlay"),
                "name a new file, or one that --overlay or mount --keep made",
            )
        }
        _ => {
            // Errors of a device begin with its name.
            let text = error.to_string();
            let text = text.strip_prefix(&format!("{shown}: ")).unwrap_or(&text);
            anyhow!("{shown}: {text}")
        }
    }
}

fn is_missing(dir: &Path) -> bool {
    !dir.as_os_str().is_empty() && !dir.exists()
}

/// Fails for an image with an overlay, for work that would change the image itself.
pub fn refuse(image: &Path, why: &str) -> Result<()> {
    if is_overlaid(image) {
        bail!("{}: --overlay: {why}", image.shown());
    }
    Ok(())
}

/// Removes the file of the overlay if this process made it and wrote nothing to it.
pub fn remove_if_empty() {
    let Some(overlay) = OVERLAY.lock().take() else {
        return;
    };
    let Some(file) = overlay.made.filter(|_| overlay.open.strong_count() == 0) else {
        return;
    };
    // A file that another process has open cannot be opened for writing.
    let store = FileDevice::open(&file, Access::ReadWrite);
    if store.is_ok_and(|store| matches!(store.next_data(HEADERS), Ok(None))) {
        // The file is of no use, but harmless.
        let _ = std::fs::remove_file(&file);
    }
}
