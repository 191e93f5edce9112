"""Programs as the documents have them: parquet inside of an image, a tree for a test; threads and memory."""

import errno
import gc
import os
import re
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

import extant
import extant.fs

PAGE = Path(__file__).parents[3] / "docs" / "how-to" / "python.md"


def test_the_page_runs(tmp_path):
    """All blocks of the page, in order, in one program each; those that need a network or a framework are left out."""
    blocks = re.findall(r"^```python\n(.*?)^```$", PAGE.read_text(), re.M | re.S)
    ran = 0
    for block in blocks:
        if "urllib" in block or "@pytest.fixture" in block:
            compile(block, "page", "exec")
            continue
        if "pandas" in block:
            pytest.importorskip("pandas")
        subprocess.run([sys.executable, "-c", block], cwd=tmp_path, check=True, timeout=120)
        ran += 1
    assert ran >= 3


def when_free(image):
    """Opens an image for writing. The volume of an earlier read is closed with the objects that pandas and the threads of pyarrow hold."""
    for _ in range(200):
        gc.collect()
        try:
            return extant.open(image, "r+")
        except OSError as error:
            if error.errno != errno.EBUSY:
                raise
        time.sleep(0.05)
    return extant.open(image, "r+")


def test_pandas_and_pyarrow_keep_parquet_in_an_image(tmp_path):
    if not os.environ.get("CI"):
        pytest.importorskip("pandas")
    import pandas
    import pyarrow.parquet
    from fsspec.implementations.dirfs import DirFileSystem

    image = tmp_path / "disk.img"
    frame = pandas.DataFrame({"n": range(1000), "text": [str(n) for n in range(1000)]})
    extant.create(image, size="64M").close()
    frame.to_parquet("ext4://tables/frame.parquet", storage_options={"image": str(image), "writable": True})
    back = pandas.read_parquet("ext4://tables/frame.parquet", storage_options={"image": str(image)})
    assert back.equals(frame)
    with when_free(image) as volume:
        system = extant.fs.Ext4FileSystem(volume=volume)
        table = pyarrow.Table.from_pandas(frame)
        pyarrow.parquet.write_to_dataset(table, "/data", partition_cols=None, filesystem=DirFileSystem("/", system))
        read = pyarrow.parquet.read_table("/data", filesystem=system)
        assert read.num_rows == 1000 and read.to_pandas().equals(frame)
    assert extant.check(image).clean


@pytest.fixture
def posix_tree(tmp_path):
    with extant.create(tmp_path / "scratch.img", size="64M") as volume:
        yield volume.root


def test_a_tree_for_a_test(posix_tree):
    """A file system with owners, set-id bits and devices, without root."""
    tool = posix_tree / "usr" / "bin" / "tool"
    tool.parent.mkdir(parents=True)
    tool.write_bytes(b"#!/bin/sh\n")
    tool.chmod(0o4755)
    tool.chown(1000, 1000)
    tool.chmod(0o4755)
    assert tool.stat().st_uid == 1000 and tool.stat().st_mode & 0o7777 == 0o4755


def test_eight_threads_change_one_volume(tmp_path):
    """With and without a global lock; run by the wheels' test on a free-threaded interpreter as well."""
    failed = []
    with extant.create(tmp_path / "disk.img", size="256M") as volume:

        def work(task):
            try:
                top = volume / f"t{task}"
                top.mkdir()
                for n in range(200):
                    file = top / str(n)
                    file.write_bytes(b"%d" % n)
                    assert file.read_bytes() == b"%d" % n
                    if n % 3 == 0:
                        file.rename(top / f"renamed{n}")
                shared = volume / f"shared{task % 2}"
                shared.mkdir(exist_ok=True)
                (shared / str(task)).touch()
                assert sum(1 for _ in volume.read_files(str(top))) == 200
            except BaseException as error:
                failed.append(error)

        threads = [threading.Thread(target=work, args=(task,)) for task in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert not failed, failed
        assert sum(len(names) for _, _, names in volume.walk()) == 8 * 200 + 8
    assert extant.check(tmp_path / "disk.img").clean


def test_opens_leave_nothing_behind(tmp_path):
    """Memory stays the same over many opens. EXTANT_OPENS=1000000 is the long form."""
    image = tmp_path / "disk.img"
    with extant.create(image, size="16M") as volume:
        (volume / "f").write_bytes(b"x" * 100)
    opens = int(os.environ.get("EXTANT_OPENS", "2000"))

    def resident():
        return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")

    def some(count):
        with extant.open(image) as volume:
            for _ in range(count):
                with (volume / "f").open("rb") as file:
                    file.read()
        for _ in range(count // 20):
            with extant.open(image) as volume:
                volume.root.stat()

    some(max(opens // 4, 400))
    before = resident()
    some(opens)
    grown = resident() - before
    # Eight bytes for each open, and what an allocator may take.
    assert grown < 8 * opens + (8 << 20), grown
