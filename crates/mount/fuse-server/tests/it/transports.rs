//! Both transports with a mounted file system: many callers, handlers that block, panic or are interrupted, the end.

mod support;

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use fuse_server::{
    Answer, Errno, Handler, KernelOffer, MemoryFs, MountOptions, Notifier, Operation, Request,
    Session, Transport, Wants,
};
use parking_lot::{Condvar, Mutex};
use rustix::process::{Pid, Signal, kill_process};
use support::{Mount, connect, over_each, with_uring};

fn wait_until(what: &str, condition: impl Fn() -> bool) {
    let end = Instant::now() + Duration::from_secs(20);
    while !condition() {
        assert!(Instant::now() < end, "{what} has not come about");
        thread::sleep(Duration::from_millis(2));
    }
}

/// `MemoryFs` that can watch, delay or panic on some requests.
#[derive(Default)]
struct Watched {
    fs: MemoryFs,
    forgotten: AtomicU64,
    lookups: AtomicUsize,
    /// Handlers of fsync wait while this is true.
    closed: Mutex<bool>,
    opened: Condvar,
    inside: AtomicUsize,
    notifier: Mutex<Option<Notifier>>,
}

impl Watched {
    fn close(&self) {
        *self.closed.lock() = true;
    }

    fn open(&self) {
        *self.closed.lock() = false;
        self.opened.notify_all();
    }

    fn inside(&self) -> usize {
        self.inside.load(Ordering::SeqCst)
    }
}

impl Handler for Watched {
    fn init(&self, kernel: &KernelOffer, notifier: Notifier) -> Wants {
        *self.notifier.lock() = Some(notifier.clone());
        self.fs.init(kernel, notifier)
    }

    fn handle(&self, request: &Request<'_>, answer: &mut Answer<'_>) -> Result<(), Errno> {
        match &request.operation {
            Operation::Forget { lookups } => {
                self.forgotten.fetch_add(*lookups, Ordering::SeqCst);
            }
            Operation::BatchForget(forgets) => {
                self.forgotten
                    .fetch_add(forgets.map(|(_, lookups)| lookups).sum(), Ordering::SeqCst);
            }
            Operation::Lookup { .. } => {
                self.lookups.fetch_add(1, Ordering::SeqCst);
            }
            Operation::Fsync { .. } => {
                self.inside.fetch_add(1, Ordering::SeqCst);
                let mut closed = self.closed.lock();
                while *closed {
                    self.opened.wait(&mut closed);
                }
                self.inside.fetch_sub(1, Ordering::SeqCst);
            }
            Operation::Mkdir { name: b"panic", .. } => panic!("as the test wants it"),
            _ => {}
        }
        self.fs.handle(request, answer)
    }
}

#[test]
fn files_from_several_threads() {
    over_each(|transport| {
        let mount = Mount::new(Arc::new(MemoryFs::new()), transport);
        thread::scope(|scope| {
            for number in 0..6u8 {
                let dir = mount.join(format!("dir{number}"));
                scope.spawn(move || {
                    fs::create_dir(&dir).unwrap();
                    for file in 0..200 {
                        let path = dir.join(format!("file{file}"));
                        fs::write(&path, vec![number; file * 37]).unwrap();
                        if file % 3 == 0 {
                            fs::rename(&path, dir.join(format!("moved{file}"))).unwrap();
                        } else if file % 3 == 1 {
                            fs::remove_file(&path).unwrap();
                        }
                    }
                    let mut names = 0;
                    for entry in fs::read_dir(&dir).unwrap() {
                        let bytes = fs::read(entry.unwrap().path()).unwrap();
                        assert!(bytes.iter().all(|&byte| byte == number));
                        names += 1;
                    }
                    assert_eq!(names, 133);
                });
            }
        });
        assert_eq!(fs::metadata(&mount.path).unwrap().nlink(), 8);
        fs::remove_dir_all(mount.join("dir0")).unwrap();
        assert!(!mount.join("dir0").exists());
        mount.unmount().unwrap();
    });
}

#[test]
fn long_data_and_links() {
    over_each(|transport| {
        let mount = Mount::new(Arc::new(MemoryFs::new()), transport);
        // Longer than a request, at odd offsets.
        let data: Vec<u8> = (0..5_000_000u32)
            .map(|number| (number.wrapping_mul(2_654_435_761) >> 24) as u8)
            .collect();
        fs::write(mount.join("data"), &data).unwrap();
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .open(mount.join("data"))
            .unwrap();
        file.sync_all().unwrap();
        // Drop cached pages, so that the server has to read.
        rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed).unwrap();
        let mut back = Vec::new();
        (&file).read_to_end(&mut back).unwrap();
        assert!(back == data);
        file.write_all_at(b"x", 9_999_999).unwrap();
        assert_eq!(file.metadata().unwrap().len(), 10_000_000);

        let target = "t".repeat(4000);
        std::os::unix::fs::symlink(&target, mount.join("link")).unwrap();
        assert_eq!(
            fs::read_link(mount.join("link")).unwrap().as_os_str(),
            target.as_str()
        );
        fs::hard_link(mount.join("data"), mount.join("second")).unwrap();
        assert_eq!(fs::metadata(mount.join("second")).unwrap().nlink(), 2);
        let name = "n".repeat(255);
        fs::write(mount.join(&name), "long name").unwrap();
        let error = fs::write(mount.join("n".repeat(256)), "").unwrap_err();
        assert_eq!(
            error.raw_os_error(),
            Some(Errno::NAMETOOLONG.raw_os_error())
        );
        let mut unnamed = tempfile::tempfile_in(&mount.path).unwrap();
        unnamed.write_all(b"no name").unwrap();
        assert_eq!(unnamed.metadata().unwrap().len(), 7);
        drop((file, unnamed));
        mount.unmount().unwrap();
    });
}

#[test]
fn handlers_that_block_hold_up_nobody_else() {
    over_each(|transport| {
        let handler = Arc::new(Watched::default());
        let mount = Mount::new(handler.clone(), transport);
        let blocked = 24;
        for number in 0..blocked {
            fs::write(mount.join(format!("file{number}")), "x").unwrap();
        }
        handler.close();
        thread::scope(|scope| {
            for number in 0..blocked {
                let path = mount.join(format!("file{number}"));
                scope.spawn(move || File::open(path).unwrap().sync_all().unwrap());
            }
            wait_until("that all wait in their fsync", || {
                handler.inside() == blocked
            });
            for number in 0..100 {
                fs::create_dir(mount.join(format!("dir{number}"))).unwrap();
            }
            handler.open();
        });
        assert_eq!(handler.inside(), 0);
        mount.unmount().unwrap();
    });
}

#[test]
fn an_interrupted_request_is_answered_in_its_own_time() {
    over_each(|transport| {
        let handler = Arc::new(Watched::default());
        let mount = Mount::new(handler.clone(), transport);
        fs::write(mount.join("file"), "x").unwrap();
        handler.close();
        let mut child = Command::new("sync")
            .arg(mount.join("file"))
            .spawn()
            .unwrap();
        wait_until("that fsync waits", || handler.inside() == 1);
        for _ in 0..3 {
            kill_process(Pid::from_child(&child), Signal::INT).unwrap();
            thread::sleep(Duration::from_millis(20));
        }
        fs::create_dir(mount.join("dir")).unwrap();
        handler.open();
        child.wait().unwrap();
        assert_eq!(fs::read(mount.join("file")).unwrap(), b"x");
        mount.unmount().unwrap();
    });
}

#[test]
fn removed_files_are_forgotten() {
    over_each(|transport| {
        let handler = Arc::new(Watched::default());
        let mount = Mount::new(handler.clone(), transport);
        let files = 500;
        for number in 0..files {
            fs::write(mount.join(format!("file{number}")), "x").unwrap();
        }
        for number in 0..files {
            fs::remove_file(mount.join(format!("file{number}"))).unwrap();
        }
        wait_until("that all are forgotten", || {
            handler.forgotten.load(Ordering::SeqCst) >= files
        });
        mount.unmount().unwrap();
    });
}

#[test]
fn notices_reach_the_kernel() {
    over_each(|transport| {
        let handler = Arc::new(Watched::default());
        let mount = Mount::new(handler.clone(), transport);
        fs::write(mount.join("file"), "x").unwrap();
        let notifier = handler.notifier.lock().clone().unwrap();
        let node = fs::metadata(mount.join("file")).unwrap().ino();
        let before = handler.lookups.load(Ordering::SeqCst);
        fs::metadata(mount.join("file")).unwrap();
        assert_eq!(
            handler.lookups.load(Ordering::SeqCst),
            before,
            "the kernel remembers the name"
        );
        notifier.inval_entry(1, b"file").unwrap();
        notifier.inval_entry(1, b"no such name").unwrap();
        notifier.inval_inode(node, 0, 0).unwrap();
        notifier.inval_inode(1 << 40, 0, 0).unwrap();
        fs::metadata(mount.join("file")).unwrap();
        assert_eq!(handler.lookups.load(Ordering::SeqCst), before + 1);
        mount.unmount().unwrap();
        notifier.inval_inode(node, 0, 0).unwrap();
    });
}

#[test]
fn a_panic_ends_the_session_and_nobody_waits_for_ever() {
    over_each(|transport| {
        let handler = Arc::new(Watched::default());
        let mount = Mount::new(handler.clone(), transport);
        fs::write(mount.join("file"), "x").unwrap();
        let path = mount.path.clone();
        assert!(fs::create_dir(mount.join("panic")).is_err());
        assert!(mount.ended().unwrap_err().to_string().contains("panicked"));
        assert_eq!(fuse_server::mounted_at(&path).unwrap(), None);
    });
}

#[test]
fn a_mount_in_use_stays() {
    over_each(|transport| {
        let mount = Mount::new(Arc::new(MemoryFs::new()), transport);
        let file = File::create(mount.join("file")).unwrap();
        let error = fuse_server::unmount(&mount.path).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::ResourceBusy);
        drop(file);
        // The kernel notifies the server of the file's end asynchronously; until then the mount counts as in use.
        wait_until("that it can be unmounted", || {
            fuse_server::unmount(&mount.path).is_ok()
        });
        mount.ended().unwrap();
    });
}

#[test]
fn what_is_dropped_is_unmounted() {
    over_each(|transport| {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().canonicalize().unwrap();
        let connection = connect(&path);
        assert_eq!(connection.target(), path);
        drop(connection);
        assert_eq!(fuse_server::mounted_at(&path).unwrap(), None);
        let session = with_uring(|| {
            Session::new(connect(&path), Arc::new(MemoryFs::new()), transport, 0).unwrap()
        });
        let file = File::create(path.join("file")).unwrap();
        drop(session);
        assert_eq!(fuse_server::mounted_at(&path).unwrap(), None);
        assert!(file.sync_all().is_err());
    });
}

#[test]
fn a_place_that_is_none_is_an_error() {
    let error = fuse_server::mount("/no/such/place", &MountOptions::default()).unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::NotFound);
}

#[test]
fn auto_takes_what_there_is() {
    over_each(|transport| {
        let dir = tempfile::tempdir().unwrap();
        let serve = || {
            Session::new(
                connect(dir.path()),
                Arc::new(MemoryFs::new()),
                Transport::Auto,
                0,
            )
            .unwrap()
        };
        if transport == Transport::Uring {
            assert_eq!(with_uring(serve).transport(), Transport::Uring);
        } else {
            // The result depends on the machine's setting.
            assert_ne!(serve().transport(), Transport::Auto);
        }
    });
}
