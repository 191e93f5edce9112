//! The members of an archive: headers of all dialects put together, data kept for later.

use super::header::{BLOCK, Header, gnu_sparse_more};
use super::pax::{Pax, parse};
use crate::archive::stream::Stream;
use crate::error::{Result, SourceError};
use crate::member::Origin;
use crate::member::Segment;
use crate::member::{Member, MemberKind};
use ext4_format::timestamp::Timestamp;

/// Extended headers beyond this are an attack, not a header.
const LONGEST_HEADER: u64 = 64 << 20;

/// Reads members in their order.
pub(crate) struct Members<'s, 'a> {
    stream: &'s mut Stream<'a>,
    /// The records of global headers.
    global: Pax,
    started: bool,
}

impl<'s, 'a> Members<'s, 'a> {
    pub fn new(stream: &'s mut Stream<'a>) -> Self {
        Self {
            stream,
            global: Pax::default(),
            started: false,
        }
    }

    /// Returns the archive's bytes.
    pub fn stream(&mut self) -> &mut Stream<'a> {
        self.stream
    }

    /// Tells an empty archive, which begins with an end mark, from other files: disk images begin with zeros, too,
    /// but more than zeros follow soon.
    fn check_nothing(&mut self) -> Result<()> {
        let mut head = vec![0; 1 << 16];
        let n = self.stream.read(&mut head)?;
        if head[..n].iter().any(|&b| b != 0) {
            let what = "not an archive: it begins with zeros, as disk images do";
            return Err(self.stream.error(what));
        }
        Ok(())
    }

    /// Returns the next member; `None` at the end.
    pub fn next(&mut self) -> Result<Option<Member>> {
        self.stream.next_member()?;
        let mut pax: Option<Pax> = None;
        let (mut long_path, mut long_link) = (None, None);
        loop {
            let mut block = [0; BLOCK];
            match self.stream.read(&mut block)? {
                BLOCK => {}
                // Some writers leave the end marks out.
                0 if self.started && pax.is_none() => return Ok(None),
                0 if !self.started => {
                    return Err(self.stream.error("not an archive: it is empty"));
                }
                _ if !self.started => {
                    let what = "not an archive: shorter than a header";
                    return Err(self.stream.error(what));
                }
                _ => return Err(self.stream.error("the archive is cut off")),
            }
            let header = Header(&block);
            if header.is_zero() {
                if !self.started {
                    self.check_nothing()?;
                }
                self.stream.drain()?;
                return Ok(None);
            }
            if !header.is_valid() {
                let what = if self.started {
                    "header with a wrong checksum"
                } else {
                    "not an archive: header with a wrong checksum"
                };
                return Err(self.stream.error(what));
            }
            self.started = true;
            let size = header.size().and_then(|n| u64::try_from(n).ok());
            let Some(size) = size else {
                return Err(self.stream.error("header with an impossible size"));
            };
            match header.kind() {
                kind @ (b'x' | b'X' | b'g') => {
                    let bytes = self.text(size)?;
                    let target = if kind == b'g' {
                        &mut self.global
                    } else {
                        pax.get_or_insert_with(|| self.global.clone())
                    };
                    target.read(&bytes).map_err(|e| self.stream.error(e))?;
                }
                b'L' => long_path = Some(until_nul(self.text(size)?)),
                b'K' => long_link = Some(until_nul(self.text(size)?)),
                b'V' => self.stream.skip(padded(size))?,
                b'M' | b'N' => {
                    return Err(self
                        .stream
                        .error("archives of several volumes are not supported"));
                }
                _ => {
                    let has_pax = pax.is_some();
                    let pax = pax.unwrap_or_else(|| self.global.clone());
                    return self
                        .member(&header, size, pax, has_pax, long_path, long_link)
                        .map(Some);
                }
            }
        }
    }

    /// Returns the data of a member that is a header itself.
    fn text(&mut self, size: u64) -> Result<Vec<u8>> {
        if size > LONGEST_HEADER {
            return Err(self.stream.error("extended header of more than 64 MiB"));
        }
        let mut bytes = vec![0; padded(size) as usize];
        if self.stream.read(&mut bytes)? != bytes.len() {
            return Err(self.stream.error("the archive is cut off"));
        }
        bytes.truncate(size as usize);
        Ok(bytes)
    }

    fn member(
        &mut self,
        header: &Header<'_>,
        size: u64,
        pax: Pax,
        has_pax: bool,
        long_path: Option<Vec<u8>>,
        long_link: Option<Vec<u8>>,
    ) -> Result<Member> {
        let path = pax
            .path
            .clone()
            .or(long_path)
            .unwrap_or_else(|| header.path());
        let link = pax
            .link
            .clone()
            .or(long_link)
            .unwrap_or_else(|| header.link());
        let size = pax.size.unwrap_or(size);
        let id = |given: Option<u64>, field: Option<i64>, what| {
            let n = given.or_else(|| u64::try_from(field?).ok());
            let n = n.and_then(|n| u32::try_from(n).ok());
            n.ok_or_else(|| impossible(self.stream, what))
        };
        let (uid, gid) = (
            id(pax.uid, header.uid(), "owner")?,
            id(pax.gid, header.gid(), "group")?,
        );
        let mode = header
            .mode()
            .ok_or_else(|| impossible(self.stream, "mode"))?;
        let mtime = header
            .mtime()
            .ok_or_else(|| impossible(self.stream, "time"))?;
        let more = header.more_times();
        let mtime = pax.mtime.unwrap_or(Timestamp::new(mtime, 0));
        let time = |given: Option<Timestamp>, field: Option<i64>| {
            given
                .or(field.map(|s| Timestamp::new(s, 0)))
                .unwrap_or(mtime)
        };
        let kind = self.kind(header, size, &pax, has_pax, &path, link)?;
        Ok(Member {
            path,
            kind,
            mode: mode as u16 & 0o7777, // the low bits
            uid,
            gid,
            mtime,
            atime: time(pax.atime, more.map(|m| m.0)),
            ctime: time(pax.ctime, more.map(|m| m.1)),
            unresolved_acl: pax.lost_acl(),
            xattrs: pax.xattrs,
            malformed: pax.malformed,
            unknown_type: header.unknown_kind(),
            flags: pax.flags,
            project: 0,
        })
    }

    /// Returns the kind of a member. Its data become the file's, or are skipped.
    fn kind(
        &mut self,
        header: &Header<'_>,
        size: u64,
        pax: &Pax,
        has_pax: bool,
        path: &[u8],
        link: Vec<u8>,
    ) -> Result<MemberKind> {
        let mut data = size;
        let kind = match header.kind() {
            b'1' => {
                // A hard link may repeat the data, but only in pax archives.
                data = if has_pax { size } else { 0 };
                MemberKind::HardLink(link)
            }
            b'2' => MemberKind::Symlink(link),
            b'3' => {
                let (major, minor) = self.device(header)?;
                MemberKind::CharDevice(major, minor)
            }
            b'4' => {
                let (major, minor) = self.device(header)?;
                MemberKind::BlockDevice(major, minor)
            }
            b'5' | b'D' => MemberKind::Directory,
            b'6' => MemberKind::Fifo,
            b'S' => self.old_sparse(header, &mut data)?,
            0 | b'0' | b'7' if path.ends_with(b"/") => MemberKind::Directory,
            _ => {
                data = 0; // taken with the file
                self.file(pax, size)?
            }
        };
        if matches!(header.kind(), b'2'..=b'6') && header.kind() != b'5' {
            data = 0; // bytes of some writers there are not data
        }
        self.stream.skip(padded(data))?;
        Ok(kind)
    }

    /// Returns the numbers of a device.
    fn device(&self, header: &Header<'_>) -> Result<(u32, u32)> {
        let part = |n: i64, most: u32| u32::try_from(n).ok().filter(|n| *n <= most);
        let numbers = header.device();
        let numbers =
            numbers.and_then(|(major, minor)| Some((part(major, 0xfff)?, part(minor, 0xf_ffff)?)));
        numbers.ok_or_else(|| impossible(self.stream, "device number"))
    }

    /// Reads a regular file, possibly sparse in one of the pax formats.
    fn file(&mut self, pax: &Pax, size: u64) -> Result<MemberKind> {
        if pax.sparse_in_data {
            return self.sparse_in_data(pax, size);
        }
        let origin = self.keep(size)?;
        match pax.real_size {
            Some(real) => self.sparse(origin, size, pax.sparse.clone(), real),
            None => Ok(MemberKind::File {
                size,
                origin,
                map: None,
            }),
        }
    }

    /// Keeps data and passes over its padding.
    fn keep(&mut self, size: u64) -> Result<Origin> {
        self.stream.member_data(size, padded(size) - size)
    }

    /// Reads GNU's sparse format 1.0: lines with the count and the parts, padded, then the data.
    fn sparse_in_data(&mut self, pax: &Pax, size: u64) -> Result<MemberKind> {
        let mut numbers: Vec<u64> = Vec::new();
        let (mut line, mut taken, mut wanted) = (Vec::new(), 0, 1);
        while numbers.len() < wanted {
            let mut block = [0; BLOCK];
            taken += BLOCK as u64;
            if taken > padded(size) || self.stream.read(&mut block)? != BLOCK {
                return Err(self.stream.error("sparse map that does not end"));
            }
            for b in block {
                if b != b'\n' {
                    line.push(b);
                    continue;
                }
                let n =
                    parse(&line).ok_or_else(|| self.stream.error("sparse map with no number"))?;
                line.clear();
                numbers.push(n);
                if let [count] = numbers[..] {
                    // The map is in the data: it cannot have more numbers than that has bytes.
                    let count = usize::try_from(count).ok().filter(|n| *n as u64 <= size);
                    let count = count.ok_or_else(|| self.stream.error("sparse map too long"))?;
                    wanted = 1 + 2 * count;
                }
                if numbers.len() == wanted {
                    break;
                }
            }
        }
        let (pairs, _) = numbers[1..].as_chunks::<2>(); // at least the count is there
        let parts = pairs.iter().map(|&[start, len]| Segment { start, len });
        let data = size.saturating_sub(taken);
        let origin = self.keep(data)?;
        let real = pax.real_size;
        let real = real.ok_or_else(|| self.stream.error("sparse file without its size"))?;
        self.sparse(origin, data, parts.collect(), real)
    }

    /// Reads GNU's oldest sparse format: parts in the header and in blocks behind it.
    fn old_sparse(&mut self, header: &Header<'_>, data: &mut u64) -> Result<MemberKind> {
        let map = header.gnu_sparse();
        let (mut parts, mut more, real) =
            map.ok_or_else(|| self.stream.error("header with an impossible sparse map"))?;
        while more {
            let mut block = [0; BLOCK];
            if self.stream.read(&mut block)? != BLOCK {
                return Err(self.stream.error("the archive is cut off"));
            }
            let next = gnu_sparse_more(&block);
            let (list, another) = next.ok_or_else(|| self.stream.error("impossible sparse map"))?;
            parts.extend(list);
            more = another;
        }
        let origin = self.keep(*data)?;
        let kind = self.sparse(origin, *data, parts, real);
        *data = 0;
        kind
    }

    /// Checks a sparse map.
    fn sparse(
        &self,
        origin: Origin,
        data: u64,
        mut parts: Vec<Segment>,
        size: u64,
    ) -> Result<MemberKind> {
        parts.retain(|s| s.len > 0);
        let (mut end, mut sum) = (0, 0u64);
        for s in &parts {
            let stop = s.start.checked_add(s.len).filter(|e| *e <= size);
            match stop {
                Some(stop) if s.start >= end => end = stop,
                _ => {
                    return Err(self
                        .stream
                        .error("sparse map out of order or beyond the file"));
                }
            }
            sum += s.len; // disjoint parts below a 64-bit end
        }
        if sum > data {
            return Err(self.stream.error("sparse map larger than the data"));
        }
        Ok(MemberKind::File {
            size,
            origin,
            map: Some(parts.into()),
        })
    }
}

/// Returns the bytes that `size` bytes take in an archive.
fn padded(size: u64) -> u64 {
    size.saturating_add(BLOCK as u64 - 1) / BLOCK as u64 * BLOCK as u64
}

fn until_nul(mut text: Vec<u8>) -> Vec<u8> {
    let end = text.iter().position(|b| *b == 0);
    text.truncate(end.unwrap_or(text.len()));
    text
}

/// Creates an error for a header.
fn impossible(stream: &Stream<'_>, what: &str) -> SourceError {
    stream.error(format!("header with an impossible {what}"))
}
