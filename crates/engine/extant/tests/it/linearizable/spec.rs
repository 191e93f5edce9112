//! The legal answers of a call. A call is a sequence of steps, each of which reads and changes one state of the
//! reference. The steps are those of POSIX: each name of a path is one step, and the effect on the file found is one
//! more. Steps of other calls may come between two steps of one call.

use crate::linearizable::calls::{Call, NOWHERE, OnFile, PathFrom, Reply, Seen, flags};
use crate::reference::{Answer, Id, Model, NodeKind, ROOT, err};
use extant::FileType;
use extant::unstable::OpenFlags;
use rustix::io::Errno;
use std::collections::BTreeMap;

/// Progress of a call.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Progress {
    /// The directories of its last names, as far as they are found.
    parents: [Option<Id>; 2],
    /// The walk under way: its directory, and the number of names done.
    walk: Option<(Id, usize)>,
    /// The file that the first path led to.
    found: Option<Id>,
}

impl Progress {
    /// Returns true before the first step.
    pub fn fresh(&self) -> bool {
        *self == Self::default()
    }
}

pub enum Step {
    More,
    Done(Answer<Reply>),
}

/// The fixed context while threads run.
pub struct Context {
    pub dirs: Vec<Id>,
    pub files: Vec<Id>,
}

/// Whether a call starts over when the file that it found has been removed since.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Again {
    /// The call must walk again, since it can no longer reach the file.
    Must,
    /// The call may walk again, but need not if the file was opened before.
    May,
}

impl Context {
    /// A path whose last name was removed after it was found is walked again: the name may have been replaced,
    /// at one moment, and was never missing.
    pub fn again(&self, call: &Call, progress: &Progress, model: &Model) -> Option<Again> {
        progress.found.filter(|id| model.nodes[*id].links == 0)?;
        Some(match call {
            Call::Stat { .. } | Call::GetXattr { .. } | Call::Link { .. } => Again::Must,
            _ => Again::May,
        })
    }

    /// Takes the next step of a call that in truth answered `answer`. A new inode becomes node `new`.
    pub fn step(
        &self,
        call: &Call,
        progress: &mut Progress,
        model: &mut Model,
        new: Id,
        answer: &Answer<Reply>,
    ) -> Step {
        let result = match call {
            Call::Held { file, then } => {
                let id = self.files[*file];
                self.tell_ino(model, id, answer);
                on_file(then, model, id)
            }
            Call::Rename { old, new, mode } => match self.parents(&[old, new], progress, model) {
                Ok(Some([from, to])) => model
                    .rename_at((from, last(old)), (to, last(new)), *mode)
                    .map(|()| Reply::Done),
                Ok(None) => return Step::More,
                Err(e) => Err(e),
            },
            Call::Link { old, new } => match self.link(old, new, progress, model) {
                Ok(None) => return Step::More,
                Ok(Some(())) => Ok(Reply::Done),
                Err(e) => Err(e),
            },
            Call::Create { at, .. }
            | Call::Mkdir { at, .. }
            | Call::Symlink { at }
            | Call::Mkfifo { at, .. }
            | Call::Unlink { at }
            | Call::Rmdir { at } => match self.parents(&[at, at], progress, model) {
                Ok(Some([dir, _])) => {
                    model.next = Some(new);
                    self.on_name(call, model, dir, last(at), answer)
                }
                Ok(None) => return Step::More,
                Err(e) => Err(e),
            },
            Call::Stat { at }
            | Call::Open { at, .. }
            | Call::SetXattr { at, .. }
            | Call::RemoveXattr { at, .. }
            | Call::GetXattr { at, .. } => match progress.found {
                Some(id) => {
                    self.tell_ino(model, id, answer);
                    on_inode(call, model, id)
                }
                None => match self.find(call, at, progress, model) {
                    Ok(()) => return Step::More,
                    Err(e) => Err(e),
                },
            },
        };
        Step::Done(result)
    }

    /// Walks one more name towards the directories of both paths. Returns `None` if it walked a name. A call with one
    /// path passes it twice.
    fn parents(
        &self,
        places: &[&PathFrom; 2],
        progress: &mut Progress,
        model: &Model,
    ) -> Answer<Option<[Id; 2]>> {
        for (n, place) in places.iter().enumerate() {
            if n == 1 && std::ptr::eq(places[0], places[1]) {
                progress.parents[1] = progress.parents[0];
            }
            if progress.parents[n].is_some() {
                continue;
            }
            let names: Vec<&str> = place.path.split('/').collect();
            let start = place.base.map_or(ROOT, |base| self.dirs[base]);
            let (mut at, mut done) = progress.walk.unwrap_or((start, 0));
            // Directories at the top never change, so they need no separate step.
            if done == 0 && names.len() > 1 && place.base.is_none() {
                at = model.lookup_at(at, names[0])?;
                done = 1;
            }
            if done + 1 < names.len() {
                let next = model.lookup_at(at, names[done])?;
                match &model.nodes[next].kind {
                    NodeKind::Symlink(target) => {
                        assert_eq!(target, NOWHERE);
                        return err(Errno::NOENT);
                    }
                    NodeKind::Dir { .. } => {}
                    _ => return err(Errno::NOTDIR),
                }
                progress.walk = Some((next, done + 1));
                return Ok(None);
            }
            progress.parents[n] = Some(at);
            progress.walk = None;
        }
        Ok(Some(progress.parents.map(|p| p.expect("both walked"))))
    }

    /// Takes a step towards the inode that a path leads to.
    fn find(
        &self,
        call: &Call,
        at: &PathFrom,
        progress: &mut Progress,
        model: &Model,
    ) -> Answer<()> {
        let Some([dir, _]) = self.parents(&[at, at], progress, model)? else {
            return Ok(());
        };
        let id = model.lookup_at(dir, last(at))?;
        if let (Call::Open { then, .. }, kind) = (call, &model.nodes[id].kind) {
            let writes = flags(then).intersects(OpenFlags::WRITE | OpenFlags::APPEND);
            match kind {
                NodeKind::Symlink(_) => return err(Errno::NOENT),
                NodeKind::Dir { .. } if writes => return err(Errno::ISDIR),
                _ => {}
            }
        }
        progress.found = Some(id);
        Ok(())
    }

    fn link(
        &self,
        old: &PathFrom,
        new: &PathFrom,
        progress: &mut Progress,
        model: &mut Model,
    ) -> Answer<Option<()>> {
        let Some(id) = progress.found else {
            let Some([dir, _]) = self.parents(&[old, old], progress, model)? else {
                return Ok(None);
            };
            let id = model.lookup_at(dir, last(old))?;
            *progress = Progress {
                found: Some(id),
                ..Progress::default()
            };
            return Ok(None);
        };
        let Some([dir, _]) = self.parents(&[new, new], progress, model)? else {
            return Ok(None);
        };
        model.link_at(id, dir, last(new)).map(Some)
    }

    /// Applies the effect on a name, in one step.
    fn on_name(
        &self,
        call: &Call,
        model: &mut Model,
        dir: Id,
        name: &str,
        answer: &Answer<Reply>,
    ) -> Answer<Reply> {
        match call {
            Call::Create {
                exclusive, mode, ..
            } => match model.lookup_at(dir, name) {
                Ok(_) if *exclusive => err(Errno::EXIST),
                Ok(id) => match &model.nodes[id].kind {
                    NodeKind::Symlink(_) => err(Errno::NOENT),
                    NodeKind::Dir { .. } => err(Errno::ISDIR),
                    _ => Ok(self.tell_ino(model, id, answer)),
                },
                Err(_) => {
                    let id = model.make_at(dir, name, NodeKind::File(Vec::new()), *mode)?;
                    Ok(self.tell_ino(model, id, answer))
                }
            },
            Call::Mkdir { mode, .. } => {
                let names = BTreeMap::new();
                let id = model.make_at(dir, name, NodeKind::Dir { names, parent: dir }, *mode)?;
                Ok(self.tell_ino(model, id, answer))
            }
            Call::Symlink { .. } => model
                .make_at(dir, name, NodeKind::Symlink(NOWHERE.into()), 0o777)
                .map(|_| Reply::Done),
            Call::Mkfifo { mode, .. } => model
                .make_at(dir, name, NodeKind::Special(FileType::Fifo, 0), *mode)
                .map(|_| Reply::Done),
            Call::Unlink { .. } => model.unlink_at(dir, name).map(|()| Reply::Done),
            Call::Rmdir { .. } => model.rmdir_at(dir, name).map(|()| Reply::Done),
            _ => unreachable!("calls on one name"),
        }
    }

    /// Sets the node's number to that in the answer, unless a node in use has it already. Returns the number that the
    /// node has then.
    fn tell_ino(&self, model: &mut Model, id: Id, answer: &Answer<Reply>) -> Reply {
        let told = match answer {
            Ok(Reply::Ino(ino)) => Some(*ino),
            Ok(Reply::Stat(seen)) => Some(seen.ino),
            _ => None,
        };
        if let (Some(ino), None) = (told, model.nodes[id].ino) {
            // A thread that works from a directory does not hold it: after its removal its number may be used again.
            let in_use = |n: Id| model.nodes[n].links > 0 || self.files.contains(&n);
            let taken = (0..model.nodes.len())
                .any(|n| n != id && model.nodes[n].ino == Some(ino) && in_use(n));
            if !taken {
                model.node(id).ino = Some(ino);
            }
        }
        Reply::Ino(model.nodes[id].ino.unwrap_or(0))
    }
}

fn last(place: &PathFrom) -> &str {
    place.path.rsplit('/').next().unwrap_or("")
}

fn on_inode(call: &Call, model: &mut Model, id: Id) -> Answer<Reply> {
    match call {
        Call::Stat { .. } => Ok(Reply::Stat(seen(model, id))),
        Call::Open { then, .. } => on_file(then, model, id),
        Call::SetXattr {
            name, value, how, ..
        } => model.set_xattr(id, name, value, *how).map(|()| Reply::Done),
        Call::RemoveXattr { name, .. } => model.remove_xattr(id, name).map(|()| Reply::Done),
        Call::GetXattr { name, .. } => match model.nodes[id].xattrs.get(*name) {
            Some(value) => Ok(Reply::Data(value.clone())),
            None => err(Errno::NODATA),
        },
        _ => unreachable!("calls on what a path leads to"),
    }
}

pub fn seen(model: &Model, id: Id) -> Seen {
    let node = &model.nodes[id];
    Seen {
        ino: node.ino.unwrap_or(0),
        file_type: node.file_type(),
        mode: node.mode,
        owner: (node.uid, node.gid),
        links: node.links,
        size: model.data(id).map_or(0, |d| d.len() as u64),
    }
}

fn on_file(then: &OnFile, model: &mut Model, id: Id) -> Answer<Reply> {
    let len = model.data(id).map_or(0, Vec::len) as u64;
    match then {
        OnFile::Write { at, len, fill } => model
            .write(id, *at, &vec![*fill; *len])
            .map(|()| Reply::At(*len as u64)),
        OnFile::Append { len: more, fill } => model
            .write(id, len, &vec![*fill; *more])
            .map(|()| Reply::At(len)),
        OnFile::Truncate { size } => model.truncate(id, *size).map(|()| Reply::Done),
        OnFile::Read { at, len } => match model.data(id) {
            Some(data) => {
                let at = (*at as usize).min(data.len());
                Ok(Reply::Data(data[at..(at + len).min(data.len())].to_vec()))
            }
            None if model.names(id).is_some() => err(Errno::ISDIR),
            None => err(Errno::INVAL),
        },
        OnFile::Stat => Ok(Reply::Stat(seen(model, id))),
        OnFile::Chmod { mode } => {
            model.chmod(id, *mode);
            Ok(Reply::Done)
        }
        OnFile::Chown { uid, gid } => {
            model.chown(id, *uid, *gid);
            Ok(Reply::Done)
        }
        OnFile::Touch { mtime } => {
            model.node(id).mtime = Some(*mtime);
            Ok(Reply::Done)
        }
    }
}
