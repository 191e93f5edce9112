//! cpio archives: `newc`, `crc` and `odc`. Several archives may follow one another, and later ones may be compressed,
//! as in the images that Linux boots from, which begin with microcode.
//!
//! All names of a file with several come with its inode's number. In `newc` archives its data are with the last
//! one, so earlier names are held until the data have come: then the file gets that last name, and the others
//! are links to it.

mod header;

use crate::archive::raw::Compression;
use crate::archive::stream::Stream;
use crate::error::Result;
use crate::member::{Member, MemberKind};
use ext4_format::FileType;
use ext4_format::timestamp::Timestamp;
use header::{FileKey, Format, Header, MAGIC};
use std::collections::{HashMap, VecDeque};

/// The name of the member that ends an archive.
const TRAILER: &[u8] = b"TRAILER!!!";
/// The longest name and the longest target of a symbolic link, in bytes: Linux' `PATH_MAX`.
const LONGEST: u64 = 4096;

/// Returns whether `head` is the start of a cpio archive.
pub(crate) fn is_cpio(head: &[u8]) -> bool {
    Format::of(head).is_some()
}

/// Returns whether `head` is the start of a cpio archive in one of the old binary formats, which depend on the
/// machine.
pub(crate) fn is_binary_cpio(head: &[u8]) -> bool {
    matches!(head, [0xc7, 0x71, ..] | [0x71, 0xc7, ..])
}

/// A file with several names.
struct Linked {
    /// The name that has the data.
    first: Option<Vec<u8>>,
    /// Names that precede the data.
    waiting: Vec<Member>,
}

/// Reads members in their order.
pub(crate) struct Members<'s, 'a> {
    stream: &'s mut Stream<'a>,
    /// Magic that was read already: that of the first member of an archive.
    magic: Option<[u8; MAGIC]>,
    /// Members that were read and not yet returned.
    ready: VecDeque<Member>,
    linked: Vec<Linked>,
    /// Places in `linked`, of the present archive.
    by_key: HashMap<FileKey, usize>,
    /// The sum that the data read in passing must have.
    sum: Option<u32>,
    ended: bool,
}

impl<'s, 'a> Members<'s, 'a> {
    pub fn new(stream: &'s mut Stream<'a>) -> Self {
        Self {
            stream,
            magic: None,
            ready: VecDeque::new(),
            linked: Vec::new(),
            by_key: HashMap::new(),
            sum: None,
            ended: false,
        }
    }

    /// Returns the archive's bytes.
    pub fn stream(&mut self) -> &mut Stream<'a> {
        self.stream
    }

    /// Returns the next member; `None` at the end.
    pub fn next(&mut self) -> Result<Option<Member>> {
        if let Some(sum) = self.sum.take()
            && self
                .stream
                .sum_in_passing()
                .is_some_and(|found| found != sum)
        {
            return Err(self.stream.error("data with a wrong checksum before this"));
        }
        self.stream.next_member()?;
        loop {
            if let Some(member) = self.ready.pop_front() {
                return Ok(Some(member));
            }
            if self.ended {
                return Ok(None);
            }
            self.read_member()?;
        }
    }

    /// Reads bytes that must be there.
    fn exact(&mut self, len: u64) -> Result<Vec<u8>> {
        let mut bytes = vec![0; len as usize]; // at most LONGEST, or a header
        if self.stream.read(&mut bytes)? < bytes.len() {
            return Err(self.stream.error("the archive is cut off"));
        }
        Ok(bytes)
    }

    /// Reads a member, or passes over the end of an archive.
    fn read_member(&mut self) -> Result<()> {
        let magic = match self.magic.take() {
            Some(magic) => magic.to_vec(),
            None => self.exact(MAGIC as u64)?,
        };
        let at = self.stream.at - MAGIC as u64; // they were read
        let Some(format) = Format::of(&magic) else {
            return Err(self
                .stream
                .error_at(at, "no header of a cpio member where one must be"));
        };
        let fields = self.exact((format.len() - MAGIC) as u64)?;
        let Some(header) = Header::parse(format, &fields) else {
            return Err(self
                .stream
                .error_at(at, "header with a field that is not a number"));
        };
        let len = u64::from(header.name_len);
        if !(1..=LONGEST).contains(&len) {
            return Err(self
                .stream
                .error_at(at, "header with an impossible length of its name"));
        }
        let mut path = self.exact(len)?;
        if path.pop() != Some(0) || path.contains(&0) {
            return Err(self
                .stream
                .error_at(at, "a name that does not end where its header says"));
        }
        self.stream
            .skip(format.padding(format.len() as u64 + len))?;
        if path == TRAILER {
            self.end_of_archive();
            return self.next_archive();
        }
        self.member(at, format, &header, path)
    }

    /// Reads the rest of a member, behind its name.
    fn member(&mut self, at: u64, format: Format, header: &Header, path: Vec<u8>) -> Result<()> {
        let mode = u16::try_from(header.mode).ok();
        let Some((mode, ftype)) = mode.and_then(|m| Some((m, FileType::from_mode(m)?))) else {
            return Err(self.stream.error_at(at, "header with an impossible mode"));
        };
        let time = i64::try_from(header.mtime).ok();
        let Some(mtime) = time.map(|secs| Timestamp::new(secs, 0)) else {
            return Err(self.stream.error_at(at, "header with an impossible time"));
        };
        let padding = format.padding(header.size);
        let known = match ftype {
            FileType::Directory => None,
            _ if header.links > 1 => self.linked_at(header.file),
            _ => None,
        };
        let member = |path, kind| Member {
            path,
            kind,
            mode: mode & 0o7777,
            uid: header.uid,
            gid: header.gid,
            mtime,
            atime: mtime,
            ctime: mtime,
            xattrs: Vec::new(),
            unresolved_acl: false,
            malformed: Vec::new(),
            unknown_type: None,
            flags: 0,
            project: 0,
        };
        if let Some(first) = known.and_then(|i| self.linked[i].first.clone()) {
            // Data of a further name repeat those of the first.
            self.skip_data(header.size, padding)?;
            self.ready
                .push_back(member(path, MemberKind::HardLink(first)));
            return Ok(());
        }
        let kind = match ftype {
            FileType::Regular => {
                if header.size == 0
                    && let Some(i) = known
                {
                    let none = MemberKind::HardLink(Vec::new()); // set once the file has come
                    self.linked[i].waiting.push(member(path, none));
                    return Ok(());
                }
                self.file(header, padding)?
            }
            other => self.other(at, header, other, padding)?,
        };
        self.ready.push_back(member(path.clone(), kind));
        if let Some(i) = known {
            self.release(i, path);
        }
        Ok(())
    }

    /// Returns the kind of a member other than a regular file.
    fn other(
        &mut self,
        at: u64,
        header: &Header,
        ftype: FileType,
        padding: u64,
    ) -> Result<MemberKind> {
        if ftype == FileType::Symlink {
            if header.size >= LONGEST {
                let what = "symbolic link to more than 4095 bytes";
                return Err(self.stream.error_at(at, what));
            }
            let mut target = self.exact(header.size)?;
            self.stream.skip(padding)?;
            let end = target.iter().position(|b| *b == 0);
            target.truncate(end.unwrap_or(target.len()));
            return Ok(MemberKind::Symlink(target));
        }
        self.skip_data(header.size, padding)?;
        let (major, minor) = header.rdev;
        let fits = major <= 0xfff && minor <= 0xf_ffff;
        match ftype {
            FileType::CharDevice if fits => Ok(MemberKind::CharDevice(major, minor)),
            FileType::BlockDevice if fits => Ok(MemberKind::BlockDevice(major, minor)),
            FileType::CharDevice | FileType::BlockDevice => Err(self
                .stream
                .error_at(at, "header with an impossible device number")),
            FileType::Fifo => Ok(MemberKind::Fifo),
            FileType::Socket => Ok(MemberKind::Socket),
            _ => Ok(MemberKind::Directory),
        }
    }

    /// Returns the file with several names that has this number.
    fn linked_at(&mut self, key: FileKey) -> Option<usize> {
        let fresh = self.linked.len();
        let i = *self.by_key.entry(key).or_insert(fresh);
        if i == fresh {
            self.linked.push(Linked {
                first: None,
                waiting: Vec::new(),
            });
        }
        Some(i)
    }

    /// Releases the names that waited for a file's data, as links to the name that has them.
    fn release(&mut self, i: usize, first: Vec<u8>) {
        let linked = &mut self.linked[i]; // a place that linked_at returned
        for mut member in std::mem::take(&mut linked.waiting) {
            member.kind = MemberKind::HardLink(first.clone());
            self.ready.push_back(member);
        }
        linked.first = Some(first);
    }

    /// Reads the data of a regular file.
    fn file(&mut self, header: &Header, padding: u64) -> Result<MemberKind> {
        let size = header.size;
        if let Some(sum) = header.sum {
            self.sum = Some(sum);
        }
        let origin = self.stream.member_data(size, padding)?;
        if let Some(sum) = header.sum
            && self
                .stream
                .sum_of_kept(origin, size)?
                .is_some_and(|found| found != sum)
        {
            return Err(self.stream.error("data with a wrong checksum before this"));
        }
        Ok(MemberKind::File {
            size,
            origin,
            map: None,
        })
    }

    fn skip_data(&mut self, size: u64, padding: u64) -> Result<()> {
        self.stream.skip(size.saturating_add(padding))
    }

    /// Numbers of inodes mean something in one archive only. Names that still wait are those of empty files.
    fn end_of_archive(&mut self) {
        self.by_key.clear();
        for linked in std::mem::take(&mut self.linked) {
            let mut waiting = linked.waiting.into_iter();
            let Some(mut file) = waiting.next() else {
                continue;
            };
            file.kind = MemberKind::File {
                size: 0,
                origin: 0,
                map: None,
            };
            let first = file.path.clone();
            self.ready.push_back(file);
            for mut link in waiting {
                link.kind = MemberKind::HardLink(first.clone());
                self.ready.push_back(link);
            }
        }
    }

    /// Finds the next archive behind a finished one, if any. Zeros fill up blocks in between.
    fn next_archive(&mut self) -> Result<()> {
        let mut magic = [0; MAGIC];
        loop {
            self.stream.skip_zeros()?;
            let n = self.stream.read(&mut magic)?;
            if n == 0 {
                self.ended = true;
                return Ok(());
            }
            if is_cpio(&magic[..n]) {
                self.magic = Some(magic);
                return Ok(());
            }
            let at = self.stream.at - n as u64; // they were read
            let error = |e: String| self.stream.error_at(at, e);
            match Compression::of(&magic[..n]).map_err(|e| error(e.to_string()))? {
                Compression::None => {
                    return Err(error("other bytes behind the end of a cpio archive".into()));
                }
                _ => self.stream.unpack_rest(&magic[..n])?,
            }
        }
    }
}
