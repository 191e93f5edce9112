"""Walks an image and reads every file, with this package and with other readers in turn, and prints the ratios of their times.

    python benches/readers.py [TREE]

The image holds a copy of TREE (/usr/include). The readers that are installed take part: dissect.extfs and python-ext4 (`ext4`), which are
written in Python, pytsk3, which calls the C library of The Sleuth Kit, and libguestfs (`guestfs`), which starts a virtual machine.

Every reader returns the contents of all files, and the digests of the contents must be equal. The digests are computed outside of the measured
time. Of five rounds, the least time of each reader counts. A reader that needs more than five seconds has one round. CPU time is that of all
threads of the process, so that its ratio leaves out what several CPUs gain. The virtual machine of libguestfs is another process.

The row `pread` is no reader: it reads pieces of the sizes of the files from consecutive blocks of the image. No reader that calls pread for each
file takes less time.
"""

import hashlib
import importlib.util
import os
import sys
import tarfile
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


def by_pytsk3(image):
    import pytsk3

    todo = [("", pytsk3.FS_Info(pytsk3.Img_Info(str(image))).open_dir("/"))]
    while todo:
        path, directory = todo.pop()
        for node in directory:
            name, meta = node.info.name.name, node.info.meta
            # The last name is a directory that The Sleuth Kit adds for deleted files.
            if meta is None or name in (b".", b"..", b"$OrphanFiles"):
                continue
            here = f"{path}/{name.decode()}"
            if meta.type == pytsk3.TSK_FS_META_TYPE_DIR:
                todo.append((here, node.as_directory()))
            elif meta.type == pytsk3.TSK_FS_META_TYPE_REG:
                yield here, node.read_random(0, meta.size) if meta.size else b""


def by_guestfs(image):
    """All files by one call, as an archive; the start of the virtual machine is part of the time."""
    import guestfs

    machine = guestfs.GuestFS(python_return_dict=True)
    machine.add_drive_opts(str(image), readonly=1, format="raw")
    machine.launch()
    machine.mount_ro("/dev/sda", "/")
    with tempfile.NamedTemporaryFile() as archive:
        machine.tar_out("/", archive.name)
        machine.shutdown()
        machine.close()
        with tarfile.open(archive.name) as members:
            for member in members:
                if member.isreg() or member.islnk():
                    yield member.name[1:], members.extractfile(member).read()


def by_pread(sizes):
    """A reader that knows all places without looking."""

    def read(image):
        fd, place = os.open(image, os.O_RDONLY), 0
        try:
            for size in sizes:
                yield place, os.pread(fd, size, place)
                place += -(-size // 4096) * 4096
        finally:
            os.close(fd)

    return read


def digest(found):
    whole = hashlib.sha256()
    for path, data in sorted(found):
        whole.update(path.encode() + b"\0" + hashlib.sha256(data).digest())
    return whole.hexdigest()


def has_module(name):
    try:
        return importlib.util.find_spec(name) is not None
    except ModuleNotFoundError:  # the package around it
        return False


def main():
    tree = sys.argv[1] if len(sys.argv) > 1 else "/usr/include"
    others = {
        "dissect.extfs": ("dissect.extfs", by_dissect),
        "python-ext4": ("ext4", by_python_ext4),
        "pytsk3": ("pytsk3", by_pytsk3),
        "libguestfs": ("guestfs", by_guestfs),
    }
    readers = {"read_files": by_read_files, "paths": by_paths}
    for name, (module, read) in others.items():
        if has_module(module):
            readers[name] = read
        else:
            print(f"{name}: not installed")
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
        readers["pread"] = by_pread([len(data) for _, data in by_read_files(image)])
        for _ in range(5):
            for name, read in readers.items():
                if best.get(name, (0, 0))[0] > 5:
                    continue
                start, cpu = time.perf_counter(), time.process_time()
                count = sum(1 for _ in read(image))
                took = (time.perf_counter() - start, time.process_time() - cpu)
                best[name] = tuple(map(min, took, best.get(name, took)))
        for name, took in best.items():
            longer, more = (one / ours for one, ours in zip(took, best["read_files"]))
            print(f"{name}: {count} files, {longer:.1f} times as long as read_files, {more:.1f} times the CPU time")


if __name__ == "__main__":
    main()
