//! Many threads through clones of one handle: no inode is allocated twice, nothing is lost, and e2fsck is content.
//! `linearizable.rs` tests that some order of the calls explains every answer.

use crate::common;
use common::*;
use extant::{Error, OpenOptions, RenameMode, SetAttributes, SetXattr, Volume};
use std::collections::HashSet;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

const THREADS: u64 = 8;

/// A thread makes a subdirectory, another removes it: a reader sees one or none, in memory and on disk.
#[test]
fn subdirectories_are_counted_at_one_moment() {
    needs::tools!("mke2fs", "e2fsck");
    let device = mem_image("64M", &["-t", "ext4", "-J", "size=4"]);
    let volume = open(&device);
    volume.create_dir_with_mode("/d", 0o777).unwrap();
    let rounds = amount(1_000, 10_000);
    let (made, end) = (AtomicBool::new(false), AtomicBool::new(false));
    let wait = |until: bool| {
        while made.load(Ordering::Acquire) != until {
            std::thread::yield_now();
        }
    };
    std::thread::scope(|s| {
        let (v, w) = (volume.clone(), volume.clone());
        s.spawn(|| {
            let v = v;
            for _ in 0..rounds {
                wait(false);
                v.create_dir("/d/sub").unwrap();
                made.store(true, Ordering::Release);
            }
        });
        s.spawn(|| {
            let w = w;
            for n in 0..rounds {
                wait(true);
                // The inode number stays the same after a rename.
                w.rename("/d/sub", "/d/other").unwrap();
                w.remove_dir("/d/other").unwrap();
                made.store(false, Ordering::Release);
                if n % 100 == 0 {
                    w.sync().unwrap();
                }
            }
            end.store(true, Ordering::Release);
        });
        for v in [volume.clone(), volume.clone()] {
            let end = &end;
            s.spawn(move || {
                while !end.load(Ordering::Acquire) {
                    let links = v.metadata("/d").unwrap().nlink();
                    assert!((2..=3).contains(&links), "{links}");
                }
            });
        }
    });
    assert_eq!(volume.metadata("/d").unwrap().nlink(), 2);
    volume.close().unwrap();
    assert_clean(&device, "subdirectories that came and went");
}

/// Threads create files in their own and in one shared directory: all inode numbers differ.
#[test]
fn no_inode_is_handed_out_twice() {
    create_from_many_threads();
}

/// Every context is written in many parts, so a number made and freed in one context is in use on disk in between.
#[test]
fn no_inode_is_handed_out_twice_in_parts() {
    IN_PARTS.set(Some(40));
    create_from_many_threads();
}

fn create_from_many_threads() {
    needs::tools!("mke2fs");
    let device = mem_image("64M", &["-t", "ext4", "-J", "size=4"]);
    let volume = open(&device);
    volume.create_dir_with_mode("/shared", 0o777).unwrap();
    let inos = Mutex::new(Vec::new());
    std::thread::scope(|s| {
        for t in 0..THREADS {
            let (volume, inos) = (volume.clone(), &inos);
            s.spawn(move || {
                let own = volume.create_dir(format!("/own{t}")).unwrap();
                let shared = volume.open_dir("/shared").unwrap();
                let mut mine = vec![own.ino()];
                for n in 0..600 {
                    let (dir, name) = if n % 2 == 0 {
                        (&own, format!("f{n}"))
                    } else {
                        (&shared, format!("f{t}.{n}"))
                    };
                    mine.push(dir.create_new_file(&name).unwrap().ino());
                    if n % 7 == 0 {
                        // Freed at once: the number may be used again, but never twice at a time.
                        dir.remove_file(&name).unwrap();
                        mine.pop();
                    }
                    if n % 101 == 0 {
                        volume.sync().unwrap();
                    }
                }
                inos.lock().unwrap().extend(mine);
            });
        }
    });
    let inos = inos.into_inner().unwrap();
    let distinct: HashSet<_> = inos.iter().collect();
    assert_eq!(distinct.len(), inos.len());
    volume.close().unwrap();
    assert_clean(&device, "after concurrent creates");
    let volume = open(&device);
    assert_eq!(snapshot(&volume).unwrap().len(), inos.len() + 1);
}

/// Two threads exchange the same two names, an odd number of times in all. Each exchange is done, and neither thread
/// takes an intermediate state of the other for two names of one file.
#[test]
fn no_exchange_is_lost() {
    needs::tools!("mke2fs");
    extant::unstable::jitter(6);
    let device = mem_image("16M", &["-t", "ext4", "-J", "size=4"]);
    let volume = open(&device);
    let (a, b) = (
        volume.create_new_file("/a").unwrap().ino(),
        volume.create_new_file("/b").unwrap().ino(),
    );
    std::thread::scope(|s| {
        for (times, old, new) in [(400, "/a", "/b"), (401, "/b", "/a")] {
            let volume = volume.clone();
            s.spawn(move || {
                for _ in 0..times {
                    volume.rename_with(old, new, RenameMode::Exchange).unwrap();
                }
            });
        }
    });
    let now = ["/a", "/b"].map(|path| volume.metadata(path).unwrap().ino());
    assert_eq!(now, [b, a]);
}

/// A name that other threads keep replacing exists at every moment, whatever happens to the inodes it led to.
#[test]
fn a_replaced_name_is_always_there() {
    needs::tools!("mke2fs");
    extant::unstable::jitter(6);
    let device = mem_image("32M", &["-t", "ext4", "-b", "1024", "-J", "size=2"]);
    let volume = open(&device);
    let long = |n: u64| format!("/there/{}", (n % 10).to_string().repeat(100));
    volume.create_dir("/there").unwrap();
    for n in 0..10 {
        volume.write(long(n), b"there").unwrap();
    }
    volume.write("/file", b"0").unwrap();
    volume.symlink(long(0), "/link").unwrap();
    let rounds = if torture() { 20_000 } else { 600 };
    let done = AtomicBool::new(false);
    std::thread::scope(|s| {
        for t in 0..2 {
            let (volume, done) = (volume.clone(), &done);
            s.spawn(move || {
                for n in 0..rounds {
                    let temp = format!("/temp{t}");
                    volume.write(&temp, b"1").unwrap();
                    volume.rename(&temp, "/file").unwrap();
                    volume.symlink(long(n), &temp).unwrap();
                    volume.rename(&temp, "/link").unwrap();
                    if n % 16 == 0 {
                        volume.sync().unwrap();
                        volume.drop_caches();
                    }
                }
                done.store(true, Ordering::SeqCst);
            });
        }
        for t in 0..3 {
            let (volume, done) = (volume.clone(), &done);
            s.spawn(move || {
                let mut rng = Rng::new(t + 1);
                while !done.load(Ordering::SeqCst) {
                    let mode = Some(0o600 + rng.below(8) as u32 as u16);
                    let set = SetAttributes {
                        mode,
                        ..Default::default()
                    };
                    let (what, result) = match rng.below(9) {
                        0 => ("open", volume.open_file("/file").map(drop)),
                        1 => {
                            let options = OpenOptions::new().write(true).create(true);
                            (
                                "open to create",
                                volume
                                    .open_file_with("/file", &options.mode(0o600))
                                    .map(drop),
                            )
                        }
                        2 => ("stat", volume.metadata("/file").map(drop)),
                        3 => ("chmod", volume.set_attributes("/file", &set)),
                        4 => ("truncate", volume.set_len("/file", rng.below(9))),
                        5 => (
                            "set an attribute",
                            volume.set_xattr("/file", "user.x", b"y", SetXattr::Any),
                        ),
                        6 => ("list attributes", volume.list_xattrs("/file").map(drop)),
                        7 => (
                            "read a link",
                            volume.read_link("/link").map(|target| {
                                assert!((0..10).any(|n| target.as_os_str() == &*long(n)));
                            }),
                        ),
                        _ => (
                            "open through a link",
                            volume.read("/link").map(|bytes| {
                                assert_eq!(bytes, b"there");
                            }),
                        ),
                    };
                    result.unwrap_or_else(|e| panic!("{what}: {e}"));
                }
            });
        }
    });
    volume.close().unwrap();
    assert_clean(&device, "after names were replaced");
}

/// A name that was freed and taken again leads to another file, possibly with the number of the previous file. The new
/// file must not be mistaken for the one looked up first.
#[test]
fn numbers_that_come_again() {
    needs::tools!("mke2fs");
    extant::unstable::jitter(6);
    let device = mem_image("32M", &["-t", "ext4", "-b", "1024", "-J", "size=2"]);
    let volume = open(&device);
    let rounds = if torture() { 20_000 } else { 700 };
    // Long enough to take a block each.
    let target = "t".repeat(200);
    let links = &|t: u64| {
        let temp = format!("/temp{t}");
        for n in 0..rounds {
            volume.symlink(&target, &temp).unwrap();
            volume.rename(&temp, "/link").unwrap();
            if n % 16 == 0 {
                volume.sync().unwrap();
                volume.drop_caches();
            }
        }
    };
    let directories = &|_: u64| {
        for n in 0..rounds {
            let inside = volume
                .create_dir("/dir")
                .and_then(|dir| dir.symlink(&target, "inside").map(|()| dir));
            let taken = volume.remove_dir("/dir");
            if let Ok(dir) = inside {
                let kept = matches!(taken, Err(Error::NotEmpty));
                assert!(kept, "round {n}, with a name inside: {taken:?}");
                dir.remove_file("inside").unwrap();
                volume.remove_dir("/dir").or_else(expected).unwrap();
            } else {
                taken.or_else(expected).unwrap();
            }
        }
    };
    std::thread::scope(|s| {
        for t in 0..2 {
            s.spawn(move || links(t));
        }
        for t in 0..4 {
            s.spawn(move || directories(t));
        }
    });
    volume.close().unwrap();
    assert_clean(&device, "after numbers came again");
}

/// Another thread was first.
fn expected(e: Error) -> extant::Result<()> {
    match e {
        Error::NotFound | Error::Exists | Error::NotEmpty => Ok(()),
        e => Err(e),
    }
}

fn churn(volume: &Volume, t: u64, rounds: u64) {
    let mut rng = Rng::new(t + 77);
    let dirs = ["/a", "/b", "/a/c", "/own"];
    for _ in 0..rounds {
        let dir = dirs[rng.below(4) as usize];
        let dir = if dir == "/own" {
            format!("/own{t}")
        } else {
            dir.to_string()
        };
        let name = format!("{dir}/x{}", rng.below(20));
        let other = format!("{}/x{}", dirs[rng.below(3) as usize], rng.below(20));
        let done = match rng.below(9) {
            0 | 1 => volume
                .create_new_file(&name)
                .and_then(|f| f.write_at(b"data", rng.below(9000)).map(drop)),
            2 => volume.remove_file(&name),
            3 => volume.rename(&name, &other),
            4 => volume.rename_with(&name, &other, RenameMode::Exchange),
            5 => volume.create_dir(&name).map(drop),
            6 => volume.remove_dir(&name),
            7 => volume.hard_link(&name, &other),
            _ => volume
                .open_file_with(&name, &OpenOptions::new().read(true).write(true))
                .and_then(|f| {
                    f.set_len(rng.below(20_000))?;
                    f.sync_all()
                }),
        };
        match done {
            Ok(())
            | Err(
                Error::NotFound
                | Error::Exists
                | Error::NotEmpty
                | Error::IsDirectory
                | Error::NotDirectory
                | Error::Invalid(_)
                | Error::NotPermitted
                | Error::BadHandle(_),
            ) => {}
            Err(e) => panic!("{e}"),
        }
    }
}

/// Creating, renaming (replace and exchange), linking and removing files and directories, in own and shared
/// directories, ends without a deadlock and with a clean image.
#[test]
fn churn_leaves_a_clean_image() {
    needs::tools!("mke2fs");
    let device = mem_image("48M", &["-t", "ext4", "-J", "size=4"]);
    let volume = open(&device);
    for dir in ["/a", "/b", "/a/c"] {
        volume.create_dir_with_mode(dir, 0o777).unwrap();
    }
    let rounds = if torture() { 20_000 } else { 1_500 };
    std::thread::scope(|s| {
        for t in 0..THREADS {
            let volume = volume.clone();
            volume.create_dir(format!("/own{t}")).unwrap();
            s.spawn(move || churn(&volume, t, rounds));
        }
    });
    let live = snapshot(&volume).unwrap();
    volume.close().unwrap();
    assert_clean(&device, "after churn");
    let disk = snapshot(&open(&device)).unwrap();
    for (path, node) in &live {
        let same = disk.get(path) == Some(node);
        assert!(
            same,
            "{path} is not on disk as it was seen: {}",
            difference(node, disk.get(path))
        );
    }
    assert_eq!(disk.len(), live.len());
}

fn difference(seen: &Node, found: Option<&Node>) -> String {
    match (seen, found) {
        (Node::File(a), Some(Node::File(b))) => {
            let at = a.iter().zip(b).position(|(x, y)| x != y);
            format!(
                "lengths {} and {}, first difference at {at:?}",
                a.len(),
                b.len()
            )
        }
        (_, found) => format!("{:?}", found.map(std::mem::discriminant)),
    }
}
