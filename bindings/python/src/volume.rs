//! An open volume, by paths; `python/extant` builds path objects and files on it.

use crate::device::PyDevice;
use crate::error::{raise, raise_io, raise_mkfs};
use crate::file::NativeFile;
use crate::handle::{Drops, Handle};
use crate::reads::NativeReads;
use crate::sink::Sink;
use crate::source::{Gate, archive, source};
use crate::work::{Progress, interruptible};
use extant::acl;
use extant::blockdev::FileDevice;
use extant::mkfs::{self, MkfsOptions};
use extant::{
    CopyCounts, CopyOptions, Error, Metadata, OpenOptions, PathError, RenameMode, SetAttributes,
    SetTime, SetXattr, Timestamp, Volume, VolumeOptions,
};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict};
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

#[pyclass(frozen, module = "extant")]
pub struct NativeVolume {
    volume: Handle<Volume>,
    /// Whether the device is an object of Python's, so that its reads need the interpreter.
    python_device: bool,
    /// Cost of dropping the volume, or a file of it.
    drops: Drops,
}

/// An entry of an ACL: tag, user or group, permissions.
type AclEntry = (String, Option<u32>, u8);

/// Fields of `os.stat_result`: mode, ino, nlink, uid, gid, size, three times in nanoseconds, blocks of 512 bytes,
/// rdev.
type Stat = (u32, u32, u32, u32, u32, u64, (i128, i128, i128), u64, u32);

/// Returns whether a call that follows links acts on the target of the path's last name. Only regular files and directories can be
/// opened, so other inodes are not.
fn is_followed(volume: &Volume, path: &Path, follow: bool) -> extant::Result<bool> {
    Ok(follow && volume.symlink_metadata(path)?.is_symlink())
}

fn nanoseconds(time: Timestamp) -> i128 {
    i128::from(time.secs()) * 1_000_000_000 + i128::from(time.nanos())
}

fn timestamp(nanoseconds: i128) -> Timestamp {
    let secs = nanoseconds.div_euclid(1_000_000_000);
    let secs = secs.clamp(i64::MIN.into(), i64::MAX.into());
    // Within the range now, and the rest is below a second.
    Timestamp::new(secs as i64, nanoseconds.rem_euclid(1_000_000_000) as u32)
}

fn stat(found: &Metadata) -> Stat {
    let times = [found.atime(), found.mtime(), found.ctime()].map(nanoseconds);
    (
        found.mode(),
        found.ino(),
        found.nlink(),
        found.uid(),
        found.gid(),
        found.len(),
        times.into(),
        found.blocks(),
        found.rdev(),
    )
}

fn counts<'py>(py: Python<'py>, done: &CopyCounts) -> PyResult<Bound<'py, PyDict>> {
    let out = PyDict::new(py);
    out.set_item("files", done.files)?;
    out.set_item("directories", done.directories)?;
    out.set_item("symlinks", done.symlinks)?;
    out.set_item("specials", done.specials)?;
    out.set_item("hard_links", done.hard_links)?;
    out.set_item("bytes", done.bytes)?;
    out.set_item("refused", done.refused)?;
    Ok(out)
}

impl NativeVolume {
    fn new(volume: Volume, read_only: bool, python_device: bool) -> Self {
        let drops = if read_only && !python_device {
            Drops::AtOnce
        } else {
            Drops::Slowly
        };
        Self {
            volume: Handle::new(volume, drops),
            python_device,
            drops,
        }
    }

    fn get(&self) -> PyResult<Volume> {
        let volume = self.volume.get()?;
        volume.ok_or_else(|| PyValueError::new_err("the volume is closed"))
    }

    /// Calls `f` without the interpreter's lock; an error names the path.
    fn at<R: Send>(
        &self,
        py: Python<'_>,
        path: &Path,
        f: impl FnOnce(&Volume, &Path) -> extant::Result<R> + Send,
    ) -> PyResult<R> {
        let volume = self.get()?;
        py.detach(|| f(&volume, path))
            .map_err(|e| raise(&e, Some(path)))
    }

    fn copied<'py>(
        &self,
        py: Python<'py>,
        progress: Option<Py<PyAny>>,
        copy: impl FnOnce(&Volume, &CopyOptions<'_>) -> Result<CopyCounts, PathError> + Send,
    ) -> PyResult<Bound<'py, PyDict>> {
        let volume = self.get()?;
        let stop = AtomicBool::new(false);
        let progress = Progress::new(progress, &stop);
        let tell = |done: &CopyCounts| {
            progress.tell(|py, callable| counts(py, done).and_then(|done| callable.call1((done,))));
        };
        let options = CopyOptions::new().progress(&tell).cancel(&stop);
        let done = interruptible(py, &stop, || copy(&volume, &options));
        let done = done.and_then(|done| done.map_err(|e| raise(&e.source, Some(&e.path))));
        let done = progress.end(done)?;
        counts(py, &done)
    }
}

#[pymethods]
impl NativeVolume {
    /// Opens an image: a path, or a file object.
    #[staticmethod]
    fn open(py: Python<'_>, image: &Bound<'_, PyAny>, read_only: bool) -> PyResult<Self> {
        let options = VolumeOptions::new().read_only(read_only);
        if image.hasattr("read")? {
            let device = PyDevice::new(image.clone(), !read_only)?;
            let opened = py.detach(|| options.open_device(Arc::new(device)));
            let opened = opened.map_err(|e| raise(&e, None))?;
            return Ok(Self::new(opened, read_only, true));
        }
        let path: PathBuf = image.extract()?;
        let opened = py.detach(|| options.open(&path));
        opened
            .map(|volume| Self::new(volume, read_only, false))
            .map_err(|e| raise(&e, Some(&path)))
    }

    /// Makes an image at a path, of a source if one is given, and opens it.
    #[staticmethod]
    #[pyo3(signature = (path, source_of, *, size, features, block_size, label, uuid, journal_size, inodes, root_owner))]
    #[allow(clippy::too_many_arguments)] // The keywords of the Python function.
    fn create(
        py: Python<'_>,
        path: PathBuf,
        source_of: Option<&Bound<'_, PyAny>>,
        size: Option<u64>,
        features: String,
        block_size: Option<u32>,
        label: String,
        uuid: Option<[u8; 16]>,
        journal_size: Option<u64>,
        inodes: Option<u32>,
        root_owner: Option<(u32, u32)>,
    ) -> PyResult<Self> {
        let stop = Arc::new(AtomicBool::new(false));
        let options = MkfsOptions {
            size,
            features,
            block_size,
            label,
            uuid,
            journal_size,
            inodes: inodes.map(extant::format::layout::Inodes::Count),
            root_owner,
            cancel: Some(Arc::clone(&stop)),
            ..MkfsOptions::default()
        };
        let gate = Gate::default();
        let from = source_of.map(|from| source(from, &gate)).transpose()?;
        let made = interruptible(py, &stop, || {
            let prepared = match from {
                Some(from) => mkfs::prepare_from(&options, from)?,
                None => mkfs::prepare(&options)?,
            };
            let device = FileDevice::create(&path, prepared.size());
            Ok::<_, mkfs::MkfsError>(match device {
                Ok(device) => prepared.write(&device).map(drop).map(Ok)?,
                Err(failed) => Err(failed),
            })
        });
        let made = made.and_then(|made| made.map_err(raise_mkfs));
        gate.close(py, made)?.map_err(|e| raise_io(e, &path))?;
        let opened = py.detach(|| Volume::open(&path));
        opened
            .map(|volume| Self::new(volume, false, false))
            .map_err(|e| raise(&e, Some(&path)))
    }

    /// Closes the volume: everything is durable then, and the image is clean.
    fn close(&self, py: Python<'_>) -> PyResult<()> {
        let volume = self.volume.take();
        let closed = volume.map_or(Ok(()), |volume| py.detach(|| volume.close()));
        closed.map_err(|e| raise(&e, None))
    }

    fn is_closed(&self) -> bool {
        self.get().is_err()
    }

    /// Makes everything durable.
    fn sync(&self, py: Python<'_>) -> PyResult<()> {
        self.at(py, Path::new("/"), |v, _| v.sync())
    }

    fn label(&self, py: Python<'_>) -> PyResult<String> {
        self.at(py, Path::new("/"), |v, _| v.label())
    }

    fn set_label(&self, py: Python<'_>, label: String) -> PyResult<()> {
        self.at(py, Path::new("/"), |v, _| v.set_label(label))
    }

    /// Returns the block size, the numbers of blocks, free blocks, available blocks, inodes and free inodes, and the
    /// longest name.
    fn statvfs(&self, py: Python<'_>) -> PyResult<(u32, u64, u64, u64, u64, u64, u32)> {
        let s = self.at(py, Path::new("/"), |v, _| v.statfs())?;
        Ok((
            s.block_size,
            s.blocks,
            s.free_blocks,
            s.available_blocks,
            s.inodes,
            s.free_inodes,
            s.name_max,
        ))
    }

    /// Grows the volume to `bytes` bytes; returns the new size in bytes.
    fn grow(&self, py: Python<'_>, bytes: Option<u64>) -> PyResult<u64> {
        self.at(py, Path::new("/"), |v, _| {
            let blocks = v.grow(bytes)?;
            Ok(blocks.saturating_mul(v.geometry().block_size.into()))
        })
    }

    /// Returns the properties of the volume, with the keys of `extant info --json`.
    fn info<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        crate::info::info(py, &self.get()?)
    }

    /// Returns the files below a directory with their contents, read ahead by several threads.
    fn read_files(&self, py: Python<'_>, path: PathBuf) -> PyResult<NativeReads> {
        let python_device = self.python_device;
        let reads = self.at(py, &path, |v, p| {
            if python_device {
                // Reads of the device need the interpreter, so that threads would only wait for each other.
                v.read_files_with(p, 0)
            } else {
                v.read_files(p)
            }
        })?;
        Ok(NativeReads::new(reads))
    }

    /// Returns the entries of an ACL: tag, ID and permissions; with `default` those that new files inherit.
    fn getacl(&self, py: Python<'_>, path: PathBuf, default: bool) -> PyResult<Vec<AclEntry>> {
        let acl = self.at(py, &path, |v, p| {
            if default {
                v.default_acl(p)
            } else {
                v.acl(p).map(Some)
            }
        })?;
        let one = |entry: &acl::AclEntry| {
            let (tag, id) = match entry.tag {
                acl::Tag::UserObj => ("user", None),
                acl::Tag::User(uid) => ("user", Some(uid)),
                acl::Tag::GroupObj => ("group", None),
                acl::Tag::Group(gid) => ("group", Some(gid)),
                acl::Tag::Mask => ("mask", None),
                acl::Tag::Other => ("other", None),
            };
            (tag.to_owned(), id, entry.perm)
        };
        Ok(acl.map_or_else(Vec::new, |acl| acl.entries().iter().map(one).collect()))
    }

    /// Sets an ACL; an empty list removes the default one.
    fn setacl(
        &self,
        py: Python<'_>,
        path: PathBuf,
        entries: Vec<AclEntry>,
        default: bool,
    ) -> PyResult<()> {
        let one = |(tag, id, perm): AclEntry| {
            let tag = match (tag.as_str(), id) {
                ("user", None) => acl::Tag::UserObj,
                ("user", Some(uid)) => acl::Tag::User(uid),
                ("group", None) => acl::Tag::GroupObj,
                ("group", Some(gid)) => acl::Tag::Group(gid),
                ("mask", None) => acl::Tag::Mask,
                ("other", None) => acl::Tag::Other,
                _ => {
                    return Err(PyValueError::new_err(format!(
                        "'{tag}' is not a tag of an ACL"
                    )));
                }
            };
            Ok(acl::AclEntry { tag, perm })
        };
        let none = default && entries.is_empty();
        let entries = entries.into_iter().map(one).collect::<PyResult<Vec<_>>>()?;
        let given = if none {
            None
        } else {
            Some(acl::Acl::new(entries).map_err(|e| PyValueError::new_err(e.to_string()))?)
        };
        self.at(py, &path, |v, p| match (&given, default) {
            (given, true) => v.set_default_acl(p, given.as_ref()),
            (Some(given), false) => v.set_acl(p, given),
            (None, false) => Ok(()),
        })
    }

    fn stat(&self, py: Python<'_>, path: PathBuf, follow: bool) -> PyResult<Stat> {
        let found = self.at(py, &path, |v, p| {
            if follow {
                v.metadata(p)
            } else {
                v.symlink_metadata(p)
            }
        })?;
        Ok(stat(&found))
    }

    /// Returns names, inode numbers and types (the bits of `st_mode`) of a directory.
    fn listdir(&self, py: Python<'_>, path: PathBuf) -> PyResult<Vec<(OsString, u32, u32)>> {
        self.at(py, &path, |v, p| {
            let entry = |entry: extant::Result<extant::DirEntry>| {
                let entry = entry?;
                let kind = u32::from(entry.file_type().mode_bits());
                Ok((entry.file_name().to_os_string(), entry.ino(), kind))
            };
            v.read_dir(p)?.map(entry).collect()
        })
    }

    fn read<'py>(&self, py: Python<'py>, path: PathBuf) -> PyResult<Bound<'py, PyBytes>> {
        let bytes = self.at(py, &path, |v, p| v.read(p))?;
        Ok(PyBytes::new(py, &bytes))
    }

    fn write(&self, py: Python<'_>, path: PathBuf, data: &[u8]) -> PyResult<usize> {
        self.at(py, &path, |v, p| v.write(p, data))?;
        Ok(data.len())
    }

    #[pyo3(signature = (path, *, read, write, create, exclusive, truncate, mode))]
    #[allow(clippy::too_many_arguments)] // The flags of open(2).
    fn open_file(
        &self,
        py: Python<'_>,
        path: PathBuf,
        read: bool,
        write: bool,
        create: bool,
        exclusive: bool,
        truncate: bool,
        mode: u32,
    ) -> PyResult<NativeFile> {
        let options = OpenOptions::new()
            .read(read)
            .write(write)
            .create(create)
            .create_new(exclusive)
            .truncate(truncate)
            .mode(mode);
        let file = self.at(py, &path, |v, p| {
            let file = v.open_file_with(p, &options)?;
            // As `open` of Python does. The library opens directories, as open(2) does.
            if file.metadata()?.is_dir() {
                return Err(Error::IsDirectory);
            }
            Ok(file)
        })?;
        Ok(NativeFile::new(file, self.drops))
    }

    fn mkdir(&self, py: Python<'_>, path: PathBuf, mode: u32) -> PyResult<()> {
        self.at(py, &path, |v, p| v.create_dir_with_mode(p, mode).map(drop))
    }

    fn makedirs(&self, py: Python<'_>, path: PathBuf) -> PyResult<()> {
        self.at(py, &path, |v, p| v.create_dir_all(p))
    }

    fn rmdir(&self, py: Python<'_>, path: PathBuf) -> PyResult<()> {
        self.at(py, &path, |v, p| v.remove_dir(p))
    }

    fn rmtree(&self, py: Python<'_>, path: PathBuf) -> PyResult<()> {
        self.at(py, &path, |v, p| v.remove_dir_all(p))
    }

    fn unlink(&self, py: Python<'_>, path: PathBuf) -> PyResult<()> {
        self.at(py, &path, |v, p| v.remove_file(p))
    }

    fn rename(&self, py: Python<'_>, path: PathBuf, to: PathBuf, replace: bool) -> PyResult<()> {
        self.at(py, &path, |v, p| {
            if replace {
                v.rename(p, &to)
            } else {
                v.rename_with(p, &to, RenameMode::NoReplace)
            }
        })
    }

    fn link(&self, py: Python<'_>, path: PathBuf, to: PathBuf) -> PyResult<()> {
        self.at(py, &to, |v, p| v.hard_link(&path, p))
    }

    fn symlink(&self, py: Python<'_>, target: PathBuf, path: PathBuf) -> PyResult<()> {
        self.at(py, &path, |v, p| v.symlink(&target, p))
    }

    fn readlink(&self, py: Python<'_>, path: PathBuf) -> PyResult<OsString> {
        let target = self.at(py, &path, |v, p| v.read_link(p))?;
        Ok(target.into_os_string())
    }

    fn realpath(&self, py: Python<'_>, path: PathBuf) -> PyResult<OsString> {
        let real = self.at(py, &path, |v, p| v.canonicalize(p))?;
        Ok(real.into_os_string())
    }

    fn chmod(&self, py: Python<'_>, path: PathBuf, mode: u32) -> PyResult<()> {
        self.at(py, &path, |v, p| v.set_permissions(p, mode))
    }

    fn chown(
        &self,
        py: Python<'_>,
        path: PathBuf,
        uid: Option<u32>,
        gid: Option<u32>,
        follow: bool,
    ) -> PyResult<()> {
        let set = SetAttributes {
            uid,
            gid,
            ..SetAttributes::default()
        };
        self.at(py, &path, |v, p| {
            if follow {
                v.set_attributes(p, &set)
            } else {
                v.set_symlink_attributes(p, &set)
            }
        })
    }

    /// Sets both times, in nanoseconds since 1970; `None` for now.
    fn utime(&self, py: Python<'_>, path: PathBuf, times: Option<(i128, i128)>) -> PyResult<()> {
        let at = |time: Option<i128>| {
            Some(time.map_or(SetTime::Now, |time| SetTime::At(timestamp(time))))
        };
        let set = SetAttributes {
            atime: at(times.map(|t| t.0)),
            mtime: at(times.map(|t| t.1)),
            ..SetAttributes::default()
        };
        self.at(py, &path, |v, p| v.set_attributes(p, &set))
    }

    fn truncate(&self, py: Python<'_>, path: PathBuf, size: u64) -> PyResult<()> {
        self.at(py, &path, |v, p| v.set_len(p, size))
    }

    fn listxattr(&self, py: Python<'_>, path: PathBuf, follow: bool) -> PyResult<Vec<OsString>> {
        self.at(py, &path, |v, p| {
            if is_followed(v, p, follow)? {
                v.open_file(p)?.list_xattrs()
            } else {
                v.list_xattrs(p)
            }
        })
    }

    fn getxattr<'py>(
        &self,
        py: Python<'py>,
        path: PathBuf,
        name: OsString,
        follow: bool,
    ) -> PyResult<Bound<'py, PyBytes>> {
        let value = self.at(py, &path, |v, p| {
            if is_followed(v, p, follow)? {
                v.open_file(p)?.get_xattr(&name)
            } else {
                v.get_xattr(p, &name)
            }
        })?;
        Ok(PyBytes::new(py, &value))
    }

    fn setxattr(
        &self,
        py: Python<'_>,
        path: PathBuf,
        name: OsString,
        value: &[u8],
        follow: bool,
    ) -> PyResult<()> {
        self.at(py, &path, |v, p| {
            if is_followed(v, p, follow)? {
                v.open_file(p)?.set_xattr(&name, value, SetXattr::Any)
            } else {
                v.set_xattr(p, &name, value, SetXattr::Any)
            }
        })
    }

    fn removexattr(
        &self,
        py: Python<'_>,
        path: PathBuf,
        name: OsString,
        follow: bool,
    ) -> PyResult<()> {
        self.at(py, &path, |v, p| {
            if is_followed(v, p, follow)? {
                v.open_file(p)?.remove_xattr(&name)
            } else {
                v.remove_xattr(p, &name)
            }
        })
    }

    fn copy_tree_in<'py>(
        &self,
        py: Python<'py>,
        from: PathBuf,
        to: PathBuf,
        progress: Option<Py<PyAny>>,
    ) -> PyResult<Bound<'py, PyDict>> {
        self.copied(py, progress, |v, options| {
            v.copy_tree_in(&from, &to, options)
        })
    }

    fn copy_tree_out<'py>(
        &self,
        py: Python<'py>,
        from: PathBuf,
        to: PathBuf,
        progress: Option<Py<PyAny>>,
    ) -> PyResult<Bound<'py, PyDict>> {
        self.copied(py, progress, |v, options| {
            v.copy_tree_out(&from, &to, options)
        })
    }

    /// Extracts an archive into a directory.
    fn import_archive<'py>(
        &self,
        py: Python<'py>,
        from: &Bound<'py, PyAny>,
        to: PathBuf,
        progress: Option<Py<PyAny>>,
    ) -> PyResult<Bound<'py, PyDict>> {
        let gate = Gate::default();
        let from = archive(from, &gate)?;
        let done = self.copied(py, progress, |v, options| {
            v.import_archive(from, &to, options)
        });
        gate.close(py, done)
    }

    /// Writes a tree as an archive to a file or a file object.
    fn export_archive<'py>(
        &self,
        py: Python<'py>,
        from: PathBuf,
        to: &Bound<'py, PyAny>,
        format: Option<&str>,
        progress: Option<Py<PyAny>>,
    ) -> PyResult<Bound<'py, PyDict>> {
        let mut sink = Sink::new(to)?;
        let packing = sink.packing(format)?;
        self.copied(py, progress, |v, options| {
            v.export_archive(&from, &mut sink, packing, options)
        })
    }
}
