"""Check and repair of images that nobody has open."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from typing import Any, List, Optional

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


def _image(image: Any) -> Any:
    if isinstance(image, (bytes, bytearray, memoryview)):
        return BufferFile(image)
    return image if hasattr(image, "read") else os.fspath(image)


def check(image: Any) -> Report:
    """Checks an image: a path, a file object in binary mode, or a buffer. Nothing is written.

    Raises ``CorruptError`` if the superblock cannot be read.
    """
    found = _extant.check(_image(image))
    found["findings"] = [Finding(**finding) for finding in found["findings"]]
    return Report(**found)


def repair(image: Any, *, safe_only: bool = False, dry_run: bool = False, undo: Any = None) -> Repair:
    """Mends an image. With ``safe_only`` nothing is changed that loses anything; with ``dry_run`` nothing is changed at all.

    ``undo`` is the path of a file that takes the change back (``extant undo``).
    """
    undo = None if undo is None else os.fspath(undo)
    done = _extant.repair(_image(image), safe_only=safe_only, dry_run=dry_run, undo=undo)
    for key in ("mends", "declined"):
        done[key] = [Mend(**mend) for mend in done[key]]
    return Repair(**done)
