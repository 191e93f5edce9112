//! Many threads through clones of one handle: no inode is handed out twice, every result is explained
//! by some order of the calls, and e2fsck is content.

mod common;

use common::*;
use extant::{Error, RenameMode, Volume};
use std::collections::{BTreeMap, HashSet};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

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

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Call {
    Create(bool),
    Unlink(bool),
}

#[derive(Clone, Copy, Debug)]
struct Event {
    begin: u64,
    end: u64,
    call: Call,
}

/// Is there an order of these calls, none before one that ended earlier, that explains all results?
fn explained(events: &mut [Event]) -> bool {
    events.sort_by_key(|e| e.begin);
    let after = |call, exists| match (call, exists) {
        (Call::Create(true), false) | (Call::Create(false), true) => Some(true),
        (Call::Unlink(true), true) | (Call::Unlink(false), false) => Some(false),
        _ => None,
    };
    // A depth-first search: how many have begun, which of those have not taken effect, what exists.
    let mut seen = HashSet::new();
    let mut todo = vec![(0usize, Vec::<usize>::new(), false)];
    while let Some((begun, waiting, exists)) = todo.pop() {
        if begun == events.len() && waiting.is_empty() {
            return true;
        }
        if !seen.insert((begun, waiting.clone(), exists)) {
            continue;
        }
        for (at, &i) in waiting.iter().enumerate() {
            if let Some(exists) = after(events[i].call, exists) {
                let mut left = waiting.clone();
                left.remove(at);
                todo.push((begun, left, exists));
            }
        }
        // The next call may begin only if nothing that ended before it still waits.
        if events
            .get(begun)
            .is_some_and(|n| waiting.iter().all(|&i| events[i].end > n.begin))
        {
            let mut more = waiting;
            more.push(begun);
            todo.push((begun + 1, more, exists));
        }
    }
    false
}

#[test]
fn the_search_for_an_order_can_fail() {
    let e = |begin, end, call| Event { begin, end, call };
    assert!(explained(&mut [
        e(0, 3, Call::Create(true)),
        e(1, 2, Call::Unlink(true))
    ]));
    assert!(!explained(&mut [
        e(0, 1, Call::Unlink(true)),
        e(2, 3, Call::Create(true))
    ]));
    assert!(!explained(&mut [
        e(0, 3, Call::Create(true)),
        e(1, 2, Call::Create(true))
    ]));
}

/// Creates and removals of few names by many threads are linearizable per name.
#[test]
fn results_are_explained_by_some_order() {
    if !have("mke2fs") {
        return;
    }
    let device = mem_image("32M", &["-t", "ext4", "-J", "size=4"]);
    let volume = open(&device);
    let clock = AtomicU64::new(0);
    let history: Mutex<BTreeMap<u64, Vec<Event>>> = Mutex::default();
    std::thread::scope(|s| {
        for t in 0..THREADS {
            let (volume, clock, history) = (volume.clone(), &clock, &history);
            s.spawn(move || {
                let mut rng = Rng::new(t + 1);
                for n in 0..800 {
                    let name = rng.below(12);
                    let path = format!("/n{name}");
                    let create = rng.below(2) == 0;
                    let begin = clock.fetch_add(1, Ordering::SeqCst);
                    let result = if create {
                        volume.create(&path, 0o644).map(drop)
                    } else {
                        volume.unlink(&path)
                    };
                    let end = clock.fetch_add(1, Ordering::SeqCst);
                    let ok = match result {
                        Ok(()) => true,
                        Err(Error::Exists | Error::NotFound) => false,
                        Err(e) => panic!("{e}"),
                    };
                    let call = if create {
                        Call::Create(ok)
                    } else {
                        Call::Unlink(ok)
                    };
                    history
                        .lock()
                        .unwrap()
                        .entry(name)
                        .or_default()
                        .push(Event { begin, end, call });
                    if n % 200 == 199 {
                        volume.sync().unwrap();
                    }
                }
            });
        }
    });
    for (name, mut events) in history.into_inner().unwrap() {
        let ok = explained(&mut events);
        assert!(ok, "no order explains the results for n{name}: {events:?}");
    }
    volume.close().unwrap();
    assert_clean(&device, "after contended names");
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
