//! The engine's own code under many schedules. Threads run one at a time, and at each lock, condition, device call and
//! named point a seed decides which thread runs next. EXTANT_SCHEDULES sets the number of seeds, EXTANT_SEED chooses
//! one.

use crate::medium;
use blockdev::{BlockDevice, MemDevice};
use extant::unstable::Node;
use extant::unstable::schedule;
use extant::{Credentials, Error, OpenOptions, Volume, VolumeOptions};
use medium::Medium;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};

type Task<'a> = Box<dyn FnOnce() + Send + 'a>;

fn base(features: &str, inodes: u32) -> MemDevice {
    let device = MemDevice::new(4 << 20);
    let options = extant::mkfs::MkfsOptions {
        size: Some(device.len()),
        block_size: Some(1024),
        zeroed_device: true,
        features: features.into(),
        inodes: Some(ext4_format::layout::Inodes::Count(inodes)),
        ..Default::default()
    };
    extant::mkfs::format(&device, &options).unwrap();
    device
}

fn open(device: Arc<dyn BlockDevice>) -> Volume {
    // All images here are sound.
    let options = VolumeOptions::new()
        .background(false)
        .on_damage(|damage| panic!("{damage}"));
    options.open_device(device).unwrap()
}

fn read_after_cut(medium: &Medium, path: &str) -> extant::Result<Vec<u8>> {
    open(Arc::new(medium.after_cut())).read(path)
}

/// Runs the tasks that `tasks` makes, over a new volume for each seed, and closes the volume.
fn explore(
    name: &str,
    base: &MemDevice,
    prepare: impl Fn(&Volume),
    tasks: impl for<'a> Fn(&'a Volume, &'a Arc<Medium>) -> Vec<Task<'a>>,
) {
    let number = |name: &str| std::env::var(name).ok().and_then(|n| n.parse::<u64>().ok());
    let seeds = match number("EXTANT_SEED") {
        Some(seed) => seed..seed + 1,
        None => 0..number("EXTANT_SCHEDULES").unwrap_or(24),
    };
    let (mut passes, count) = (0, seeds.end - seeds.start);
    for seed in seeds {
        let medium = Medium::new(base.snapshot());
        let volume = open(Arc::clone(&medium) as Arc<dyn BlockDevice>);
        prepare(&volume);
        volume.sync().unwrap();
        let ran = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            schedule::run(seed, tasks(&volume, &medium))
        }));
        match ran {
            Ok(n) => passes += n,
            Err(panic) => {
                eprintln!("{name}: EXTANT_SEED={seed} shows it again");
                std::panic::resume_unwind(panic);
            }
        }
        volume.close().unwrap();
        // Checks that the volume opens clean, and that every block in use has one owner: by a walk, and by a removal of
        // everything.
        let volume = open(Arc::new(medium.after_cut()));
        assert_eq!(volume.recovery().transactions, 0, "{name}: closed");
        for entry in volume.read_dir("/").unwrap() {
            let entry = entry.unwrap();
            if entry.file_name() == "lost+found" {
                continue;
            }
            match volume.remove_file(entry.path()) {
                Err(Error::IsDirectory) => {}
                other => other.unwrap(),
            }
        }
        volume.close().unwrap();
    }
    println!("{name}: {count} schedules, {passes} turns");
}

/// Two tasks each overwrite and sync an existing block, while a third changes the same files' attributes and makes them
/// durable.
#[test]
fn what_fsync_has_returned_for_is_durable() {
    let prepare = |volume: &Volume| {
        for task in 0..2 {
            volume.write(format!("/{task}"), [0; 1024]).unwrap();
        }
    };
    let node = |volume: &Volume, name: &str| {
        let root = Node::root(volume).unwrap();
        root.lookup(&Credentials::root(), name.as_bytes()).unwrap()
    };
    explore("fsync", &base("", 64), prepare, |volume, medium| {
        let mut tasks: Vec<Task<'_>> = Vec::new();
        for task in 0..2 {
            tasks.push(Box::new(move || {
                let path = format!("/{task}");
                let file = node(volume, &path[1..]);
                for n in 1..4u8 {
                    file.write_cached(&[n; 1024], 0).unwrap();
                    file.fsync(true).unwrap();
                    assert_eq!(read_after_cut(medium, &path).unwrap(), [n; 1024]);
                }
            }));
        }
        tasks.push(Box::new(move || {
            for n in 0..4 {
                for task in 0..2 {
                    let set = extant::SetAttributes {
                        mode: Some(0o600 + n),
                        ..Default::default()
                    };
                    volume.set_attributes(format!("/{task}"), &set).unwrap();
                }
                volume.sync().unwrap();
            }
        }));
        tasks
    });
}

/// A volume is closed while another task changes and syncs files. What an fsync has returned for is in the closed volume, and
/// nothing is written to the device afterwards.
#[test]
fn what_is_synced_while_the_volume_is_closed_is_durable() {
    let base = base("fast_commit", 64);
    let seeds = std::env::var("EXTANT_SCHEDULES").map_or(60, |n| n.parse().unwrap());
    let (mut last, mut fast) = ([0; 8], 0);
    for seed in 0..seeds {
        let medium = Medium::new(base.snapshot());
        let volume = open(Arc::clone(&medium) as Arc<dyn BlockDevice>);
        volume.write("/file", [0; 1024]).unwrap();
        volume.sync().unwrap();
        let (synced, closed) = (AtomicU8::new(0), AtomicBool::new(false));
        let writer = || {
            let file = OpenOptions::new().write(true).open(&volume, "/file");
            let Ok(file) = file else { return };
            for n in 1..8 {
                let appended = file.append(&[n; 1024]).and_then(|_| file.sync_all());
                if appended.is_err() {
                    return;
                }
                synced.store(n, Ordering::Relaxed);
            }
        };
        let closer = || {
            for _ in 0..20 + seed % 40 {
                schedule::pass();
            }
            volume.clone().close().unwrap();
            closed.store(true, Ordering::Relaxed);
        };
        schedule::run(seed, vec![Box::new(writer) as Task<'_>, Box::new(closer)]);
        fast += volume.statistics().fast_commits;
        let synced = synced.into_inner();
        last[usize::from(synced)] += 1;
        let found = read_after_cut(&medium, "/file").unwrap();
        let most = found.len() / 1024 - 1;
        assert!(
            most >= usize::from(synced),
            "seed {seed}: {most} of {synced} appended blocks"
        );
        let again = open(Arc::new(medium.after_cut()));
        assert_eq!(again.recovery(), extant::Recovery::default(), "seed {seed}");
    }
    println!("{seeds} schedules, {fast} fast commits, by number of syncs: {last:?}");
    assert!(fast > 0, "no fast commit");
    let between: usize = last[1..7].iter().sum();
    assert!(between > 0, "no close between two syncs: {last:?}");
}

/// Files are made, synced and removed; others take their blocks and numbers. All data that a cut leaves in a file are
/// its own.
#[test]
fn what_is_freed_is_not_used_again_too_soon() {
    const SIZE: usize = 300 << 10;
    let prepare = |_: &Volume| {};
    explore(
        "reuse",
        &base("^resize_inode", 16),
        prepare,
        |volume, medium| {
            (0..3)
                .map(|task| {
                    let work = move || {
                        for n in 0..3u8 {
                            let (path, byte) = (format!("/{task}-{n}"), 16 * (task + 1) + n);
                            match volume.write(&path, vec![byte; SIZE]) {
                                Err(Error::NoSpace(_)) => {}
                                other => other.unwrap(),
                            }
                            let file = volume.open_file(&path);
                            let Ok(file) = file else { continue };
                            let synced = file.sync_all().is_ok();
                            let found = read_after_cut(medium, &path);
                            if synced {
                                let found = found.unwrap();
                                assert!(found.iter().all(|b| *b == byte), "{path}: others' data");
                            }
                            drop(file);
                            volume.remove_file(&path).unwrap();
                        }
                    };
                    Box::new(work) as Task<'_>
                })
                .collect()
        },
    );
}

/// While a volume is frozen nothing is written to it, and earlier changes are visible. Waiting threads continue after
/// the thaw.
#[test]
fn a_frozen_volume_is_still() {
    let prepare = |volume: &Volume| volume.write("/there", [7; 5000]).unwrap();
    explore("freeze", &base("", 32), prepare, |volume, medium| {
        let freezer = move || {
            for n in 0..2 {
                volume.write(format!("/frozen{n}"), [n; 3000]).unwrap();
                let frozen = volume.freeze().unwrap();
                let writes = medium.writes();
                let found = read_after_cut(medium, &format!("/frozen{n}")).unwrap();
                assert_eq!(found, [n; 3000]);
                (0..200).for_each(|_| schedule::pass());
                // Readers do not wait for the thaw.
                assert_eq!(volume.read("/there").unwrap(), [7; 5000]);
                assert_eq!(medium.writes(), writes, "written while frozen");
                frozen.thaw();
            }
        };
        let writer = move || {
            for n in 0..6u8 {
                let path = format!("/w{}", n % 2);
                volume.write(&path, vec![n; 900 * usize::from(n)]).unwrap();
                let file = volume
                    .open_file_with(&path, &OpenOptions::new().write(true))
                    .unwrap();
                file.set_len(100).unwrap();
                file.fallocate(extant::Fallocate::default(), 0, 4000)
                    .unwrap();
                if n % 3 == 0 {
                    file.sync_all().unwrap();
                }
            }
        };
        let namer = move || {
            for n in 0..8 {
                let path = format!("/n{n}");
                match volume.create_new_file(&path) {
                    Ok(_) if n % 2 == 0 => volume.remove_file(&path).unwrap(),
                    _ => {}
                }
            }
            volume.sync().unwrap();
        };
        vec![Box::new(freezer), Box::new(writer), Box::new(namer)]
    });
}

/// Clean inodes, pages and metadata leave memory while others read, write, rename and sync them.
#[test]
fn what_leaves_memory_comes_back_as_it_was() {
    let prepare = |volume: &Volume| {
        volume.create_dir("/d").unwrap();
        for n in 0..4u8 {
            volume.write(format!("/d/{n}"), [n; 2000]).unwrap();
        }
    };
    explore("eviction", &base("", 64), prepare, |volume, _| {
        let done = Arc::new(AtomicBool::new(false));
        let over = Arc::clone(&done);
        let drops = move || {
            while !over.load(Ordering::SeqCst) {
                volume.drop_caches();
                schedule::pass();
            }
        };
        let works = move || {
            for n in 0..12u8 {
                let path = format!("/d/{}", n % 4);
                assert_eq!(volume.read(&path).unwrap(), [n % 4 + n / 4 * 16; 2000]);
                volume
                    .write(&path, [n % 4 + (n / 4 + 1) * 16; 2000])
                    .unwrap();
                let other = format!("/d/moved{}", n % 4);
                volume.rename(&path, &other).unwrap();
                volume.sync().unwrap();
                volume.rename(&other, &path).unwrap();
            }
            done.store(true, Ordering::SeqCst);
        };
        vec![Box::new(drops), Box::new(works)]
    });
}

/// Files are removed and others made, which get their numbers and blocks. Meanwhile a server looks up numbers and
/// writes to the old files while they exist. A number leads to the inode that has it, and always to the same object.
/// Data of an old file never show in a new one.
#[test]
fn a_number_leads_to_the_inode_that_has_it() {
    const FILES: u32 = 3;
    let prepare = |volume: &Volume| {
        for n in 0..FILES {
            volume.write(format!("/old{n}"), [b'o'; 3000]).unwrap();
        }
    };
    let base = base("^resize_inode", 16);
    explore("numbers", &base, prepare, |volume, _| {
        let root = Node::root(volume).unwrap();
        let old = (0..FILES).map(|n| {
            let name = format!("old{n}");
            let node = root.lookup(&Credentials::root(), name.as_bytes()).unwrap();
            (node.ino(), node.generation())
        });
        let old: Vec<(u32, u32)> = old.collect();
        drop(root);
        let removed: Arc<[AtomicBool]> = old.iter().map(|_| AtomicBool::new(false)).collect();
        let changes = {
            let removed = Arc::clone(&removed);
            move || {
                for n in 0..FILES {
                    volume.remove_file(format!("/old{n}")).unwrap();
                    removed[n as usize].store(true, Ordering::SeqCst);
                    schedule::pass();
                    for path in ["/new0", "/new1"] {
                        match volume.write(path, [b'n'; 3000]) {
                            // The numbers of removed files are not free yet, or other handles hold them.
                            Ok(()) | Err(Error::NoSpace(_)) => {}
                            Err(e) => panic!("{path}: {e}"),
                        }
                    }
                    schedule::pass();
                    for path in ["/new0", "/new1"] {
                        match volume.read(path) {
                            Ok(found) => assert_eq!(found, [b'n'; 3000], "another's data"),
                            Err(Error::NotFound) => continue,
                            Err(e) => panic!("{path}: {e}"),
                        }
                        volume.remove_file(path).unwrap();
                    }
                }
            }
        };
        let looks = move || {
            let mut kept: Vec<Node> = Vec::new();
            for round in 0..12 {
                for ino in 11..17 {
                    let was_removed = old
                        .iter()
                        .zip(&*removed)
                        .any(|(o, r)| o.0 == ino && r.load(Ordering::SeqCst));
                    let node = match Node::of_number(volume, ino) {
                        Ok(node) => node,
                        Err(Error::StaleInode(_)) => continue,
                        Err(e) => panic!("inode {ino}: {e}"),
                    };
                    let same = |k: &&Node| k.ino() == ino && k.generation() == node.generation();
                    if let Some(other) = kept.iter().find(same) {
                        assert!(other.is(&node), "two objects of inode {ino}");
                    }
                    if old.contains(&(ino, node.generation())) {
                        assert!(!was_removed, "inode {ino} has come back");
                        node.write_cached(&[b'z'; 3000], 0).unwrap();
                    }
                    kept.push(node);
                }
                if round % 3 == 2 {
                    kept.clear();
                }
                schedule::pass();
            }
        };
        let syncs = move || {
            for _ in 0..8 {
                volume.sync().unwrap();
                schedule::pass();
                volume.drop_caches();
            }
        };
        vec![Box::new(changes), Box::new(looks), Box::new(syncs)]
    });
}

/// Directories are removed from the deepest up, and others get their numbers, while a caller in the deepest looks up
/// its parents. The look-up finds the old parent, or nothing.
#[test]
fn a_removed_directory_leads_up_to_nothing_else() {
    let prepare = |volume: &Volume| {
        volume.create_dir("/a").unwrap();
        volume.create_dir("/a/b").unwrap();
        volume.create_dir("/a/b/c").unwrap();
    };
    let base = base("^resize_inode", 16);
    explore("parents", &base, prepare, |volume, _| {
        let inside = volume.open_dir("/a/b/c").unwrap();
        let [a, b] = ["/a", "/a/b"].map(|path| volume.metadata(path).unwrap().ino());
        let removes = move || {
            for path in ["/a/b/c", "/a/b", "/a"] {
                loop {
                    schedule::pass();
                    match volume.remove_dir(path) {
                        // The other task has moved a directory there.
                        Err(Error::NotEmpty) => {}
                        other => break other.unwrap(),
                    }
                }
            }
            for n in 0..8 {
                let path = format!("/other{n}");
                volume.create_dir(&path).unwrap();
                volume.create_new_file(format!("{path}/x")).unwrap();
                volume.sync().unwrap();
                volume.remove_file(format!("{path}/x")).unwrap();
                volume.remove_dir(path).unwrap();
            }
        };
        let looks = move || {
            for _ in 0..20 {
                for (path, expected) in [("..", b), ("../..", a), ("../x", 0), ("../../x", 0)] {
                    match inside.metadata(path) {
                        Ok(found) => assert_eq!(found.ino(), expected, "{path}"),
                        Err(Error::NotFound) => {}
                        Err(e) => panic!("{path}: {e}"),
                    }
                }
                let moved = volume.rename("/lost+found", "/a/b/c/moved");
                match moved {
                    Ok(()) => {
                        let back = volume.rename("/a/b/c/moved", "/lost+found");
                        back.unwrap();
                    }
                    Err(Error::NotFound) => {}
                    Err(e) => panic!("rename: {e}"),
                }
            }
        };
        let syncs = move || {
            for _ in 0..8 {
                volume.sync().unwrap();
                schedule::pass();
                volume.drop_caches();
            }
        };
        vec![Box::new(removes), Box::new(looks), Box::new(syncs)]
    });
}
