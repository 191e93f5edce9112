"""fsspec's own suites over a volume."""

import io

import fsspec
import pytest
from fsspec.tests.abstract import AbstractFixtures
from fsspec.tests.abstract.copy import AbstractCopyTests
from fsspec.tests.abstract.get import AbstractGetTests
from fsspec.tests.abstract.open import AbstractOpenTests
from fsspec.tests.abstract.pipe import AbstractPipeTests
from fsspec.tests.abstract.put import AbstractPutTests

import extant
from extant.fs import Ext4FileSystem


class Fixtures(AbstractFixtures):
    @pytest.fixture
    def fs(self, tmp_path):
        with extant.create(tmp_path / "disk.img", size="64M") as volume:
            yield Ext4FileSystem(volume=volume)

    @pytest.fixture
    def fs_path(self):
        return "/scratch"

    @pytest.fixture
    def fs_join(self):
        return lambda *parts: "/".join(parts)


class TestCopy(AbstractCopyTests, Fixtures):
    pass


class TestGet(AbstractGetTests, Fixtures):
    pass


class TestPut(AbstractPutTests, Fixtures):
    pass


class TestOpen(AbstractOpenTests, Fixtures):
    pass


class TestPipe(AbstractPipeTests, Fixtures):
    pass


@pytest.fixture
def image(tmp_path):
    path = tmp_path / "disk.img"
    with extant.create(path, size="16M") as volume:
        (volume / "d").mkdir()
        (volume / "d" / "file").write_text("content")
    return path


def test_by_the_protocol(image):
    fs = fsspec.filesystem("ext4", image=str(image))
    assert fs.ls("/d", detail=False) == ["/d/file"]
    assert fs.cat("/d/file") == b"content"
    assert fs.info("/d/file")["size"] == 7
    assert fs.find("/") == ["/d/file"]


def test_in_a_chain(image, tmp_path):
    with fsspec.open(f"ext4://d/file::file://{image}", "rb") as file:
        assert file.read() == b"content"
    import zipfile

    with zipfile.ZipFile(tmp_path / "images.zip", "w", zipfile.ZIP_STORED) as archive:
        archive.write(image, "disk.img")
    with fsspec.open(f"ext4://d/file::zip://disk.img::file://{tmp_path}/images.zip", "rb") as file:
        assert file.read() == b"content"


def test_an_image_in_memory(image):
    fs = Ext4FileSystem(io.BytesIO(image.read_bytes()))
    assert fs.exists("/d/file") and not fs.exists("/d/none")
