//! Operations on names.

use super::attributes::{acl_mode, apply_mode, decode_acl, is_minimal};
use super::{ACCESS, Answer, DEFAULT, Id, Model, Node, NodeKind, ROOT, err};
use crate::common::acl_bytes;
use extant::RenameMode;
use rustix::io::Errno;
use std::collections::BTreeMap;
use std::rc::Rc;

impl Model {
    fn add(&mut self, dir: Id, name: &str, kind: NodeKind, mode: u16) -> Id {
        let parent = &self.nodes[dir];
        let set_gid = parent.mode & 0o2000 != 0;
        let gid = if set_gid { parent.gid } else { 0 };
        let is_dir = matches!(kind, NodeKind::Dir { .. });
        let mut mode = mode | if set_gid && is_dir { 0o2000 } else { 0 };
        let mut xattrs = BTreeMap::new();
        if let (Some(default), false) = (
            parent.xattrs.get(DEFAULT),
            matches!(kind, NodeKind::Symlink(_)),
        ) {
            let mut access = decode_acl(default);
            apply_mode(&mut access, mode, true);
            mode = mode & !0o777 | acl_mode(&access);
            if is_dir {
                xattrs.insert(DEFAULT.to_string(), default.clone());
            }
            if !is_minimal(&access) {
                xattrs.insert(ACCESS.to_string(), acl_bytes(&access));
            }
        }
        let links = if is_dir { 2 } else { 1 };
        let node = Rc::new(Node {
            kind,
            ino: None,
            mode,
            uid: 0,
            gid,
            links,
            atime: None,
            mtime: None,
            xattrs,
        });
        let id = self.next.take().unwrap_or(self.nodes.len());
        match self.nodes.get_mut(id) {
            Some(place) => *place = node,
            None => self.nodes.push(node),
        }
        if is_dir {
            self.node(dir).links += 1;
        }
        self.names_mut(dir).insert(name.to_string(), id);
        id
    }

    /// A directory that was removed takes no names.
    fn takes_names(&self, dir: Id) -> Answer<()> {
        if !self.is_dir(dir) {
            return err(Errno::NOTDIR);
        }
        if self.nodes[dir].links == 0 {
            return err(Errno::NOENT);
        }
        Ok(())
    }

    /// Makes an inode under a name that must be free.
    pub fn make(&mut self, path: &str, kind: NodeKind, mode: u16) -> Answer<Id> {
        let (dir, name) = self.split(path)?;
        self.make_at(dir, name, kind, mode)
    }

    pub fn make_at(&mut self, dir: Id, name: &str, kind: NodeKind, mode: u16) -> Answer<Id> {
        self.takes_names(dir)?;
        if self.lookup(dir, name).is_some() {
            return err(Errno::EXIST);
        }
        // With the NUL behind it, it fills a block.
        if matches!(&kind, NodeKind::Symlink(target) if target.len() as u64 >= self.block_size) {
            return err(Errno::NAMETOOLONG);
        }
        let kind = match kind {
            NodeKind::Dir { names, .. } => NodeKind::Dir { names, parent: dir },
            other => other,
        };
        Ok(self.add(dir, name, kind, mode))
    }

    /// open(2) of a file for writing, with the flags `create` and `exclusive`.
    pub fn open(
        &mut self,
        path: &str,
        create: bool,
        exclusive: bool,
        cut: bool,
        mode: u16,
    ) -> Answer<Id> {
        let mut path = path.to_string();
        if create {
            for _ in 0..=40 {
                let (dir, name) = self.split(&path)?;
                if name.is_empty() {
                    // A link to the root leads here.
                    return err(Errno::ISDIR);
                }
                match self.lookup(dir, name) {
                    Some(_) if exclusive => return err(Errno::EXIST),
                    None => return Ok(self.add(dir, name, NodeKind::File(Vec::new()), mode)),
                    Some(id) => match &self.nodes[id].kind {
                        NodeKind::Symlink(target) => {
                            let base = path.rsplit_once('/').map_or("", |(head, _)| head);
                            path = if target.starts_with('/') {
                                target.clone()
                            } else {
                                format!("{base}/{target}")
                            };
                        }
                        NodeKind::Dir { .. } => return err(Errno::ISDIR),
                        _ => return Ok(self.cut(id, cut)),
                    },
                }
            }
            return err(Errno::LOOP);
        }
        let id = self.walk(&path, true)?;
        if self.is_dir(id) {
            return err(Errno::ISDIR);
        }
        Ok(self.cut(id, cut))
    }

    fn cut(&mut self, id: Id, cut: bool) -> Id {
        if cut && let Some(data) = self.data_mut(id) {
            data.clear();
        }
        id
    }

    pub fn hard_link(&mut self, old: &str, new: &str) -> Answer<()> {
        let id = self.walk(old, false)?;
        let (dir, name) = self.split(new)?;
        self.link_at(id, dir, name)
    }

    pub fn link_at(&mut self, id: Id, dir: Id, name: &str) -> Answer<()> {
        self.takes_names(dir)?;
        if self.lookup(dir, name).is_some() {
            return err(Errno::EXIST);
        }
        if self.is_dir(id) {
            return err(Errno::PERM);
        }
        if self.nodes[id].links == 0 {
            return err(Errno::NOENT);
        }
        self.node(id).links += 1;
        self.names_mut(dir).insert(name.to_string(), id);
        Ok(())
    }

    pub fn remove_file(&mut self, path: &str) -> Answer<()> {
        let (dir, name) = self.split(path)?;
        self.unlink_at(dir, name)
    }

    pub fn unlink_at(&mut self, dir: Id, name: &str) -> Answer<()> {
        let id = self.lookup_at(dir, name)?;
        if self.is_dir(id) {
            return err(Errno::ISDIR);
        }
        self.node(id).links -= 1;
        self.names_mut(dir).remove(name);
        Ok(())
    }

    pub fn rmdir(&mut self, path: &str) -> Answer<()> {
        let (dir, name) = self.split(path)?;
        self.rmdir_at(dir, name)
    }

    pub fn rmdir_at(&mut self, dir: Id, name: &str) -> Answer<()> {
        let id = self.lookup_at(dir, name)?;
        match self.names(id) {
            None => return err(Errno::NOTDIR),
            Some(names) if !names.is_empty() => return err(Errno::NOTEMPTY),
            Some(_) => {}
        }
        self.node(id).links = 0;
        self.node(dir).links -= 1;
        self.names_mut(dir).remove(name);
        Ok(())
    }

    /// Returns true if `above` is `below` or one of the directories above it.
    fn is_above(&self, above: Id, mut below: Id) -> bool {
        loop {
            if above == below {
                return true;
            }
            match &self.nodes[below].kind {
                NodeKind::Dir { parent, .. } if below != ROOT => below = *parent,
                _ => return false,
            }
        }
    }

    fn reparent(&mut self, id: Id, from: Id, to: Id) {
        if let NodeKind::Dir { parent, .. } = &mut self.node(id).kind {
            *parent = to;
            self.node(from).links -= 1;
            self.node(to).links += 1;
        }
    }

    pub fn rename_with(&mut self, old: &str, new: &str, mode: RenameMode) -> Answer<()> {
        let old = self.split(old)?;
        let new = self.split(new)?;
        self.rename_at(old, new, mode)
    }

    pub fn rename_at(
        &mut self,
        (from, old_name): (Id, &str),
        (to, new_name): (Id, &str),
        mode: RenameMode,
    ) -> Answer<()> {
        let source = self.lookup_at(from, old_name)?;
        self.takes_names(to)?;
        let target = self.lookup(to, new_name);
        match (mode, target) {
            (RenameMode::NoReplace | RenameMode::WhiteoutNoReplace, Some(_)) => {
                return err(Errno::EXIST);
            }
            (RenameMode::Exchange, None) => return err(Errno::NOENT),
            _ => {}
        }
        if self.is_dir(source) && self.is_above(source, to) {
            return err(Errno::INVAL);
        }
        if let Some(target) = target {
            if self.is_dir(target) && self.is_above(target, from) {
                return err(if mode == RenameMode::Exchange {
                    Errno::INVAL
                } else {
                    Errno::NOTEMPTY
                });
            }
            if target == source {
                return Ok(());
            }
            if mode != RenameMode::Exchange {
                match (self.is_dir(source), self.names(target)) {
                    (true, None) => return err(Errno::NOTDIR),
                    (false, Some(_)) => return err(Errno::ISDIR),
                    (true, Some(names)) if !names.is_empty() => return err(Errno::NOTEMPTY),
                    _ => {}
                }
            }
        }
        self.reparent(source, from, to);
        self.names_mut(from).remove(old_name);
        self.names_mut(to).insert(new_name.to_string(), source);
        match (mode, target) {
            (RenameMode::Exchange, Some(target)) => {
                self.reparent(target, to, from);
                self.names_mut(from).insert(old_name.to_string(), target);
            }
            (_, Some(target)) if self.is_dir(target) => {
                self.node(target).links = 0;
                self.node(to).links -= 1;
            }
            (_, Some(target)) => self.node(target).links -= 1,
            _ => {}
        }
        if matches!(mode, RenameMode::Whiteout | RenameMode::WhiteoutNoReplace) {
            self.make_at(
                from,
                old_name,
                NodeKind::Special(extant::FileType::CharDevice, 0),
                0,
            )?;
        }
        Ok(())
    }
}
