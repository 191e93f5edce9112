"""Files of a volume, and buffers that hold an image, as ``io`` objects."""

from __future__ import annotations

import errno
import io
import os
from typing import Any, Optional

from ._extant import NativeFile


def as_bytes(data: Any) -> bytes:
    """The bytes of a buffer. ``bytes(5)`` would be five zeros, so a number is a ``TypeError``."""
    return data if type(data) is bytes else bytes(memoryview(data))


def not_negative(number: int) -> int:
    """The size or offset, or the error that a system call returns for a negative one."""
    if number < 0:
        raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))
    return number


class RawFile(io.RawIOBase):
    """A file of a volume, without a buffer. Positions are bytes.

    ``Path.open`` puts the buffers of ``io`` on top of it. ``fsync()`` makes data and attributes durable.
    """

    def __init__(self, native: NativeFile, name: str, mode: str) -> None:
        super().__init__()
        self._native = native
        self._position = 0
        self.name = name
        self.mode = mode
        self._reads = "r" in mode or "+" in mode
        self._appends = "a" in mode
        self._writes = self._appends or mode != "rb"

    def readable(self) -> bool:
        return self._reads

    def writable(self) -> bool:
        return self._writes

    def seekable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        """Reads into a buffer from the position; returns the number of bytes, 0 at the end of the file."""
        self._check(self._reads, "not readable")
        view = memoryview(buffer).cast("B")
        data = self._native.read_at(len(view), self._position)
        view[: len(data)] = data
        self._position += len(data)
        return len(data)

    def readall(self) -> bytes:
        self._check(self._reads, "not readable")
        data = self._native.read_at(max(self._native.size() - self._position, 0), self._position)
        self._position += len(data)
        return data

    def write(self, data: Any) -> int:
        """Writes all of ``data`` at the position, or at the end of a file that appends; returns the number of bytes."""
        self._check(self._writes, "not writable")
        data = as_bytes(data)
        if self._appends:
            self._position = self._native.append(data)
        else:
            self._native.write_at(data, self._position)
            self._position += len(data)
        return len(data)

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        self._check(True, "")
        if whence == os.SEEK_SET:
            to = offset
        elif whence == os.SEEK_CUR:
            to = self._position + offset
        elif whence == os.SEEK_END:
            to = self._native.size() + offset
        elif whence == getattr(os, "SEEK_DATA", 3):
            to = self._native.seek_data(not_negative(offset))
        elif whence == getattr(os, "SEEK_HOLE", 4):
            to = self._native.seek_hole(not_negative(offset))
        else:
            raise ValueError(f"whence {whence} is not known")
        if to < 0:
            raise OSError(errno.EINVAL, "negative seek position")
        if to >= 1 << 63:
            raise OverflowError("the position is too large")
        self._position = to
        return to

    def tell(self) -> int:
        self._check(True, "")
        return self._position

    def truncate(self, size: Optional[int] = None) -> int:
        self._check(self._writes, "not writable")
        size = self._position if size is None else not_negative(size)
        self._native.truncate(size)
        return size

    def fsync(self) -> None:
        """Makes data and attributes durable. A buffer on top is flushed before by its own ``flush``."""
        self._check(True, "")
        self._native.fsync()

    def fallocate(self, offset: int, length: int) -> None:
        """Allocates blocks for ``length`` bytes from ``offset``, which read as zeros."""
        self._check(self._writes, "not writable")
        self._native.fallocate(not_negative(offset), not_negative(length))

    def close(self) -> None:
        if not self.closed:
            super().close()
            self._native.close()

    def _check(self, allowed: bool, what: str) -> None:
        if self.closed:
            raise ValueError("I/O operation on closed file.")
        if not allowed:
            raise io.UnsupportedOperation(what)


class BufferFile(io.RawIOBase):
    """A buffer as a file object; written in place if it can be."""

    def __init__(self, buffer: Any) -> None:
        super().__init__()
        self._view = memoryview(buffer).cast("B")
        self._position = 0

    def readable(self) -> bool:
        return True

    def writable(self) -> bool:
        return not self._view.readonly

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        base = {os.SEEK_SET: 0, os.SEEK_CUR: self._position, os.SEEK_END: len(self._view)}[whence]
        self._position = base + offset
        return self._position

    def readinto(self, buffer: Any) -> int:
        view = memoryview(buffer).cast("B")
        data = self._view[self._position : self._position + len(view)]
        view[: len(data)] = data
        self._position += len(data)
        return len(data)

    def write(self, data: Any) -> int:
        if self._view.readonly:
            raise OSError(errno.EROFS, "the buffer cannot be written")
        data = memoryview(data).cast("B")
        room = self._view[self._position : self._position + len(data)]
        room[:] = data[: len(room)]
        self._position += len(room)
        return len(room)
