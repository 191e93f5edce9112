"""Opens and closes a volume many times, and fails if memory, file descriptors or threads grow.

    python leaks.py [OPENS]
    python leaks.py --memray FILE OPENS     judges what memray recorded of a run: `scripts/leaks.sh memray` calls both
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
# Least bytes of a reservation of address space by the allocator of the library, of which only the used pages are memory.
ARENA = 256 << 20


def usage():
    """Resident bytes, open file descriptors and threads of this process."""
    time.sleep(0.1)  # A thread that has been joined stays in /proc for a moment.
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
    """Returns the usage after the first open, after a tenth of the opens and at the end."""
    image = Path(directory) / "disk.img"
    with extant.create(image, size="2M", features="^has_journal") as volume:
        (volume / "etc").mkdir()
        (volume / "etc" / "hostname").write_bytes(b"box\n")
    content = image.read_bytes()
    first = warm = None
    for turn in range(opens):
        once(turn, image, content)
        if turn == 0:
            first = usage()
        if turn == opens // 10:
            warm = usage()
    return first, warm, usage()


def judge_memray(recording, opens):
    """Fails if a place that allocates has as many live allocations at the end as a leak in a hundredth of the opens would leave."""
    import memray

    live = reserved = 0
    leaks = []
    for record in memray.FileReader(recording).get_leaked_allocation_records(merge_threads=True):
        if record.size >= ARENA:
            reserved += record.size
            continue
        live += record.size
        # The interpreter and the library keep some thousand blocks, whose number does not depend on that of the opens.
        if record.n_allocations >= max(opens // 100, 5000):
            leaks.append(record)
    print(f"memray: {live} bytes in blocks and {reserved} bytes of reserved address space are left of {opens} opens")
    for record in leaks:
        print(f"{record.n_allocations} allocations, {record.size} bytes:", *record.stack_trace(), sep="\n    ")
    if leaks:
        sys.exit("leaks.py: memory is not returned")


def main():
    if sys.argv[1:2] == ["--memray"]:
        return judge_memray(sys.argv[2], int(sys.argv[3]))
    opens = int(sys.argv[1]) if len(sys.argv) > 1 else 1_000_000
    began = time.monotonic()
    # In memory if there is such a file system: an eighth of the opens write, and would wait for a disk.
    shared = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    with tempfile.TemporaryDirectory(dir=shared) as directory:
        first, warm, end = run(opens, directory)
    names = ("resident bytes", "file descriptors", "threads")
    for name, at_first, before, after in zip(names, first, warm, end):
        print(f"{name}: {at_first} after 1 open, {before} after {opens // 10}, {after} after {opens}")
    print(f"{time.monotonic() - began:.0f} s")
    # Memray keeps a record of each thread that there was, so under it only the recording says what is left.
    grown = end[0] > warm[0] + SLACK and "memray" not in sys.modules
    if grown or end[1:] != warm[1:]:
        sys.exit("leaks.py: what an open takes is not returned")


if __name__ == "__main__":
    main()
