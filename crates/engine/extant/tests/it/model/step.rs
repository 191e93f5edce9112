//! Running an operation on the volume and on the model, and comparing both.

use crate::common::{acl_bytes, open};
use crate::model::compare::{check_seek, read_all, same_bytes};
use crate::model::ops::{Op, SLOTS, bulk_name, pattern};
use crate::reference::{self, Answer, Id, Model, NodeKind};
use blockdev::MemDevice;
use extant::unstable::Node;
use extant::{
    Error, File, Metadata, OpenOptions, SetAttributes, SetTime, SetXattr, Timestamp, Volume,
};
use std::collections::BTreeMap;
use std::sync::Arc;

/// A volume under test, and its open files.
pub struct Subject {
    pub device: Arc<MemDevice>,
    pub volume: Option<Volume>,
    pub held: [Option<(File, Id)>; SLOTS],
}

impl Subject {
    pub fn volume(&self) -> &Volume {
        self.volume.as_ref().expect("open between operations")
    }

    pub fn close(&mut self) {
        self.held = Default::default();
        if let Some(volume) = self.volume.take() {
            volume.close().expect("close");
        }
    }

    pub fn reopen(&mut self, model: &Model) {
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

pub fn attributes(volume: &Volume, model: &Model) -> BTreeMap<String, String> {
    // The index of a directory is made, and flagged, when it is formatted.
    let stored = |a: Metadata| {
        let flags = |flags: u32| format!("flags: {flags}, ");
        let without = a.flags() & !ext4_format::inode::flags::INDEX;
        format!("{a:?}").replace(&flags(a.flags()), &flags(without))
    };
    model
        .paths()
        .into_iter()
        .map(|(path, _)| {
            let attributes = volume
                .symlink_metadata(if path.is_empty() { "/" } else { &path })
                .expect("lstat");
            (path, stored(attributes))
        })
        .collect()
}

pub fn code<T>(result: extant::Result<T>) -> Answer<T> {
    result.map_err(|e| {
        // No operation of these sequences may stop the volume.
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

const RW: OpenOptions = OpenOptions::new().read(true).write(true);

/// Creates an empty file.
fn create(v: &Volume, path: &str) -> extant::Result<()> {
    v.open_file_with(path, &RW.create_new(true).mode(0o600))
        .map(drop)
}

/// Runs one operation on both and compares the answers.
pub fn step(op: &Op, subject: &mut Subject, model: &mut Model) {
    let v = subject.volume().clone();
    match op {
        Op::Open {
            path,
            create,
            exclusive,
            cut,
            mode,
        } => {
            let options = RW.create(*create).truncate(*cut).mode((*mode).into());
            let options = if *create && *exclusive {
                options.create_new(true)
            } else {
                options
            };
            let expected = model
                .open(path, *create, *exclusive, *cut, *mode)
                .map(|_| ());
            assert_eq!(code(v.open_file_with(path, &options).map(|_| ())), expected);
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
                .open_file_with(path, &RW)
                .and_then(|f| f.write_at(&bytes, *at).map(drop));
            assert_eq!(code(found), expected);
        }
        Op::Append { path, len, fill } => {
            let bytes = pattern(*len, *fill);
            let expected = model.open(path, false, false, false, 0).and_then(|id| {
                let at = model.data(id).map_or(0, Vec::len) as u64;
                model.write(id, at, &bytes)
            });
            let found = v
                .open_file_with(path, &OpenOptions::new().append(true))
                .and_then(|f| f.append(&bytes).map(drop));
            assert_eq!(code(found), expected);
        }
        Op::Truncate { path, size } => {
            let expected = model
                .open(path, false, false, false, 0)
                .and_then(|id| model.truncate(id, *size));
            assert_eq!(code(v.set_len(path, *size)), expected);
        }
        Op::Fallocate { path, how, at, len } => {
            let expected = model
                .open(path, false, false, false, 0)
                .and_then(|id| model.fallocate(id, *how, *at, *len));
            let found = v.open_file_with(path, &RW).and_then(|f| {
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
            let found = v.open_file(path).and_then(|f| {
                let mut bytes = vec![0xEE; *len];
                let n = f.read_at(&mut bytes, *at)?;
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
                check_seek(&v.open_file(path).unwrap(), data, *at);
            }
        }
        Op::Link { old, new } => assert_eq!(code(v.hard_link(old, new)), model.hard_link(old, new)),
        Op::Unlink { path } => assert_eq!(code(v.remove_file(path)), model.remove_file(path)),
        Op::Mkdir { path, mode } => {
            let kind = NodeKind::Dir {
                names: BTreeMap::new(),
                parent: 0,
            };
            assert_eq!(
                code(v.create_dir_with_mode(path, (*mode).into()).map(drop)),
                model.make(path, kind, *mode).map(drop)
            );
        }
        Op::Rmdir { path } => assert_eq!(code(v.remove_dir(path)), model.rmdir(path)),
        Op::Rename { old, new, mode } => {
            assert_eq!(
                code(v.rename_with(old, new, *mode)),
                model.rename_with(old, new, *mode)
            );
        }
        Op::Symlink { target, path } => {
            let expected = model
                .make(path, NodeKind::Symlink(target.clone()), 0o777)
                .map(drop);
            assert_eq!(code(v.symlink(target, path)), expected);
        }
        Op::ReadLink { path } => {
            let expected = model
                .walk(path, false)
                .and_then(|id| match &model.nodes[id].kind {
                    NodeKind::Symlink(target) => Ok(target.clone().into_bytes()),
                    _ => reference::err(rustix::io::Errno::INVAL),
                });
            let found = v.read_link(path);
            let found = found.map(|target| target.into_os_string().into_encoded_bytes());
            assert_eq!(code(found), expected);
        }
        Op::Mknod {
            path,
            file_type,
            rdev,
            mode,
        } => {
            let kind = NodeKind::Special(*file_type, *rdev);
            let expected = model.make(path, kind, *mode).map(drop);
            assert_eq!(
                code(v.mknod(path, *file_type, (*mode).into(), *rdev)),
                expected
            );
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
            let time = |t: &(i64, u32)| Some(SetTime::At(Timestamp::new(t.0, t.1)));
            let set = SetAttributes {
                atime: time(atime),
                mtime: time(mtime),
                ..Default::default()
            };
            let expected = model
                .walk(path, false)
                .map(|id| model.set_times(id, *atime, *mtime));
            assert_eq!(code(v.set_symlink_attributes(path, &set)), expected);
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
                // Attributes must fit into a block. The exact limit is left to e2fsck.
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
            let found = code(v.set_xattr(path, name, &acl_bytes(acl), SetXattr::Any));
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
                    assert_eq!(code(v.remove_file(&path)), model.remove_file(&path));
                } else {
                    let expected = model.open(&path, true, true, false, 0o600).map(drop);
                    assert_eq!(code(create(&v, &path)), expected);
                }
            }
        }
        Op::List { dir, step } => list_while_changing(&v, model, dir, *step),
        Op::Hold { slot, path } => {
            let expected = model.open(path, false, false, false, 0);
            let found = v.open_file_with(path, &RW);
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
                    code(file.write_at(&bytes, *at).map(drop)),
                    model.write(*id, *at, &bytes)
                );
            }
        }
        Op::HeldTruncate { slot, size } => {
            if let Some((file, id)) = &subject.held[*slot] {
                assert_eq!(code(file.set_len(*size)), model.truncate(*id, *size));
            }
        }
        Op::HeldRead { slot } => {
            if let Some((file, id)) = &subject.held[*slot] {
                if let Some(data) = model.data(*id) {
                    same_bytes(&read_all(file), data, "through a handle");
                }
                assert_eq!(
                    file.metadata().unwrap().nlink(),
                    model.nodes[*id].links,
                    "links through a handle"
                );
            }
        }
        Op::Release { slot } => subject.held[*slot] = None,
        Op::Fsync { path } => {
            let expected = model.open(path, false, false, false, 0).map(drop);
            let found = v
                .open_file_with(path, &OpenOptions::new().write(true))
                .and_then(|f| f.sync_all());
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
pub fn no_data_in_punched(file: &File, volume: &Volume, at: u64, len: u64) {
    let bs = u64::from(volume.geometry().block_size);
    let (first, last) = (at.next_multiple_of(bs), (at + len) / bs * bs);
    let size = file.metadata().unwrap().len();
    if first < last && first < size {
        let data = file.seek_data(first).unwrap_or(size);
        assert!(
            data >= last.min(size),
            "data at {data} in the range punched from {first} to {last}"
        );
    }
}

/// Lists a directory in steps of a few names while some are added and removed. Names that exist all the time are shown
/// once, and the steps end.
pub fn list_while_changing(v: &Volume, model: &mut Model, dir: &str, step: usize) {
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
    let dir_node = Node::of_number(v, v.metadata(at).unwrap().ino()).unwrap();
    let (mut cookie, mut round) = (0, 0u32);
    loop {
        let part = dir_node.list(cookie, step).unwrap();
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
        let expected = model.open(&come, true, true, false, 0o600).map(drop);
        assert_eq!(code(create(v, &come)), expected);
        let go = format!("{dir}/comes{}", (round + 2) % 5);
        assert_eq!(code(v.remove_file(&go)), model.remove_file(&go));
        if round % 7 == 0 {
            v.sync().unwrap();
        }
    }
    for n in 0..5 {
        let path = format!("{dir}/comes{n}");
        assert_eq!(code(v.remove_file(&path)), model.remove_file(&path));
    }
    for name in stay.iter().filter(|n| !n.starts_with("comes")) {
        assert_eq!(
            seen.get(name),
            Some(&1),
            "{name} in a listing of {at} in steps of {step}"
        );
    }
}
