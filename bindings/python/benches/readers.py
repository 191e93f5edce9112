"""Walks an image and reads every file, with this package and with readers in Python, in turn: the ratio of their times.

    python benches/readers.py            needs dissect.extfs
"""

import hashlib
import sys
import tempfile
import time
from pathlib import Path

import extant


def by_extant(image):
    digest, count = hashlib.sha256(), 0
    with extant.open(image) as volume:
        for parent, _, names in volume.walk():
            for name in sorted(names):
                path = parent / name
                if path.is_symlink():
                    continue
                digest.update(path.read_bytes())
                count += 1
    return count


def by_dissect(image):
    from dissect.extfs import ExtFS

    count = 0
    with open(image, "rb") as file:
        todo = [ExtFS(file).get("/")]
        while todo:
            for node in todo.pop().iterdir():
                if node.filename in (".", ".."):
                    continue
                if node.filetype == 0o040000:
                    todo.append(node)
                elif node.filetype == 0o100000:
                    hashlib.sha256(node.open().read())
                    count += 1
    return count


def main():
    tree = sys.argv[1] if len(sys.argv) > 1 else "/usr/include"
    with tempfile.TemporaryDirectory() as scratch:
        image = Path(scratch) / "disk.img"
        extant.create(image, source=tree).close()
        best = {}
        for _ in range(3):
            for name, read in (("extant", by_extant), ("dissect.extfs", by_dissect)):
                start = time.perf_counter()
                count = read(image)
                took = time.perf_counter() - start
                best[name] = min(best.get(name, (took, count)), (took, count))
        for name, (took, count) in best.items():
            print(f"{name}: {count} files, {took / best['extant'][0]:.1f} times as long as extant")


if __name__ == "__main__":
    main()
