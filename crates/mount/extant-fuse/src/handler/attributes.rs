//! Metadata, as shown and changed by the kernel.

use super::names::READS;
use super::{BRIEFLY, FOREVER, Filesystem, LITTLE_SPACE};
use crate::nodes::{HeldNode, node_of};
use ext4_format::inode::flags;
use extant::unstable::Node;
use extant::{Credentials, Metadata, SetAttributes, SetTime, Timestamp};
use fuse_server::{Answer, Attr, Entry, Errno, SetAttr, Time};
use rustix::fs::StatxAttributes;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

pub(super) fn time(t: Timestamp) -> Time {
    Time {
        seconds: t.secs(),
        nanoseconds: t.nanos(),
    }
}

fn timestamp(t: Time) -> Timestamp {
    Timestamp::new(t.seconds, t.nanoseconds.min(999_999_999))
}

fn set_time(t: fuse_server::SetTime) -> SetTime {
    match t {
        fuse_server::SetTime::Now => SetTime::Now,
        fuse_server::SetTime::At(t) => SetTime::At(timestamp(t)),
    }
}

impl Filesystem {
    /// Converts metadata for the kernel.
    pub(super) fn attr(&self, a: &Metadata) -> Attr {
        Attr {
            ino: a.ino().into(),
            size: a.len(),
            blocks: a.blocks(),
            atime: time(a.atime()),
            mtime: time(a.mtime()),
            ctime: time(a.ctime()),
            btime: time(a.crtime()),
            mode: a.mode(),
            nlink: a.nlink(),
            uid: self.shown.0.unwrap_or(a.uid()),
            gid: self.shown.1.unwrap_or(a.gid()),
            rdev: a.rdev(),
            blksize: self.block_size,
            flags: 0,
        }
    }

    /// Returns how long the kernel may cache attributes. Only the kernel makes changes, so it may cache them until it
    /// forgets the inode; but it does not know the space used by a file that is open for writing.
    pub(super) fn lifetime(held: &HeldNode, a: &Metadata) -> Duration {
        if held.writers.load(Relaxed) == 0 {
            return FOREVER;
        }
        held.told.store(a.blocks(), Relaxed);
        BRIEFLY
    }

    /// Returns how long the kernel may cache a name of a directory, or the absence of a name. Only the kernel makes
    /// changes; but it does not know which names are equal if case is folded.
    pub(super) fn name_lifetime(dir: &Node) -> Duration {
        if dir.folds_case() {
            Duration::ZERO
        } else {
            FOREVER
        }
    }

    /// Returns the entry of an inode in a directory for the kernel. Metadata may be cached for
    /// [`Filesystem::lifetime`], once the kernel knows the inode.
    pub(super) fn entry(&self, dir: &Node, node: &Node) -> Result<Entry, Errno> {
        let a = self.tried(node.metadata())?;
        Ok(Entry {
            node: node_of(a.ino()),
            generation: a.generation().into(),
            attr: self.attr(&a),
            entry_ttl: Self::name_lifetime(dir),
            attr_ttl: FOREVER,
        })
    }

    pub(super) fn get_attr(&self, held: &HeldNode, answer: &mut Answer<'_>) -> Result<(), Errno> {
        let a = self.tried(held.node.metadata())?;
        answer.attr(&self.attr(&a), Self::lifetime(held, &a));
        Ok(())
    }

    /// Handles a request for attributes: for stat, or with a handle for the kernel itself, before it writes or at the
    /// end of the file.
    pub(super) fn asked_for_attr(
        &self,
        (number, held): (u64, &HeldNode),
        handle: Option<u64>,
        answer: &mut Answer<'_>,
    ) -> Result<(), Errno> {
        if held.writers.load(Relaxed) == 0 {
            return self.get_attr(held, answer);
        }
        let Some(handle) = handle else {
            let a = self.attributes_for_stat(number, held)?;
            answer.attr(&self.attr(&a), Duration::ZERO);
            return Ok(());
        };
        let short = self.is_short_of_space();
        if short || held.failed.load(Relaxed) {
            // Data that do not fit must be found before more space is allocated, and before the loss of other data is
            // reported, because data stored afterwards would lie behind a hole.
            self.have_written_back(number);
        }
        // The kernel asks before a write, at the end of the file before a read, and for `SEEK_END`. These cases look
        // the same, and a writer that never learns of the lost data would be worse.
        if handle != READS && held.failed.swap(false, Relaxed) {
            return Err(Errno::NOSPC);
        }
        let a = self.tried(held.node.metadata())?;
        let lifetime = Self::lifetime(held, &a);
        answer.attr(
            &self.attr(&a),
            if short { Duration::ZERO } else { lifetime },
        );
        Ok(())
    }

    /// Returns metadata of a file that is open for writing. If all of its data may still be in the kernel, asks the
    /// kernel to write them back, because programs take a file without a block for a hole.
    fn attributes_for_stat(&self, number: u64, held: &HeldNode) -> Result<Metadata, Errno> {
        let a = self.tried(held.node.metadata())?;
        if a.blocks() > 0 || !self.writes_back() {
            return Ok(a);
        }
        self.have_written_back(number);
        self.tried(held.node.metadata())
    }

    /// Makes the kernel ask for a file's attributes again if the sync may have changed its space by more than half.
    /// That is rare for one file, and does not happen with every sync.
    pub(super) fn note_synced(&self, number: u64, held: &HeldNode) {
        if held.writers.load(Relaxed) == 0 {
            return;
        }
        let told = held.told.load(Relaxed);
        let Ok(a) = held.node.metadata() else {
            return;
        };
        if a.blocks() > told && a.blocks() >= told.saturating_add(told / 2) {
            held.told.store(a.blocks(), Relaxed);
            self.have_it_ask(number);
        }
    }

    /// Sets the times of a change that a program made through a mapping, when the kernel writes the mapped pages. Without the
    /// write-back cache the kernel leaves these times to the server.
    pub(super) fn note_mapped_write(&self, number: u64, held: &HeldNode) {
        let now = timestamp(Time::now());
        let times = SetAttributes {
            mtime: Some(SetTime::At(now)),
            ctime: Some(now),
            ..Default::default()
        };
        let set = held.node.set_attributes(&Credentials::root(), &times);
        // The data are stored, so a failure is only logged.
        if self.tried(set).is_ok() {
            self.have_it_ask(number);
        }
    }

    /// Returns whether free space is so low that dirty data of the kernel may not fit.
    pub(super) fn is_short_of_space(&self) -> bool {
        let volume = &self.shared.volume;
        let geometry = volume.geometry();
        let little = LITTLE_SPACE / u64::from(geometry.block_size);
        volume.available_blocks() < little.min(geometry.blocks_count / 32)
    }

    pub(super) fn statx(
        &self,
        (number, held): (u64, &HeldNode),
        answer: &mut Answer<'_>,
    ) -> Result<(), Errno> {
        let (a, lifetime) = if held.writers.load(Relaxed) == 0 {
            (self.tried(held.node.metadata())?, FOREVER)
        } else {
            (self.attributes_for_stat(number, held)?, Duration::ZERO)
        };
        type S = StatxAttributes;
        let known = [
            (flags::IMMUTABLE, S::IMMUTABLE),
            (flags::APPEND, S::APPEND),
            (flags::NODUMP, S::NODUMP),
        ];
        let all = known.iter().fold(0, |all, (_, bit)| all | bit.bits());
        let set = known.iter().filter(|(flag, _)| a.flags() & flag != 0);
        let set = set.fold(0, |set, (_, bit)| set | bit.bits());
        answer.statx(&self.attr(&a), lifetime, set, all);
        Ok(())
    }

    /// Removes set-id bits and file capabilities. Invalidates the kernel's attributes, because the kernel uses its
    /// cached mode when the file is executed.
    pub(super) fn strip_privileges(&self, node: &Node, who: &Credentials) -> Result<(), Errno> {
        if self.tried(node.strip_privileges(who))? {
            self.have_it_ask(node_of(node.ino()));
        }
        Ok(())
    }

    /// Checks a change of owner to the same user and group. As in Linux, every user may request it of a file without
    /// set-id bits, but only the owner and root of one with them. The kernel does not check that for FUSE.
    fn permit_same_owner(&self, held: &HeldNode, who: &Credentials) -> Result<(), Errno> {
        let a = self.tried(held.node.metadata())?;
        let has_set_id = a.mode() & 0o6000 != 0;
        let owner = self.shown.0.unwrap_or(a.uid());
        if has_set_id && who.uid != owner && !who.is_privileged() {
            return Err(Errno::PERM);
        }
        Ok(())
    }

    pub(super) fn set_attr(
        &self,
        held: &HeldNode,
        who: &Credentials,
        set: &SetAttr,
        answer: &mut Answer<'_>,
    ) -> Result<(), Errno> {
        let meaning = Meaning::of(set);
        // The kernel continues to show its own change time, if it keeps one, so store that time. The engine does not
        // refuse times that are written back because of the inode's flags; those rules apply to present calls.
        let bound = flags::IMMUTABLE | flags::APPEND;
        let mut mtime = set.mtime.map(set_time);
        let ctime = match set.ctime {
            Some(ctime) if meaning == Meaning::WriteBack => Some(timestamp(ctime)),
            Some(ctime) => {
                let has = self.tried(held.node.metadata())?.flags();
                if meaning == Meaning::TimeOfChangeAlone && has & flags::IMMUTABLE != 0 {
                    return Err(Errno::PERM);
                }
                if has & bound != 0 && meaning == Meaning::Touch {
                    mtime = Some(SetTime::Now);
                }
                (has & bound == 0).then(|| timestamp(ctime))
            }
            None => None,
        };
        // A change of owner to the same user and group arrives as a change time alone, and like a change of owner it
        // removes set-id bits.
        if meaning == Meaning::TimeOfChangeAlone {
            self.permit_same_owner(held, who)?;
        }
        if set.kill_suidgid || meaning == Meaning::TimeOfChangeAlone {
            self.strip_privileges(&held.node, who)?;
        }
        let narrow = |mode: u32| (mode & 0o7777) as u16;
        let change = SetAttributes {
            mode: set.mode.map(narrow),
            uid: set.uid,
            gid: set.gid,
            size: set.size,
            atime: set.atime.map(set_time),
            mtime,
            ctime,
            // The kernel sends only requests that the handle permits.
            by_handle: set.handle.is_some(),
            ..Default::default()
        };
        self.tried(held.node.set_attributes(who, &change))?;
        let a = self.tried(held.node.metadata())?;
        // The kernel ignores the answer to written-back times, so it does not know these attributes.
        let written = held.writers.load(Relaxed) > 0;
        answer.attr(&self.attr(&a), if written { BRIEFLY } else { FOREVER });
        Ok(())
    }
}

/// Meanings of a request that Linux does not name.
#[derive(PartialEq, Eq)]
enum Meaning {
    /// Only the change time is set.
    TimeOfChangeAlone,
    /// Both times become the present: the kernel has already chosen the modification time, because it keeps that time.
    Touch,
    /// The kernel writes back the times that it kept for a file it wrote to. Change time and modification time are
    /// equal then, which no call that sets times produces. These times may be stored even if the caller, which may be
    /// any user by now, could not set times.
    WriteBack,
    /// The request's literal meaning.
    Plain,
}

impl Meaning {
    fn of(set: &SetAttr) -> Self {
        use fuse_server::SetTime::{At, Now};
        let times = match set {
            SetAttr {
                size: None,
                mode: None,
                uid: None,
                gid: None,
                ctime: Some(ctime),
                ..
            } => Some((set.atime, set.mtime, *ctime)),
            _ => None,
        };
        match times {
            Some((None, None, _)) => return Self::TimeOfChangeAlone,
            Some((None, Some(At(mtime)), ctime)) if mtime == ctime => return Self::WriteBack,
            _ => {}
        }
        let modified = match set.mtime {
            Some(Now) => true,
            Some(At(t)) => set.ctime == Some(t),
            None => false,
        };
        if modified && set.atime == Some(Now) {
            Self::Touch
        } else {
            Self::Plain
        }
    }
}
