"""Closed images: check, repair, resize, tune and inspect."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from typing import Any, Callable, Dict, List, Optional, Sequence, Union
from uuid import UUID

from . import _extant
from ._file import BufferFile


@dataclass(frozen=True)
class Finding:
    """A fault: the rule that is broken, the detail, and where."""

    rule: str
    detail: str
    place: str
    inode: Optional[int] = None
    block: Optional[int] = None
    group: Optional[int] = None
    offset: Optional[int] = None
    path: Optional[bytes] = None

    def __str__(self) -> str:
        return f"{self.place}: {self.detail}"


@dataclass(frozen=True)
class Report:
    """What a check found. ``findings`` may be fewer than ``faults``: a badly damaged image has too many to list."""

    findings: List[Finding] = field(default_factory=list)
    faults: int = 0
    notes: int = 0
    inodes: int = 0
    directories: int = 0
    blocks: int = 0

    @property
    def clean(self) -> bool:
        """Whether nothing is wrong."""
        return self.faults == 0


@dataclass(frozen=True)
class Mend:
    """A change that repairs something; ``loses`` says what is lost by it."""

    place: str
    text: str
    loses: Optional[str] = None


@dataclass(frozen=True)
class Repair:
    """What a repair changed, or would change."""

    mends: List[Mend]
    declined: List[Mend]
    faults_before: int
    faults_after: int


@dataclass(frozen=True)
class Resize:
    """Result of a resize: sizes in blocks of ``block_size`` bytes, and the new ``size`` in bytes."""

    block_size: int
    old_blocks: int
    new_blocks: int
    moved_blocks: int
    size: int


@dataclass(frozen=True)
class Change:
    """A property that a call of ``tune`` changes: its place and the new value."""

    place: str
    text: str


CheckProgress = Optional[Callable[[str, int, int], None]]

_UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}


def _size(size: Union[int, str, None]) -> Optional[int]:
    if size is None or isinstance(size, int):
        if size is not None and size < 0:
            raise ValueError(f"{size} is not a size (try '64M' or '2G')")
        return size
    if not isinstance(size, str):
        raise TypeError(f"a size is an int or a str, not {type(size).__name__}")
    number, unit = size.strip(), ""
    if number and number[-1].upper() in _UNITS:
        number, unit = number[:-1], number[-1].upper()
    try:
        return _size(int(number) * _UNITS[unit])
    except ValueError:
        raise ValueError(f"{size!r} is not a size (try '64M' or '2G')") from None


def _path(path: Any) -> Optional[str]:
    return None if path is None else os.fspath(path)


def _image(image: Any) -> Any:
    if isinstance(image, (bytes, bytearray, memoryview)):
        return BufferFile(image)
    return image if hasattr(image, "read") else os.fspath(image)


def check(image: Any, *, progress: CheckProgress = None) -> Report:
    """Checks an image: a path, a file object in binary mode, or a buffer. Nothing is written.

    ``progress`` is called with the name of the pass, the number of items that are done and their total. Ctrl-C ends the check.
    Raises ``CorruptError`` if the image has no superblock.
    """
    found = _extant.check(_image(image), progress)
    found["findings"] = [Finding(**finding) for finding in found["findings"]]
    return Report(**found)


def repair(
    image: Any, *, safe_only: bool = False, dry_run: bool = False, undo: Any = None, progress: CheckProgress = None
) -> Repair:
    """Repairs an image. With ``safe_only`` changes that lose anything are declined; with ``dry_run`` nothing is written.

    ``undo`` is the path of a new file that takes the change back (``extant undo``); ``progress`` is as in ``check``. Ctrl-C ends the planning;
    a change that is being written is finished.
    """
    done = _extant.repair(_image(image), safe_only=safe_only, dry_run=dry_run, undo=_path(undo), progress=progress)
    for key in ("mends", "declined"):
        done[key] = [Mend(**mend) for mend in done[key]]
    return Repair(**done)


def resize(image: Any, size: Union[int, str, None], *, dry_run: bool = False, undo: Any = None) -> Resize:
    """Grows or shrinks a closed image to ``size`` bytes (or ``"2G"``), or with ``None`` to the least size that its files fit in.

    A file gets the length of its volume, unless ``undo`` is given: the path of a new file that takes the change back. ``dry_run`` writes nothing.
    Raises ``ValueError`` for a size that the files do not fit in. An open volume grows by ``Volume.grow``.
    """
    return Resize(**_extant.resize(_image(image), _size(size), dry_run=dry_run, undo=_path(undo)))


def tune(
    image: Any,
    *,
    label: Optional[str] = None,
    uuid: Union[UUID, str, None] = None,
    features: Union[str, Sequence[str]] = "",
    quota: Union[str, Sequence[str]] = "",
    mount_options: Union[str, Sequence[str]] = "",
    reserved_percent: Optional[float] = None,
    max_mounts: Optional[int] = None,
    check_interval: Optional[int] = None,
    journal_size: Union[int, str, None] = None,
    dry_run: bool = False,
    undo: Any = None,
) -> List[Change]:
    """Changes properties of a closed image; returns the changes. What is not given stays as it is.

    ``features``, ``quota`` and ``mount_options`` are lists, or texts with commas, of names to set, and with ``^`` to clear, as ``tune2fs`` takes
    them. ``check_interval`` is in seconds, ``journal_size`` in bytes (or ``"64M"``). ``undo`` is the path of a new file that takes the change
    back; ``dry_run`` writes nothing. Raises ``ValueError`` for a value or feature that cannot be set.
    """
    changes = _extant.tune(
        _image(image),
        label=label,
        uuid=None if uuid is None else UUID(str(uuid)).bytes,
        features=_names(features),
        quota=_names(quota),
        mount_options=_names(mount_options),
        reserved_percent=reserved_percent,
        max_mounts=max_mounts,
        check_interval=check_interval,
        journal_size=_size(journal_size),
        dry_run=dry_run,
        undo=_path(undo),
    )
    return [Change(place, text) for place, text in changes]


def _names(names: Union[str, Sequence[str]]) -> str:
    return names if isinstance(names, str) else ",".join(names)


def inspect(image: Any, request: str, *arguments: Union[str, int, bytes], replay: bool = True) -> List[Dict[str, Any]]:
    """Returns structures of an image as dictionaries with their fields and ``"kind"``; nothing is written.

    Requests are those of ``extant inspect``: ``superblock``, ``groups``, ``stat``, ``imap``, ``blocks``, ``extents``, ``bmap``, ``dirents``, ``htree``,
    ``xattrs``, ``icheck``, ``ncheck``, ``testb``, ``freefrag``, ``journal``, ``dump-inode`` and ``dump-block``. An inode is a path, or its number as
    ``"<12>"``. Without ``replay`` the journal is left as it is. Raises ``ValueError`` for an unknown request, and ``FileNotFoundError`` for
    a path that does not exist.

        extant.inspect("disk.img", "extents", "/etc/passwd")
    """
    words = [word if isinstance(word, bytes) else os.fsencode(str(word)) for word in (request, *arguments)]
    return _extant.inspect(_image(image), words, replay)
