//! Images that are mounted, found by their directory.

use crate::format::show::ShowPath;
use anyhow::{Context, Result, bail};
use extant_fuse::control::{Client, socket_of};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// Types of our mounts in /proc/self/mountinfo: of images, and of block devices that the kernel holds for them.
pub const TYPES: [&str; 2] = ["fuse.extant", "fuseblk.extant"];

/// An image that is mounted.
pub struct Mounted {
    dir: PathBuf,
    entry: fuse_server::Mounted,
}

impl Mounted {
    /// Returns the mount on a directory, or on one above it.
    ///
    /// # Errors
    /// The mount is not one of ours.
    pub fn at(dir: &Path) -> Result<Self> {
        let full = absolute(dir).with_context(|| dir.shown())?;
        let entry = fuse_server::mounted_at(&full).context("/proc/self/mountinfo")?;
        let Some(entry) = entry else {
            bail!(
                "{}: nothing is mounted here: findmnt -t fuse.extant,fuseblk.extant lists what is",
                dir.shown()
            );
        };
        if !TYPES.contains(&entry.kind.as_str()) {
            bail!(
                "{}: this is {}, not a mount of extant",
                dir.shown(),
                entry.kind
            );
        }
        Ok(Self { dir: full, entry })
    }

    /// Returns the mount that a path lies on, if it is one of ours.
    pub fn below(path: &Path) -> Option<Self> {
        let full = path.canonicalize().ok()?;
        let mounts = fuse_server::mounts().ok()?;
        // The nearest directory above it that anything is mounted on.
        let target = full
            .ancestors()
            .find(|dir| mounts.iter().any(|entry| entry.target == *dir))?;
        let entry = mounts.iter().rposition(|entry| entry.target == target)?;
        let entry = mounts.into_iter().nth(entry)?;
        TYPES.contains(&entry.kind.as_str()).then(|| Self {
            dir: PathBuf::from(&entry.target),
            entry,
        })
    }

    /// Returns whether a directory is the root of this mount or of another one of the same volume.
    pub fn shows(&self, dir: &Path) -> bool {
        let root = |dir: &Path| dir.metadata().ok().map(|meta| (meta.dev(), meta.ino()));
        root(dir).is_some() && root(dir) == root(&self.dir)
    }

    /// Returns the mount of an image, if it has one of ours.
    pub fn of_image(image: &Path) -> Option<Self> {
        let image = image.canonicalize().ok()?;
        let mounts = fuse_server::mounts().ok()?;
        let is = |entry: &fuse_server::Mounted| {
            TYPES.contains(&entry.kind.as_str())
                && Path::new(&entry.source)
                    .canonicalize()
                    .is_ok_and(|source| source == image)
        };
        let entry = mounts.into_iter().rev().find(is)?;
        Some(Self {
            dir: PathBuf::from(&entry.target),
            entry,
        })
    }

    /// Returns whether another directory shows the same mount, so that its server continues.
    pub fn is_elsewhere(&self) -> bool {
        let mounts = fuse_server::mounts().unwrap_or_default();
        let same = |entry: &&fuse_server::Mounted| entry.device == self.entry.device;
        mounts
            .iter()
            .find(same)
            .is_some_and(|entry| entry.kind == self.entry.kind)
    }

    /// Returns the directory.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// Returns the directory, for messages.
    pub fn name(&self) -> String {
        self.dir.shown()
    }

    /// Returns the image.
    pub fn image(&self) -> String {
        self.entry.source.to_string_lossy().into_owned()
    }

    /// Returns the number of requests that the kernel has not completed, including queued ones; `None` if it is
    /// unknown, for example because fusectl is not mounted.
    pub fn waiting(&self) -> Option<u64> {
        let (_, minor) = self.entry.device;
        let told = std::fs::read_to_string(format!("/sys/fs/fuse/connections/{minor}/waiting"));
        told.ok()?.trim().parse().ok()
    }

    /// Returns the options of the mount, in the kernel's words.
    pub fn mount_options(&self) -> &str {
        &self.entry.mount_options
    }

    /// Connects to the server of the mount.
    pub fn client(&self) -> Result<Client> {
        let socket = socket_of(self.entry.device);
        Client::connect(&socket).map_err(|e| match e.kind() {
            io::ErrorKind::NotFound | io::ErrorKind::PermissionDenied => anyhow::anyhow!(
                "{}: its server is another user's, or in another container",
                self.name()
            ),
            io::ErrorKind::ConnectionRefused => {
                anyhow::anyhow!("{}: its server is gone", self.name())
            }
            _ => anyhow::Error::new(e).context(socket.shown()),
        })
    }
}

/// Resolves links and dots of a path without accessing the last directory, because its server may be gone.
fn absolute(dir: &Path) -> io::Result<PathBuf> {
    let found = dir.canonicalize();
    let Err(error) = found else {
        return found;
    };
    match (dir.parent(), dir.file_name()) {
        (Some(parent), Some(name)) => {
            let parent = if parent.as_os_str().is_empty() {
                Path::new(".")
            } else {
                parent
            };
            Ok(parent.canonicalize()?.join(name))
        }
        _ => Err(error),
    }
}
