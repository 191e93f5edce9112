"""Walks an image and reads every file, with this package and with readers in Python, in turn: the ratios of their times.

    python benches/readers.py [TREE]            needs dissect.extfs; takes part if installed: ext4 (python-ext4)

Both sides read all bytes; the digests of the contents, which must be equal, are taken outside of the measured time. The least times of the rounds
count. CPU time is that of all threads, so that its ratio leaves out what several CPUs gain.
"""

import hashlib
import sys
import tempfile
import time
from pathlib import Path

import extant


def by_read_files(image):
    """All files by one call, which reads ahead."""
    with extant.open(image) as volume:
        for path, data in volume.read_files():
            yield str(path), data


def by_paths(image):
    """File by file, as a program with pathlib would."""
    with extant.open(image) as volume:
        for parent, _, names in volume.walk():
            for name in names:
                path = parent / name
                if not path.is_symlink():
                    yield str(path), path.read_bytes()


def by_dissect(image):
    from dissect.extfs import ExtFS

    with open(image, "rb") as file:
        todo = [("", ExtFS(file).get("/"))]
        while todo:
            path, directory = todo.pop()
            for node in directory.iterdir():
                if node.filename in (".", ".."):
                    continue
                here = f"{path}/{node.filename}"
                if node.filetype == 0o040000:
                    todo.append((here, node))
                elif node.filetype == 0o100000:
                    yield here, node.open().read()


def by_python_ext4(image):
    import ext4

    with open(image, "rb") as file:
        todo = [("", ext4.Volume(file, ignore_checksum=True).root)]
        while todo:
            path, directory = todo.pop()
            for entry, _ in directory.opendir():
                name = bytes(entry.name)[: entry.name_len].decode()
                if name in (".", ".."):
                    continue
                here = f"{path}/{name}"
                inode = directory.volume.inodes[entry.inode]
                if isinstance(inode, ext4.Directory):
                    todo.append((here, inode))
                elif isinstance(inode, ext4.File):
                    yield here, inode.open().read()


def digest(found):
    whole = hashlib.sha256()
    for path, data in sorted(found):
        whole.update(path.encode() + b"\0" + hashlib.sha256(data).digest())
    return whole.hexdigest()


def main():
    tree = sys.argv[1] if len(sys.argv) > 1 else "/usr/include"
    readers = {"read_files": by_read_files, "paths": by_paths, "dissect.extfs": by_dissect}
    try:
        import ext4  # noqa: F401

        readers["python-ext4"] = by_python_ext4
    except ImportError:
        pass
    with tempfile.TemporaryDirectory() as scratch:
        image = Path(scratch) / "disk.img"
        extant.create(image, source=tree).close()
        seen, best = {}, {}
        for name, read in list(readers.items()):
            try:
                seen[name] = digest(list(read(image)))
            except Exception as error:
                print(f"{name}: cannot read the image: {error!r}")
                del readers[name]
        assert len(set(seen.values())) == 1, seen
        for _ in range(5):
            for name, read in readers.items():
                start, cpu = time.perf_counter(), time.process_time()
                count = sum(1 for _ in read(image))
                took = (time.perf_counter() - start, time.process_time() - cpu)
                best[name] = tuple(map(min, took, best.get(name, took)))
        for name, took in best.items():
            longer, more = (one / ours for one, ours in zip(took, best["read_files"]))
            print(f"{name}: {count} files, {longer:.1f} times as long as read_files, {more:.1f} times the CPU time")


if __name__ == "__main__":
    main()
