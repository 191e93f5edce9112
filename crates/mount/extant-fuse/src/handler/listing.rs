//! Directory listings, with offsets that stay valid while names change: the position in the order of the directory's
//! hash.

use super::Filesystem;
use super::data::type_bits;
use crate::nodes::HeldNode;
use extant::Credentials;
use extant::unstable::NodeEntry;
use fuse_server::{Answer, Entry, Errno, Listing};
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

/// Number of names read at a time: about as many as fit a buffer of 4 KiB, or a good part of a larger one.
const AT_A_TIME: usize = 128;

/// Offsets after "." and ".."; all cookies of names are larger.
const AFTER_DOT: u64 = 1;
const AFTER_DOTS: u64 = 2;

impl Filesystem {
    pub(super) fn read_dir(
        &self,
        held: &HeldNode,
        who: &Credentials,
        (offset, size, plus): (u64, u32, bool),
        answer: &mut Answer<'_>,
    ) -> Result<(), Errno> {
        let mut out = Out {
            fs: self,
            dir: held,
            who,
            listing: answer.directory(size),
            plus,
            start: offset.max(AFTER_DOTS),
        };
        if offset < AFTER_DOTS && !out.dots(offset)? {
            return Ok(());
        }
        let mut cookie = offset.max(AFTER_DOTS);
        loop {
            let names = match held.node.list(cookie, AT_A_TIME) {
                // The kernel has lookups of the names in the answer, so the answer must be sent. The error follows
                // when the kernel asks for more.
                Err(_) if !out.listing.is_empty() => break,
                done => self.tried(done)?,
            };
            let Some(last) = names.last().map(|e| e.cookie) else {
                break;
            };
            if !out.names(&names, cookie)? {
                break;
            }
            cookie = last;
        }
        Ok(())
    }
}

struct Out<'a, 'b> {
    fs: &'a Filesystem,
    dir: &'a HeldNode,
    who: &'a Credentials,
    listing: Listing<'b>,
    plus: bool,
    /// The position at which this answer begins.
    start: u64,
}

impl Out<'_, '_> {
    /// Adds "." and ".."; returns false once the buffer is full.
    fn dots(&mut self, offset: u64) -> Result<bool, Errno> {
        let own = self.dir.node.ino();
        let bits = type_bits(extant::FileType::Directory);
        if offset < AFTER_DOT && !self.plain(own, AFTER_DOT, bits, b".") {
            return Ok(false);
        }
        let parent = self.fs.tried(self.dir.node.parent())?;
        Ok(self.plain(parent, AFTER_DOTS, bits, b".."))
    }

    /// Adds a name, with only its type for the kernel.
    fn plain(&mut self, ino: u32, next: u64, bits: u32, name: &[u8]) -> bool {
        if self.plus {
            let mut entry = Entry::negative(Duration::ZERO);
            entry.attr.ino = ino.into();
            self.listing.push_plus(&entry, next, bits, name)
        } else {
            self.listing.push(ino.into(), next, bits, name)
        }
    }

    /// Adds the names after `before`. Names with equal cookies are added as a whole, and repeated after an
    /// interruption: only the last of them has its own cookie as the position to continue from.
    fn names(&mut self, names: &[NodeEntry], before: u64) -> Result<bool, Errno> {
        let mut earlier = before;
        for (at, entry) in names.iter().enumerate() {
            let more_of_it = names.get(at + 1).is_some_and(|n| n.cookie == entry.cookie);
            // The position before them must lead to progress, which it does not if they are the first of this answer.
            let next = if more_of_it && earlier > self.start {
                earlier
            } else {
                entry.cookie
            };
            if !self.name(entry, next)? {
                return Ok(false);
            }
            if !more_of_it {
                earlier = entry.cookie;
            }
        }
        Ok(true)
    }

    fn name(&mut self, entry: &NodeEntry, next: u64) -> Result<bool, Errno> {
        let bits = type_bits(entry.file_type);
        if !self.plus {
            return Ok(self.plain(entry.ino, next, bits, &entry.name));
        }
        // Look the name up, because the number may belong to another file by now. A missing or broken name is listed
        // without attributes; its own lookup reports the error.
        let found = self.dir.node.lookup(self.who, &entry.name);
        let Ok(Ok((node, mut full))) =
            found.map(|node| self.fs.entry(&self.dir.node, &node).map(|e| (node, e)))
        else {
            return Ok(self.plain(entry.ino, next, bits, &entry.name));
        };
        let kind = type_bits(node.file_type());
        // Count the lookup first, because the kernel may forget the inode as soon as it has the answer.
        let number = full.node;
        let held = self.fs.shared.nodes.tell(node);
        if held.writers.load(Relaxed) > 0 {
            full.attr_ttl = Duration::ZERO;
        }
        let pushed = self.listing.push_plus(&full, next, kind, &entry.name);
        if !pushed {
            self.fs.shared.nodes.forget(number, 1);
        }
        Ok(pushed)
    }
}
