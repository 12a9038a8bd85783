"""The cache: nothing is made twice, nothing damaged is used, and nobody needs it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from click.testing import CliRunner

from ffmem.cli.main import ffmem
from ffmem.execution.run import run_scan
from ffmem.files.disk_cache import cache_entries, digest_once, file_identity, find, keep
from ffmem.memories import value_vectors
from ffmem.memories.value_vectors import ValueEnds, rank_once
from ffmem.models import fingerprint
from ffmem.models.language_model import LanguageModel
from ffmem.models.loading import load
from ffmem.store.scan_store import ScanStore
from tests.execution.small_scans import plan_for, same_store, sentences


@pytest.fixture(autouse=True)
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache of the test's own."""
    monkeypatch.setenv("FFMEM_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def words(text: str) -> Callable[[Path], object]:
    return lambda part: (part / "words.txt").write_text(text)


def test_an_entry_is_found_again(root: Path) -> None:
    assert find("gguf", "a") is None
    entry = keep("gguf", "a", "some words", words("river"))
    assert entry == find("gguf", "a") == root / "gguf" / "a"
    assert (root / "gguf" / "a" / "words.txt").read_text() == "river"
    assert keep("gguf", "a", "others", words("stone")) == entry  # the first one stays
    assert (root / "gguf" / "a" / "words.txt").read_text() == "river"
    assert [(one.kind, one.name, one.about) for one in cache_entries()] == [
        ("gguf", "a", "some words")
    ]


@pytest.mark.parametrize("damage", ["cut", "gone", "note", "no note"])
def test_a_damaged_entry_is_made_again(damage: str, root: Path) -> None:
    entry = keep("gguf", "a", "", words("river"))
    assert entry is not None
    file, note = entry / "words.txt", entry / "entry.json"
    match damage:
        case "cut":
            file.write_text("rive")
        case "gone":
            file.unlink()
        case "note":
            note.write_text(note.read_text()[:-9])
        case _:
            note.unlink()
    assert find("gguf", "a") is None
    assert list((root / "gguf").iterdir()) == []
    assert keep("gguf", "a", "", words("river")) is not None


def test_a_killed_writer_leaves_no_entry_and_its_part_goes_in_time(root: Path) -> None:
    code = (
        "import os, signal\n"
        "from ffmem.files.disk_cache import keep\n"
        "def write(part):\n"
        "    (part / 'words.txt').write_text('riv')\n"
        "    os.kill(os.getpid(), signal.SIGKILL)\n"
        "keep('gguf', 'a', '', write)\n"
    )
    assert subprocess.run([sys.executable, "-c", code]).returncode < 0
    assert find("gguf", "a") is None
    (part,) = (root / "gguf").iterdir()
    keep("gguf", "a", "", words("river"))
    assert part.exists()  # its writer may be alive
    os.utime(part, (1, 1))
    keep("gguf", "b", "", words("stone"))
    assert sorted(path.name for path in (root / "gguf").iterdir()) == ["a", "b"]


def test_of_two_writers_at_once_one_comes_first(root: Path) -> None:
    together, found = threading.Barrier(4), []

    def write(part: Path) -> None:
        (part / "words.txt").write_text("river")
        together.wait()

    def run() -> None:
        found.append(keep("gguf", "a", "", write))

    threads = [threading.Thread(target=run) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [root / "gguf" / "a"] * 4
    assert [path.name for path in (root / "gguf").iterdir()] == ["a"]


def test_a_cache_that_may_only_be_read_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    entry = keep("gguf", "a", "", words("river"))

    def refuse(*_given: object) -> None:
        raise PermissionError(13, "Permission denied")

    for name in ("rename", "mkdir"):
        monkeypatch.setattr(os, name, refuse)
    assert find("gguf", "a") == keep("gguf", "a", "", words("stone")) == entry


def test_a_disk_that_takes_nothing_stops_nobody(root: Path) -> None:
    root.parent.mkdir(exist_ok=True)
    root.write_text("not a folder")
    assert keep("gguf", "a", "", words("river")) is None
    assert digest_once("a", "", lambda: "0123") == "0123"
    assert list(cache_entries()) == []

    def full(_part: Path) -> None:
        raise OSError(28, "No space left on device")

    root.unlink()
    assert keep("gguf", "a", "", full) is None
    assert list((root / "gguf").iterdir()) == []


def test_a_cache_folder_that_cannot_be_stops_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FFMEM_CACHE", "x" * 300)
    assert find("gguf", "a") is None
    assert keep("gguf", "a", "", words("river")) is None
    assert digest_once("a", "", lambda: "0123") == "0123"


def test_a_note_that_is_nested_too_deep_is_damage(root: Path) -> None:
    entry = keep("gguf", "a", "", words("river"))
    assert entry is not None
    (entry / "entry.json").write_text("[" * 100_000)
    assert [one.about for one in cache_entries()] == [""]
    assert find("gguf", "a") is None


def test_files_have_another_identity_when_anything_about_them_is_another(tmp_path: Path) -> None:
    one, other = tmp_path / "one", tmp_path / "other"
    for path in (one, other):
        path.write_text("river")
    seen = {file_identity([one]), file_identity([other]), file_identity([one, other])}
    assert file_identity([other, one]) in seen
    os.utime(one, ns=(5, 5))
    seen.add(file_identity([one]))
    other.write_text("rivet")
    seen.add(file_identity([other]))
    assert len(seen) == 5


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A saved toy."""
    toy = load("tiny:gpt2")
    toy.model.save_pretrained(tmp_path / "model")
    assert toy.tokenizer is not None
    toy.tokenizer.save_pretrained(tmp_path / "model")
    return tmp_path / "model"


class Work:
    """Counts weights that are digested and layers that are ranked."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.digests, self.layers = 0, 0
        digest, rank = fingerprint._tensor_digest, value_vectors.rank_in_parts

        def count_digest(model: Any, name: str) -> Any:
            self.digests += 1
            return digest(model, name)

        def count_rank(model: Any, layer: Any, k: int, *lens: Any) -> Any:
            self.layers += 1
            return rank(model, layer, k, *lens)

        monkeypatch.setattr(fingerprint, "_tensor_digest", count_digest)
        monkeypatch.setattr(value_vectors, "rank_in_parts", count_rank)

    def done(self) -> tuple[bool, int]:
        """Whether weights were digested, and how many layers were ranked, since the last look."""
        found = self.digests > 0, self.layers
        self.digests = self.layers = 0
        return found


@pytest.fixture
def work(monkeypatch: pytest.MonkeyPatch) -> Work:
    return Work(monkeypatch)


def scan(model: LanguageModel, out: Path, **changes: object) -> ScanStore:
    corpus = out.parent / "corpus.txt"
    corpus.write_text("\n".join(sentences(40)) + "\n", encoding="utf-8")
    return run_scan(model, plan_for(model, corpus, **changes), out)


def test_a_second_scan_of_a_model_neither_digests_nor_ranks(
    folder: Path, tmp_path: Path, work: Work, root: Path
) -> None:
    scan(load(str(folder)), tmp_path / "one", layers=[2])
    assert work.done() == (True, 1)
    scan(load(str(folder)), tmp_path / "two")
    assert work.done() == (False, len(load(str(folder)).layers) - 1)  # one was known
    scan(load(str(folder)), tmp_path / "three")
    assert work.done() == (False, 0)
    same_store(tmp_path / "two", tmp_path / "three")
    entry = next((root / "values").iterdir())
    (entry / "ends.safetensors").write_bytes(b"damaged")
    scan(load(str(folder)), tmp_path / "four")
    assert work.done() == (False, 1)
    same_store(tmp_path / "two", tmp_path / "four")


def test_values_are_ranked_again_when_a_weight_is_another(
    folder: Path, tmp_path: Path, work: Work, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whether the change is in the file, in place, or behind torch's back."""
    monkeypatch.setattr(
        fingerprint, "NUMBERS_PER_PARAMETER", 4
    )  # so that a sample sees few weights
    known = scan(load(str(folder)), tmp_path / "known")
    work.done()
    changed = load(str(folder))
    with torch.no_grad():
        changed.layers[1].values[3] *= -2
    assert fingerprint.weights_digest(changed.model) == known.manifest.key.model["weights"]
    scan(changed, tmp_path / "in place")
    assert work.done() == (True, len(changed.layers))
    hidden = load(str(folder))
    hidden.model.get_output_embeddings().weight.data.neg_()
    scan(hidden, tmp_path / "hidden")
    assert work.done() == (True, len(changed.layers))
    changed.model.save_pretrained(folder)
    scan(load(str(folder)), tmp_path / "file")
    assert work.done() == (True, 0)  # the digest says that these weights are known
    same_values(tmp_path / "file", tmp_path / "in place")
    with pytest.raises(AssertionError):
        same_values(known.folder.root, tmp_path / "file")


def same_values(one: Path, other: Path) -> None:
    assert (one / "values.parquet").read_bytes() == (other / "values.parquet").read_bytes()


def test_the_cached_values_are_those_that_are_ranked(folder: Path) -> None:
    model = load(str(folder))
    first, again = (
        ValueEnds.join([ends for _, ends in rank_once(model, [1, 3], 20)]) for _ in range(2)
    )
    for name, found in vars(again).items():
        assert torch.equal(found, getattr(first, name))


def run(*given: str) -> str:
    done = CliRunner().invoke(ffmem, ["cache", *given])
    assert done.exit_code == 0, done.output
    return done.output


def test_the_commands_list_and_clear(root: Path) -> None:
    assert run("list").startswith("0 KiB in ")
    assert json.loads(run("list", "--json")) == []
    keep("values", "a", "layer 1 of toy", words("river" * 100_000))
    (root / "replies").mkdir()
    (root / "replies" / "0.json").write_text("{}")
    assert run("list").endswith(f"488 KiB in {root}\n")
    assert run("list", "values").endswith(f"488 KiB in {root}\n")
    found = json.loads(run("list", "--json"))
    assert [(one["kind"], one["about"]) for one in found] == [
        ("replies", ""),
        ("values", "layer 1 of toy"),
    ]
    assert "layer 1 of toy" in run("list", "values")
    assert "values" in run("list")
    assert run("clear") == "removed 488 KiB\n"
    assert find("values", "a") is None
    assert [entry.kind for entry in cache_entries()] == ["replies"]  # paid for
    run("clear", "--all")
    assert list(cache_entries()) == []


@pytest.mark.parametrize(
    "given", [["list", "valus"], ["clear", "valus"], ["clear", "gguf", "--all"]]
)
def test_a_wrong_kind_is_refused(given: list[str], root: Path) -> None:
    keep("values", "a", "", words("river"))
    assert CliRunner().invoke(ffmem, ["cache", *given]).exit_code == 2
    assert find("values", "a") is not None


def test_the_cache_lies_where_the_environment_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("FFMEM_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    entry = keep("gguf", "a", "", words("river"))
    assert entry == tmp_path / "xdg" / "ffmem" / "gguf" / "a"
