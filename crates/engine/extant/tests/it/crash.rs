//! Cutting the power at every write. For a set of workloads every write and flush is recorded. Then every prefix of
//! them is recovered by this engine, with all unflushed writes kept, and with some of them lost, reordered or torn at
//! 512 bytes. The result must be clean for e2fsck, hold the state of some moment between the last returned fsync and
//! the cut, and miss nothing that was synced.

use crate::common;
use blockdev::{BlockDevice, Crash, MemDevice, RecordingDevice};
use common::*;
use extant::{Fallocate, OpenOptions, RenameMode, Volume, VolumeOptions};
use std::collections::BTreeMap;
use std::sync::Arc;

type Tree = BTreeMap<String, Node>;

/// The recorder of a workload: it notes the tree after every operation, and the synced files.
struct Script<'a> {
    volume: &'a Volume,
    device: &'a RecordingDevice<MemDevice>,
    /// Tree after each operation.
    states: Vec<Tree>,
}

/// Marks in the log: an operation has returned, or a sync has.
const DONE: u64 = 1 << 32;
const SYNCED: u64 = 2 << 32;

impl Script<'_> {
    /// Runs an operation. The tree that callers see afterwards is one legal state after a crash.
    fn op(&mut self, f: impl FnOnce(&Volume) -> extant::Result<()>) {
        // From here on, a recovery may find the new state.
        f(self.volume).unwrap();
        self.states.push(snapshot(self.volume).unwrap());
        self.device.mark(DONE | (self.states.len() - 1) as u64);
    }

    /// Marks that everything until now must survive from here on.
    fn sync(&mut self) {
        self.volume.sync().unwrap();
        self.device.mark(SYNCED | (self.states.len() - 1) as u64);
    }
}

fn create_unlink(s: &mut Script<'_>) {
    for n in 0..12 {
        s.op(|v| v.create_new_file(format!("/f{n}")).map(drop));
        if n % 4 == 3 {
            s.sync();
        }
    }
    for n in (0..12).step_by(2) {
        s.op(|v| v.remove_file(format!("/f{n}")));
    }
    s.sync();
}

fn rename_over(s: &mut Script<'_>) {
    s.op(|v| v.create_dir("/a").map(drop));
    s.op(|v| v.create_dir("/b").map(drop));
    s.op(|v| v.create_new_file("/a/x").map(drop));
    s.op(|v| v.create_new_file("/b/y").map(drop));
    s.op(|v| v.create_dir("/a/d").map(drop));
    s.sync();
    s.op(|v| v.rename("/a/x", "/b/y"));
    s.op(|v| v.rename("/a/d", "/b/d"));
    s.sync();
    s.op(|v| v.rename_with("/b/y", "/a", RenameMode::Exchange));
    s.op(|v| v.rename("/b", "/c"));
    s.sync();
}

fn append_fsync(s: &mut Script<'_>) {
    s.op(|v| v.create_new_file("/log").map(drop));
    for n in 0..8u8 {
        s.op(|v| {
            let file = v.open_file_with("/log", &OpenOptions::new().append(true))?;
            file.append(&vec![b'a' + n; 3_000])?;
            file.sync_all()
        });
        s.device.mark(SYNCED | (s.states.len() - 1) as u64);
    }
}

fn truncate(s: &mut Script<'_>) {
    s.op(|v| v.write("/t", vec![7; 100_000]));
    s.sync();
    for size in [70_000, 8_192, 9_000, 0, 50_000] {
        s.op(|v| v.set_len("/t", size));
        s.sync();
    }
    s.op(|v| v.remove_file("/t"));
    s.sync();
}

/// Grows a file by small steps and cuts it, again and again. Such operations are logged in place of the previous one,
/// and blocks are allocated and freed inside one context. Other operations, of this file and of others, come between
/// them.
fn grow_and_cut(s: &mut Script<'_>) {
    let file = s.volume.create_new_file("/g").unwrap();
    s.op(|_| Ok(()));
    let grow = |n: u64| file.fallocate(Fallocate::default(), n * 8192, 8192);
    for round in 0..4u64 {
        for n in 0..6 {
            s.op(|_| grow(n));
        }
        s.op(|v| v.create_new_file(format!("/between{round}")).map(drop));
        for n in 6..9 {
            s.op(|_| grow(n));
            if n == 7 && round == 1 {
                s.sync();
            }
        }
        if round == 2 {
            s.op(|_| file.write_all_at(&[9; 20_000], 10_000));
            s.sync();
        }
        s.op(|_| file.set_len(0));
        s.op(|_| grow(0));
        if round == 3 {
            s.op(|v| v.remove_file("/g"));
        }
        s.op(|_| file.set_len(0));
        s.op(|_| grow(0));
        s.op(|_| grow(1));
        if round != 1 {
            s.sync();
        }
    }
    drop(file);
    s.sync();
}

fn directory_growth(s: &mut Script<'_>) {
    s.op(|v| v.create_dir("/big").map(drop));
    s.sync();
    for round in 0..4 {
        s.op(|v| {
            let dir = v.open_dir("/big")?;
            // The model must not count these as one operation: the names are judged as a set below.
            (0..60).try_for_each(|n| dir.symlink("t", format!("{:0>40}", round * 60 + n)))
        });
        s.sync();
    }
    for n in 0..40 {
        s.op(|v| v.remove_file(format!("/big/{n:0>40}")));
    }
    s.sync();
}

/// Many operations of each kind between two syncs: more than fit into one transaction when contexts are written in
/// parts.
fn burst(s: &mut Script<'_>) {
    s.op(|v| v.create_dir("/a").map(drop));
    for n in 0..40 {
        s.op(|v| v.create_new_file(format!("/a/{n:0>60}")).map(drop));
        if n % 3 == 0 {
            s.op(|v| v.rename(format!("/a/{n:0>60}"), format!("/r{n}")));
        }
        if n % 5 == 0 {
            s.op(|v| v.create_dir(format!("/d{n}")).map(drop));
        }
        if n % 4 == 3 {
            // The inode is freed in the context that made it, so its number is used again.
            s.op(|v| {
                v.remove_file(format!("/a/{n:0>60}"))
                    .or_else(|_| v.remove_file(format!("/r{n}")))
            });
        }
        if n % 10 == 7 {
            s.op(|v| v.rename(format!("/d{}", n - 2), "/a/moved"));
            s.op(|v| v.remove_dir("/a/moved"));
        }
    }
    s.sync();
    for n in 0..40 {
        s.op(|v| match v.remove_file(format!("/a/{n:0>60}")) {
            Ok(()) | Err(extant::Error::NotFound) => Ok(()),
            other => other,
        });
    }
    s.sync();
}

fn orphan(s: &mut Script<'_>) {
    s.op(|v| v.write("/o", vec![1; 20_000]));
    s.sync();
    let file = s.volume.open_file("/o").unwrap();
    s.op(|v| v.remove_file("/o"));
    s.sync();
    drop(file);
    s.sync();
}

/// Files made without a name: some are named, some are not.
fn unnamed(s: &mut Script<'_>) {
    let content = |n: usize| vec![n as u8; 9_000];
    let files: Vec<_> = (0..6)
        .map(|n| {
            let file = s.volume.create_unnamed(0o644).unwrap();
            file.write_all_at(&content(n), 0).unwrap();
            if n % 2 == 0 {
                file.sync_all().unwrap();
            }
            s.op(|_| Ok(()));
            file
        })
        .collect();
    s.sync();
    for (n, file) in files.iter().enumerate().take(4) {
        s.op(|v| v.link_file(file, format!("/named{n}")));
        if n == 1 {
            s.sync();
        }
    }
    s.op(|v| v.link_file(&files[0], "/again"));
    s.op(|v| v.remove_file("/named1"));
    s.sync();
    drop(files);
    // The file is named in the context that made it.
    s.op(|v| v.link_file(&v.create_unnamed(0o600)?, "/at once"));
    s.sync();
}

fn whiteout(s: &mut Script<'_>) {
    s.op(|v| v.create_dir("/a").map(drop));
    s.op(|v| v.create_dir("/a/d").map(drop));
    for name in ["/a/x", "/a/y", "/z"] {
        s.op(|v| v.write(name, b"1").or_else(|_| v.remove_file(name)));
    }
    s.sync();
    s.op(|v| v.rename_with("/a/x", "/a/renamed", RenameMode::Whiteout));
    s.op(|v| v.rename_with("/a/d", "/d", RenameMode::Whiteout));
    s.op(|v| v.rename_with("/a/y", "/z", RenameMode::Whiteout));
    s.sync();
    s.op(|v| v.rename("/d", "/a/d").or_else(|_| v.remove_file("/a/d")));
    s.op(|v| v.rename_with("/d", "/a/d", RenameMode::WhiteoutNoReplace));
    s.op(|v| v.rename_with("/d", "/moved", RenameMode::Whiteout));
    s.sync();
}

fn import(s: &mut Script<'_>) {
    for d in 0..3 {
        s.op(|v| v.create_dir(format!("/d{d}")).map(drop));
        for n in 0..4usize {
            s.op(|v| {
                let file = v.create_new_file(format!("/d{d}/f{n}"))?;
                file.write_at(&vec![n as u8; n * 3_000], 0)?;
                file.set_xattr("user.n", &[n as u8; 40], extant::SetXattr::Any)
            });
        }
        s.op(|v| v.symlink("x".repeat(90), format!("/d{d}/l")));
    }
    s.sync();
}

/// A file in many pieces, with a hole and with blocks that were set aside, is moved into few; a write between two
/// rounds.
fn defragment(s: &mut Script<'_>) {
    let content = |n: u64| vec![n as u8 + 1; 4096];
    let file = s.volume.create_new_file("/f").unwrap();
    s.op(|_| Ok(()));
    // Backwards, so that no block follows its neighbour.
    for n in (0..24).rev() {
        s.op(|_| file.write_all_at(&content(n), n * 4096));
        s.op(|_| file.sync_all());
    }
    let keep = Fallocate::Allocate { keep_size: true };
    s.op(|_| file.fallocate(keep, 30 * 4096, 8 * 4096));
    s.op(|_| file.fallocate(Fallocate::PunchHole, 8 * 4096, 2 * 4096));
    s.sync();
    s.op(|_| {
        file.defragment()
            .map(|done| assert!(done.before > 20 && done.after <= 4, "{done:?}"))
    });
    s.op(|v| v.write("/other", vec![9; 60_000]));
    s.sync();
    for n in [3, 2, 1] {
        s.op(|_| file.fallocate(Fallocate::PunchHole, n * 4096, 4096));
        s.sync();
        s.op(|_| file.write_all_at(&content(n), n * 4096));
        s.sync();
    }
    s.op(|_| file.defragment().map(drop));
    s.sync();
}

/// The log is emptied while files are durable by fast commits alone.
fn checkpoint(s: &mut Script<'_>) {
    // The next push empties a log that is half full.
    let is_half_full = |log: extant::LogState| log.used_blocks * 2 > log.blocks;
    let mut batch = 0;
    while !is_half_full(s.volume.log_state()) {
        s.op(|v| (0..60).try_for_each(|n| v.create_dir(format!("/{batch}-{n}")).map(drop)));
        s.sync();
        batch += 1;
    }
    for n in 0..2u8 {
        s.op(|v| {
            let file = v.create_new_file(format!("/f{n}"))?;
            file.write_all_at(&[n; 3000], 0)?;
            file.sync_all()
        });
        s.device.mark(SYNCED | (s.states.len() - 1) as u64);
    }
    s.op(|v| v.create_dir("/last").map(drop));
    s.sync();
}

/// Compares a state after a crash with one that the program saw: names, types and links must agree. Unless a file was
/// synced, it may have less data than was written, because write-back had not reached it.
fn agrees(found: &Tree, state: &Tree, data: bool) -> bool {
    found.len() == state.len()
        && found.iter().zip(state).all(|((p, f), (q, s))| {
            p == q
                && match (f, s) {
                    (Node::File(_), Node::File(_)) if !data => true,
                    _ => f == s,
                }
        })
}

fn judge(
    device: &MemDevice,
    states: &[Tree],
    synced: usize,
    started: usize,
    what: &str,
    fsck: bool,
) {
    let device = Arc::new(device.snapshot());
    let volume = VolumeOptions::new()
        .background(false)
        .open_device(Arc::clone(&device) as Arc<dyn BlockDevice>)
        .unwrap_or_else(|e| panic!("{what}: does not open: {e}"));
    let found = snapshot(&volume).unwrap_or_else(|e| panic!("{what}: cannot be read: {e}"));
    let last = (started + 1).min(states.len() - 1);
    let exact = agrees(&found, &states[synced], true);
    let later = (synced..=last).any(|k| agrees(&found, &states[k], false));
    let within_op = prefix_within(&found, &states[synced], &states[last]);
    assert!(
        exact || later || within_op,
        "{what}: found {:?}\nno state from {synced} to {last}; synced: {:?}",
        found.keys().collect::<Vec<_>>(),
        states[synced].keys().collect::<Vec<_>>()
    );
    // Files that were synced and not changed since have their data.
    for (path, node) in &states[synced] {
        let untouched = (synced..=last).all(|k| states[k].get(path) == Some(node));
        if untouched {
            assert_eq!(found.get(path), Some(node), "{what}: {path} was synced");
        }
    }
    volume
        .close()
        .unwrap_or_else(|e| panic!("{what}: does not close: {e}"));
    if fsck {
        assert_clean(&device, what);
    }
}

/// A cut may show a part of an operation that is a loop of many: every name must be of the state before or of the
/// state after.
fn prefix_within(found: &Tree, before: &Tree, after: &Tree) -> bool {
    before
        .keys()
        .all(|p| found.contains_key(p) || !after.contains_key(p))
        && found
            .keys()
            .all(|p| before.contains_key(p) || after.contains_key(p))
        && after.len().abs_diff(before.len()) > 20
}

fn run(name: &str, mke2fs_args: &[&str], workload: fn(&mut Script<'_>)) {
    needs::tools!("mke2fs", "e2fsck");
    let base = mem_image("24M", mke2fs_args);
    let device = Arc::new(RecordingDevice::new(base.snapshot()));
    let volume = options()
        .open_device(Arc::clone(&device) as Arc<dyn BlockDevice>)
        .unwrap();
    let mut script = Script {
        volume: &volume,
        device: &device,
        states: vec![Tree::new()],
    };
    device.mark(SYNCED);
    workload(&mut script);
    let states = std::mem::take(&mut script.states);
    drop(script);
    volume.close().unwrap();
    let log = device.take_log();
    let seeds = if torture() { 24 } else { 3 };
    let mut replayer = log.replay(&base);
    let (mut synced, mut started, mut judged) = (0, 0, 0usize);
    loop {
        let position = replayer.position();
        let what = format!("{name}: cut after event {position}");
        // e2fsck is slow: it sees every image in a torture run, else a sample.
        judge(
            &replayer.image(),
            &states,
            synced,
            started,
            &what,
            torture() || judged % 16 == 0 || name == FILE_WITHOUT_NAME,
        );
        if replayer.pending().len() > 0 {
            for seed in 0..seeds {
                let crashed = replayer
                    .crash(&Crash::new(seed * 7919 + position as u64))
                    .unwrap();
                let what = format!("{what}, un-flushed writes by seed {seed}");
                judge(
                    &crashed,
                    &states,
                    synced,
                    started,
                    &what,
                    torture() || (judged + seed as usize) % 48 == 1,
                );
            }
        }
        judged += 1;
        match replayer.step().unwrap() {
            None => break,
            Some(blockdev::Event::Mark(mark)) => {
                let number = (*mark & 0xFFFF_FFFF) as usize;
                if *mark & SYNCED != 0 {
                    synced = number;
                }
                started = started.max(number);
            }
            Some(_) => {}
        }
    }
    eprintln!("{name}: {judged} cuts of {} states", states.len());
    // The journal alone is enough for e2fsck too: a sample of raw cuts is repaired by it without a complaint.
    fsck_recovers(&log, &base, name);
}

/// Checks that e2fsck replays a journal written here and then only mends the parts that it always fixes after a replay
/// (counts, orphans).
fn fsck_recovers(log: &blockdev::Log, base: &MemDevice, name: &str) {
    let mut replayer = log.replay(base);
    let mut n = 0usize;
    while replayer.step().unwrap().is_some() {
        n += 1;
        if !n.is_multiple_of(if torture() { 7 } else { 41 }) {
            continue;
        }
        let dir = needs::memory_dir();
        let path = dir.path().join("image");
        write_image(&replayer.image(), &path);
        let out = std::process::Command::new("e2fsck")
            .args(["-f", "-p"])
            .arg(&path)
            .output()
            .unwrap();
        let code = out.status.code().unwrap_or(99);
        assert!(
            code <= 1,
            "{name}: e2fsck -p after event {n}: {}",
            String::from_utf8_lossy(&out.stdout)
        );
        assert_clean_file(&path, name);
    }
}

/// Arguments of mke2fs with the feature `fast_commit`, and a journal that has room for it.
fn with_fast_commits<'a>(args: &[&'a str]) -> Vec<&'a str> {
    let mut args = args.to_vec();
    match args.iter_mut().find(|arg| **arg == "orphan_file") {
        Some(features) => *features = "orphan_file,fast_commit",
        None => args.extend(["-O", "fast_commit"]),
    }
    args.extend([
        "-J",
        if args.contains(&"1024") {
            "size=2"
        } else {
            "size=8"
        },
    ]);
    args
}

macro_rules! workloads {
    ($($name:ident: $args:expr;)*) => { $(mod $name {
        #[test]
        fn default() { super::run(stringify!($name), $args, super::$name); }

        #[test]
        fn fast_commits() {
            let name = concat!(stringify!($name), ", fast commits");
            super::run(name, &super::with_fast_commits($args), super::$name);
        }
    })* };
}

workloads! {
    create_unlink: &["-t", "ext4", "-J", "size=4"];
    rename_over: &["-t", "ext4", "-J", "size=4"];
    append_fsync: &["-t", "ext4", "-J", "size=4"];
    truncate: &["-t", "ext4", "-J", "size=4"];
    checkpoint: &["-t", "ext4", "-b", "1024", "-J", "size=2"];
    grow_and_cut: &["-t", "ext4", "-J", "size=4"];
    directory_growth: &["-t", "ext4", "-b", "1024", "-J", "size=4"];
    orphan: &["-t", "ext4", "-J", "size=4", "-O", "orphan_file"];
    unnamed: &["-t", "ext4", "-J", "size=4", "-O", "orphan_file"];
    whiteout: &["-t", "ext4", "-J", "size=4"];
    import: &["-t", "ext4", "-J", "size=4"];
    defragment: &["-t", "ext4", "-J", "size=4"];
}

/// A file without a name once left the orphan list while it was cut in steps: only e2fsck sees that.
const FILE_WITHOUT_NAME: &str = "growing and cutting, in parts";

#[test]
fn contexts_in_parts() {
    run(
        "burst",
        &["-t", "ext4", "-b", "1024", "-J", "size=1"],
        burst,
    );
    IN_PARTS.set(Some(14));
    let args = &["-t", "ext4", "-b", "1024", "-J", "size=1"];
    run("burst, in parts", args, burst);
    run("growth, in parts", args, directory_growth);
    run("import, in parts", args, import);
    run("truncate, in parts", args, truncate);
    run(
        "defragment, in parts",
        &["-t", "ext4", "-J", "size=4"],
        defragment,
    );
    run(FILE_WITHOUT_NAME, args, grow_and_cut);
}

#[test]
fn orphans_on_the_list() {
    run(
        "orphan, no orphan file",
        &["-t", "ext4", "-J", "size=4"],
        orphan,
    );
    let name = "unnamed, no orphan file";
    run(name, &["-t", "ext4", "-J", "size=4"], unnamed);
}

#[test]
fn ext3() {
    run(
        "truncate, ext3",
        &["-t", "ext3", "-b", "1024", "-J", "size=2"],
        truncate,
    );
    run("import, ext3", &["-t", "ext3", "-J", "size=4"], import);
}
