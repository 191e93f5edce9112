//! Device tables applied to a tree under construction.

use super::error::{MkfsError, Result};
use super::layers::Layers;
use super::options::MkfsOptions;
use super::owners::{IdMap, ModeMap};
use super::progress::Monitor;
use super::source_attributes::AttributeRules;
use super::tree::{Body, Inode, XattrPool};
use ext4_format::FileType;
use ext4_format::acl::Acl;
use ext4_format::xattr::ACL_ACCESS;
use extant_sources::parts::{Entry, Order};
use extant_sources::{ArchiveKind, AttributeChange, DeviceTable};

impl Layers {
    /// Applies a table: enters its members, and sets owners and permissions of the files that it names.
    pub fn apply(
        &mut self,
        table: &DeviceTable,
        options: &MkfsOptions,
        pool: &XattrPool,
        monitor: &Monitor,
    ) -> Result<()> {
        // The owners in a table are those of the image.
        let options = MkfsOptions {
            uid: None,
            gid: None,
            uid_map: IdMap::default(),
            gid_map: IdMap::default(),
            mode_map: ModeMap::default(),
            ..options.clone()
        };
        let attribute_rules = AttributeRules {
            options: &options,
            pool,
            monitor,
        };
        for entry in &table.entries {
            monitor.check()?;
            let bad = |what| MkfsError::source(&table.name, format!("line {}: {what}", entry.line));
            let found = self.inode_at(&entry.path).map_err(bad)?;
            let is_dir = found.is_some_and(|i| self.directory_of(i).is_some());
            match (entry.member(), found) {
                (Some(mut member), None) => {
                    let time = self.implied();
                    (member.atime, member.mtime, member.ctime) = (time, time, time);
                    self.enter(member.into_member(0), &attribute_rules)?;
                }
                // A directory that is there keeps its times and attributes.
                (Some(member), Some(inode)) if is_dir && member.kind == ArchiveKind::Directory => {
                    self.change(inode, entry, pool)?;
                }
                (Some(_), Some(_)) => {
                    let path = entry.path.escape_ascii();
                    return Err(bad(format!(
                        "{path}: the sources before the table have a file of this name"
                    )));
                }
                (None, Some(inode)) => self.change(inode, entry, pool)?,
                (None, None) => match entry.order {
                    Order::Change { optional: true, .. } => {}
                    _ => {
                        let path = entry.path.escape_ascii();
                        return Err(bad(format!(
                            "{path}: the sources before the table have no such file (type F allows that)"
                        )));
                    }
                },
            }
        }
        Ok(())
    }

    /// Changes attributes of a file that an earlier source has. The options about owners and permissions apply to the
    /// new attributes as to those of files.
    pub(super) fn change_attributes(
        &mut self,
        change: &AttributeChange,
        rules: &AttributeRules<'_>,
    ) -> Result<()> {
        let bad = |what| MkfsError::Options(format!("{}: {what}", change.line));
        let Some(number) = self.inode_at(&change.path).map_err(bad)? else {
            if change.optional {
                return Ok(());
            }
            return Err(MkfsError::Options(change.missing()));
        };
        let options = rules.options;
        let inode = self.inode_mut(number);
        if inode.file_type() != FileType::Regular {
            return Err(MkfsError::Options(change.not_a_file()));
        }
        if let Some(uid) = change.uid {
            inode.uid = options.uid.unwrap_or_else(|| options.uid_map.map(uid));
        }
        if let Some(gid) = change.gid {
            inode.gid = options.gid.unwrap_or_else(|| options.gid_map.map(gid));
        }
        if let Some(time) = change.time.map(|time| rules.clamp(time)) {
            (inode.atime, inode.mtime, inode.ctime) = (time, time, time);
        }
        let bits = inode.file_type().mode_bits();
        let mode = change
            .mode
            .map(|mode| options.mode_map.map(bits | mode) & 0o7777);
        chmod(inode, mode, rules.pool)
    }

    /// Sets owner and permissions of an inode, and of all inodes below it if the line is recursive.
    fn change(&mut self, inode: u32, entry: &Entry, pool: &XattrPool) -> Result<()> {
        let recursive = matches!(
            entry.order,
            Order::Change {
                recursive: true,
                ..
            }
        );
        let mut todo = vec![inode];
        while let Some(number) = todo.pop() {
            change(self.inode_mut(number), entry, pool)?;
            if recursive && let Body::Directory(dir) = self.inode_mut(number).body {
                todo.extend(self.inodes_in(dir));
            }
        }
        Ok(())
    }
}

fn change(inode: &mut Inode, entry: &Entry, pool: &XattrPool) -> Result<()> {
    (inode.uid, inode.gid) = (entry.uid, entry.gid);
    chmod(inode, entry.mode, pool)
}

/// Sets the permissions of an inode, unless it is a symbolic link.
fn chmod(inode: &mut Inode, mode: Option<u16>, pool: &XattrPool) -> Result<()> {
    let ftype = inode.file_type();
    let Some(mode) = mode.filter(|_| ftype != FileType::Symlink) else {
        return Ok(());
    };
    inode.mode = ftype.mode_bits() | mode;
    // An ACL says the permissions, too.
    let Some(mut set) = pool.get(inode.xattrs) else {
        return Ok(());
    };
    let Some(mut acl) = set.get(ACL_ACCESS).map(Acl::from_disk).transpose()? else {
        return Ok(());
    };
    acl.chmod(inode.mode);
    set.set(ACL_ACCESS, &acl.to_disk())?;
    inode.xattrs = pool.intern(set);
    Ok(())
}
