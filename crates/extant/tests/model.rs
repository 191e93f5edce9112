//! Random operations against a reference model, over every kind of image: each result is compared, the
//! whole tree at the end and after reopening, and e2fsck has the last word. A failing sequence is
//! shrunk before it is shown.

mod common;
#[path = "model/ops.rs"]
mod ops;
#[path = "model/reference.rs"]
mod reference;

use blockdev::MemDevice;
use common::*;
use extant::{
    Attributes, Error, File, FileType, OpenFlags, Seek, SetAttributes, SetXattr, Timestamp, Volume,
};
use ops::{Generator, Op, SLOTS, bulk_name, pattern};
use reference::{Answer, Id, Kind, Model};
use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

/// A volume under test, and what is open.
struct Subject {
    device: Arc<MemDevice>,
    volume: Option<Volume>,
    held: [Option<(File, Id)>; SLOTS],
}

impl Subject {
    fn volume(&self) -> &Volume {
        self.volume.as_ref().expect("open between operations")
    }

    fn close(&mut self) {
        self.held = Default::default();
        if let Some(volume) = self.volume.take() {
            volume.close().expect("close");
        }
    }

    fn reopen(&mut self, model: &Model) {
        self.held = Default::default();
        self.volume().sync().expect("sync");
        let before = attributes(self.volume(), model);
        self.close();
        self.volume = Some(open(&self.device));
        let after = attributes(self.volume(), model);
        for (path, a) in before {
            let b = after.get(&path);
            assert_eq!(Some(&a), b, "{path}: attributes before and after reopening");
        }
    }
}

fn attributes(volume: &Volume, model: &Model) -> BTreeMap<String, Attributes> {
    // The index of a directory is made, and flagged, when it is formatted.
    let stored = |a: Attributes| Attributes {
        flags: a.flags & !ext4_format::inode::flags::INDEX,
        ..a
    };
    model
        .paths()
        .into_iter()
        .map(|(path, _)| {
            let attributes = volume
                .lstat(if path.is_empty() { "/" } else { &path })
                .expect("lstat");
            (path, stored(attributes))
        })
        .collect()
}

fn code<T>(result: extant::Result<T>) -> Answer<T> {
    result.map_err(|e| {
        // Nothing in these sequences may bring the volume down.
        assert!(
            !matches!(
                e,
                Error::Io { .. } | Error::Stopped(_) | Error::Format(_) | Error::ReadOnly(_)
            ),
            "{e}"
        );
        e.errno()
    })
}

fn write_flags() -> OpenFlags {
    OpenFlags::READ | OpenFlags::WRITE
}

fn read_all(file: &File) -> Vec<u8> {
    let mut bytes = vec![0; file.stat().unwrap().size as usize];
    let n = file.read_at(0, &mut bytes).unwrap();
    assert_eq!(n, bytes.len(), "a read ends only at the end of the file");
    bytes
}

#[track_caller]
fn same_bytes(found: &[u8], expected: &[u8], what: &str) {
    if found != expected {
        let at = found.iter().zip(expected).position(|(a, b)| a != b);
        panic!(
            "{what}: lengths {} and {} expected, first difference at {at:?}",
            found.len(),
            expected.len()
        );
    }
}

/// Data and holes alternate over the whole file, and every byte that is not zero is data.
fn check_seek(file: &File, data: &[u8], from: u64) {
    let size = data.len() as u64;
    let mut at = from;
    while at < size {
        let next = match file.seek(at, Seek::Data) {
            Ok(next) => next,
            Err(Error::NoSuchOffset) => size,
            Err(e) => panic!("seek data from {at}: {e}"),
        };
        assert!(
            next >= at && next <= size,
            "data after {at} at {next} of {size}"
        );
        let zeros = data[at as usize..next as usize].iter().all(|&b| b == 0);
        assert!(zeros, "what lies from {at} to {next} is no hole");
        if next == size {
            break;
        }
        let hole = file
            .seek(next, Seek::Hole)
            .expect("the end of the file is a hole");
        assert!(
            hole > next && hole <= size,
            "hole after {next} at {hole} of {size}"
        );
        at = hole;
    }
    assert!(matches!(
        file.seek(size, Seek::Data),
        Err(Error::NoSuchOffset)
    ));
    assert!(matches!(
        file.seek(size, Seek::Hole),
        Err(Error::NoSuchOffset)
    ));
}

/// Runs one operation on both and compares the answers.
fn step(op: &Op, subject: &mut Subject, model: &mut Model) {
    let v = subject.volume().clone();
    match op {
        Op::Open {
            path,
            create,
            exclusive,
            cut,
            mode,
        } => {
            let mut flags = write_flags();
            flags.set(OpenFlags::CREATE, *create);
            flags.set(OpenFlags::EXCLUSIVE, *create && *exclusive);
            flags.set(OpenFlags::TRUNCATE, *cut);
            let expected = model
                .open(path, *create, *exclusive, *cut, *mode)
                .map(|_| ());
            assert_eq!(code(v.open(path, flags, *mode).map(|_| ())), expected);
        }
        Op::Write {
            path,
            at,
            len,
            fill,
        } => {
            let bytes = pattern(*len, *fill);
            let expected = model
                .open(path, false, false, false, 0)
                .and_then(|id| model.write(id, *at, &bytes));
            let found = v
                .open(path, write_flags(), 0)
                .and_then(|f| f.write_at(*at, &bytes).map(drop));
            assert_eq!(code(found), expected);
        }
        Op::Append { path, len, fill } => {
            let bytes = pattern(*len, *fill);
            let expected = model.open(path, false, false, false, 0).and_then(|id| {
                let at = model.data(id).map_or(0, Vec::len) as u64;
                model.write(id, at, &bytes)
            });
            let found = v
                .open(path, OpenFlags::APPEND, 0)
                .and_then(|f| f.append(&bytes).map(drop));
            assert_eq!(code(found), expected);
        }
        Op::Truncate { path, size } => {
            let expected = model
                .open(path, false, false, false, 0)
                .and_then(|id| model.truncate(id, *size));
            assert_eq!(code(v.truncate(path, *size)), expected);
        }
        Op::Fallocate { path, how, at, len } => {
            let expected = model
                .open(path, false, false, false, 0)
                .and_then(|id| model.fallocate(id, *how, *at, *len));
            let found = v.open(path, write_flags(), 0).and_then(|f| {
                f.fallocate(*how, *at, *len)?;
                if *how == extant::Fallocate::PunchHole {
                    no_data_in_punched(&f, &v, *at, *len);
                }
                Ok(())
            });
            assert_eq!(code(found), expected);
        }
        Op::Read { path, at, len } => {
            let expected = model.walk(path, true).and_then(|id| match model.data(id) {
                Some(data) => {
                    let at = (*at as usize).min(data.len());
                    Ok(data[at..(at + len).min(data.len())].to_vec())
                }
                None => reference::err(rustix::io::Errno::ISDIR),
            });
            let found = v.open(path, OpenFlags::READ, 0).and_then(|f| {
                let mut bytes = vec![0xEE; *len];
                let n = f.read_at(*at, &mut bytes)?;
                bytes.truncate(n);
                Ok(bytes)
            });
            match (code(found), expected) {
                (Ok(found), Ok(expected)) => same_bytes(&found, &expected, path),
                (found, expected) => assert_eq!(found.map(|b| b.len()), expected.map(|b| b.len())),
            }
        }
        Op::Seek { path, at } => {
            if let Some(data) = model.walk(path, true).ok().and_then(|id| model.data(id)) {
                check_seek(&v.open(path, OpenFlags::READ, 0).unwrap(), data, *at);
            }
        }
        Op::Link { old, new } => assert_eq!(code(v.link(old, new)), model.link(old, new)),
        Op::Unlink { path } => assert_eq!(code(v.unlink(path)), model.unlink(path)),
        Op::Mkdir { path, mode } => {
            let kind = Kind::Dir {
                names: BTreeMap::new(),
                parent: 0,
            };
            assert_eq!(
                code(v.create_dir(path, *mode).map(drop)),
                model.make(path, kind, *mode).map(drop)
            );
        }
        Op::Rmdir { path } => assert_eq!(code(v.remove_dir(path)), model.rmdir(path)),
        Op::Rename { old, new, mode } => {
            assert_eq!(
                code(v.rename(old, new, *mode)),
                model.rename(old, new, *mode)
            );
        }
        Op::Symlink { target, path } => {
            let expected = model
                .make(path, Kind::Symlink(target.clone()), 0o777)
                .map(drop);
            assert_eq!(code(v.symlink(target, path)), expected);
        }
        Op::ReadLink { path } => {
            let expected = model
                .walk(path, false)
                .and_then(|id| match &model.nodes[id].kind {
                    Kind::Symlink(target) => Ok(target.clone().into_bytes()),
                    _ => reference::err(rustix::io::Errno::INVAL),
                });
            assert_eq!(code(v.read_link(path)), expected);
        }
        Op::Mknod {
            path,
            file_type,
            rdev,
            mode,
        } => {
            let kind = Kind::Special(*file_type, *rdev);
            let expected = model.make(path, kind, *mode).map(drop);
            assert_eq!(code(v.mknod(path, *file_type, *mode, *rdev)), expected);
        }
        Op::Chmod { path, mode } => {
            let set = SetAttributes {
                mode: Some(*mode),
                ..Default::default()
            };
            let expected = model.walk(path, true).map(|id| model.chmod(id, *mode));
            assert_eq!(code(v.set_attributes(path, &set)), expected);
        }
        Op::Chown { path, uid, gid } => {
            let set = SetAttributes {
                uid: Some(*uid),
                gid: Some(*gid),
                ..Default::default()
            };
            let expected = model.walk(path, true).map(|id| model.chown(id, *uid, *gid));
            assert_eq!(code(v.set_attributes(path, &set)), expected);
        }
        Op::Times { path, atime, mtime } => {
            let time = |t: &(i64, u32)| {
                Some(Timestamp {
                    secs: t.0,
                    nanos: t.1,
                })
            };
            let set = SetAttributes {
                atime: time(atime),
                mtime: time(mtime),
                ..Default::default()
            };
            let expected = model
                .walk(path, false)
                .map(|id| model.set_times(id, *atime, *mtime));
            assert_eq!(code(v.lset_attributes(path, &set)), expected);
        }
        Op::SetXattr {
            path,
            name,
            len,
            fill,
            how,
        } => {
            let value = pattern(*len, *fill);
            let before = model.clone();
            let expected = model
                .walk(path, false)
                .and_then(|id| model.set_xattr(id, name, &value, *how));
            let found = code(v.set_xattr(path, name, &value, *how));
            let full = found == reference::err(rustix::io::Errno::NOSPC);
            if let (true, Ok(id)) = (full, model.walk(path, false)) {
                // The block is what attributes fit into; how much exactly is for e2fsck to judge.
                let limit = v.geometry().block_size as usize - 64;
                assert!(
                    model.xattr_bytes(id) > limit,
                    "{} bytes of attributes must fit",
                    model.xattr_bytes(id)
                );
                *model = before;
            } else {
                assert_eq!(found, expected);
            }
        }
        Op::RemoveXattr { path, name } => {
            let expected = model
                .walk(path, false)
                .and_then(|id| model.remove_xattr(id, name));
            assert_eq!(code(v.remove_xattr(path, name)), expected);
        }
        Op::SetAcl { path, default, acl } => {
            let before = model.clone();
            let expected = model
                .walk(path, false)
                .and_then(|id| model.set_acl(id, *default, acl));
            let name = if *default {
                reference::DEFAULT
            } else {
                reference::ACCESS
            };
            let found = code(v.set_xattr(path, name, &reference::encode_acl(acl), SetXattr::Any));
            if found == reference::err(rustix::io::Errno::NOSPC) {
                *model = before;
            } else {
                assert_eq!(found, expected);
            }
        }
        Op::Bulk {
            dir,
            first,
            count,
            remove,
        } => {
            for n in *first..first + count {
                let path = format!("{dir}/{}", bulk_name(n));
                if *remove {
                    assert_eq!(code(v.unlink(&path)), model.unlink(&path));
                } else {
                    let expected = model.open(&path, true, true, false, 0o600).map(drop);
                    assert_eq!(code(v.create(&path, 0o600).map(drop)), expected);
                }
            }
        }
        Op::List { dir, step } => list_while_changing(&v, model, dir, *step),
        Op::Hold { slot, path } => {
            let expected = model.open(path, false, false, false, 0);
            let found = v.open(path, write_flags(), 0);
            subject.held[*slot] = None;
            match (found, expected) {
                (Ok(file), Ok(id)) => subject.held[*slot] = Some((file, id)),
                (found, expected) => assert_eq!(code(found.map(drop)), expected.map(drop)),
            }
        }
        Op::HeldWrite {
            slot,
            at,
            len,
            fill,
        } => {
            if let Some((file, id)) = &subject.held[*slot] {
                let bytes = pattern(*len, *fill);
                assert_eq!(
                    code(file.write_at(*at, &bytes).map(drop)),
                    model.write(*id, *at, &bytes)
                );
            }
        }
        Op::HeldTruncate { slot, size } => {
            if let Some((file, id)) = &subject.held[*slot] {
                assert_eq!(code(file.truncate(*size)), model.truncate(*id, *size));
            }
        }
        Op::HeldRead { slot } => {
            if let Some((file, id)) = &subject.held[*slot] {
                if let Some(data) = model.data(*id) {
                    same_bytes(&read_all(file), data, "through a handle");
                }
                assert_eq!(
                    file.stat().unwrap().links,
                    model.nodes[*id].links,
                    "links through a handle"
                );
            }
        }
        Op::Release { slot } => subject.held[*slot] = None,
        Op::Fsync { path } => {
            let expected = model.open(path, false, false, false, 0).map(drop);
            let found = v.open(path, OpenFlags::WRITE, 0).and_then(|f| f.fsync());
            assert_eq!(code(found), expected);
        }
        Op::Sync => v.sync().expect("sync"),
        Op::DropCaches => v.drop_caches(),
        Op::Reopen => {
            drop(v);
            subject.reopen(model);
        }
    }
}

/// The whole blocks of a punched range hold no data.
fn no_data_in_punched(file: &File, volume: &Volume, at: u64, len: u64) {
    let bs = u64::from(volume.geometry().block_size);
    let (first, last) = (at.next_multiple_of(bs), (at + len) / bs * bs);
    let size = file.stat().unwrap().size;
    if first < last && first < size {
        let data = file.seek(first, Seek::Data).unwrap_or(size);
        assert!(
            data >= last.min(size),
            "data at {data} in the range punched from {first} to {last}"
        );
    }
}

/// Lists a directory in steps of a few names while some come and go: those that are there all the time
/// are shown once, in steps that end.
fn list_while_changing(v: &Volume, model: &mut Model, dir: &str, step: usize) {
    let at = if dir.is_empty() { "/" } else { dir };
    let Ok(id) = model.walk(dir, true) else {
        return;
    };
    if model.names(id).is_none() {
        return;
    }
    let stay: Vec<String> = model
        .names(id)
        .map(|n| n.keys().cloned().collect())
        .unwrap_or_default();
    let mut seen: BTreeMap<String, u32> = BTreeMap::new();
    let (mut cookie, mut round) = (0, 0u32);
    loop {
        let part = v.read_dir_from(at, cookie, step).unwrap();
        let Some(last) = part.last() else { break };
        assert!(last.cookie > cookie, "cookies grow");
        cookie = last.cookie;
        for entry in &part {
            *seen
                .entry(String::from_utf8(entry.name.clone()).unwrap())
                .or_default() += 1;
        }
        round += 1;
        assert!(round < 10_000, "the listing does not end");
        let come = format!("{dir}/comes{}", round % 5);
        assert_eq!(
            code(v.create(&come, 0o600).map(drop)),
            model.open(&come, true, true, false, 0o600).map(drop)
        );
        let go = format!("{dir}/comes{}", (round + 2) % 5);
        assert_eq!(code(v.unlink(&go)), model.unlink(&go));
        if round % 7 == 0 {
            v.sync().unwrap();
        }
    }
    for n in 0..5 {
        let path = format!("{dir}/comes{n}");
        assert_eq!(code(v.unlink(&path)), model.unlink(&path));
    }
    for name in stay.iter().filter(|n| !n.starts_with("comes")) {
        assert_eq!(
            seen.get(name),
            Some(&1),
            "{name} in a listing of {at} in steps of {step}"
        );
    }
}

/// The whole tree agrees: names, contents, attributes.
fn compare(volume: &Volume, model: &Model) {
    let mut inos: BTreeMap<Id, u32> = BTreeMap::new();
    for (path, id) in model.paths() {
        let node = &model.nodes[id];
        let at = if path.is_empty() { "/" } else { &path };
        let found = volume.lstat(at).unwrap_or_else(|e| panic!("{at}: {e}"));
        assert_eq!(found.file_type, node.file_type(), "{at}: type");
        assert_eq!(
            found.mode as u16 & 0o7777,
            node.mode,
            "{at}: mode is {:o}, not {:o}",
            found.mode & 0o7777,
            node.mode
        );
        assert_eq!((found.uid, found.gid), (node.uid, node.gid), "{at}: owner");
        assert_eq!(found.links, node.links, "{at}: links");
        assert_eq!(
            *inos.entry(id).or_insert(found.ino),
            found.ino,
            "{at}: hard links lead to one inode"
        );
        for (kind, time, expected) in [
            ("atime", found.atime, node.atime),
            ("mtime", found.mtime, node.mtime),
        ] {
            if let Some(expected) = expected {
                assert_eq!((time.secs, time.nanos), expected, "{at}: {kind}");
            }
        }
        match &node.kind {
            Kind::Dir { names, .. } => {
                let mut listed: Vec<_> = volume.read_dir(at).unwrap();
                listed.retain(|e| !(path.is_empty() && e.name == b"lost+found"));
                listed.sort_by(|a, b| a.name.cmp(&b.name));
                let shown: Vec<_> = listed
                    .iter()
                    .map(|e| (String::from_utf8_lossy(&e.name).into_owned(), e.file_type))
                    .collect();
                let expected: Vec<_> = names
                    .iter()
                    .map(|(n, &id)| (n.clone(), model.nodes[id].file_type()))
                    .collect();
                assert_eq!(shown, expected, "{at}: names");
                assert_eq!(
                    found.size % u64::from(volume.geometry().block_size),
                    0,
                    "{at}: size of a directory"
                );
            }
            Kind::File(data) => {
                assert_eq!(found.size, data.len() as u64, "{at}: size");
                let file = volume.open(at, OpenFlags::READ, 0).unwrap();
                same_bytes(&read_all(&file), data, at);
                check_seek(&file, data, 0);
            }
            Kind::Symlink(target) => {
                assert_eq!(
                    volume.read_link(at).unwrap(),
                    target.as_bytes(),
                    "{at}: target"
                );
                assert_eq!(found.size, target.len() as u64, "{at}: size");
            }
            Kind::Special(file_type, rdev) => {
                let device = matches!(file_type, FileType::CharDevice | FileType::BlockDevice);
                assert_eq!(
                    found.rdev,
                    if device { *rdev } else { 0 },
                    "{at}: device number"
                );
            }
        }
        let mut listed = volume.list_xattrs(at).unwrap();
        listed.sort();
        let expected: Vec<_> = node.xattrs.keys().map(|n| n.as_bytes().to_vec()).collect();
        assert_eq!(listed, expected, "{at}: attributes");
        for (name, value) in &node.xattrs {
            assert_eq!(&volume.get_xattr(at, name).unwrap(), value, "{at}: {name}");
        }
    }
    assert_eq!(
        inos.values()
            .collect::<std::collections::BTreeSet<_>>()
            .len(),
        inos.len(),
        "different files have different inodes"
    );
}

/// Runs a sequence on a fresh copy of the image; panics where the two differ.
fn run(base: &MemDevice, model: &Model, ops: &[Op]) {
    let device = Arc::new(base.snapshot());
    let mut model = model.clone();
    let mut subject = Subject {
        volume: Some(open(&device)),
        device,
        held: Default::default(),
    };
    for (n, op) in ops.iter().enumerate() {
        NOW.set(n);
        step(op, &mut subject, &mut model);
    }
    NOW.set(ops.len());
    compare(subject.volume(), &model);
    subject.reopen(&model);
    compare(subject.volume(), &model);
    subject.close();
    assert_clean(&subject.device, "at the end");
}

thread_local! {
    /// Number of the operation that runs, for the report.
    static NOW: std::cell::Cell<usize> = const { std::cell::Cell::new(0) };
}

fn fails(base: &MemDevice, model: &Model, ops: &[Op]) -> Option<String> {
    let caught = catch_unwind(AssertUnwindSafe(|| run(base, model, ops))).err()?;
    let text = caught
        .downcast_ref::<String>()
        .cloned()
        .or_else(|| caught.downcast_ref::<&str>().map(|s| s.to_string()))
        .unwrap_or_else(|| "panic".into());
    Some(format!("operation {}: {text}", NOW.get()))
}

/// Leaves out what the failure does not need.
fn shrink(base: &MemDevice, model: &Model, mut ops: Vec<Op>) -> Vec<Op> {
    // What comes after the failure never matters.
    ops.truncate(NOW.get() + 1);
    let mut piece = ops.len().div_ceil(2);
    let mut tries = 0;
    while piece > 0 {
        let mut at = 0;
        while at < ops.len() {
            let mut fewer = ops.clone();
            fewer.drain(at..(at + piece).min(fewer.len()));
            tries += 1;
            if tries > 600 {
                return ops;
            }
            if fails(base, model, &fewer).is_some() {
                ops = fewer;
            } else {
                at += piece;
            }
        }
        piece /= 2;
    }
    ops
}

/// The sequence of a seed: made against the model alone.
fn sequence(model: &Model, seed: u64, len: usize) -> Vec<Op> {
    let device = Model::clone(model);
    let mut made = Vec::with_capacity(len);
    let mut state = device;
    let mut generator = Generator::new(seed);
    for _ in 0..len {
        let op = generator.next(&state);
        dry_run(&op, &mut state);
        made.push(op);
    }
    made
}

/// What an operation does to the names, so that the next ones meet them.
fn dry_run(op: &Op, m: &mut Model) {
    let _ = match op {
        Op::Open {
            path,
            create,
            exclusive,
            cut,
            mode,
        } => m.open(path, *create, *exclusive, *cut, *mode).map(drop),
        Op::Link { old, new } => m.link(old, new),
        Op::Unlink { path } => m.unlink(path),
        Op::Mkdir { path, mode } => m
            .make(
                path,
                Kind::Dir {
                    names: BTreeMap::new(),
                    parent: 0,
                },
                *mode,
            )
            .map(drop),
        Op::Rmdir { path } => m.rmdir(path),
        Op::Rename { old, new, mode } => m.rename(old, new, *mode),
        Op::Symlink { target, path } => {
            m.make(path, Kind::Symlink(target.clone()), 0o777).map(drop)
        }
        Op::Mknod {
            path,
            file_type,
            rdev,
            mode,
        } => m
            .make(path, Kind::Special(*file_type, *rdev), *mode)
            .map(drop),
        Op::Bulk {
            dir,
            first,
            count,
            remove,
        } => {
            for n in *first..first + count {
                let path = format!("{dir}/{}", bulk_name(n));
                let _ = if *remove {
                    m.unlink(&path)
                } else {
                    m.open(&path, true, true, false, 0o600).map(drop)
                };
            }
            Ok(())
        }
        _ => Ok(()),
    };
}

fn check(kind: &str, args: &[&str]) {
    if !have("mke2fs") || !have("e2fsck") {
        return;
    }
    let base = mem_image("48M", args);
    let geometry = open(&base).geometry().clone();
    // Opening marks the image; every run starts from the same one.
    let base = mem_image("48M", args);
    let model = Model::new(geometry.features.has_extents(), geometry.inode_size == 128);
    let len = if torture() { 500 } else { 160 };
    // Every kind has sequences of its own.
    let own = kind
        .bytes()
        .fold(0u64, |n, b| n * 31 % 9_973 + u64::from(b))
        * 100_000;
    for seed in seeds(own + 1, 60, 1_000) {
        let ops = sequence(&model, seed, len);
        if let Some(why) = fails(&base, &model, &ops) {
            let ops = shrink(&base, &model, ops);
            let again = fails(&base, &model, &ops).unwrap_or_else(|| "does not fail again".into());
            let list: Vec<String> = ops.iter().map(|o| format!("    {o:?}")).collect();
            panic!(
                "{kind}, seed {seed}: {why}\nshrunk to {} operations: {again}\n{}",
                ops.len(),
                list.join("\n")
            );
        }
    }
}

macro_rules! kinds {
    ($($name:ident: $($arg:expr),*;)*) => { $(
        #[test]
        fn $name() {
            check(stringify!($name), &[$($arg),*]);
        }
    )* };
}

/// Contexts of a few operations each do not fit the journal: all go in parts.
#[test]
fn in_parts() {
    IN_PARTS.set(Some(20));
    check(
        "in_parts",
        &[
            "-t",
            "ext4",
            "-b",
            "1024",
            "-J",
            "size=4",
            "-O",
            "orphan_file",
        ],
    );
    check(
        "in_parts_ext3",
        &["-t", "ext3", "-b", "1024", "-J", "size=4"],
    );
}

kinds! {
    ext4: "-t", "ext4", "-J", "size=4";
    ext4_small_blocks: "-t", "ext4", "-b", "1024", "-J", "size=4";
    ext4_2k_blocks: "-t", "ext4", "-b", "2048", "-J", "size=4";
    no_metadata_csum_no_64bit: "-t", "ext4", "-J", "size=4", "-O", "^metadata_csum,^64bit";
    no_journal: "-t", "ext4", "-O", "^has_journal";
    no_extents: "-t", "ext4", "-b", "1024", "-J", "size=4", "-O", "^extent,^64bit";
    ext3: "-t", "ext3", "-J", "size=4";
    ext2: "-t", "ext2", "-b", "1024";
    small_inodes: "-t", "ext4", "-I", "128", "-J", "size=4";
    uninit_bg: "-t", "ext4", "-b", "1024", "-J", "size=4", "-O", "^metadata_csum,uninit_bg";
    meta_bg: "-t", "ext4", "-b", "1024", "-J", "size=4", "-O", "meta_bg,^resize_inode";
    sparse_super2: "-t", "ext4", "-b", "1024", "-J", "size=4", "-O", "sparse_super2";
    large_dir: "-t", "ext4", "-b", "1024", "-J", "size=4", "-O", "large_dir";
    no_dir_index: "-t", "ext4", "-b", "1024", "-J", "size=4", "-O", "^dir_index";
    no_filetype: "-t", "ext4", "-J", "size=4", "-O", "^filetype";
    no_flex_bg: "-t", "ext4", "-b", "1024", "-J", "size=4", "-O", "^flex_bg";
    no_huge_file: "-t", "ext4", "-J", "size=4", "-O", "^huge_file";
    no_extra_isize: "-t", "ext4", "-J", "size=4", "-O", "^extra_isize";
    newest_features: "-t", "ext4", "-J", "size=4", "-O", "metadata_csum_seed,orphan_file";
    orphan_file_small_blocks: "-t", "ext4", "-b", "1024", "-J", "size=4", "-O", "orphan_file";
}
