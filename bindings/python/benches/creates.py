"""Creates files from eight threads, through this package and by the calls of ``os`` on a kernel mount, in turn: the ratio of their times.

    sudo python benches/creates.py [FILES]      files of each thread; needs root for the loop mount, and mke2fs

Both images are of the same size, on the same file system, and made anew for each round. A thread makes its files in a directory of its own. A
round of the kernel ends with ``syncfs``, one of this package with ``sync``, so that both have written the same. The best of the rounds counts.
"""

import ctypes
import os
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import extant

THREADS = 8
ROUNDS = 5


def by_threads(work):
    """Calls ``work`` with the number of each thread, by all threads at once."""
    failed = []

    def run(task):
        try:
            work(task)
        except BaseException as error:
            failed.append(error)

    threads = [threading.Thread(target=run, args=(task,)) for task in range(THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failed:
        raise failed[0]


def timed(work, sync):
    """The seconds of the creates, and of the creates with the sync behind them."""
    start = time.perf_counter()
    by_threads(work)
    created = time.perf_counter() - start
    sync()
    return created, time.perf_counter() - start


def ours(scratch, files):
    image = scratch / "extant.img"
    with extant.create(image, size="4G") as volume:
        tops = [volume / str(task) for task in range(THREADS)]
        for top in tops:
            top.mkdir()
        volume.sync()

        def work(task):
            top = tops[task]
            for n in range(files):
                (top / f"file{n}").touch(exist_ok=False)

        took = timed(work, volume.sync)
    subprocess.run(["e2fsck", "-fn", image], check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    image.unlink()
    return took


def sync_mount(mount):
    """``syncfs``, which ``os`` does not have: ``os.sync`` would wait for all file systems of the machine."""
    fd = os.open(mount, os.O_RDONLY)
    try:
        if ctypes.CDLL(None, use_errno=True).syncfs(fd) != 0:
            raise OSError(ctypes.get_errno(), "syncfs")
    finally:
        os.close(fd)


def kernel(scratch, files):
    image, mount = scratch / "kernel.img", scratch / "mount"
    mount.mkdir(exist_ok=True)
    with open(image, "wb") as file:
        file.truncate(4 << 30)
    subprocess.run(["mke2fs", "-q", "-t", "ext4", "-E", "lazy_itable_init=0,lazy_journal_init=0", image], check=True)
    subprocess.run(["mount", "-o", "loop", image, mount], check=True)
    try:
        for task in range(THREADS):
            os.mkdir(mount / str(task))
        sync_mount(mount)

        def work(task):
            top = f"{mount}/{task}/"
            for n in range(files):
                os.close(os.open(f"{top}file{n}", os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644))

        took = timed(work, lambda: sync_mount(mount))
    finally:
        subprocess.run(["umount", mount], check=True)
    image.unlink()
    return took


def main():
    files = int(sys.argv[1]) if len(sys.argv) > 1 else 10_000
    if os.geteuid() != 0:
        sys.exit("creates.py: the loop mount needs root: sudo python creates.py")
    best = {}
    with tempfile.TemporaryDirectory() as scratch:
        for _ in range(ROUNDS):
            for side in (ours, kernel):
                took = side(Path(scratch), files)
                best[side] = tuple(map(min, took, best.get(side, took)))
    for n, what in enumerate(("creates", "creates and sync")):
        rates = [THREADS * files / best[side][n] for side in (ours, kernel)]
        print(f"{what}: {rates[0]:.0f} files/s, {rates[1]:.0f} by os on a kernel mount: {rates[0] / rates[1]:.2f} times")


if __name__ == "__main__":
    main()
