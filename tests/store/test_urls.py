"""A store behind a URL: made there, found unfinished there, opened from there."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import fsspec
import pytest

from ffmem.address import Address
from ffmem.errors import StoreError
from ffmem.execution.run import run_scan, run_scan_by
from ffmem.execution.worker import ModelChoice
from ffmem.files.disk_cache import fetch_folder
from ffmem.locations import location
from ffmem.models.language_model import LanguageModel
from ffmem.store.scan_store import ScanStore
from tests.execution.local_executor import LocalExecutor
from tests.execution.small_scans import plan_for, same_store, sentences


@pytest.fixture
def there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    monkeypatch.setenv("FFMEM_CACHE", str(tmp_path / "cache"))
    yield "memory://bucket/scan"
    fsspec.filesystem("memory").rm("/bucket", recursive=True)


@pytest.mark.parametrize("name", ["../../outside.txt", "/outside.txt"])
def test_no_file_behind_a_url_is_written_elsewhere(
    name: str, there: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A server can name any path as one of the folder's."""
    fsspec.filesystem("memory").pipe("/bucket/scan/manifest.json", b"{}")
    folder: Any = location(there)
    file = SimpleNamespace(path=f"{folder.path}/{name}", is_file=lambda: True)
    monkeypatch.setattr(type(folder), "rglob", lambda _folder, _pattern: [file])
    with pytest.raises(StoreError, match="names a file elsewhere"):
        fetch_folder(folder, b"")
    assert not list(tmp_path.rglob("outside.txt"))


@pytest.mark.parametrize("kind", ["one process", "workers"])
def test_a_scan_stops_goes_on_and_ends_behind_a_url(
    kind: str, relu: LanguageModel, there: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ffmem.corpus.shards.SHARD_BYTES", 2000)
    text = tmp_path / "corpus.txt"
    text.write_text("\n".join(sentences(150)) + "\n", encoding="utf-8")
    plan, out = plan_for(relu, text), location(there)

    def run(watch: object) -> ScanStore:
        if kind == "workers":
            return run_scan_by(LocalExecutor, ModelChoice("tiny:opt"), plan, out, watch)  # type: ignore[arg-type]
        return run_scan(relu, plan, out, watch)  # type: ignore[arg-type]

    def stop(_progress: object, _share: object) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(stop)
    with pytest.raises(StoreError, match="not finished"):
        ScanStore.open(there)
    found = run(lambda _progress, _share: None)
    expected = run_scan(relu, plan, tmp_path / "expected")
    same_store(expected.folder.root, found.folder.root)
    cell = Address(2, 3)
    assert list(ScanStore.open(there).triggers(cell)) == list(expected.triggers(cell))
    left = [path for path in fsspec.filesystem("memory").find("/bucket") if "parts" in path]
    assert not left
    assert not [path for path in fsspec.filesystem("memory").find("/bucket") if "check" in path]
