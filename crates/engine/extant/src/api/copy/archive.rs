//! Archives extracted into a volume, and written of its trees.

use super::volume::VolumeSide;
use super::{CopyCounts, CopyOptions, Counting, PathError, path_error};
use crate::api::bytes;
use crate::api::dir::Dir;
use crate::base::error::Result;
use extant_mkfs::ArchiveInput;
use extant_transfer::{Feed, Packing, pack, read_archive};
use std::io::Write;
use std::path::Path;

impl Dir {
    /// Extracts an archive (tar, cpio or SquashFS, plain or compressed) into directory `to`, which is made if it does
    /// not exist. Directories are merged; another file of a member's name is replaced. Owners, permissions, times,
    /// extended attributes, ACLs, hard links, holes and devices are kept. The calling thread does all work; what an
    /// import that failed has made stays there.
    ///
    /// ```
    /// use extant::mkfs::ArchiveInput;
    /// # let volume = extant::doc_volume();
    /// # let mut tar = tar::Builder::new(Vec::new());
    /// # let mut header = tar::Header::new_ustar();
    /// # header.set_size(4);
    /// # header.set_mode(0o600);
    /// # tar.append_data(&mut header, "etc/hostname", &b"box\n"[..]).unwrap();
    /// # let bytes = std::io::Cursor::new(tar.into_inner().unwrap());
    /// let archive = ArchiveInput::Reader { name: "rootfs.tar".into(), reader: Box::new(bytes) };
    /// let copied = volume.import_archive(archive, "/srv", &extant::CopyOptions::new())?;
    /// assert_eq!((copied.files, copied.bytes), (1, 4));
    /// assert_eq!(volume.read_to_string("/srv/etc/hostname")?, "box\n");
    /// # Ok::<(), extant::Error>(())
    /// ```
    ///
    /// # Errors
    /// The first error, with the path in the volume where it was met. [`Error::Mkfs`](crate::Error::Mkfs) for bytes that are
    /// not an archive, [`Error::Invalid`](crate::Error::Invalid) for a member whose path has `..`,
    /// [`Error::IsDirectory`](crate::Error::IsDirectory) for a file in the place of a directory,
    /// [`Error::Interrupted`](crate::Error::Interrupted) after [`CopyOptions::cancel`].
    pub fn import_archive(
        &self,
        archive: ArchiveInput,
        to: impl AsRef<Path>,
        options: &CopyOptions<'_>,
    ) -> Result<CopyCounts, PathError> {
        let failed = |source| PathError {
            path: to.as_ref().to_path_buf(),
            source,
        };
        self.create_dir_all(&to).map_err(failed)?;
        let side = VolumeSide::new(self);
        let counting = Counting::new(options);
        let rules = options.rules(0);
        let read = read_archive(Feed::Archive(archive), &side, bytes(&to), &rules, &counting);
        read.map_err(|e| path_error(e, to.as_ref()))?;
        Ok(counting.counts())
    }

    /// Writes the contents of a directory, or one file, as an archive (tar or cpio, plain or compressed). Tar archives have
    /// everything but sockets, in pax format, with holes and hard links; cpio archives have no extended attributes. The bytes
    /// do not depend on the number of threads. Only the calling thread writes to `out`.
    ///
    /// ```
    /// use extant::{CopyOptions, Packing};
    /// # let volume = extant::doc_volume();
    /// volume.create_dir_all("/srv")?;
    /// volume.write("/srv/motd", "hello\n")?;
    /// let mut archive = Vec::new();
    /// let packed = volume.export_archive("/srv", &mut archive, Packing::TAR, &CopyOptions::new())?;
    /// assert_eq!((packed.files, packed.bytes), (1, 6));
    /// let mut archive = tar::Archive::new(&archive[..]);
    /// assert!(archive.entries().unwrap().any(|entry| entry.unwrap().size() == 6));
    /// # Ok::<(), extant::Error>(())
    /// ```
    ///
    /// # Errors
    /// The first error, with the path in the volume where it was met: [`Error::NotFound`](crate::Error::NotFound), errors of `out`,
    /// [`Error::Interrupted`](crate::Error::Interrupted) after [`CopyOptions::cancel`].
    pub fn export_archive(
        &self,
        from: impl AsRef<Path>,
        out: impl Write,
        packing: Packing,
        options: &CopyOptions<'_>,
    ) -> Result<CopyCounts, PathError> {
        self.metadata(&from).map_err(|source| PathError {
            path: from.as_ref().to_path_buf(),
            source,
        })?;
        let counting = Counting::new(options);
        let rules = options.rules(options.threads);
        let side = VolumeSide::new(self);
        let packed = pack(&side, bytes(&from), out, packing, &rules, &counting);
        packed.map_err(|e| path_error(e, from.as_ref()))?;
        Ok(counting.counts())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::error::Error;
    use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

    fn header(kind: tar::EntryType, size: u64) -> tar::Header {
        let mut header = tar::Header::new_gnu();
        header.set_entry_type(kind);
        header.set_size(size);
        header.set_mode(0o640);
        header.set_uid(5);
        header.set_gid(6);
        header.set_mtime(7);
        header
    }

    fn input(tar: tar::Builder<Vec<u8>>) -> ArchiveInput {
        ArchiveInput::Reader {
            name: "archive".into(),
            reader: Box::new(std::io::Cursor::new(tar.into_inner().unwrap())),
        }
    }

    fn file(tar: &mut tar::Builder<Vec<u8>>, path: &str, content: &[u8]) {
        let mut header = header(tar::EntryType::Regular, content.len() as u64);
        tar.append_data(&mut header, path, content).unwrap();
    }

    #[test]
    fn a_tree_is_the_same_after_an_archive() {
        let volume = crate::doc_volume();
        volume.create_dir_all("/a/b").unwrap();
        volume.write("/a/large", vec![7; 700_000]).unwrap();
        volume.write("/a/b/small", "small").unwrap();
        volume.symlink("b/small", "/a/link").unwrap();
        volume.hard_link("/a/large", "/a/b/second").unwrap();
        let export = |packing: &str, threads: usize| {
            let (mut out, packing) = (Vec::new(), packing.parse().unwrap());
            let most = AtomicU64::new(0);
            let tell = |done: &CopyCounts| {
                most.fetch_max(done.bytes, Ordering::Relaxed);
            };
            let options = CopyOptions::new().threads(threads).progress(&tell);
            let counts = volume.export_archive("/a", &mut out, packing, &options);
            let counts = counts.unwrap();
            assert_eq!(most.into_inner(), counts.bytes);
            (out, counts)
        };
        for packing in ["tar", "tar.gz", "tar.zst", "cpio"] {
            let (archive, counts) = export(packing, 4);
            assert!(archive == export(packing, 1).0, "{packing}");
            assert_eq!((counts.files, counts.symlinks), (2, 1), "{packing}");
            let reader = Box::new(std::io::Cursor::new(archive));
            let name = "archive".into();
            let again = crate::doc_volume();
            let input = ArchiveInput::Reader { name, reader };
            let read = again.import_archive(input, "/a", &CopyOptions::new());
            assert_eq!(read.unwrap().files, 2, "{packing}");
            assert_eq!(again.read("/a/b/second").unwrap(), vec![7; 700_000]);
            assert_eq!(again.read_to_string("/a/link").unwrap(), "small");
            assert_eq!(again.metadata("/a/large").unwrap().nlink(), 2);
        }
    }

    #[test]
    fn errors_of_an_export_name_their_place() {
        struct Full;
        impl Write for Full {
            fn write(&mut self, _: &[u8]) -> std::io::Result<usize> {
                Err(std::io::ErrorKind::StorageFull.into())
            }
            fn flush(&mut self) -> std::io::Result<()> {
                Ok(())
            }
        }
        let volume = crate::doc_volume();
        volume.write("/file", vec![1; 5 << 20]).unwrap();
        let stop = AtomicBool::new(true);
        let options = CopyOptions::new().threads(2);
        let failed = |from: &str, options: &CopyOptions<'_>, out: &mut dyn Write| {
            let packed = volume.export_archive(from, out, Packing::TAR, options);
            packed.unwrap_err()
        };
        let missing = failed("/none", &options, &mut Vec::new());
        assert!(matches!(missing.source, Error::NotFound), "{missing}");
        assert_eq!(missing.path, Path::new("/none"));
        assert!(
            failed("/", &options, &mut Full)
                .to_string()
                .contains("space")
        );
        let stopped = failed("/", &options.cancel(&stop), &mut Vec::new());
        assert!(matches!(stopped.source, Error::Interrupted), "{stopped}");
    }

    #[test]
    fn an_export_does_not_write_after_a_failure() {
        struct Failing(usize, usize);
        impl Write for Failing {
            fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
                self.1 += 1;
                if self.1 > self.0 {
                    return Err(std::io::ErrorKind::StorageFull.into());
                }
                Ok(bytes.len())
            }
            fn flush(&mut self) -> std::io::Result<()> {
                Ok(())
            }
        }
        let volume = crate::doc_volume();
        let mut n = 0u32;
        let noise = std::iter::repeat_with(|| {
            n = n.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (n >> 24) as u8
        });
        volume
            .write("/file", noise.take(3 << 20).collect::<Vec<_>>())
            .unwrap();
        for packing in ["tar", "tar.gz", "tar.zst", "cpio"] {
            for before in 0..3 {
                let mut out = Failing(before, 0);
                let packing = packing.parse().unwrap();
                let packed = volume.export_archive("/", &mut out, packing, &CopyOptions::new());
                assert!(packed.unwrap_err().to_string().contains("space"));
                assert_eq!(out.1, before + 1, "{packing:?}");
            }
        }
    }

    #[test]
    fn members_are_merged_into_what_is_there() {
        let volume = crate::doc_volume();
        volume.create_dir_all("/srv/kept").unwrap();
        volume.write("/srv/kept/old", "old").unwrap();
        volume.write("/srv/replaced", "old").unwrap();
        let mut tar = tar::Builder::new(Vec::new());
        let mut dir = header(tar::EntryType::Directory, 0);
        dir.set_mode(0o750);
        tar.append_data(&mut dir, "kept/", &[][..]).unwrap();
        file(&mut tar, "kept/new", b"new");
        file(&mut tar, "replaced", &vec![9; 3 << 20]);
        file(&mut tar, "not/named/before", b"deep");
        let mut link = header(tar::EntryType::Symlink, 0);
        tar.append_link(&mut link, "link", "kept/new").unwrap();
        let mut link = header(tar::EntryType::Link, 0);
        tar.append_link(&mut link, "second", "./kept/new").unwrap();
        let mut fifo = header(tar::EntryType::Fifo, 0);
        tar.append_data(&mut fifo, "fifo", &[][..]).unwrap();
        let done = volume.import_archive(input(tar), "/srv", &CopyOptions::new());
        let done = done.unwrap();
        assert_eq!((done.directories, done.files, done.symlinks), (1, 3, 1));
        assert_eq!((done.specials, done.hard_links), (1, 1));
        assert_eq!(done.bytes, 7 + (3 << 20));
        assert_eq!(volume.read("/srv/kept/old").unwrap(), b"old");
        assert_eq!(volume.read("/srv/replaced").unwrap(), vec![9; 3 << 20]);
        assert_eq!(volume.read("/srv/not/named/before").unwrap(), b"deep");
        assert_eq!(volume.read("/srv/link").unwrap(), b"new");
        let second = volume.metadata("/srv/second").unwrap();
        assert_eq!((second.nlink(), second.uid(), second.gid()), (2, 5, 6));
        let kept = volume.metadata("/srv/kept").unwrap();
        assert_eq!((kept.mode() & 0o7777, kept.mtime().secs()), (0o750, 7));
    }

    #[test]
    fn what_cannot_be_extracted_is_named() {
        let volume = crate::doc_volume();
        volume.create_dir_all("/d/sub").unwrap();
        let options = CopyOptions::new();
        let failed = |bytes: ArchiveInput| volume.import_archive(bytes, "/", &options).unwrap_err();
        let mut tar = tar::Builder::new(Vec::new());
        file(&mut tar, "d", b"in the way");
        let error = failed(input(tar));
        assert_eq!(error.path, Path::new("/d"));
        assert!(matches!(error.source, Error::IsDirectory), "{error}");
        let mut upward = header(tar::EntryType::Regular, 0);
        upward.as_old_mut().name[..7].copy_from_slice(b"a/../b\0");
        upward.set_cksum();
        let mut tar = tar::Builder::new(Vec::new());
        tar.append(&upward, &[][..]).unwrap();
        let error = failed(input(tar));
        assert!(matches!(error.source, Error::Invalid(_)), "{error}");
        let error = failed(ArchiveInput::Reader {
            name: "noise".into(),
            reader: Box::new(&[7; 4096][..]),
        });
        assert!(matches!(error.source, Error::Mkfs(_)), "{error}");
        assert_eq!(volume.read_dir("/d").unwrap().count(), 1);
    }

    #[test]
    fn the_flag_ends_it() {
        let volume = crate::doc_volume();
        let mut tar = tar::Builder::new(Vec::new());
        for n in 0..3 {
            file(&mut tar, &format!("f{n}"), b"x");
        }
        let stop = AtomicBool::new(false);
        let tell = |done: &CopyCounts| stop.store(done.files == 2, Ordering::Relaxed);
        let options = CopyOptions::new().cancel(&stop).progress(&tell);
        let error = volume
            .import_archive(input(tar), "/", &options)
            .unwrap_err();
        assert!(matches!(error.source, Error::Interrupted), "{error}");
        assert!(volume.exists("/f1").unwrap() && !volume.exists("/f2").unwrap());
    }
}
