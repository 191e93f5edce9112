"""An open volume, and paths in it that have pathlib's methods."""

from __future__ import annotations

import errno
import fnmatch
import io
import os
import stat as _stat
from pathlib import PurePosixPath
from threading import Lock
from types import TracebackType
from typing import IO, Any, Callable, Dict, Iterable, Iterator, List, NamedTuple, Optional, Tuple, Type, Union
from uuid import UUID
from weakref import WeakSet

from ._check import _size
from ._extant import NativeReads, NativeVolume
from ._file import RawFile, as_bytes, not_negative

Progress = Optional[Callable[[Dict[str, int]], None]]
AnyPath = Union[str, "Path", PurePosixPath]


class AclEntry(NamedTuple):
    """An entry of an ACL. ``tag`` is ``"user"``, ``"group"``, ``"mask"`` or ``"other"``; ``id`` is ``None`` for owner, owning group, mask and other;
    ``permissions`` are the bits 4 (read), 2 (write) and 1 (execute)."""

    tag: str
    id: Optional[int]
    permissions: int


class Volume:
    """An open volume. It is a context manager: at its end the volume is closed, and everything is durable.

    A volume that is not closed, because its process was killed, is as it was at the last ``sync`` or ``fsync``, or later.
    """

    def __init__(self, native: NativeVolume) -> None:
        self._native = native
        # Files and iterators that are open. They would keep the image locked after the volume's end.
        self._open: "WeakSet[Any]" = WeakSet()
        self._lock = Lock()

    def __enter__(self) -> "Volume":
        if self.closed:
            raise ValueError("the volume is closed")
        return self

    def __exit__(
        self, kind: Optional[Type[BaseException]], error: Optional[BaseException], trace: Optional[TracebackType]
    ) -> None:
        self.close()

    def __truediv__(self, name: AnyPath) -> "Path":
        return self.root / name

    def __repr__(self) -> str:
        return f"<extant.Volume {'closed' if self.closed else 'open'}>"

    @property
    def root(self) -> "Path":
        """The root directory."""
        return Path(self, "/")

    @property
    def closed(self) -> bool:
        """Whether the volume is closed."""
        return self._native.is_closed()

    def close(self) -> None:
        """Closes the files that are open, makes everything durable and ends the volume. The first error is raised after all of that."""
        if self.closed:
            return
        with self._lock:
            still_open = list(self._open)
        failed: Optional[BaseException] = None
        for one in still_open:
            try:
                one.close()
            except (OSError, ValueError) as error:  # ValueError: an iterator that is at work in another thread
                failed = failed or error
        self._native.close()
        if failed:
            raise failed

    def _opened(self, opened: Any) -> Any:
        """Notes what is to be closed with the volume."""
        with self._lock:
            self._open.add(opened)
        return opened

    def sync(self) -> None:
        """Makes everything durable."""
        self._native.sync()

    @property
    def label(self) -> str:
        """The volume's name, of at most 16 bytes."""
        return self._native.label()

    @label.setter
    def label(self, label: str) -> None:
        self._native.set_label(label)

    def statvfs(self) -> os.statvfs_result:
        """Space and inodes, as ``os.statvfs`` has them."""
        size, blocks, free, available, inodes, free_inodes, longest = self._native.statvfs()
        return os.statvfs_result((size, size, blocks, free, available, inodes, free_inodes, free_inodes, 0, longest))

    def info(self) -> Dict[str, Any]:
        """Properties of the volume: UUID, features, sizes in blocks and bytes, times in seconds since 1970, and the journal, with the keys
        of ``extant info --json``."""
        found = self._native.info()
        found["uuid"] = str(UUID(bytes=found["uuid"]))
        return found

    def grow(self, size: Union[int, str, None] = None) -> int:
        """Grows the open volume to ``size``, bytes or a text such as ``"2G"``, or to the end of its file or device; returns the new size
        in bytes."""
        return self._native.grow(_size(size))

    def read_files(self, top: AnyPath = "/") -> Iterator[Tuple["Path", bytes]]:
        """All regular files below ``top`` with their contents, in the order of their paths. Several threads read ahead, so that this is
        the fast way to read a tree of many files. At most 288 files are in memory at a time; one of more than 1 GiB raises ``OSError``
        (``EFBIG``)."""
        found: Iterator[Tuple[Path, bytes]] = self._opened(self._read_files(self._native.read_files(str(self / top))))
        return found

    def _read_files(self, reads: NativeReads) -> Iterator[Tuple["Path", bytes]]:
        while some := reads.next_some():
            for path, data in some:
                yield _made(self, path), data

    def import_tar(self, source: Any, target: AnyPath = "/", progress: Progress = None) -> Dict[str, int]:
        """Extracts an archive (tar, cpio or SquashFS, plain or compressed) into directory ``target``, which is made if it does not exist;
        returns counts. ``source`` is a path or a file object in binary mode. Directories are merged, files of the same name are
        replaced. ``progress`` is as in ``copy_tree_in``; Ctrl-C ends the import."""
        source = source if hasattr(source, "read") else os.fspath(source)
        return self._native.import_archive(source, str(self / target), progress)

    def export_tar(
        self, target: Any, path: AnyPath = "/", *, format: Optional[str] = None, progress: Progress = None
    ) -> Dict[str, int]:
        """Writes the contents of directory ``path``, or one file, as an archive; returns counts as ``import_tar`` does.

        ``target`` is a path, or an object with a ``write`` method that takes ``bytes``; the thread that calls it has the interpreter, and
        it is neither flushed nor closed. ``format`` is ``"tar"``, ``"tar.gz"``, ``"tar.zst"``, ``"cpio"``, ``"cpio.gz"`` or ``"cpio.zst"``;
        by default the suffix of the path decides, and an object gets ``"tar"``. The bytes do not depend on the number of threads that
        read. Tar archives have owners, times in nanoseconds, extended attributes, ACLs, hard links and holes, but no sockets; cpio
        archives have no extended attributes. ``progress`` is as in ``copy_tree_in``.

        Raises ``ValueError`` for an unknown format or suffix, ``FileNotFoundError`` and other ``OSError`` with the path in the volume, and
        whatever ``write`` raises. After an error, and after Ctrl-C, the archive is incomplete; the volume stays usable.

        >>> with extant.open("disk.img") as volume, gzip.open("etc.tar.gz", "wb") as out:
        ...     volume.export_tar(out, "/etc")["files"]
        """
        target = target if hasattr(target, "write") else os.fspath(target)
        return self._native.export_archive(str(self / path), target, format, progress)

    def walk(self, top: AnyPath = "/", topdown: bool = True) -> Iterator[Tuple["Path", List[str], List[str]]]:
        """Directories below ``top`` with the names of their directories and of everything else, as ``os.walk`` has them."""
        return (self / top).walk(topdown)

    def copy_tree_in(self, source: Any, target: AnyPath, progress: Progress = None) -> Dict[str, int]:
        """Copies a directory of the host to ``target``, which must not exist, by several threads; returns counts.

        ``progress`` is called with the counts so far: files, directories, symlinks, specials, hard_links, bytes, refused. Ctrl-C and
        an exception of ``progress`` end the copy, and leave what it has made.
        """
        return self._native.copy_tree_in(os.fspath(source), str(self / target), progress)

    def copy_tree_out(self, source: AnyPath, target: Any, progress: Progress = None) -> Dict[str, int]:
        """Copies a directory of the volume to ``target`` on the host, which must not exist; otherwise as ``copy_tree_in``."""
        return self._native.copy_tree_out(str(self / source), os.fspath(target), progress)


class DirEntry:
    """A name of a directory, as ``os.scandir`` has it: the type is known without another call."""

    def __init__(self, parent: "Path", name: str, inode: int, kind: int) -> None:
        self.name = name
        self._parent = parent
        self._inode = inode
        self._kind = kind

    @property
    def path(self) -> str:
        """The path of the entry, as text."""
        return str(self._parent / self.name)

    def inode(self) -> int:
        """The number of the inode."""
        return self._inode

    def is_symlink(self) -> bool:
        """Whether the entry is a symbolic link."""
        return _stat.S_ISLNK(self._kind)

    def is_dir(self, *, follow_symlinks: bool = True) -> bool:
        """Whether the entry is a directory, or by default a symbolic link to one."""
        if follow_symlinks and self.is_symlink():
            return (self._parent / self.name).is_dir()
        return _stat.S_ISDIR(self._kind)

    def is_file(self, *, follow_symlinks: bool = True) -> bool:
        """Whether the entry is a regular file, or by default a symbolic link to one."""
        if follow_symlinks and self.is_symlink():
            return (self._parent / self.name).is_file()
        return _stat.S_ISREG(self._kind)

    def stat(self, *, follow_symlinks: bool = True) -> os.stat_result:
        """Attributes of the entry, by default of the file that a symbolic link leads to."""
        return (self._parent / self.name).stat(follow_symlinks=follow_symlinks)

    def __repr__(self) -> str:
        return f"<DirEntry {self.name!r}>"


class Scan:
    """The names of a directory, as ``os.scandir`` returns them: an iterator, and a context manager."""

    def __init__(self, parent: "Path", found: List[Tuple[str, int, int]]) -> None:
        self._entries = (DirEntry(parent, name, inode, kind) for name, inode, kind in found)

    def __iter__(self) -> "Scan":
        return self

    def __next__(self) -> DirEntry:
        return next(self._entries)

    def __enter__(self) -> "Scan":
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        """Ends the iterator."""
        self._entries.close()


class Path:
    """A path in a volume. It is absolute: a relative one begins at the root. ``str(path)`` is the path as the volume has it."""

    __slots__ = ("volume", "_text", "_pure")
    volume: Volume
    _text: str
    _pure: Optional[PurePosixPath]

    def __init__(self, volume: Volume, path: AnyPath = "/") -> None:
        self.volume = volume
        self._pure = PurePosixPath("/", path.pure if isinstance(path, Path) else path)
        self._text = str(self._pure)

    # The path itself

    @property
    def pure(self) -> PurePosixPath:
        """The path without its volume."""
        if self._pure is None:
            self._pure = PurePosixPath(self._text)
        return self._pure

    def __truediv__(self, name: AnyPath) -> "Path":
        if isinstance(name, str) and "/" not in name and name not in ("", ".", ".."):
            return self._child(name)
        return Path(self.volume, self.pure / (name.pure if isinstance(name, Path) else name))

    def _child(self, name: str) -> "Path":
        """The path of a name of this directory."""
        return _made(self.volume, f"{self._text}/{name}" if self._text != "/" else f"/{name}")

    def joinpath(self, *names: AnyPath) -> "Path":
        """This path with others behind it, as ``/`` joins them."""
        path = self
        for name in names:
            path = path / name
        return path

    def __str__(self) -> str:
        return self._text

    def __repr__(self) -> str:
        return f"extant.Path({str(self)!r})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Path) and self.volume is other.volume and self._text == other._text

    def __hash__(self) -> int:
        return hash((id(self.volume), self._text))

    def __lt__(self, other: "Path") -> bool:
        return self.pure < other.pure

    @property
    def name(self) -> str:
        """The last component."""
        return self.pure.name

    @property
    def stem(self) -> str:
        """The last component without its suffix."""
        return self.pure.stem

    @property
    def suffix(self) -> str:
        """The suffix of the last component, with its dot."""
        return self.pure.suffix

    @property
    def suffixes(self) -> List[str]:
        """All suffixes of the last component, with their dots."""
        return self.pure.suffixes

    @property
    def parts(self) -> Tuple[str, ...]:
        """The components, of which ``/`` is the first."""
        return self.pure.parts

    @property
    def parent(self) -> "Path":
        """The directory of the path; the root is its own."""
        return Path(self.volume, self.pure.parent)

    @property
    def parents(self) -> List["Path"]:
        """The directory of the path and all directories above it."""
        return [Path(self.volume, parent) for parent in self.pure.parents]

    def with_name(self, name: str) -> "Path":
        """The path with another last component."""
        return Path(self.volume, self.pure.with_name(name))

    def with_suffix(self, suffix: str) -> "Path":
        """The path with another suffix."""
        return Path(self.volume, self.pure.with_suffix(suffix))

    def with_stem(self, stem: str) -> "Path":
        """The path with another last component, which keeps its suffix."""
        return Path(self.volume, self.pure.with_stem(stem))

    def as_posix(self) -> str:
        """The path as text."""
        return self._text

    def is_absolute(self) -> bool:
        """Always true."""
        return True

    def match(self, pattern: str) -> bool:
        """Whether the path matches a pattern, as ``PurePath.match`` says."""
        return self.pure.match(pattern)

    def is_relative_to(self, other: AnyPath) -> bool:
        """Whether this path is ``other`` or below it."""
        return self.pure.is_relative_to(other.pure if isinstance(other, Path) else other)

    def relative_to(self, other: AnyPath) -> PurePosixPath:
        """The path from ``other`` to this one. Raises ``ValueError`` if this one is not below it."""
        return self.pure.relative_to(other.pure if isinstance(other, Path) else other)

    # What is there

    def stat(self, *, follow_symlinks: bool = True) -> os.stat_result:
        """Attributes, as ``os.stat`` returns them: sizes in bytes, times in seconds and nanoseconds."""
        mode, ino, links, uid, gid, size, times, blocks, rdev = self._native.stat(self._text, follow_symlinks)
        seconds = [time // 1_000_000_000 for time in times]
        floats = [time / 1e9 for time in times]
        return os.stat_result((mode, ino, 0, links, uid, gid, size, *seconds, *floats, *times, 4096, blocks, rdev))

    def lstat(self) -> os.stat_result:
        """Attributes of the path itself: a symbolic link is not followed."""
        return self.stat(follow_symlinks=False)

    def exists(self, *, follow_symlinks: bool = True) -> bool:
        """Whether there is a file; a dangling symbolic link is none by default."""
        return self._kind(follow_symlinks) is not None

    def is_dir(self) -> bool:
        """Whether the path is a directory, or a symbolic link to one."""
        return _stat.S_ISDIR(self._kind() or 0)

    def is_file(self) -> bool:
        """Whether the path is a regular file, or a symbolic link to one."""
        return _stat.S_ISREG(self._kind() or 0)

    def is_symlink(self) -> bool:
        """Whether the path is a symbolic link."""
        return _stat.S_ISLNK(self._kind(False) or 0)

    def is_fifo(self) -> bool:
        """Whether the path is a named pipe."""
        return _stat.S_ISFIFO(self._kind() or 0)

    def is_socket(self) -> bool:
        """Whether the path is a socket."""
        return _stat.S_ISSOCK(self._kind() or 0)

    def is_block_device(self) -> bool:
        """Whether the path is a block device."""
        return _stat.S_ISBLK(self._kind() or 0)

    def is_char_device(self) -> bool:
        """Whether the path is a character device."""
        return _stat.S_ISCHR(self._kind() or 0)

    def samefile(self, other: "Path") -> bool:
        """Whether both paths lead to the same inode."""
        return self.volume is other.volume and self.stat().st_ino == other.stat().st_ino

    def scandir(self) -> Scan:
        """The names of a directory, with their types."""
        return Scan(self, self._native.listdir(self._text))

    def iterdir(self) -> Iterator["Path"]:
        """The paths of the names in this directory."""
        for name, _, _ in self._native.listdir(self._text):
            yield self._child(name)

    def walk(self, top_down: bool = True) -> Iterator[Tuple["Path", List[str], List[str]]]:
        """This directory and those below it, with the names of their directories and of everything else."""
        directories: List[str] = []
        others: List[str] = []
        for name, _, kind in self._native.listdir(self._text):
            (directories if kind == _stat.S_IFDIR else others).append(name)
        if top_down:
            yield self, directories, others
        for name in directories:
            yield from self._child(name).walk(top_down)
        if not top_down:
            yield self, directories, others

    def rglob(self, pattern: str) -> Iterator["Path"]:
        """What matches ``pattern`` in this directory or one below it."""
        return self.glob(f"**/{pattern}")

    def glob(self, pattern: str) -> Iterator["Path"]:
        """What matches a pattern of this directory; ``**`` is any number of directories."""
        first, _, rest = pattern.partition("/")
        if first == "**":
            found: Iterator[Path] = (parent for parent, _, _ in self.walk())
        else:
            found = (self / entry.name for entry in self.scandir() if fnmatch.fnmatchcase(entry.name, first))
        for path in found:
            if not rest:
                yield path
            elif path.is_dir():
                yield from path.glob(rest)

    # Contents

    def open(
        self,
        mode: str = "r",
        buffering: int = -1,
        encoding: Optional[str] = None,
        errors: Optional[str] = None,
        newline: Optional[str] = None,
    ) -> IO[Any]:
        """Opens the file, with the modes of the built-in ``open``."""
        # Each letter once, in any order, as the built-in function takes them.
        first = "".join(letter for letter in mode if letter in "rwax")
        repeated = len(set(mode)) != len(mode)
        if len(first) != 1 or repeated or not set(mode) <= set(first + "+bt") or "b" in mode and "t" in mode:
            raise ValueError(f"invalid mode: {mode!r}")
        binary = "b" in mode
        kind = first + ("+" if "+" in mode else "")
        if buffering == 0 and not binary:
            raise ValueError("text needs a buffer")
        if binary and (encoding or errors or newline):
            raise ValueError("binary mode takes no encoding, errors or newline")
        native = self._native.open_file(
            self._text,
            read=kind[0] == "r" or "+" in kind,
            write=kind != "r",
            create=kind[0] in "wa",
            exclusive=kind[0] == "x",
            truncate=kind[0] == "w",
            mode=0o644,
        )
        raw = RawFile(native, self._text, kind[0] + "b" + kind[1:])
        opened: Any = raw if buffering == 0 else _buffered(raw, kind[0] == "a", buffering)
        if not binary:
            opened = io.TextIOWrapper(opened, encoding or "utf-8", errors, newline, line_buffering=buffering == 1)
        file: IO[Any] = self.volume._opened(opened)
        return file

    def read_bytes(self) -> bytes:
        """The content of the file."""
        return self._native.read(self._text)

    def read_text(self, encoding: Optional[str] = None, errors: Optional[str] = None) -> str:
        """The content of the file as text, by default in UTF-8."""
        with self.open("r", encoding=encoding, errors=errors) as file:
            return str(file.read())

    def write_bytes(self, data: Any) -> int:
        """Creates or truncates the file, and writes ``data``; returns the number of bytes."""
        return self._native.write(self._text, as_bytes(data))

    def write_text(
        self, data: str, encoding: Optional[str] = None, errors: Optional[str] = None, newline: Optional[str] = None
    ) -> int:
        """Creates or truncates the file, and writes text, by default in UTF-8; returns the number of characters."""
        if not isinstance(data, str):  # before the file is truncated
            raise TypeError(f"data must be str, not {type(data).__name__}")
        with self.open("w", encoding=encoding, errors=errors, newline=newline) as file:
            return file.write(data)

    # Changes

    def mkdir(self, mode: int = 0o755, parents: bool = False, exist_ok: bool = False) -> None:
        """Makes a directory; with ``parents`` also those above it. With ``exist_ok`` a directory may be there."""
        try:
            self._native.mkdir(self._text, mode)
        except FileNotFoundError:
            if not parents or self.pure == self.pure.parent:
                raise
            self.parent.mkdir(parents=True, exist_ok=True)
            self.mkdir(mode, exist_ok=exist_ok)
        except FileExistsError:
            if not exist_ok or not self.is_dir():
                raise

    def touch(self, mode: int = 0o644, exist_ok: bool = True) -> None:
        """Creates the file, or sets its times to the present. Raises ``FileExistsError`` without ``exist_ok`` if it exists."""
        try:
            self._native.open_file(
                self._text, read=False, write=True, create=True, exclusive=not exist_ok, truncate=False, mode=mode
            ).close()
        except IsADirectoryError:
            if not exist_ok:
                raise
        if exist_ok:  # otherwise the file is new
            self.utime()

    def unlink(self, missing_ok: bool = False) -> None:
        """Removes the name of a file. With ``missing_ok`` it need not exist."""
        try:
            self._native.unlink(self._text)
        except FileNotFoundError:
            if not missing_ok:
                raise

    def rmdir(self) -> None:
        """Removes an empty directory."""
        self._native.rmdir(self._text)

    def rmtree(self) -> None:
        """Removes a directory and everything below it."""
        self._native.rmtree(self._text)

    def rename(self, target: AnyPath) -> "Path":
        """Gives the file another name, in place of what has that name, in one step."""
        to = self.volume / target
        self._native.rename(self._text, str(to), True)
        return to

    replace = rename

    def symlink_to(self, target: Any, target_is_directory: bool = False) -> None:
        """Makes this path a symbolic link to ``target``, which may be any text."""
        self._native.symlink(str(target), self._text)

    def hardlink_to(self, target: AnyPath) -> None:
        """Makes this path another name of the file ``target``."""
        self._native.link(str(self.volume / target), self._text)

    def readlink(self) -> PurePosixPath:
        """The path that a symbolic link leads to."""
        return PurePosixPath(self._native.readlink(self._text))

    def resolve(self, strict: bool = False) -> "Path":
        """The path of what this one leads to, without symbolic links and ``..``. If ``strict``, it must exist; otherwise the
        end that does not exist is kept."""
        return self._resolve(0 if strict else 40, strict)

    def _resolve(self, links: int, strict: bool = False) -> "Path":
        """Resolves through at most this number of links that lead to nothing."""
        try:
            return Path(self.volume, self._native.realpath(self._text))
        except (FileNotFoundError, NotADirectoryError):
            if strict:
                raise
        parent = self.parent._resolve(links)
        if self.name == "..":
            return parent.parent
        path = parent / self.name
        try:
            target = path.readlink()
        except OSError:
            return path
        if links == 0:
            raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), str(self))
        return (parent / target)._resolve(links - 1)

    def chmod(self, mode: int) -> None:
        """Sets permissions, set-id and sticky bits."""
        self._native.chmod(self._text, mode)

    def chown(self, uid: Optional[int] = None, gid: Optional[int] = None, *, follow_symlinks: bool = True) -> None:
        """Changes owner and group; ``None`` or -1 leaves one as it is."""
        self._native.chown(self._text, None if uid == -1 else uid, None if gid == -1 else gid, follow_symlinks)

    def utime(self, ns: Optional[Tuple[int, int]] = None) -> None:
        """Sets the times of access and change, in nanoseconds since 1970; without them to now."""
        self._native.utime(self._text, ns)

    def truncate(self, size: int) -> None:
        """Cuts or extends the file to ``size`` bytes; what is added reads as zeros."""
        self._native.truncate(self._text, not_negative(size))

    def listxattr(self, *, follow_symlinks: bool = True) -> List[str]:
        """The names of the extended attributes."""
        return self._native.listxattr(self._text, follow_symlinks)

    def getxattr(self, name: str, *, follow_symlinks: bool = True) -> bytes:
        """The value of an extended attribute, such as ``user.note``. Raises ``OSError`` with ``ENODATA`` if there is none."""
        return self._native.getxattr(self._text, name, follow_symlinks)

    def setxattr(self, name: str, value: bytes, *, follow_symlinks: bool = True) -> None:
        """Sets an extended attribute."""
        self._native.setxattr(self._text, name, value, follow_symlinks)

    def removexattr(self, name: str, *, follow_symlinks: bool = True) -> None:
        """Removes an extended attribute."""
        self._native.removexattr(self._text, name, follow_symlinks)

    def getacl(self, *, default: bool = False) -> List[AclEntry]:
        """The ACL, which follows from the mode if the file has none of its own; with ``default`` the one that new files of a directory inherit,
        which may be empty."""
        return [AclEntry(*entry) for entry in self._native.getacl(self._text, default)]

    def setacl(self, entries: Iterable[Tuple[str, Optional[int], int]], *, default: bool = False) -> None:
        """Sets the ACL, and with it the permissions of the mode; with ``default`` the one that new files inherit, which no entries remove.

        Raises ``ValueError`` for entries that are not an ACL: owner, owning group and other are needed, and the mask if a user or group
        is named."""
        self._native.setacl(self._text, [(tag, id, permissions) for tag, id, permissions in entries], default)

    @property
    def _native(self) -> NativeVolume:
        return self.volume._native

    def _kind(self, follow: bool = True) -> Optional[int]:
        try:
            return self._native.stat(self._text, follow)[0]
        except OSError as error:
            if error.errno in (errno.ENOENT, errno.ENOTDIR, errno.ELOOP):
                return None
            raise


def _buffered(raw: RawFile, appends: bool, buffering: int) -> Any:
    """A buffer on top of a file."""
    size = buffering if buffering > 1 else 1 << 17
    kind: Any = io.BufferedWriter if raw.writable() else io.BufferedReader
    buffer = (io.BufferedRandom if raw.readable() and raw.writable() else kind)(raw, size)
    if appends:
        buffer.seek(0, os.SEEK_END)
    return buffer


def _made(volume: Volume, text: str) -> Path:
    """A path of the library, without parsing it."""
    path = Path.__new__(Path)
    path.volume = volume
    path._text = text
    path._pure = None
    return path
