"""A corpus behind a URL is read as the same files on this machine are."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import fsspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from fsspec.implementations.memory import MemoryFileSystem

from ffmem.corpus.file_formats import Meter
from ffmem.corpus.sources import Source, digest, documents
from ffmem.errors import CorpusError, FfmemError
from ffmem.locations import location


@pytest.fixture
def both(tmp_path: Path) -> Iterator[tuple[Path, str]]:
    """The same files in a folder and in fsspec's memory."""
    here = tmp_path / "text"
    (here / "deep").mkdir(parents=True)
    (here / "b.txt").write_text("river\n\nstone\n")
    (here / "deep" / "a.txt.gz").write_bytes(gzip.compress("light\ncafé\n".encode()))
    (here / "c.jsonl").write_text(json.dumps({"text": "garden"}) + "\n")
    (here / ".hidden.txt").write_text("no\n")
    pq.write_table(pa.table({"text": ["engine", None, "winter"]}), here / "d.parquet")
    memory = fsspec.filesystem("memory")
    memory.put(str(here), "/there/", recursive=True)
    yield here, "memory://there/text"
    memory.rm("/there", recursive=True)


@pytest.mark.parametrize("inside", ["", "/b.txt", "/deep/a.txt.gz", "/*.txt", "/**/*.gz"])
def test_the_same_documents_and_digest(both: tuple[Path, str], inside: str) -> None:
    here, there = (Source(f"{side}{inside}") for side in both)
    expected = list(documents(here))
    assert expected
    assert list(documents(there)) == expected
    assert digest(there) == digest(here)
    assert list(documents(Source(f"file://{here.path}"))) == expected


def test_the_meter_counts_remote_bytes(both: tuple[Path, str]) -> None:
    meter = Meter()
    list(documents(Source(both[1]), meter))
    assert meter.share == 1.0


def test_what_is_not_there_is_one_sentence(both: tuple[Path, str]) -> None:
    with pytest.raises(CorpusError, match="no such file"):
        documents(Source("memory://there/nothing"))
    with pytest.raises(FfmemError, match=r"nosuch://x .*install the fsspec package"):
        documents(Source("nosuch://x"))


class Closed(MemoryFileSystem):
    """A storage whose library refuses in a way of its own, as those of clouds do."""

    protocol = "closed"

    def info(self, path: str, **options: Any) -> dict[str, Any]:
        raise RuntimeError("no credentials\nat all")


@pytest.mark.filterwarnings("ignore:UPath 'closed' filesystem not explicitly implemented")
def test_a_storage_that_refuses_is_one_sentence() -> None:
    fsspec.register_implementation("closed", Closed, clobber=True)
    with pytest.raises(FfmemError, match=r"^closed://x/y cannot be reached \(no credentials\); "):
        location("closed://x/y")
