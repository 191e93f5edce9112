"""An open volume, and paths in it that have pathlib's methods."""

from __future__ import annotations

import errno
import fnmatch
import io
import os
import stat as _stat
from pathlib import PurePosixPath
from types import TracebackType
from typing import IO, Any, Callable, Dict, Iterator, List, Optional, Tuple, Type, Union

from ._extant import NativeVolume
from ._file import RawFile

Progress = Optional[Callable[[Dict[str, int]], None]]
AnyPath = Union[str, "Path", PurePosixPath]


class Volume:
    """An open volume. It is a context manager: at its end the volume is closed, and everything is durable.

    A volume that is not closed, because its process was killed, is as it was at the last ``sync`` or ``fsync``, or later.
    """

    def __init__(self, native: NativeVolume) -> None:
        self._native = native

    def __enter__(self) -> "Volume":
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
        return self._native.is_closed()

    def close(self) -> None:
        """Makes everything durable and ends the volume. Files that are open cannot be used any more."""
        self._native.close()

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

    def grow(self, size: int) -> int:
        """Grows the volume to ``size`` bytes while it is open; returns its size."""
        return self._native.grow(size)

    def walk(self, top: AnyPath = "/", topdown: bool = True) -> Iterator[Tuple["Path", List[str], List[str]]]:
        """Directories below ``top`` with the names of their directories and of everything else, as ``os.walk`` has them."""
        return (self / top).walk(topdown)

    def copy_tree_in(self, source: Any, target: AnyPath, progress: Progress = None) -> Dict[str, int]:
        """Copies a directory of the host to ``target``, which must not exist, by several threads; returns counts.

        ``progress`` is called with the counts so far: files, directories, symlinks, specials, hard_links, bytes, refused.
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
        return str(self._parent / self.name)

    def inode(self) -> int:
        return self._inode

    def is_symlink(self) -> bool:
        return _stat.S_ISLNK(self._kind)

    def is_dir(self, *, follow_symlinks: bool = True) -> bool:
        if follow_symlinks and self.is_symlink():
            return (self._parent / self.name).is_dir()
        return _stat.S_ISDIR(self._kind)

    def is_file(self, *, follow_symlinks: bool = True) -> bool:
        if follow_symlinks and self.is_symlink():
            return (self._parent / self.name).is_file()
        return _stat.S_ISREG(self._kind)

    def stat(self, *, follow_symlinks: bool = True) -> os.stat_result:
        return (self._parent / self.name).stat(follow_symlinks=follow_symlinks)

    def __repr__(self) -> str:
        return f"<DirEntry {self.name!r}>"


class Path:
    """A path in a volume. It is absolute: a relative one begins at the root. ``str(path)`` is the path as the volume has it."""

    __slots__ = ("volume", "pure")
    volume: Volume
    pure: PurePosixPath

    def __init__(self, volume: Volume, path: AnyPath = "/") -> None:
        self.volume = volume
        self.pure = PurePosixPath("/", path.pure if isinstance(path, Path) else path)

    # The path itself

    def __truediv__(self, name: AnyPath) -> "Path":
        return Path(self.volume, self.pure / (name.pure if isinstance(name, Path) else name))

    def joinpath(self, *names: AnyPath) -> "Path":
        path = self
        for name in names:
            path = path / name
        return path

    def __str__(self) -> str:
        return str(self.pure)

    def __repr__(self) -> str:
        return f"extant.Path({str(self)!r})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Path) and self.volume is other.volume and self.pure == other.pure

    def __hash__(self) -> int:
        return hash((id(self.volume), self.pure))

    def __lt__(self, other: "Path") -> bool:
        return self.pure < other.pure

    @property
    def name(self) -> str:
        return self.pure.name

    @property
    def stem(self) -> str:
        return self.pure.stem

    @property
    def suffix(self) -> str:
        return self.pure.suffix

    @property
    def parts(self) -> Tuple[str, ...]:
        return self.pure.parts

    @property
    def parent(self) -> "Path":
        return Path(self.volume, self.pure.parent)

    @property
    def parents(self) -> List["Path"]:
        return [Path(self.volume, parent) for parent in self.pure.parents]

    def with_name(self, name: str) -> "Path":
        return Path(self.volume, self.pure.with_name(name))

    def with_suffix(self, suffix: str) -> "Path":
        return Path(self.volume, self.pure.with_suffix(suffix))

    def relative_to(self, other: AnyPath) -> PurePosixPath:
        return self.pure.relative_to(other.pure if isinstance(other, Path) else other)

    # What is there

    def stat(self, *, follow_symlinks: bool = True) -> os.stat_result:
        mode, ino, links, uid, gid, size, times, blocks, rdev = self._native.stat(str(self), follow_symlinks)
        seconds = [time // 1_000_000_000 for time in times]
        floats = [time / 1e9 for time in times]
        return os.stat_result((mode, ino, 0, links, uid, gid, size, *seconds, *floats, *times, 4096, blocks, rdev))

    def lstat(self) -> os.stat_result:
        return self.stat(follow_symlinks=False)

    def exists(self, *, follow_symlinks: bool = True) -> bool:
        return self._kind(follow_symlinks) is not None

    def is_dir(self) -> bool:
        return _stat.S_ISDIR(self._kind() or 0)

    def is_file(self) -> bool:
        return _stat.S_ISREG(self._kind() or 0)

    def is_symlink(self) -> bool:
        return _stat.S_ISLNK(self._kind(False) or 0)

    def is_fifo(self) -> bool:
        return _stat.S_ISFIFO(self._kind() or 0)

    def is_socket(self) -> bool:
        return _stat.S_ISSOCK(self._kind() or 0)

    def is_block_device(self) -> bool:
        return _stat.S_ISBLK(self._kind() or 0)

    def is_char_device(self) -> bool:
        return _stat.S_ISCHR(self._kind() or 0)

    def samefile(self, other: "Path") -> bool:
        return self.volume is other.volume and self.stat().st_ino == other.stat().st_ino

    def scandir(self) -> Iterator[DirEntry]:
        """The names of a directory, with their types."""
        for name, inode, kind in self._native.listdir(str(self)):
            yield DirEntry(self, name, inode, kind)

    def iterdir(self) -> Iterator["Path"]:
        for entry in self.scandir():
            yield self / entry.name

    def walk(self, top_down: bool = True) -> Iterator[Tuple["Path", List[str], List[str]]]:
        """This directory and those below it, with the names of their directories and of everything else."""
        directories: List[str] = []
        others: List[str] = []
        for entry in self.scandir():
            (directories if entry.is_dir(follow_symlinks=False) else others).append(entry.name)
        if top_down:
            yield self, directories, others
        for name in directories:
            yield from (self / name).walk(top_down)
        if not top_down:
            yield self, directories, others

    def rglob(self, pattern: str) -> Iterator["Path"]:
        """What is below with a name that matches ``pattern``, at any depth."""
        for parent, directories, others in self.walk():
            for name in directories + others:
                if fnmatch.fnmatchcase(name, pattern):
                    yield parent / name

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
        kind = mode.replace("b", "").replace("t", "")
        if kind not in ("r", "w", "a", "x", "r+", "w+", "a+", "x+") or "b" in mode and "t" in mode:
            raise ValueError(f"invalid mode: {mode!r}")
        binary = "b" in mode
        if binary and (encoding or errors or newline):
            raise ValueError("binary mode takes no encoding, errors or newline")
        native = self._native.open_file(
            str(self),
            read=kind[0] == "r" or "+" in kind,
            write=kind != "r",
            create=kind[0] in "wa",
            exclusive=kind[0] == "x",
            truncate=kind[0] == "w",
            mode=0o644,
        )
        raw = RawFile(native, str(self), kind[0] + "b" + kind[1:])
        if buffering == 0:
            if not binary:
                raise ValueError("text needs a buffer")
            return raw  # type: ignore[return-value]
        size = buffering if buffering > 1 else 1 << 17
        buffer: Any
        if raw.readable() and raw.writable():
            buffer = io.BufferedRandom(raw, size)
        elif raw.writable():
            buffer = io.BufferedWriter(raw, size)
        else:
            buffer = io.BufferedReader(raw, size)
        if kind[0] == "a":
            buffer.seek(0, os.SEEK_END)
        if binary:
            return buffer
        return io.TextIOWrapper(buffer, encoding or "utf-8", errors, newline, line_buffering=buffering == 1)

    def read_bytes(self) -> bytes:
        return self._native.read(str(self))

    def read_text(self, encoding: Optional[str] = None, errors: Optional[str] = None) -> str:
        with self.open("r", encoding=encoding, errors=errors) as file:
            return file.read()

    def write_bytes(self, data: Any) -> int:
        return self._native.write(str(self), bytes(data))

    def write_text(
        self, data: str, encoding: Optional[str] = None, errors: Optional[str] = None, newline: Optional[str] = None
    ) -> int:
        with self.open("w", encoding=encoding, errors=errors, newline=newline) as file:
            return file.write(data)

    # Changes

    def mkdir(self, mode: int = 0o755, parents: bool = False, exist_ok: bool = False) -> None:
        try:
            self._native.mkdir(str(self), mode)
        except FileNotFoundError:
            if not parents or self.pure == self.pure.parent:
                raise
            self.parent.mkdir(parents=True, exist_ok=True)
            self.mkdir(mode, exist_ok=exist_ok)
        except FileExistsError:
            if not exist_ok or not self.is_dir():
                raise

    def touch(self, mode: int = 0o644, exist_ok: bool = True) -> None:
        native = self._native.open_file(
            str(self), read=False, write=True, create=True, exclusive=not exist_ok, truncate=False, mode=mode
        )
        native.close()
        self.utime()

    def unlink(self, missing_ok: bool = False) -> None:
        try:
            self._native.unlink(str(self))
        except FileNotFoundError:
            if not missing_ok:
                raise

    def rmdir(self) -> None:
        self._native.rmdir(str(self))

    def rmtree(self) -> None:
        """Removes a directory and everything below it."""
        self._native.rmtree(str(self))

    def rename(self, target: AnyPath) -> "Path":
        """Gives the file another name, in place of what has that name, in one step."""
        to = self.volume / target
        self._native.rename(str(self), str(to), True)
        return to

    replace = rename

    def symlink_to(self, target: Any, target_is_directory: bool = False) -> None:
        self._native.symlink(str(target), str(self))

    def hardlink_to(self, target: AnyPath) -> None:
        self._native.link(str(self.volume / target), str(self))

    def readlink(self) -> PurePosixPath:
        return PurePosixPath(self._native.readlink(str(self)))

    def chmod(self, mode: int) -> None:
        self._native.chmod(str(self), mode)

    def chown(self, uid: Optional[int] = None, gid: Optional[int] = None, *, follow_symlinks: bool = True) -> None:
        """Changes owner and group; ``None`` leaves one as it is."""
        self._native.chown(str(self), uid, gid, follow_symlinks)

    def utime(self, ns: Optional[Tuple[int, int]] = None) -> None:
        """Sets the times of access and change, in nanoseconds since 1970; without them to now."""
        self._native.utime(str(self), ns)

    def truncate(self, size: int) -> None:
        self._native.truncate(str(self), size)

    def listxattr(self) -> List[str]:
        return self._native.listxattr(str(self))

    def getxattr(self, name: str) -> bytes:
        return self._native.getxattr(str(self), name)

    def setxattr(self, name: str, value: bytes) -> None:
        self._native.setxattr(str(self), name, value)

    def removexattr(self, name: str) -> None:
        self._native.removexattr(str(self), name)

    @property
    def _native(self) -> NativeVolume:
        return self.volume._native

    def _kind(self, follow: bool = True) -> Optional[int]:
        try:
            return self._native.stat(str(self), follow)[0]
        except OSError as error:
            if error.errno in (errno.ENOENT, errno.ENOTDIR, errno.ELOOP):
                return None
            raise
