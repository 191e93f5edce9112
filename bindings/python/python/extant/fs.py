"""``ext4://`` for fsspec: a volume as a file system.

    fs = fsspec.filesystem("ext4", image="disk.img", mode="r+")
    fsspec.open("ext4://etc/hostname::disk.img")

The image is a path, a file object, or any file that fsspec opens: ``fo`` of a chain, opened for reading.
"""

from __future__ import annotations

import stat as _stat
from typing import Any, Dict, List, Optional

import fsspec
from fsspec import AbstractFileSystem

import extant


class Ext4FileSystem(AbstractFileSystem):
    """A volume. ``image`` (or ``fo``, in chains) is what ``extant.open`` takes; ``mode`` is ``"r"`` or ``"r+"``.

    ``writable=True`` is ``mode="r+"`` for libraries that keep the option ``mode`` to themselves, as pandas does. ``volume`` is an open volume
    instead of an image.
    """

    protocol = "ext4"
    root_marker = "/"
    cachable = False

    def __init__(
        self,
        image: Any = None,
        mode: str = "r",
        fo: Any = None,
        volume: Optional[extant.Volume] = None,
        writable: bool = False,
        target_protocol: Optional[str] = None,
        target_options: Optional[Dict[str, Any]] = None,
        **options: Any,
    ) -> None:
        super().__init__(**options)
        image = fo if image is None else image
        mode = "r+" if writable else mode
        if volume is None and isinstance(image, str) and (target_protocol or "://" in image):
            # The file lives as long as what opened it.
            self._opened = fsspec.open(image, "rb", protocol=target_protocol, **(target_options or {}))
            image = self._opened.open()
        self.volume = extant.open(image, mode) if volume is None else volume

    @classmethod
    def _strip_protocol(cls, path: Any) -> str:
        path = super()._strip_protocol(path)
        return "/" + path.strip("/") if isinstance(path, str) else path

    def _info(self, path: extant.Path, name: str) -> Dict[str, Any]:
        found = path.stat(follow_symlinks=False)
        info: Dict[str, Any] = {"islink": _stat.S_ISLNK(found.st_mode)}
        if info["islink"]:
            info["destination"] = str(path.readlink())
            try:
                found = path.stat()
            except OSError:
                pass
        kind = "directory" if _stat.S_ISDIR(found.st_mode) else "file" if _stat.S_ISREG(found.st_mode) else "other"
        info.update(
            name=name,
            size=found.st_size if kind == "file" else 0,
            type=kind,
            mode=found.st_mode,
            uid=found.st_uid,
            gid=found.st_gid,
            ino=found.st_ino,
            nlink=found.st_nlink,
            mtime=found.st_mtime,
            created=found.st_ctime,
        )
        return info

    def info(self, path: str, **options: Any) -> Dict[str, Any]:
        path = self._strip_protocol(path)
        return self._info(self.volume / path, path)

    def ls(self, path: str, detail: bool = True, **options: Any) -> List[Any]:
        path = self._strip_protocol(path)
        here = self.volume / path
        if not here.is_dir():
            found = [self._info(here, path)]
        else:
            base = path.rstrip("/")
            found = [self._info(here / entry.name, f"{base}/{entry.name}") for entry in here.scandir()]
        return found if detail else [info["name"] for info in found]

    def mkdir(self, path: str, create_parents: bool = True, **options: Any) -> None:
        here = self.volume / self._strip_protocol(path)
        if here.exists():
            raise FileExistsError(path)
        here.mkdir(parents=create_parents)

    def makedirs(self, path: str, exist_ok: bool = False) -> None:
        (self.volume / self._strip_protocol(path)).mkdir(parents=True, exist_ok=exist_ok)

    def rmdir(self, path: str) -> None:
        (self.volume / self._strip_protocol(path)).rmdir()

    def rm_file(self, path: str) -> None:
        (self.volume / self._strip_protocol(path)).unlink()

    def rm(self, path: Any, recursive: bool = False, maxdepth: Optional[int] = None) -> None:
        for one in path if isinstance(path, list) else [path]:
            here = self.volume / self._strip_protocol(one)
            if not here.is_dir() or here.is_symlink():
                here.unlink()
            elif recursive:
                here.rmtree()
            else:
                raise IsADirectoryError(one)

    def cp_file(self, path1: str, path2: str, **options: Any) -> None:
        """Copies a file inside of the volume; a directory is made, without its contents."""
        source, target = (self.volume / self._strip_protocol(path) for path in (path1, path2))
        if source.is_dir():
            target.mkdir(parents=True, exist_ok=True)
            return
        target.parent.mkdir(parents=True, exist_ok=True)
        with source.open("rb") as read, target.open("wb") as write:
            while block := read.read(1 << 20):
                write.write(block)

    def mv(self, path1: str, path2: str, **options: Any) -> None:
        (self.volume / self._strip_protocol(path1)).rename(self._strip_protocol(path2))

    def created(self, path: str) -> Any:
        raise NotImplementedError("ext4 keeps no time of creation that stat shows")

    def modified(self, path: str) -> Any:
        import datetime

        found = (self.volume / self._strip_protocol(path)).stat()
        return datetime.datetime.fromtimestamp(found.st_mtime, tz=datetime.timezone.utc)

    def touch(self, path: str, truncate: bool = True, **options: Any) -> None:
        here = self.volume / self._strip_protocol(path)
        if truncate or not here.exists():
            self._open(path, "wb").close()
        else:
            here.touch()

    def _open(self, path: str, mode: str = "rb", block_size: Optional[int] = None, **options: Any) -> Any:
        here = self.volume / self._strip_protocol(path)
        if mode[0] in "wax":
            here.parent.mkdir(parents=True, exist_ok=True)
        return here.open(mode)
