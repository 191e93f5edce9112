//! A tree as a tar archive: ustar headers, with pax records for whatever does not fit them.

use super::{Meta, Monitor, Rules, Side, Xattr, below};
use anyhow::{Context, Result, anyhow};
use ext4_format::inode::{dev_major, dev_minor};
use extant::{FileType, Timestamp};
use std::collections::HashMap;
use std::io::{self, Write};
use std::path::Path;
use tar::{EntryType, Header};

/// How an archive is compressed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Packing {
    Plain,
    Gzip,
    Zstd,
}

impl Packing {
    /// The packing that an archive's name asks for; `None`: the name is none of an archive.
    pub fn of_name(path: &Path) -> Option<Self> {
        let name = path.file_name()?.to_str()?;
        [
            (".tar", Self::Plain),
            (".tar.gz", Self::Gzip),
            (".tgz", Self::Gzip),
            (".tar.zst", Self::Zstd),
            (".tzst", Self::Zstd),
        ]
        .into_iter()
        .find_map(|(end, packing)| name.ends_with(end).then_some(packing))
    }
}

/// Writes what is in directory `from` (or one file) as an archive.
pub fn pack(
    src: &dyn Side,
    from: &[u8],
    out: impl Write,
    packing: Packing,
    rules: &Rules,
    monitor: &Monitor,
) -> Result<()> {
    let out = io::BufWriter::with_capacity(1 << 18, out);
    match packing {
        Packing::Plain => Packer::new(src, rules, monitor, out).tree(from)?.flush()?,
        Packing::Gzip => {
            let out = flate2::write::GzEncoder::new(out, flate2::Compression::default());
            Packer::new(src, rules, monitor, out)
                .tree(from)?
                .finish()?
                .flush()?;
        }
        Packing::Zstd => {
            let out = zstd::Encoder::new(out, 0)?;
            Packer::new(src, rules, monitor, out)
                .tree(from)?
                .finish()?
                .flush()?;
        }
    }
    Ok(())
}

struct Packer<'a, W: Write> {
    src: &'a dyn Side,
    rules: &'a Rules,
    monitor: &'a Monitor,
    out: W,
    written: u64,
    first_names: HashMap<(u64, u64), Vec<u8>>,
}

impl<'a, W: Write> Packer<'a, W> {
    fn new(src: &'a dyn Side, rules: &'a Rules, monitor: &'a Monitor, out: W) -> Self {
        Self {
            src,
            rules,
            monitor,
            out,
            written: 0,
            first_names: HashMap::new(),
        }
    }

    fn tree(mut self, top: &[u8]) -> Result<W> {
        let src = self.src;
        let kind = src
            .meta(top, true)
            .and_then(|m| m.context("no such file or directory"));
        if kind.with_context(|| src.show(top))?.kind == FileType::Directory {
            self.entry(top, b"./", true)?;
            self.below(top)?;
        } else {
            self.entry(top, crate::address::base_name(top), true)?;
        }
        // Two blocks of zeros end an archive, a record of 20 blocks a tape.
        self.put(&[0; 1024])?;
        let rest = self.written.next_multiple_of(10_240) - self.written;
        self.put(&vec![0; rest as usize])?;
        Ok(self.out)
    }

    /// A directory comes right before what is in it: readers set its times when they leave it.
    fn below(&mut self, top: &[u8]) -> Result<()> {
        let mut todo: Vec<(Vec<u8>, Vec<u8>)> = vec![(top.to_vec(), b".".to_vec())];
        while let Some((dir, shown)) = todo.pop() {
            if shown != b"." {
                self.entry(&dir, &[&shown[..], b"/"].concat(), false)?;
            }
            let mut inner = Vec::new();
            let names = self
                .src
                .directory(&dir, true)
                .and_then(|d| d.list())
                .with_context(|| self.src.show(&dir))?;
            for (name, kind) in names {
                crate::interrupt::check()?;
                let (path, shown) = (below(&dir, &name)?, crate::address::join(&shown, &name));
                if kind == FileType::Directory {
                    inner.push((path, shown));
                } else {
                    self.entry(&path, &shown, false)?;
                }
            }
            todo.extend(inner.into_iter().rev());
        }
        Ok(())
    }

    fn put(&mut self, bytes: &[u8]) -> Result<()> {
        self.out.write_all(bytes)?;
        self.written += bytes.len() as u64;
        Ok(())
    }

    fn pad(&mut self) -> Result<()> {
        let rest = self.written.next_multiple_of(512) - self.written;
        self.put(&[0; 512][..rest as usize])
    }

    fn entry(&mut self, path: &[u8], name: &[u8], follow: bool) -> Result<()> {
        let src = self.src;
        self.entry_of(path, name, follow)
            .with_context(|| src.show(path))
    }

    fn entry_of(&mut self, path: &[u8], name: &[u8], follow: bool) -> Result<()> {
        let meta = self
            .src
            .meta(path, follow)?
            .context("gone while it was read")?;
        let meta = self.rules.adjust(meta);
        if meta.kind == FileType::Socket {
            self.monitor
                .warn("a tar archive cannot hold a socket", &self.src.show(path));
            return Ok(());
        }
        let mut pax = Pax::default();
        if meta.links > 1 && meta.kind != FileType::Directory && self.rules.keep_links {
            if let Some(first) = self.first_names.get(&meta.id).cloned() {
                self.header(&meta, name, EntryType::Link, &first, 0, pax)?;
                self.monitor.linked();
                return Ok(());
            }
            self.first_names.insert(meta.id, name.to_vec());
        }
        if self.rules.keep_xattrs {
            for xattr in self.src.xattrs(path)? {
                pax.xattr(&xattr);
            }
        }
        match meta.kind {
            FileType::Regular => self.regular(path, name, &meta, pax)?,
            FileType::Symlink => {
                let target = self.src.read_link(path)?;
                self.header(&meta, name, EntryType::Symlink, &target, 0, pax)?;
            }
            FileType::Directory => self.header(&meta, name, EntryType::Directory, b"", 0, pax)?,
            FileType::CharDevice => self.header(&meta, name, EntryType::Char, b"", 0, pax)?,
            FileType::BlockDevice => self.header(&meta, name, EntryType::Block, b"", 0, pax)?,
            FileType::Fifo | FileType::Socket => {
                self.header(&meta, name, EntryType::Fifo, b"", 0, pax)?
            }
        }
        self.monitor.made(meta.kind);
        Ok(())
    }

    fn regular(&mut self, path: &[u8], name: &[u8], meta: &Meta, mut pax: Pax) -> Result<()> {
        let source = self.src.open(path, true)?;
        let mut stretches = Vec::new();
        if meta.dense {
            stretches.push((0, meta.size));
        } else {
            let mut at = 0;
            while let Some((start, end)) = source.next_data(at, meta.size)? {
                stretches.push((start, end));
                at = end;
            }
        }
        let data: u64 = stretches.iter().map(|(start, end)| end - start).sum();
        if data >= meta.size {
            self.header(meta, name, EntryType::Regular, b"", meta.size, pax)?;
        } else {
            // Sparse format 1.0: the map comes before the data, the name that readers of this format take
            // is in a record, and others see an odd name rather than wrong bytes under the right one.
            // A file that ends in a hole has an empty stretch at its end: readers take its size from there.
            let end = (meta.size, meta.size);
            let ends_in_hole = stretches.last().is_none_or(|&(_, end)| end < meta.size);
            let listed: Vec<_> = stretches
                .iter()
                .copied()
                .chain(ends_in_hole.then_some(end))
                .collect();
            let mut map = format!("{}\n", listed.len());
            for (start, end) in listed {
                map += &format!("{start}\n{}\n", end - start);
            }
            map.extend(std::iter::repeat_n(
                '\0',
                map.len().next_multiple_of(512) - map.len(),
            ));
            pax.set("GNU.sparse.major", b"1");
            pax.set("GNU.sparse.minor", b"0");
            pax.set("GNU.sparse.name", name);
            pax.set("GNU.sparse.realsize", meta.size.to_string().as_bytes());
            let odd = crate::address::join(b"GNUSparseFile.0", crate::address::base_name(name));
            self.header(
                meta,
                &odd,
                EntryType::Regular,
                b"",
                map.len() as u64 + data,
                pax,
            )?;
            self.put(map.as_bytes())?;
        }
        let mut buf = vec![0; (1 << 20).min(usize::try_from(data).unwrap_or(1 << 20).max(1))];
        for (start, end) in stretches {
            let mut at = start;
            while at < end {
                crate::interrupt::check()?;
                let want = usize::try_from(end - at)
                    .unwrap_or(buf.len())
                    .min(buf.len());
                let n = self.fill(&*source, at, &mut buf[..want])?;
                self.put(&buf[..n])?;
                self.monitor.moved(n as u64);
                at += n as u64;
            }
        }
        self.pad()
    }

    /// Reads as much as the header has promised.
    fn fill(&self, source: &dyn super::Source, at: u64, buf: &mut [u8]) -> Result<usize> {
        let n = source.read_at(at, buf)?;
        if n < buf.len() {
            return Err(anyhow!("became shorter while it was read"));
        }
        Ok(n)
    }

    fn header(
        &mut self,
        meta: &Meta,
        name: &[u8],
        kind: EntryType,
        link: &[u8],
        size: u64,
        mut pax: Pax,
    ) -> Result<()> {
        let mut header = Header::new_ustar();
        header.set_entry_type(kind);
        header.set_mode(meta.mode.into());
        let short = |n: u64, limit: u64| if n < limit { n } else { 0 };
        header.set_uid(short(meta.uid.into(), 0o10_000_000));
        header.set_gid(short(meta.gid.into(), 0o10_000_000));
        header.set_size(short(size, 1 << 33));
        header.set_mtime(short(
            u64::try_from(meta.mtime.secs).unwrap_or(u64::MAX),
            1 << 33,
        ));
        if matches!(meta.kind, FileType::CharDevice | FileType::BlockDevice)
            && kind != EntryType::Link
        {
            header.set_device_major(dev_major(meta.rdev))?;
            header.set_device_minor(dev_minor(meta.rdev))?;
        }
        let ustar = header.as_ustar_mut().context("a ustar header")?;
        for (field, key, value) in [
            (&mut ustar.name, "path", name),
            (&mut ustar.linkname, "linkpath", link),
        ] {
            let n = value.len().min(field.len());
            field[..n].copy_from_slice(&value[..n]);
            if n < value.len() {
                pax.set(key, value);
            }
        }
        if u64::from(meta.uid) >= 0o10_000_000 {
            pax.set("uid", meta.uid.to_string().as_bytes());
        }
        if u64::from(meta.gid) >= 0o10_000_000 {
            pax.set("gid", meta.gid.to_string().as_bytes());
        }
        if size >= 1 << 33 {
            pax.set("size", size.to_string().as_bytes());
        }
        if meta.mtime.nanos != 0 || !(0..1 << 33).contains(&meta.mtime.secs) {
            pax.set("mtime", decimal(meta.mtime).as_bytes());
        }
        if meta.atime != meta.mtime {
            pax.set("atime", decimal(meta.atime).as_bytes());
        }
        if !pax.0.is_empty() {
            let mut extension = Header::new_ustar();
            extension.set_entry_type(EntryType::XHeader);
            extension.set_mode(0o644);
            extension.set_size(pax.0.len() as u64);
            let shown = crate::address::join(b"./PaxHeaders", crate::address::base_name(name));
            let field = &mut extension.as_ustar_mut().context("a ustar header")?.name;
            let n = shown.len().min(field.len());
            field[..n].copy_from_slice(&shown[..n]);
            extension.set_cksum();
            self.put(extension.as_bytes())?;
            self.put(&pax.0)?;
            self.pad()?;
        }
        header.set_cksum();
        self.put(header.as_bytes())
    }
}

fn decimal(t: Timestamp) -> String {
    // Nanoseconds count forwards from the second below, the sign of a decimal counts for all of it.
    match (t.secs, t.nanos) {
        (secs, 0) => secs.to_string(),
        (secs, nanos) if secs < 0 => format!("-{}.{:09}", -(secs + 1), 1_000_000_000 - nanos),
        (secs, nanos) => format!("{secs}.{nanos:09}"),
    }
}

/// Records of a pax header.
#[derive(Default)]
struct Pax(Vec<u8>);

impl Pax {
    fn set(&mut self, key: &str, value: &[u8]) {
        self.record(key.as_bytes(), value);
    }

    fn xattr(&mut self, (name, value): &Xattr) {
        self.record(&[b"SCHILY.xattr.", name.as_slice()].concat(), value);
    }

    /// `LENGTH KEY=VALUE\n`, where the length counts its own digits.
    fn record(&mut self, key: &[u8], value: &[u8]) {
        let rest = key.len() + value.len() + 3;
        let mut length = rest + 1;
        while length != rest + length.to_string().len() {
            length = rest + length.to_string().len();
        }
        self.0.extend_from_slice(length.to_string().as_bytes());
        self.0.push(b' ');
        self.0.extend_from_slice(key);
        self.0.push(b'=');
        self.0.extend_from_slice(value);
        self.0.push(b'\n');
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_count_themselves() {
        for n in [0, 1, 2, 86, 87, 88, 89, 90, 91, 987, 988, 989, 990] {
            let mut pax = Pax::default();
            pax.set("path", &vec![b'x'; n]);
            let text = String::from_utf8(pax.0).unwrap();
            let (length, _) = text.split_once(' ').unwrap();
            assert_eq!(length.parse::<usize>().unwrap(), text.len());
        }
    }

    #[test]
    fn times_before_1970_too() {
        let t = |secs, nanos| decimal(Timestamp { secs, nanos });
        assert_eq!(t(5, 7), "5.000000007");
        assert_eq!(t(-1, 500_000_000), "-0.500000000");
        assert_eq!(t(-2, 0), "-2");
    }
}
