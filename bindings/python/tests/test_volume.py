"""The package as programs use it, judged by ``e2fsck`` and by the same operations on a directory of the host."""

import errno
import io
import os
import shutil
import stat
import subprocess
import tarfile
import threading

import pytest

import extant


@pytest.fixture
def image(tmp_path):
    return tmp_path / "disk.img"


@pytest.fixture
def volume(image):
    with extant.create(image, size="64M", block_size=4096) as volume:
        yield volume


def clean(image):
    assert extant.check(image).clean
    if shutil.which("e2fsck"):
        subprocess.run(["e2fsck", "-fn", image], check=True, stdout=subprocess.DEVNULL)
    else:
        assert not os.environ.get("CI"), "e2fsck is missing"


def test_what_is_written_is_there(image):
    with extant.create(image, size=64 << 20, label="box") as volume:
        (volume / "a" / "b").mkdir(parents=True)
        (volume / "a" / "b" / "text").write_text("naïve\n")
        (volume / "a" / "link").symlink_to("b/text")
        (volume / "a" / "second").hardlink_to("a/b/text")
        for name, target in [("gone", "none/x"), ("far", "b/../gone"), ("top", "/b/none")]:
            (volume / "a" / name).symlink_to(target)
    with extant.open(image) as volume:
        assert volume.label == "box"
        assert (volume / "a/link").read_text() == "naïve\n"
        assert str((volume / "a/link").readlink()) == "b/text"
        assert (volume / "a/b/../link").resolve() == (volume / "a/link").resolve(strict=True) == volume / "a/b/text"
        assert (volume / "a/none/../b/new").resolve() == volume / "a/b/new"
        with pytest.raises(FileNotFoundError):
            (volume / "a/none").resolve(strict=True)
        for name, target in [("gone", "a/none/x"), ("far", "a/none/x"), ("top", "b/none"), ("far/y", "a/none/x/y")]:
            assert (volume / "a" / name).resolve() == volume / target
            with pytest.raises(FileNotFoundError):
                (volume / "a" / name).resolve(strict=True)
        assert (volume / "a/second").samefile(volume / "a/b/text")
        assert (volume / "a/second").stat().st_nlink == 2
        assert sorted(path.name for path in (volume / "a").iterdir()) == ["b", "far", "gone", "link", "second", "top"]
        with pytest.raises(OSError) as error:
            (volume / "new").write_bytes(b"")
        assert error.value.errno == errno.EROFS
    clean(image)


def test_errors_are_those_of_os(volume):
    with pytest.raises(FileNotFoundError) as error:
        (volume / "nothing" / "there").read_bytes()
    assert error.value.filename == "/nothing/there"
    (volume / "dir").mkdir()
    with pytest.raises(FileExistsError):
        (volume / "dir").mkdir()
    with pytest.raises(IsADirectoryError):
        (volume / "dir").unlink()
    (volume / "dir" / "file").touch()
    with pytest.raises(OSError) as error:
        (volume / "dir").rmdir()
    assert error.value.errno == errno.ENOTEMPTY
    with pytest.raises(NotADirectoryError):
        (volume / "dir" / "file" / "below").stat()
    with pytest.raises(ValueError):
        extant.create("unused.img")


def test_what_is_no_image_is_told_from_damage(tmp_path):
    with pytest.raises(FileNotFoundError) as error:
        extant.open(tmp_path / "nothing.img")
    assert "os error" not in str(error.value), "the exception has the number"
    with pytest.raises(OSError):
        extant.open(tmp_path)
    (tmp_path / "text").write_text("no image\n" * 1000)
    with pytest.raises(OSError) as error:
        extant.open(tmp_path / "text")
    assert not isinstance(error.value, extant.CorruptError)


def test_a_closed_volume_says_so(image):
    volume = extant.create(image, size="16M")
    file = (volume / "file").open("wb", buffering=0)
    volume.close()
    volume.close()
    assert volume.closed
    with pytest.raises(ValueError):
        (volume / "file").read_bytes()
    with pytest.raises(ValueError):
        file.write(b"late")


def test_an_image_without_its_superblock_does_not_open(image):
    # Of blocks of 4 KiB, so that there is one group, and no backup of its superblock.
    extant.create(image, size="16M", block_size=4096).close()
    with open(image, "r+b") as file:
        file.seek(1024 + 56)
        file.write(b"\0\0")
    with pytest.raises(OSError):
        extant.open(image)
    with pytest.raises(OSError):
        extant.check(image)


def test_damage_of_an_inode_names_it(image):
    with extant.create(image, size="16M", block_size=4096) as volume:
        (volume / "file").write_bytes(b"x" * 9000)
        ino = (volume / "file").stat().st_ino
    if not shutil.which("debugfs"):
        pytest.skip("debugfs is missing")
    place = subprocess.run(["debugfs", "-R", f"imap <{ino}>", image], check=True, capture_output=True, text=True).stdout
    block, offset = place.split("located at block ")[1].split(",")[0], place.split("0x")[1].strip()
    with open(image, "r+b") as file:
        file.seek(int(block) * 4096 + int(offset, 16) + 4)
        file.write(b"\xff")
    with extant.open(image) as volume, pytest.raises(extant.CorruptError) as error:
        (volume / "file").read_bytes()
    assert str(ino) in str(error.value)


def test_check_and_repair(image):
    with extant.create(image, size="16M") as volume:
        (volume / "file").write_bytes(b"x" * 9000)
        ino = (volume / "file").stat().st_ino
    with extant.open(image) as volume:
        assert (volume / "file").stat().st_ino == ino
    if not shutil.which("debugfs"):
        pytest.skip("debugfs is missing")
    subprocess.run(["debugfs", "-w", "-R", f"sif <{ino}> links_count 7", image], check=True, stderr=subprocess.DEVNULL)
    report = extant.check(image)
    assert not report.clean and report.findings[0].inode == ino
    planned = extant.repair(image, dry_run=True)
    assert planned.mends and not extant.check(image).clean
    done = extant.repair(image)
    assert done.faults_after == 0
    clean(image)


def test_all_files_of_a_tree(image):
    """With contents of every length, by number in a volume that nothing changes, and by name in one that is written."""
    expected = {f"/d/{n:03}": bytes([n % 251]) * (n * n) for n in range(100)}
    expected["/d/empty"] = b""
    expected["/d/hole"] = bytes(70_000) + b"end"
    expected["/d/large"] = os.urandom(1 << 20) * 9
    with extant.create(image, size="64M") as volume:
        (volume / "d").mkdir()
        for path, data in expected.items():
            (volume / path).write_bytes(data)
        (volume / "d" / "hole").truncate(0)
        with (volume / "d" / "hole").open("r+b") as file:
            file.seek(70_000)
            file.write(b"end")
        (volume / "d" / "link").symlink_to("empty")
        assert {str(path): data for path, data in volume.read_files()} == expected
    for source in (image, image.read_bytes()):
        with extant.open(source) as volume:
            found = list(volume.read_files("/d"))
            assert [str(path) for path, _ in found] == sorted(expected)
            assert dict((str(path), data) for path, data in found) == expected


def test_files_are_io_objects(volume):
    path = volume / "file"
    with path.open("w+b") as file:
        assert isinstance(file, io.BufferedRandom)
        file.write(b"0123456789")
        file.seek(-4, os.SEEK_END)
        assert file.read() == b"6789"
        file.seek(2)
        file.write(b"xx")
        file.truncate(8)
    assert path.read_bytes() == b"01xx4567"
    with path.open("ab") as file:
        assert file.tell() == 8
        file.write(b"end")
    with path.open("rb", buffering=0) as raw:
        assert isinstance(raw, io.RawIOBase)
        buffer = bytearray(4)
        assert raw.readinto(buffer) == 4 and buffer == b"01xx"
        assert raw.readall() == b"4567end"
        with pytest.raises(io.UnsupportedOperation):
            raw.write(b"no")
    with path.open("w", newline="\r\n") as file:
        print("one", "two", sep="\n", file=file)
    assert path.read_bytes() == b"one\r\ntwo\r\n"
    assert path.open().readlines() == ["one\n", "two\n"]
    with pytest.raises(FileExistsError):
        path.open("x")
    with pytest.raises(ValueError):
        path.open("rw")
    with path.open("r+b") as file:
        file.seek(1 << 20)
        file.write(b"far")
        file.flush()
        file.raw.fsync()
        assert file.raw.seek(0, os.SEEK_HOLE) == 4096
    assert path.stat().st_blocks == 16


def test_attributes(volume):
    path = volume / "file"
    path.touch()
    path.chmod(0o640)
    path.chown(1000, 1001)
    path.utime((1_000_000_000_000_000_001, -1))
    path.setxattr("user.note", b"\0value")
    found = path.stat()
    assert stat.S_IMODE(found.st_mode) == 0o640 and (found.st_uid, found.st_gid) == (1000, 1001)
    assert (found.st_atime_ns, found.st_mtime_ns) == (1_000_000_000_000_000_001, -1)
    assert path.listxattr() == ["user.note"] and path.getxattr("user.note") == b"\0value"
    path.removexattr("user.note")
    with pytest.raises(OSError) as error:
        path.getxattr("user.note")
    assert error.value.errno == errno.ENODATA
    assert volume.statvfs().f_bsize == 4096


def test_attributes_through_a_symbolic_link(volume):
    """Attributes are those of the target, as ``os`` has it, unless ``follow_symlinks`` is false."""
    (volume / "file").touch()
    link = volume / "link"
    link.symlink_to("file")
    link.setxattr("user.note", b"value")
    link.setxattr("trusted.own", b"of the link", follow_symlinks=False)
    assert (volume / "file").listxattr() == link.listxattr() == ["user.note"]
    assert link.getxattr("user.note") == b"value"
    assert link.listxattr(follow_symlinks=False) == ["trusted.own"]
    assert link.getxattr("trusted.own", follow_symlinks=False) == b"of the link"
    with pytest.raises(PermissionError):
        link.setxattr("user.note", b"", follow_symlinks=False)
    link.removexattr("user.note")
    link.removexattr("trusted.own", follow_symlinks=False)
    assert not link.listxattr() and not link.listxattr(follow_symlinks=False)
    (volume / "dangling").symlink_to("nowhere")
    with pytest.raises(FileNotFoundError):
        (volume / "dangling").listxattr()
    (volume / "directory").mkdir()
    (volume / "directory").setxattr("user.note", b"value")
    assert (volume / "directory").listxattr() == ["user.note"]
    link.unlink()
    link.symlink_to("directory")
    assert link.getxattr("user.note") == b"value"


def test_walk_and_glob(volume):
    for name in ("src/a.py", "src/deep/b.py", "src/c.txt"):
        path = volume / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    src = volume / "src"
    assert sorted(str(path) for path in src.rglob("*.py")) == ["/src/a.py", "/src/deep/b.py"]
    assert sorted(path.name for path in volume.root.glob("src/*.txt")) == ["c.txt"]
    assert sorted(path.name for path in volume.root.glob("**/*.py")) == ["a.py", "b.py"]
    top = list(src.walk())
    assert top[0][0] == src and top[0][1] == ["deep"] and sorted(top[0][2]) == ["a.py", "c.txt"]
    src.rmtree()
    assert not src.exists()


def test_a_tree_goes_in_and_comes_out(volume, tmp_path):
    tree = tmp_path / "tree"
    (tree / "d").mkdir(parents=True)
    for n in range(200):
        (tree / "d" / f"f{n}").write_bytes(bytes([n]) * n)
    os.symlink("d/f1", tree / "link")
    seen = []
    done = volume.copy_tree_in(tree, "/tree", progress=seen.append)
    assert done["files"] == 200 and done["symlinks"] == 1
    assert seen and seen[-1]["files"] <= 200
    out = tmp_path / "out"
    volume.copy_tree_out("/tree/d", out)
    assert (out / "f199").read_bytes() == bytes([199]) * 199


def test_a_tar_of_ten_thousand_files(image, tmp_path):
    archive = tmp_path / "files.tar"
    with tarfile.open(archive, "w") as tar:
        for n in range(10_000):
            info = tarfile.TarInfo(f"d{n % 10}/f{n}")
            info.size = 10
            tar.addfile(info, io.BytesIO(b"%010d" % n))
    with open(archive, "rb") as stream, extant.create(image, source=stream) as volume:
        assert (volume / "d7" / "f1237").read_bytes() == b"0000001237"
        assert sum(len(names) for _, _, names in volume.walk()) == 10_000
    clean(image)


def test_file_objects_and_buffers(image):
    with extant.create(image, size="16M") as volume:
        (volume / "file").write_bytes(b"content")
    data = image.read_bytes()
    for held in (data, bytearray(data), io.BytesIO(data)):
        with extant.open(held) as volume:
            assert (volume / "file").read_bytes() == b"content"
        assert extant.check(held).clean
    with open(image, "r+b") as file, extant.open(file, "r+") as volume:
        (volume / "file").write_bytes(b"longer content")
    clean(image)
    held = bytearray(data)
    with extant.open(held, "r+") as volume:
        (volume / "second").write_bytes(b"2")
    with extant.open(held) as volume:
        assert (volume / "second").read_bytes() == b"2"


class Reluctant(io.BytesIO):
    """Takes a part of each write, and at last nothing."""

    def __init__(self, data):
        super().__init__(data)
        self.left = 3

    def write(self, data):
        self.left -= 1
        return super().write(data[:1000]) if self.left >= 0 else None


def test_a_device_that_takes_nothing_is_an_error(image):
    extant.create(image, size="16M").close()
    device = Reluctant(image.read_bytes())
    with pytest.raises(OSError):
        volume = extant.open(device, "r+")
        (volume / "file").write_bytes(b"x" * 100_000)
        volume.sync()


def test_a_killed_process_loses_nothing_that_was_synced(image):
    program = (
        "import extant, os\n"
        f"volume = extant.create({str(image)!r}, size='64M')\n"
        "for n in range(50):\n"
        "    with (volume / f'f{n}').open('wb') as file:\n"
        "        file.write(b'x' * 5000); file.flush(); file.raw.fsync()\n"
        "(volume / 'unsynced').write_bytes(b'perhaps')\n"
        "os.kill(os.getpid(), 9)\n"
    )
    import sys

    assert subprocess.run([sys.executable, "-c", program]).returncode == -9
    with extant.open(image, "r+") as volume:
        for n in range(50):
            assert (volume / f"f{n}").read_bytes() == b"x" * 5000
    clean(image)


def test_threads_work_side_by_side(volume, image):
    def work(task):
        here = volume / f"task{task}"
        here.mkdir()
        for n in range(300):
            (here / f"f{n}").write_bytes(b"%d" % n)

    threads = [threading.Thread(target=work, args=(task,)) for task in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sum(len(names) for _, _, names in volume.walk()) == 2400
    volume.close()
    clean(image)
