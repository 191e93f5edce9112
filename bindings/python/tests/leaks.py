"""Opens and closes a volume many times, and fails if memory, file descriptors or threads grow.

    python leaks.py [OPENS]
"""

import io
import os
import sys
import tempfile
import time
from pathlib import Path

import extant

# Bytes that the resident memory may grow by after the first tenth: pages that the allocator has not returned yet.
SLACK = 4 << 20


def usage():
    """Resident bytes, open file descriptors and threads of this process."""
    with open("/proc/self/statm") as statm:
        pages = int(statm.read().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE"), len(os.listdir("/proc/self/fd")), len(os.listdir("/proc/self/task"))


class Broken(io.BytesIO):
    """A device whose reads fail after those of the superblock."""

    def read(self, size=-1):
        if self.tell() > 4096:
            raise RuntimeError("broken")
        return super().read(size)


def read(volume):
    assert (volume / "etc" / "hostname").read_bytes() == b"box\n"
    assert [path.name for path in (volume / "etc").iterdir()] == ["hostname"]
    try:
        (volume / "none").stat()
    except FileNotFoundError:
        return
    raise AssertionError("a missing name was found")


def once(turn, image, content):
    """Opens and closes the volume in one of several ways."""
    if turn % 8 == 0:
        with extant.open(image, "r+") as volume:
            read(volume)
            (volume / "etc" / "hostname").write_bytes(b"box\n")
    elif turn % 8 == 1:
        with extant.open(content) as volume:
            read(volume)
    elif turn % 8 == 2:
        volume = extant.open(image)
        file = (volume / "etc" / "hostname").open("rb")
        file.read(1)  # neither is closed: their last reference goes
    elif turn % 8 == 3:
        try:
            extant.open(Broken(content))
        except (RuntimeError, OSError):
            return
        raise AssertionError("a broken device was opened")
    elif turn % 8 == 4:
        with extant.open(image) as volume:
            volume.export_tar(io.BytesIO())
    else:
        with extant.open(image) as volume:
            read(volume)


def run(opens, directory):
    """Returns the usage after the first tenth of the opens and at the end."""
    image = Path(directory) / "disk.img"
    with extant.create(image, size="2M", features="^has_journal") as volume:
        (volume / "etc").mkdir()
        (volume / "etc" / "hostname").write_bytes(b"box\n")
    content = image.read_bytes()
    warm = None
    for turn in range(opens):
        once(turn, image, content)
        if turn == opens // 10:
            warm = usage()
    return warm, usage()


def main():
    opens = int(sys.argv[1]) if len(sys.argv) > 1 else 1_000_000
    began = time.monotonic()
    # In memory if there is such a file system: an eighth of the opens write, and would wait for a disk.
    shared = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    with tempfile.TemporaryDirectory(dir=shared) as directory:
        warm, end = run(opens, directory)
    names = ("resident bytes", "file descriptors", "threads")
    for name, before, after in zip(names, warm, end):
        print(f"{name}: {before} after {opens // 10} opens, {after} after {opens}")
    print(f"{time.monotonic() - began:.0f} s")
    if end[0] > warm[0] + SLACK or end[1:] != warm[1:]:
        sys.exit("leaks.py: what an open takes is not returned")


if __name__ == "__main__":
    main()
