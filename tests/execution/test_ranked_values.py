"""A scan is whole when its text is read; ranking its values is a stage of its own."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from ffmem.address import Address
from ffmem.analyses.study import Study
from ffmem.cli import main as cli
from ffmem.errors import StoreError
from ffmem.execution import ranked_values
from ffmem.execution.run import run_scan
from ffmem.memories import value_vectors
from ffmem.memories.value_vectors import ValueEnds
from ffmem.models.feedforward import FeedForward
from ffmem.models.language_model import LanguageModel
from ffmem.store.memory_page import memory_page
from ffmem.store.parquet_tables import read_column
from ffmem.store.scan_store import ScanStore
from ffmem.store.search.lookup import MemoryIndex
from tests.execution.small_scans import plan_for, same_store

KILLED = """
import os, signal, sys
from ffmem.cli import main
from ffmem.memories import value_vectors

def die(*_):
    os.kill(os.getpid(), signal.SIGKILL)

value_vectors.keep_ends = die
main.run(sys.argv[1:])
"""


@pytest.fixture
def unranked(relu: LanguageModel, corpus: Path, tmp_path: Path) -> ScanStore:
    return run_scan(relu, plan_for(relu, corpus, values=False), tmp_path / "unranked")


def test_a_scan_is_read_without_its_ranking(unranked: ScanStore) -> None:
    index = MemoryIndex.open(unranked)
    page = memory_page(index, Address(1, 0))
    assert page.triggers
    assert (page.promoted, page.suppressed, page.probability) == ((), (), None)
    assert len(index.trigger_words.with_words("river").rows)
    index.warm()
    table = Study(unranked).memories()
    assert not table["top_tokens"].map(len).any()
    assert table["fires"].any()


def test_what_needs_the_ranking_says_which_command_makes_it(unranked: ScanStore) -> None:
    for index in (MemoryIndex.at_once(unranked), MemoryIndex.open(unranked)):
        with pytest.raises(StoreError, match="not ranked; run .* without --no-values"):
            index.promoters(3)
        with pytest.raises(StoreError, match="not ranked"):
            index.statistic("probability")


def test_the_same_call_ranks_what_another_left(
    relu: LanguageModel, corpus: Path, unranked: ScanStore, tmp_path: Path
) -> None:
    """And reads no text for it; the search arrays are made again."""
    MemoryIndex.open(unranked)
    plan, folder = plan_for(relu, corpus), unranked.folder.root
    whole = run_scan(relu, plan, tmp_path / "whole")
    found = run_scan(relu, plan, folder, lambda *_: pytest.fail("a batch is read again"))
    for store in (whole, found):
        MemoryIndex.open(store)
    assert found.has_rankings
    same_store_but_index(tmp_path / "whole", folder)
    again = run_scan(relu, plan_for(relu, corpus, values=False), folder)
    assert again.has_rankings  # what is there stays


def same_store_but_index(one: Path, other: Path) -> None:
    for folder in (one, other):
        note = folder / "prepared" / "made.json"  # holds the times of files
        assert json.loads(note.read_text())["values"]
        note.unlink()
    same_store(one, other)


def test_ctrl_c_while_values_are_ranked_keeps_the_scan(
    relu: LanguageModel, corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan, out = plan_for(relu, corpus), tmp_path / "out"
    run_scan(relu, plan, tmp_path / "whole")

    def stop(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(ranked_values, "write_table", stop)
    with pytest.raises(KeyboardInterrupt):
        run_scan(relu, plan, out)
    assert not ScanStore.open(out).has_rankings
    assert memory_page(MemoryIndex.at_once(ScanStore.open(out)), Address(1, 0)).triggers
    monkeypatch.undo()
    run_scan(relu, plan, out, lambda *_: pytest.fail("a batch is read again"))
    same_store(tmp_path / "whole", out)


def test_a_kill_while_values_are_ranked_leaves_a_scan_that_the_same_command_finishes(
    corpus: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["scan", "tiny:opt", str(corpus), "-k", "6", "-o"]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "FFMEM_CACHE": str(tmp_path / "cache")}
    ended = subprocess.run(
        [sys.executable, "-c", KILLED, *words, str(tmp_path / "out")],
        env=environment,
        capture_output=True,
        check=False,
    )
    assert ended.returncode == -signal.SIGKILL, ended.stderr
    assert cli.run(["show", str(tmp_path / "out"), "L1.0"]) == 0
    assert "not ranked" in capsys.readouterr().out
    assert cli.run([*words, str(tmp_path / "out")]) == 0
    assert cli.run([*words, str(tmp_path / "whole")]) == 0
    same_store(tmp_path / "whole", tmp_path / "out")
    assert cli.run(["show", str(tmp_path / "out"), "L1.0"]) == 0
    assert "value promotes" in capsys.readouterr().out


def test_no_values_leaves_the_ranking_out(
    corpus: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = str(tmp_path / "out")
    assert cli.run(["scan", "tiny:llama", str(corpus), "-o", out, "--no-values"]) == 0
    assert not (tmp_path / "out" / "values.parquet").exists()
    assert "without --no-values" in capsys.readouterr().out
    assert cli.run(["show", out, "L1.0", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["probability"] is None


def test_only_wanted_layers_are_run_and_ranked(
    relu: LanguageModel, corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In whatever order they are named; the values of the last one are not even multiplied."""
    monkeypatch.setenv("FFMEM_CACHE", str(tmp_path / "cache"))
    ran, looked_at = set[int](), list[int]()
    rank = value_vectors.rank_in_parts

    def look(model: LanguageModel, layer: FeedForward, k: int) -> Iterator[ValueEnds]:
        looked_at.append(layer.number)
        return rank(model, layer, k)

    monkeypatch.setattr(value_vectors, "rank_in_parts", look)
    handles = [
        layer.value_map.module.register_forward_hook(lambda *_, n=layer.number: ran.add(n))
        for layer in relu.layers
    ]
    store = run_scan(relu, plan_for(relu, corpus, layers=[2, 1]), tmp_path / "out")
    for handle in handles:
        handle.remove()
    assert len(relu.layers) > 2
    assert ran == {1}
    assert looked_at == [1, 2]
    assert sorted(set(read_column(store, "values", "layer").tolist())) == [1, 2]
