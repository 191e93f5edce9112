//! Many threads through clones of one handle: no inode is handed out twice, nothing is lost, and e2fsck is
//! content. That every answer is explained by some order of the calls is for `linearizable.rs`.

mod common;

use common::*;
use extant::{Error, RenameMode, Volume};
use std::collections::HashSet;
use std::sync::Mutex;

const THREADS: u64 = 8;

/// Creates in own and in one shared directory: all inode numbers differ.
#[test]
fn no_inode_is_handed_out_twice() {
    create_from_many_threads();
}

/// With every context written in many parts: a number made and freed in one is then in use on disk in
/// between.
#[test]
fn no_inode_is_handed_out_twice_in_parts() {
    IN_PARTS.set(Some(40));
    create_from_many_threads();
}

fn create_from_many_threads() {
    if !have("mke2fs") {
        return;
    }
    let device = mem_image("64M", &["-t", "ext4", "-J", "size=4"]);
    let volume = open(&device);
    volume.create_dir("/shared", 0o777).unwrap();
    let inos = Mutex::new(Vec::new());
    std::thread::scope(|s| {
        for t in 0..THREADS {
            let (volume, inos) = (volume.clone(), &inos);
            s.spawn(move || {
                let own = volume.create_dir(format!("/own{t}"), 0o755).unwrap();
                let shared = volume.open_dir("/shared").unwrap();
                let mut mine = vec![own.ino()];
                for n in 0..600 {
                    let (dir, name) = if n % 2 == 0 {
                        (&own, format!("f{n}"))
                    } else {
                        (&shared, format!("f{t}.{n}"))
                    };
                    mine.push(dir.create(&name, 0o644).unwrap().ino());
                    if n % 7 == 0 {
                        // Freed at once: the number may come again, but never twice at a time.
                        dir.unlink(&name).unwrap();
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

/// Two threads exchange the same two names, an odd number of times in all: each exchange is done, none takes
/// what the other leaves half-way for two names of one file.
#[test]
fn no_exchange_is_lost() {
    if !have("mke2fs") {
        return;
    }
    extant::stir(6);
    let device = mem_image("16M", &["-t", "ext4", "-J", "size=4"]);
    let volume = open(&device);
    let (a, b) = (
        volume.create("/a", 0o644).unwrap().ino(),
        volume.create("/b", 0o644).unwrap().ino(),
    );
    std::thread::scope(|s| {
        for (times, old, new) in [(400, "/a", "/b"), (401, "/b", "/a")] {
            let volume = volume.clone();
            s.spawn(move || {
                for _ in 0..times {
                    volume.rename(old, new, RenameMode::Exchange).unwrap();
                }
            });
        }
    });
    let now = ["/a", "/b"].map(|path| volume.stat(path).unwrap().ino);
    assert_eq!(now, [b, a]);
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
                .create(&name, 0o644)
                .and_then(|f| f.write_at(rng.below(9000), b"data").map(drop)),
            2 => volume.unlink(&name),
            3 => volume.rename(&name, &other, RenameMode::Replace),
            4 => volume.rename(&name, &other, RenameMode::Exchange),
            5 => volume.create_dir(&name, 0o755).map(drop),
            6 => volume.remove_dir(&name),
            7 => volume.link(&name, &other),
            _ => volume
                .open(&name, extant::OpenFlags::READ | extant::OpenFlags::WRITE, 0)
                .and_then(|f| {
                    f.truncate(rng.below(20_000))?;
                    f.fsync()
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

/// Create, rename (replace and exchange), link, remove of files and directories, in own and shared
/// directories, ends without a deadlock and with a clean image.
#[test]
fn churn_leaves_a_clean_image() {
    if !have("mke2fs") {
        return;
    }
    let device = mem_image("48M", &["-t", "ext4", "-J", "size=4"]);
    let volume = open(&device);
    for dir in ["/a", "/b", "/a/c"] {
        volume.create_dir(dir, 0o777).unwrap();
    }
    let rounds = if torture() { 20_000 } else { 1_500 };
    std::thread::scope(|s| {
        for t in 0..THREADS {
            let volume = volume.clone();
            volume.create_dir(format!("/own{t}"), 0o755).unwrap();
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
