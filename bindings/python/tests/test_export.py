"""Archives written of an open volume, compared with what tarfile and tar read."""

import gzip
import io
import os
import posixpath
import subprocess
import tarfile

import pytest
from test_volume import clean

import extant

LONG = "long/" + "/".join(["n" * 200] * 3) + "/end"
RAW = os.fsdecode(b"raw-\xff\xfe")


def source():
    """A tar archive with every kind of member that this test compares."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=tarfile.PAX_FORMAT, errors="surrogateescape") as tar:

        def add(name, kind=tarfile.REGTYPE, content=b"", **properties):
            member = tarfile.TarInfo(name)
            member.type, member.size, member.mtime = kind, len(content), 1_700_000_000
            member.mode, member.uid, member.gid = 0o644, 1000, 100
            for key, value in properties.items():
                setattr(member, key, value)
            tar.addfile(member, io.BytesIO(content))

        add("etc", tarfile.DIRTYPE, mode=0o2750)
        add("etc/noted", content=b"noted", mode=0o4755, pax_headers={"SCHILY.xattr.user.note": "a note"})
        add("etc/large", content=bytes(range(256)) * 8000)
        add("etc/same", tarfile.LNKTYPE, linkname="etc/large")
        add("etc/link", tarfile.SYMTYPE, linkname="../" + "t" * 150, mode=0o777)
        add("etc/fifo", tarfile.FIFOTYPE)
        add("etc/null", tarfile.CHRTYPE, devmajor=1, devminor=3)
        add(LONG, content=b"deep")
        add(RAW, content=b"raw")
        add("empty")
    return out.getvalue()


def described(archive):
    """What an archive says of each name, without the order of its members."""
    with tarfile.open(fileobj=io.BytesIO(archive), errors="surrogateescape") as tar:
        members = {posixpath.normpath(member.name): member for member in tar.getmembers()}
        groups, found = {}, {}
        for name, member in members.items():
            first = posixpath.normpath(member.linkname) if member.islnk() else name
            groups.setdefault(first, set()).add(name)
        for first, names in groups.items():
            member = members[first]
            content = tar.extractfile(member).read() if member.isreg() else None
            xattrs = {key: value for key, value in member.pax_headers.items() if key.startswith("SCHILY.xattr.")}
            for name in names:
                assert members[name].mode == member.mode
                found[name] = (
                    member.type, member.mode, member.uid, member.gid, int(member.mtime), member.linkname,
                    member.devmajor, member.devminor, content, xattrs, frozenset(names),
                )  # fmt: skip
    return found


@pytest.fixture
def volume(tmp_path):
    image = tmp_path / "disk.img"
    with extant.create(image, size="64M") as volume:
        volume.import_tar(io.BytesIO(source()), "/srv")
        yield volume
    clean(image)


def exported(volume, path="/srv", **options):
    out = io.BytesIO()
    volume.export_tar(out, path, **options)
    return out.getvalue()


def test_an_import_comes_back(volume, tmp_path):
    told = []
    out = io.BytesIO()
    counts = volume.export_tar(out, "/srv", progress=told.append)
    expected, found = described(source()), described(out.getvalue())
    for name, description in expected.items():
        assert found[name] == description, name
    # The archive also names the directories that the source only implies.
    assert all(found[name][0] == tarfile.DIRTYPE for name in found.keys() - expected.keys())
    assert len(expected["etc/large"][-1]) == 2 and found["etc/noted"][-2] == {"SCHILY.xattr.user.note": "a note"}
    assert counts["files"] == 5 and counts["hard_links"] == 1 and counts["specials"] == 2 and counts["symlinks"] == 1
    assert told and told[-1]["bytes"] <= counts["bytes"]
    with extant.create(tmp_path / "again.img", source=io.BytesIO(out.getvalue())) as again:
        assert described(exported(again, "/"))["etc/large"] == expected["etc/large"]


def test_holes_take_no_space(volume):
    with (volume / "hole").open("wb") as file:
        file.truncate(8 << 20)
        file.seek(8 << 20)
        file.write(b"end")
    archive = exported(volume, "/hole")
    assert len(archive) < 100_000
    (description,) = described(archive).values()
    assert description[8] == bytes(8 << 20) + b"end"


def test_any_destination_gets_the_same_bytes(volume, tmp_path):
    plain = exported(volume)
    with pytest.raises(FileNotFoundError) as error:
        volume.export_tar(tmp_path / "none" / "srv.tar", "/srv")
    assert error.value.filename == str(tmp_path / "none" / "srv.tar"), "not the path in the volume"
    volume.export_tar(tmp_path / "srv.tar", "/srv")
    assert (tmp_path / "srv.tar").read_bytes() == plain == exported(volume, format="tar")
    with gzip.open(tmp_path / "object.tar.gz", "wb") as out:
        volume.export_tar(out, "/srv")
    assert gzip.open(tmp_path / "object.tar.gz").read() == plain

    class Parts(list):
        def write(self, data):
            self.append(bytes(data))  # the result is None

    class Few(io.RawIOBase):
        def __init__(self):
            self.taken = bytearray()

        def write(self, data):
            self.taken += data[:1000]
            return min(len(data), 1000)

    parts, few = Parts(), Few()
    volume.export_tar(parts, "/srv")
    volume.export_tar(few, "/srv")
    assert b"".join(parts) == plain == few.taken
    assert gzip.decompress(exported(volume, format="tar.gz")) == plain
    volume.export_tar(tmp_path / "srv.tar.zst", "/srv")
    assert subprocess.run(["zstd", "-dc", tmp_path / "srv.tar.zst"], check=True, stdout=subprocess.PIPE).stdout == plain
    assert exported(volume, "/srv/etc/noted", format="cpio").startswith(b"070701")
    (only,) = described(exported(volume, "/srv/etc/noted"))
    assert only == "noted"


def test_wrong_arguments(volume, tmp_path):
    kept = tmp_path / "kept.tar"
    kept.write_bytes(b"kept")
    with pytest.raises(FileNotFoundError) as error:
        volume.export_tar(kept, "/none")
    assert error.value.filename == "/none" and kept.read_bytes() == b"kept"
    for target, options in ((kept, {"format": "zip"}), (tmp_path / "kept.tar.xz", {})):
        with pytest.raises(ValueError, match="archive"):
            volume.export_tar(target, **options)
    with pytest.raises(FileNotFoundError):
        volume.export_tar(tmp_path / "none" / "kept.tar")
    with pytest.raises(TypeError):
        volume.export_tar(io.StringIO())


class Broken(Exception):
    pass


class Full:
    """Fails at a call of `write`, `read` or `seek` with an exception of its own."""

    def __init__(self, before, raised=Broken("here")):
        self.before, self.raised, self.calls = before, raised, 0

    def write(self, data):
        self.calls += 1
        if self.calls > self.before:
            raise self.raised
        return len(data)

    def read(self, size):
        return bytes(self.write(bytes(size)))


@pytest.mark.parametrize("format", ["tar", "tar.gz", "tar.zst", "cpio"])
def test_exceptions_of_a_destination_are_its_own(volume, format):
    (volume / "noise").write_bytes(os.urandom(3 << 20))
    for before in range(3):
        out = Full(before)
        with pytest.raises(Broken, match="here"):
            volume.export_tar(out, format=format)
        assert out.calls == before + 1
    # An exception that Python retries in its own files ends the export, too.
    with pytest.raises(InterruptedError):
        volume.export_tar(Full(0, InterruptedError()), format=format)
    (volume / "later").write_bytes(b"x")
    assert (volume / "later").read_bytes() == b"x"


def test_exceptions_of_sources_are_their_own(volume, tmp_path):
    with pytest.raises(Broken, match="here"):
        volume.import_tar(Full(0))
    with pytest.raises(Broken, match="here"):
        extant.create(tmp_path / "new.img", source=Full(0))
    (volume / "later").write_bytes(b"x")


def test_a_file_that_would_block(volume):
    class Blocked(io.RawIOBase):
        def write(self, data):
            return None

    with pytest.raises(BlockingIOError):
        volume.export_tar(Blocked(), "/srv")


def test_exceptions_of_a_device_are_its_own(volume, tmp_path):
    class Device(io.FileIO):
        broken = False

        def read(self, size=-1):
            if self.broken:
                raise Broken("here")
            return super().read(size)

    (volume / "content").write_bytes(os.urandom(1 << 20))
    volume.sync()
    with Device(tmp_path / "disk.img") as device, extant.open(device) as again:
        (again / "content").stat()
        device.broken = True
        with pytest.raises(Broken, match="here"):
            (again / "content").read_bytes()
        device.broken = False
        assert len((again / "content").read_bytes()) == 1 << 20
