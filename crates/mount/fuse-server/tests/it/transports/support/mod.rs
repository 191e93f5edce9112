//! Mounting for tests: all mounts are removed, even if a test fails.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::sync::{Arc, OnceLock};
use std::thread::JoinHandle;
use std::time::Duration;

use fuse_server::{Connection, Handler, MountOptions, Session, Transport};
use rustix::fs::{FlockOperation, flock};
use rustix::mount::UnmountFlags;
use tempfile::TempDir;

/// Time limit, which is much longer than any test.
const TIMEOUT: Duration = Duration::from_secs(90);
const SWITCH: &str = "/sys/module/fuse/parameters/enable_uring";

/// A mounted handler. Dropping it unmounts, by force if necessary.
pub struct Mount {
    pub path: PathBuf,
    server: Option<JoinHandle<io::Result<()>>>,
    _watchdog: mpsc::Sender<()>,
    _dir: TempDir,
}

/// Runs a test over each available transport.
pub fn over_each(test: impl Fn(Transport)) {
    for transport in [Transport::Classic, Transport::Uring] {
        if available(transport) {
            test(transport);
        }
    }
}

fn available(transport: Transport) -> bool {
    if !Path::new("/dev/fuse").exists() {
        needs::ignored("there is no /dev/fuse");
        return false;
    }
    if transport == Transport::Uring && !Path::new(SWITCH).exists() {
        needs::told("this kernel has no FUSE over io_uring");
        return false;
    }
    if !rustix::process::geteuid().is_root() {
        needs::ignored("only root may mount and turn io_uring on");
        return false;
    }
    true
}

impl Mount {
    pub fn new(handler: Arc<dyn Handler>, transport: Transport) -> Self {
        let dir = TempDir::new().unwrap();
        let session = with_uring(|| {
            let connection = connect(dir.path());
            Session::new(connection, handler, transport, 0).unwrap()
        });
        assert_eq!(session.transport(), transport);
        let watchdog = watchdog(session.target());
        let path = session.target().to_path_buf();
        let server = std::thread::spawn(move || session.run());
        Self {
            path,
            server: Some(server),
            _watchdog: watchdog,
            _dir: dir,
        }
    }

    pub fn join(&self, name: impl AsRef<Path>) -> PathBuf {
        self.path.join(name)
    }

    /// Returns the result of a session that another process ended.
    pub fn ended(mut self) -> io::Result<()> {
        self.server.take().unwrap().join().unwrap()
    }

    /// Unmounts, which must succeed because the mount is not in use.
    pub fn unmount(self) -> io::Result<()> {
        fuse_server::unmount(&self.path)?;
        self.ended()
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        if let Some(server) = self.server.take() {
            let _ = fuse_server::detach(&self.path);
            let _ = server.join();
        }
    }
}

pub fn connect(dir: &Path) -> Connection {
    let options = MountOptions {
        subtype: Some("test".into()),
        default_permissions: true,
        ..MountOptions::default()
    };
    fuse_server::mount(dir, &options).unwrap()
}

/// Enables io_uring while `f` mounts. The setting is global, so tests alternate.
pub fn with_uring<T>(f: impl FnOnce() -> T) -> T {
    let Ok(switch) = File::open(SWITCH) else {
        return f();
    };
    flock(&switch, FlockOperation::LockExclusive).unwrap();
    struct Restore(String);
    impl Drop for Restore {
        fn drop(&mut self) {
            let _ = fs::write(SWITCH, &self.0);
        }
    }
    let _restore = Restore(fs::read_to_string(SWITCH).unwrap());
    fs::write(SWITCH, "Y").unwrap();
    f()
}

/// Aborts the connection and the process if the test does not end in time. Dropping the sender cancels the watchdog.
fn watchdog(path: &Path) -> mpsc::Sender<()> {
    static NAME: OnceLock<String> = OnceLock::new();
    let path = path.to_path_buf();
    let name = NAME.get_or_init(|| std::env::args().next().unwrap_or_default());
    let (sender, receiver) = mpsc::channel();
    std::thread::spawn(move || {
        if receiver.recv_timeout(TIMEOUT) == Err(RecvTimeoutError::Timeout) {
            eprintln!("{name}: a test with a mount hangs; it is aborted");
            // The test's own threads wait for answers, so the process can end only after the connection.
            let force = UnmountFlags::FORCE | UnmountFlags::DETACH;
            let _ = rustix::mount::unmount(&path, force);
            std::process::exit(101);
        }
    });
    sender
}
