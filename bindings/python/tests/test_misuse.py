"""Wrong types, forks, exceptions of callbacks, and devices that cannot be written: each is an error, and the volume stays as it was."""

import errno
import io
import os
import sys
import threading
import time

import pytest

import extant


@pytest.fixture
def image(tmp_path):
    path = tmp_path / "disk.img"
    with extant.create(path, size="16M") as volume:
        (volume / "file").write_text("kept")
    return path


@pytest.fixture
def volume(image):
    with extant.open(image, "r+") as volume:
        yield volume


def test_content_of_a_wrong_type_leaves_the_file(volume):
    file = volume / "file"
    for wrong in (5, "text", [1, 2], None):
        with pytest.raises(TypeError):
            file.write_bytes(wrong)
    for wrong in (5, b"bytes", None):
        with pytest.raises(TypeError):
            file.write_text(wrong)
    with file.open("r+b", buffering=0) as raw, pytest.raises(TypeError):
        raw.write(5)
    assert file.read_text() == "kept"
    assert file.write_bytes(memoryview(b"abcd")[::2]) == 2 and file.read_bytes() == b"ac"


def test_numbers_out_of_range(volume):
    file = volume / "file"
    with file.open("r+b", buffering=0) as raw:
        calls = [
            lambda: file.truncate(-1),
            lambda: raw.truncate(-1),
            lambda: raw.seek(-1, os.SEEK_DATA),
            lambda: raw.seek(-1),
            lambda: raw.fallocate(-1, 1),
        ]
        for call in calls:
            with pytest.raises(OSError) as error:
                call()
            assert error.value.errno == errno.EINVAL
        with pytest.raises(OverflowError):
            raw.seek(1 << 64)
        assert raw.tell() == 0
    file.chown(7, 8)
    file.chown(-1, 9)
    assert (file.stat().st_uid, file.stat().st_gid) == (7, 9)


@pytest.mark.parametrize("size, error", [(-1, ValueError), (1.5, TypeError), (b"64M", TypeError), ("-4M", ValueError), ("64X", ValueError)])
def test_sizes_that_are_none(tmp_path, size, error):
    with pytest.raises(error):
        extant.create(tmp_path / "new.img", size=size)
    assert not (tmp_path / "new.img").exists()


def test_errors_of_the_host_have_numbers(volume, image, tmp_path):
    calls = [
        (errno.ENOENT, lambda: extant.create(tmp_path / "new.img", source=tmp_path / "none")),
        (errno.ENOENT, lambda: extant.create(tmp_path / "none" / "new.img", size="16M")),
        (errno.EBUSY, lambda: extant.create(image, size="16M")),
        (errno.EBUSY, lambda: extant.inspect(image, "superblock")),
        (errno.ENOENT, lambda: extant.inspect(tmp_path / "none", "superblock")),
    ]
    for number, call in calls:
        with pytest.raises(OSError) as error:
            call()
        assert error.value.errno == number, error.value


def test_a_directory_is_no_file(volume):
    for mode in ("r", "rb", "r+"):
        with pytest.raises(IsADirectoryError):
            volume.root.open(mode)


def test_touch_sets_the_times_of_a_directory(volume):
    (volume / "d").mkdir()
    for path in (volume.root, volume / "d"):
        path.utime((0, 0))
        path.touch()
        assert path.stat().st_mtime > 0
    for path in (volume / "d", volume / "file"):
        with pytest.raises(FileExistsError):
            path.touch(exist_ok=False)


def test_modes_are_those_of_the_builtin_open(volume, tmp_path):
    host, file = tmp_path / "file", volume / "file"
    host.write_text("kept")
    for mode in ("", "b", "rb", "br", "+r", "r+b", "rb+", "rt", "tr", "rbb", "rr", "r++", "rw", "ra", "rbt", "+", "r b", "rz"):
        results = []
        for path in (host, file):
            try:
                path.open(mode).close()
                results.append(None)
            except ValueError:
                results.append(ValueError)
        assert results[0] == results[1], mode
    assert file.read_text() == "kept"


def test_methods_of_paths(volume):
    path = volume / "a" / "b.tar.gz"
    assert path.suffixes == [".tar", ".gz"] and path.as_posix() == "/a/b.tar.gz" and path.is_absolute()
    assert path.match("*.gz") and path.is_relative_to("/a") and not path.is_relative_to("/b")
    assert path.with_stem("c") == volume / "a" / "c.gz"
    path.parent.mkdir()
    path.touch()
    assert list(volume.root.rglob("a/*.gz")) == [path]
    with volume.root.scandir() as entries:
        assert next(entries).name
    assert list(entries) == []


def test_a_closed_volume_is_not_entered(image):
    volume = extant.open(image)
    volume.close()
    with pytest.raises(ValueError):
        with volume:
            pass


def test_a_file_object_that_cannot_be_written(image):
    with open(image, "rb") as file, pytest.raises(OSError) as error:
        extant.open(file, "r+")
    assert error.value.errno == errno.EROFS
    with pytest.raises(OSError):
        extant.open(image.read_bytes(), "r+")
    with open(image, encoding="latin-1") as file, pytest.raises(TypeError, match="binary mode"):
        extant.open(file)


@pytest.mark.parametrize("wrong", [KeyError, KeyboardInterrupt])
def test_an_exception_of_progress_ends_the_call(volume, image, tmp_path, wrong):
    for n in range(100):
        (tmp_path / "tree" / str(n)).mkdir(parents=True)
    called = []

    def progress(*counts):
        called.append(counts)
        raise wrong("enough")

    with pytest.raises(wrong):
        volume.copy_tree_in(tmp_path / "tree", "/tree", progress)
    assert len(called) == 1
    with pytest.raises(TypeError):
        volume.copy_tree_in(tmp_path / "tree", "/other", 5)
    volume.close()
    with pytest.raises(wrong):
        extant.check(image, progress=progress)
    assert extant.check(image).clean


def test_close_ends_what_is_open(image):
    volume = extant.open(image, "r+")
    text, raw = (volume / "text").open("w"), (volume / "file").open("rb", buffering=0)
    text.write("in the buffer")
    reads = volume.read_files()
    next(reads)
    volume.close()
    assert text.closed and raw.closed and list(reads) == []
    with pytest.raises(ValueError):
        raw.read()
    # Nothing holds the image any more.
    with extant.open(image, "r+") as again:
        assert (again / "text").read_text() == "in the buffer"


@pytest.mark.skipif(not getattr(sys, "_is_gil_enabled", lambda: True)(), reason="this interpreter has no lock to keep")
def test_closing_a_file_for_reading_keeps_the_interpreter(image):
    """A thread that releases the interpreter while it ends does not come back, and pyarrow waits for its threads."""
    ran, gate = [], threading.Lock()
    gate.acquire()
    waiter = threading.Thread(target=lambda: ran.append(gate.acquire()))
    waiter.start()
    before = sys.getswitchinterval()
    with extant.open(image) as volume:
        files = [(volume / "file").open("rb", buffering=0) for _ in range(500)]
        sys.setswitchinterval(60)
        try:
            gate.release()  # The waiter runs as soon as this thread releases the interpreter.
            for file in files:
                file.close()
            assert not ran
        finally:
            sys.setswitchinterval(before)
        waiter.join()
    assert ran


def test_an_error_of_a_buffer_is_raised_at_close(image):
    volume = extant.open(image, "r+")
    file = (volume / "big").open("wb", buffering=64 << 20)
    file.write(b"x" * (32 << 20))
    with pytest.raises(OSError) as error:
        volume.close()
    assert error.value.errno == errno.ENOSPC and volume.closed
    assert extant.check(image).clean


def in_child(work):
    """Runs ``work`` in a fork, which ends as an interpreter does; returns its exit status."""
    sys.stdout.flush()
    child = os.fork()
    if child == 0:
        status = 1
        try:
            work()
            status = 0
        finally:
            os._exit(status)
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            return status
        time.sleep(0.01)
    os.kill(child, 9)
    os.waitpid(child, 0)
    return "hangs"


def test_a_child_of_a_fork_cannot_harm_the_volume(volume, image):
    (volume / "new").write_text("not synced")
    file = (volume / "file").open("r+b", buffering=0)
    reads = volume.read_files()
    next(reads)

    def refused():
        calls = (volume.sync, (volume / "new").read_text, lambda: file.write(b"x"), lambda: list(reads))
        for call in calls:
            with pytest.raises(RuntimeError, match="fork"):
                call()
        assert volume.closed

    def dropped():
        nonlocal file, reads
        file.close()
        del file, reads
        volume.close()
        volume._native = None

    assert in_child(refused) == 0
    assert in_child(dropped) == 0
    assert dict((str(path), data) for path, data in volume.read_files()) == {"/file": b"kept", "/new": b"not synced"}
    volume.close()
    assert extant.check(image).clean
    # A child that opens the image itself may use it.
    assert in_child(lambda: extant.open(image).close()) == 0


def test_an_exception_of_a_write_stops_the_volume(image):
    class Full(io.BytesIO):
        full = False

        def write(self, data):
            if self.full:
                raise KeyError("full")
            return super().write(data)

    device = Full(image.read_bytes())
    volume = extant.open(device, "r+")
    (volume / "file").write_bytes(b"x" * 100_000)
    device.full = True
    with pytest.raises(KeyError):
        volume.sync()
    with pytest.raises(OSError):
        volume.close()
    device.full = False
    with extant.open(io.BytesIO(device.getvalue())) as again:
        assert (again / "file").exists()
