//! A mount served by this process, in a separate name space.

use blockdev::BlockDevice;
use extant::{Volume, VolumeOptions};
use extant_fuse::{Filesystem, MountOptions};
use fuse_server::{Session, Transport};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::thread::JoinHandle;

const INSIDE: &str = "EXTANT_TEST_OWN_MOUNTS";

/// Runs a test in a separate process and mount name space, so that its mounts end with the process.
pub fn isolated(test: impl FnOnce()) {
    if std::env::var_os(INSIDE).is_some() {
        return test();
    }
    let root = rustix::process::geteuid().is_root();
    needs::that!(root, "mounting takes root");
    needs::that!(Path::new("/dev/fuse").exists(), "there is no /dev/fuse");
    needs::tools!("unshare");
    let thread = std::thread::current();
    let name = thread.name().expect("the test runner names its threads");
    let status = Command::new("unshare")
        .args(["--mount", "--propagation", "slave", "--"])
        .arg(std::env::current_exe().unwrap())
        .args(["--exact", name, "--nocapture", "--test-threads=1"])
        .env(INSIDE, "1")
        .status()
        .unwrap();
    assert!(status.success(), "{name}: {status}");
}

/// A volume that is mounted.
pub struct Mounted {
    dir: PathBuf,
    volume: Volume,
    serving: Option<JoinHandle<std::io::Result<()>>>,
}

impl Mounted {
    pub fn new(device: Arc<dyn BlockDevice>, dir: &Path) -> Self {
        let options = MountOptions::default();
        let volume = VolumeOptions::new().open_device(device).unwrap();
        let fs = Arc::new(Filesystem::new(volume.clone(), "recorded", &options).unwrap());
        let connection = fuse_server::mount(dir, &options.for_kernel("recorded")).unwrap();
        let mounted = Session::new(connection, fs, Transport::Classic, 3);
        let session = mounted.unwrap_or_else(|e| {
            let _ = fuse_server::detach(dir);
            panic!("{e}");
        });
        Self {
            dir: dir.into(),
            volume,
            serving: Some(std::thread::spawn(move || session.run())),
        }
    }

    pub fn dir(&self) -> &Path {
        &self.dir
    }

    pub fn volume(&self) -> &Volume {
        &self.volume
    }

    /// Unmounts and closes.
    pub fn unmount(mut self) {
        fuse_server::unmount(&self.dir).unwrap();
        let served = self.serving.take().unwrap();
        served.join().unwrap().unwrap();
        self.volume.clone().close().unwrap();
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        if self.serving.is_some() {
            let _ = fuse_server::detach(&self.dir);
        }
    }
}
