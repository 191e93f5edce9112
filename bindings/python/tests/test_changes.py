"""Closed images changed and inspected, archives imported, ACLs, progress, and Ctrl-C."""

import io
import os
import shutil
import signal
import subprocess
import sys
import tarfile
import textwrap

import pytest

import extant


@pytest.fixture
def image(tmp_path):
    path = tmp_path / "disk.img"
    with extant.create(path, size="64M", label="box") as volume:
        (volume / "etc").mkdir()
        (volume / "etc" / "hostname").write_text("box\n")
    return path


def judged(image):
    assert extant.check(image).clean
    if shutil.which("e2fsck"):
        subprocess.run(["e2fsck", "-fn", image], check=True, stdout=subprocess.DEVNULL)


def test_an_image_is_resized(image):
    planned = extant.resize(image, "96M", dry_run=True)
    assert planned.size == 96 << 20 and os.path.getsize(image) == 64 << 20
    assert extant.resize(image, "96M").size == os.path.getsize(image) == 96 << 20
    least = extant.resize(image, None)
    assert least.size == os.path.getsize(image) < 32 << 20 and least.new_blocks < least.old_blocks
    judged(image)
    with pytest.raises(ValueError):
        extant.resize(image, 4096)
    with extant.open(image, "r+") as volume:
        with pytest.raises(OSError) as error:
            extant.resize(image, "64M")
        assert error.value.errno == 16
        assert volume.grow("48M") == 48 << 20
        assert (volume / "etc" / "hostname").read_text() == "box\n"
    judged(image)


def test_properties_are_changed_and_taken_back(image, tmp_path):
    undo = tmp_path / "undo"
    changes = extant.tune(
        image, label="data", uuid="6a4f9de5-6f4a-4a9c-9a0e-0d4f1f2f3f44", features=["^metadata_csum"], reserved_percent=0, undo=undo
    )
    assert {"label", "UUID"} <= {word for change in changes for word in change.text.split()} or len(changes) >= 4
    assert undo.stat().st_size > 0
    with extant.open(image) as volume:
        info = volume.info()
    assert info["label"] == "data" and info["uuid"] == "6a4f9de5-6f4a-4a9c-9a0e-0d4f1f2f3f44"
    assert "metadata_csum" not in info["features"] and info["reserved_blocks"] == 0
    assert info["block_size"] * info["blocks"] == 64 << 20 and info["journal"]["bytes"] > 0
    assert info["free_blocks"] < info["blocks"] and info["created"] > 1_600_000_000 and info["clean"]
    judged(image)
    for wrong in ({"features": "no_such_feature"}, {"label": "x" * 17}, {"reserved_percent": 99}):
        with pytest.raises(ValueError):
            extant.tune(image, **wrong)
    judged(image)


def test_structures_are_inspected(image):
    superblock, *fields = extant.inspect(image, "superblock")
    assert superblock["kind"] == "superblock" and superblock["label"] == b"box" and "extent" in superblock["features"]
    assert any(field["field"] == "s_inodes_count" for field in fields)
    (found,) = [entry for entry in extant.inspect(image, "dirents", "/etc") if entry["name"] == b"hostname"]
    with extant.open(image) as volume:
        assert found["inode"] == (volume / "etc" / "hostname").stat().st_ino
    (extent,) = extant.inspect(image, "extents", f"<{found['inode']}>")
    assert extent["kind"] == "extent" and extent["length"] == 1
    with pytest.raises(ValueError):
        extant.inspect(image, "mkdir", "x")
    with pytest.raises(FileNotFoundError):
        extant.inspect(image, "stat", "/none")


def test_repairs_are_objects_with_progress(image):
    with open(image, "r+b") as file:
        file.seek(1024 + 58)
        file.write(b"\3\0")  # the state: errors were found
    passes = []
    report = extant.check(image, progress=lambda name, done, total: passes.append((name, done <= total)))
    assert not report.clean and report.findings[0].rule == "superblock", report.findings
    assert passes and all(sound for _, sound in passes)
    planned = extant.repair(image, dry_run=True)
    assert planned.mends and planned.faults_after == 0
    assert extant.repair(image, progress=lambda *step: None).faults_after == 0
    judged(image)


def archive(files):
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w:gz") as tar:
        for name, content in files.items():
            member = tarfile.TarInfo(name)
            member.size, member.mode, member.uid = len(content), 0o640, 7
            tar.addfile(member, io.BytesIO(content))
    out.seek(0)
    return out


def test_archives_are_imported_into_an_open_volume(image, tmp_path):
    told = []
    with extant.open(image, "r+") as volume:
        tar = archive({"hostname": b"new\n", "deep/er/file": b"x" * 100_000})
        counts = volume.import_tar(tar, "/etc", progress=told.append)
        assert counts["files"] == 2 and counts["bytes"] == 100_004 and told[-1] == counts
        assert (volume / "etc/hostname").read_text() == "new\n"
        assert (volume / "etc/deep/er/file").stat().st_uid == 7
        (tmp_path / "second.tar.gz").write_bytes(archive({"f": b"1"}).getvalue())
        volume.import_tar(tmp_path / "second.tar.gz", "/new/place")
        assert (volume / "new/place/f").read_bytes() == b"1"
        with pytest.raises(IsADirectoryError):
            volume.import_tar(archive({"etc": b""}))
        with pytest.raises(OSError):
            volume.import_tar(io.BytesIO(b"no archive" * 1000))
    judged(image)


def test_acls(image):
    with extant.open(image, "r+") as volume:
        path = volume / "etc" / "hostname"
        assert path.getacl() == [("user", None, 6), ("group", None, 4), ("other", None, 4)]
        given = [("user", None, 6), ("user", 1000, 4), ("group", None, 0), ("mask", None, 4), ("other", None, 0)]
        path.setacl(given)
        assert path.getacl() == given and path.stat().st_mode & 0o777 == 0o640
        assert path.getacl()[1].id == 1000 and path.getacl()[1].permissions == 4
        etc = volume / "etc"
        assert etc.getacl(default=True) == []
        etc.setacl(given, default=True)
        (etc / "inherits").touch()
        assert ("user", 1000, 4) in (etc / "inherits").getacl()
        etc.setacl([], default=True)
        assert etc.getacl(default=True) == []
        for wrong in ([("user", None, 6)], [("nobody", None, 6)], []):
            with pytest.raises(ValueError):
                path.setacl(wrong)
    judged(image)


def test_all_files_of_a_tree_are_read(image):
    with extant.open(image, "r+") as volume:
        expected = {"/etc/hostname": b"box\n"}
        for n in range(1300):
            path = volume / "many" / str(n % 7) / str(n)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(str(n).encode())
            expected[str(path)] = str(n).encode()
        (volume / "many" / "link").symlink_to("0")
        found = [(str(path), data) for path, data in volume.read_files()]
        assert dict(found) == expected and len(found) == len(expected)
        below = [path.name for path, _ in volume.read_files("/many/3")]
        assert sorted(below) == sorted(str(n) for n in range(1300) if n % 7 == 3)
        with pytest.raises(FileNotFoundError):
            next(volume.read_files("/none"))


WORK = {
    "copy_tree_in": "volume.copy_tree_in(tree, '/copy', progress=ready)",
    "copy_tree_out": "volume.copy_tree_out('/big', tree + '-out', progress=ready)",
    "import_tar": "volume.import_tar(Endless(), '/imported', progress=ready)",
    "export_tar": "volume.export_tar(Sink(), '/', progress=ready)",
    "check": "extant.check(Slow(image), progress=ready)",
}


@pytest.mark.parametrize("name", WORK)
def test_ctrl_c_ends_long_calls(name, tmp_path):
    """A child works until it has a signal, which it gets once the work has begun."""
    tree = tmp_path / "tree"
    tree.mkdir()
    for n in range(2000):
        (tree / str(n)).write_bytes(b"x" * 2000)
    image = tmp_path / "disk.img"
    with extant.create(image, size="256M") as volume:
        volume.copy_tree_in(tree, "/big")
    program = textwrap.dedent(
        f"""
        import io, os, signal, sys, tarfile, time
        import extant

        # A shell starts programs in the background with this signal ignored.
        signal.signal(signal.SIGINT, signal.default_int_handler)

        def ready(*counts):
            # Holds the work up, so that the signal comes before its end.
            os.write(1, b"ready\\n")  # several threads call it
            time.sleep(0.02)

        class Slow(io.FileIO):
            def readinto(self, buffer):
                time.sleep(0.02)
                return super().readinto(buffer)
            def read(self, size=-1):
                time.sleep(0.02)
                return super().read(size)

        class Sink:
            def write(self, data):
                time.sleep(0.02)

        class Endless:
            def __init__(self):
                self.left, self.n = b"", 0
            def read(self, size):
                while len(self.left) < size:
                    member = tarfile.TarInfo(str(self.n))
                    self.left += member.tobuf()
                    self.n += 1
                now, self.left = self.left[:size], self.left[size:]
                return now

        image, tree = sys.argv[1:]
        volume = extant.open(image, "r+") if {name!r} != "check" else None
        try:
            {WORK[name]}
        except KeyboardInterrupt:
            print("interrupted", flush=True)
        if volume:
            volume.close()
        """
    )
    child = subprocess.Popen(
        [sys.executable, "-c", program, str(image), str(tree)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert child.stdout.readline() == "ready\n", child.communicate()
    child.send_signal(signal.SIGINT)
    out, err = child.communicate(timeout=300)
    assert child.returncode == 0 and out.splitlines()[-1] == "interrupted", (out[-200:], err)
    judged(image)
