"""ext4 images: create, open, fill, check and repair them, without root and without the kernel's driver.

    >>> import extant
    >>> with extant.create("disk.img", size="64M") as volume:
    ...     (volume / "etc").mkdir()
    ...     (volume / "etc" / "hostname").write_text("box\\n")
    4
    >>> extant.check("disk.img").clean
    True

Sizes and offsets are bytes. Errors are ``OSError`` with the usual subclasses (``FileNotFoundError`` and so on), or ``CorruptError``
for an image that breaks a rule of the format. Calls that work release the interpreter's lock, so threads run side by side.
"""

from __future__ import annotations

import os
from typing import Any, Optional, Tuple, Union
from uuid import UUID

from ._check import (
    Change,
    Finding,
    Mend,
    Repair,
    Report,
    Resize,
    _size,
    check,
    inspect,
    repair,
    resize,
    tune,
)
from ._extant import CorruptError, NativeVolume
from ._file import BufferFile, RawFile
from ._volume import AclEntry, DirEntry, Path, Scan, Volume

__all__ = [
    "AclEntry",
    "Change",
    "CorruptError",
    "DirEntry",
    "Finding",
    "Mend",
    "Path",
    "RawFile",
    "Repair",
    "Report",
    "Resize",
    "Scan",
    "Volume",
    "check",
    "create",
    "inspect",
    "open",
    "repair",
    "resize",
    "tune",
]

def create(
    path: Union[str, "os.PathLike[str]"],
    *,
    size: Union[int, str, None] = None,
    source: Any = None,
    features: str = "",
    block_size: Optional[int] = None,
    label: str = "",
    uuid: Union[UUID, str, None] = None,
    journal_size: Union[int, str, None] = None,
    inodes: Optional[int] = None,
    root_owner: Optional[Tuple[int, int]] = None,
) -> Volume:
    """Makes an image at ``path`` and opens it for writing.

    ``source`` fills it: a directory, an archive (tar, cpio, SquashFS, compressed or not), or a file object that reads one. With
    a source ``size`` may be left out: the image is as large as its content needs. ``features`` are those of ``mke2fs -O``.

    Ctrl-C ends the making of the image. Raises ``ValueError`` for options that no file system can have, among them a size that is too
    small.
    """
    if size is None and source is None:
        raise ValueError("an empty image needs a size")
    native = NativeVolume.create(
        os.fspath(path),
        source,
        size=_size(size),
        features=features,
        block_size=block_size,
        label=label,
        uuid=None if uuid is None else UUID(str(uuid)).bytes,
        journal_size=_size(journal_size),
        inodes=inodes,
        root_owner=root_owner,
    )
    return Volume(native)


def open(image: Any, mode: str = "r") -> Volume:
    """Opens an image: a path, a file object in binary mode, or ``bytes``, ``bytearray`` or ``memoryview``.

    ``mode`` is ``"r"`` (nothing is written, a journal is replayed in memory) or ``"r+"``.
    """
    if mode not in ("r", "r+"):
        raise ValueError(f"mode {mode!r}: write 'r' or 'r+'")
    if isinstance(image, (bytes, bytearray, memoryview)):
        image = BufferFile(image)
    elif not hasattr(image, "read"):
        image = os.fspath(image)
    return Volume(NativeVolume.open(image, mode == "r"))
