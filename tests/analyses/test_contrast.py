"""Contrasts of corpora: planted cells are found, shuffled corpora give few, formulas are plain."""

from __future__ import annotations

import json
import math
import random
from pathlib import Path

import numpy as np
import pytest
import torch

from ffmem.address import Address
from ffmem.analyses.contrast.measure import (
    ContrastTable,
    benjamini_hochberg,
    compare_counts,
    contrast,
    corpus_counts,
    firing_sentences,
    log_odds,
    same_block_pairs,
    shrink,
    specific_cell,
    two_sided_chance,
)
from ffmem.corpus.sentences import SentenceSettings
from ffmem.corpus.sources import Source
from ffmem.errors import StoreError
from ffmem.execution.run import ScanPlan, run_scan
from ffmem.models.language_model import LanguageModel
from ffmem.models.tiny import tiny_model, tiny_tokenizer
from ffmem.models.wrapping import wrap
from ffmem.scan.hashing import NO_PRIORITY, priorities
from ffmem.scan.settings import ScanSettings
from ffmem.store.scan_store import ScanStore
from tests.analyses.conftest import lines, planted_model
from tests.cli.test_commands import run


def scan(model: LanguageModel, texts: list[str], out: Path, **settings: object) -> ScanStore:
    path = out.with_suffix(".txt")
    path.write_text("\n".join(texts) + "\n")
    choices = ScanSettings(**{"top": 2, "sample": 16, "signed": model.gated, **settings})  # type: ignore[arg-type]
    cut = SentenceSettings(splitter="line", max_tokens=60)
    return run_scan(model, ScanPlan(Source(str(path)), choices, cut), out)


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> tuple[ScanStore, ScanStore, LanguageModel]:
    """Memories of an OPT that fire on one letter each; two corpora share all letters but two."""
    model, _ = planted_model()
    folder = tmp_path_factory.mktemp("both")
    draw = random.Random(0)

    def texts(letters: str) -> list[str]:
        return ["".join(draw.choices(letters, k=12)) for _ in range(120)]

    return (
        scan(model, texts("rxyzlm"), folder / "a"),
        scan(model, texts("sxyzlm"), folder / "b"),
        model,
    )


def in_layer_3(store: ScanStore, table: ContrastTable, corpus: int) -> set[int]:
    """The planted layer's memories that are specific to a corpus."""
    rows = store.cells.addresses(table.order(corpus, 0.05))
    return {cell.index for cell in rows if cell.layer == 3}


def test_a_memory_of_one_corpus_alone_is_found(
    both: tuple[ScanStore, ScanStore, LanguageModel],
) -> None:
    """Memory 0 of layer 3 is fired by r, which only a has, 1 by s of b, 2 and 4 by l and m."""
    one, other, _ = both
    found, table, counts = contrast([one, other])
    assert found.corpora == ("a", "b")
    assert (in_layer_3(one, table, 0), in_layer_3(one, table, 1)) == ({0}, {1})
    row = one.cells.row(Address(3, 0))
    cell = specific_cell(one, counts, table, 0, row)
    assert cell.low > 1
    assert cell.entropy == pytest.approx(0, abs=1e-6)
    assert f"{cell.entropy:.2f}" == "0.00"
    assert cell.rates[1] == 0 < cell.rates[0]
    assert sum(layer.specific[0] for layer in found.layers) == found.specific[0]
    assert {one.address for one in found.top["a"]} & set(one.cells.addresses(table.order(0, 0.05)))


@pytest.mark.parametrize("kind", ["opt", "llama"])
def test_shuffled_corpora_give_no_more_than_the_stated_rate(kind: str, tmp_path: Path) -> None:
    """Splits of one text in two: under 5 % of all cells, and in most splits none at all."""
    model = wrap(tiny_model(kind), tiny_tokenizer(), kind)
    texts, draw = lines(160, 3), random.Random(1)
    found = []
    for number in range(3):
        draw.shuffle(texts)
        parts = (texts[:80], texts[80:])
        stores = [
            scan(model, part, tmp_path / f"{kind}{number}{n}") for n, part in enumerate(parts)
        ]
        result, _, _ = contrast(stores)
        found.append(sum(result.specific))
        assert sum(result.halves) <= 0.05 * result.cells
    assert sum(count > 0 for count in found) <= 1, found
    assert max(found) <= 0.05 * result.cells


def test_text_that_comes_in_runs_is_not_taken_for_a_difference(tmp_path: Path) -> None:
    """Both corpora go through the same topics, in runs: the clusters widen the errors."""
    model = wrap(tiny_model("opt"), tiny_tokenizer(), "opt")
    draw = random.Random(4)
    words = ["river", "stone", "light", "winter", "market", "garden", "engine", "harbour"]

    def runs() -> list[str]:
        return [
            " ".join([word] * draw.randint(2, 4))
            for word in draw.choices(words, k=12)
            for _ in range(8)
        ]

    stores = [scan(model, runs(), tmp_path / name) for name in "ab"]
    counts = [corpus_counts(store) for store in stores]
    wide = compare_counts(counts)
    plain = [type(one)(**{**one.__dict__, "spread": np.ones_like(one.spread)}) for one in counts]
    narrow = compare_counts(plain)
    called = [int((table.adjusted[0] <= 0.05).sum()) for table in (wide, narrow)]
    assert called[0] < 0.35 * called[1]


def test_numbers_equal_plain_formulas() -> None:
    fires, prefixes = np.array([30.0]), np.array([400.0])
    ratio, error = log_odds(
        (fires, prefixes, np.array([2.0])), (np.array([5.0]), prefixes, np.ones(1))
    )
    assert ratio[0] == pytest.approx(math.log(30.5 / 370.5) - math.log(5.5 / 395.5))
    assert error[0] == pytest.approx(math.sqrt(2 / 30.5 + 2 / 370.5 + 1 / 5.5 + 1 / 395.5))
    assert two_sided_chance(np.array([1.959964]))[0] == pytest.approx(0.05, abs=1e-6)
    chances = np.array([0.01, 0.04, 0.03, 0.9])
    assert benjamini_hochberg(chances) == pytest.approx([0.04, 0.16 / 3, 0.16 / 3, 0.9])


def test_pairs_in_a_block_are_counted_one_by_one() -> None:
    draw = np.random.default_rng(0)
    mask = draw.random((20, 9)) < 0.7
    blocks = draw.integers(0, 4, int(mask.sum()))
    same, pairs = same_block_pairs(mask, blocks)
    start = 0
    for row in range(20):
        own = blocks[start : start + mask[row].sum()]
        start += len(own)
        expected = sum(own[i] == own[j] for i in range(len(own)) for j in range(i))
        assert (same[row], pairs[row]) == (expected, len(own) * (len(own) - 1) / 2)


def test_the_sentences_behind_a_full_sample_are_estimated() -> None:
    """From the 32 smallest hashes of 1,000 sentences: right within the error of such a count."""
    found = []
    for seed in range(30):
        numbers = torch.arange(1000)
        hashes = priorities(numbers, seed)
        kept = numbers[hashes.argsort()[:32]].numpy().astype(np.uint32)
        mask = np.ones((1, 32), bool)
        found.append(float(firing_sentences(np.array([5000.0]), mask, kept, seed)[0]))
    assert np.mean(found) == pytest.approx(1000, rel=0.1)
    few = np.zeros((1, 32), bool)
    few[0, :5] = True
    assert firing_sentences(np.array([9.0]), few, np.arange(5, dtype=np.uint32), 0)[0] == 5
    assert int(priorities(torch.tensor([3]), 0)) < NO_PRIORITY


def test_clusters_are_seen_and_chance_is_not() -> None:
    pairs = np.full(400, 100.0)
    draw = np.random.default_rng(0)
    chance = draw.binomial(100, 0.02, 400).astype(float)
    assert shrink(chance, pairs, 0.02, np.arange(400.0)).mean() < 0.01
    clusters = draw.binomial(100, 0.3, 400).astype(float)
    assert shrink(clusters, pairs, 0.02, np.arange(400.0)).mean() == pytest.approx(0.28, abs=0.05)


def test_scans_that_cannot_be_compared_are_refused(
    both: tuple[ScanStore, ScanStore, LanguageModel],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    one, _, model_of_both = both
    model = wrap(tiny_model("gpt2"), tiny_tokenizer(), "gpt2")
    foreign = scan(model, lines(10, 1), tmp_path / "foreign")
    every = scan(model_of_both, lines(10, 1), tmp_path / "every", per_sentence="all")
    cases = {
        "twice": [one, one],
        "different model": [one, foreign],
        "different settings": [one, every],
        "two scans or more": [one],
    }
    for said, stores in cases.items():
        with pytest.raises(StoreError, match=said):
            contrast(stores)
    folders = [str(one.folder.root), str(foreign.folder.root)]
    code, _, err = run(capsys, "contrast", *folders)
    assert (code, len(err.strip().splitlines())) == (2, 1)


def test_three_corpora_are_each_compared_with_the_rest(
    both: tuple[ScanStore, ScanStore, LanguageModel], tmp_path: Path
) -> None:
    one, other, model_of_both = both
    draw = random.Random(9)
    texts = ["".join(draw.choices("wxyzlm", k=12)) for _ in range(120)]
    third = scan(model_of_both, texts, tmp_path / "c")
    _, table, _ = contrast([one, other, third])
    assert [in_layer_3(one, table, corpus) for corpus in range(3)] == [{0}, {1}, {3}]


def test_the_command_writes_a_set_that_effect_takes(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, text in (("a", "the river runs to the sea"), ("b", "1 2 3 4 5 6 7 8 9")):
        (tmp_path / f"{name}.txt").write_text("\n".join(f"{text} {n}" for n in range(40)))
        words = ("-o", str(tmp_path / name), "--splitter", "line", "--sample", "16", "-k", "2")
        assert run(capsys, "scan", "tiny:llama", str(tmp_path / f"{name}.txt"), *words)[0] == 0
    folders = (str(tmp_path / "a"), str(tmp_path / "b"))
    chosen = tmp_path / "set.txt"
    words = ("--save", str(chosen), "-o", str(tmp_path / "out"), "--top", "5", "--json")
    code, out, err = run(capsys, "contrast", *folders, *words)
    assert code == 0, err
    cells = [cell["address"] for cell in json.loads(out)["top"]["a"]]
    assert chosen.read_text().splitlines()[1:] == cells[:5]
    assert (tmp_path / "out" / "analyses" / "contrast.parquet").exists()
    assert (tmp_path / "out" / "figures" / "contrast.svg").exists()
    words = ("--set", f"@{chosen}=0", "--max-sentences", "2", "--random", "1", "--json")
    code, out, err = run(capsys, "effect", "tiny:llama", str(tmp_path / "b.txt"), *words)
    assert code == 0, err
    found = json.loads(out)["text"]
    assert (found["memories"], len(found["random"])) == (5, 1)
    monkeypatch.setenv("COLUMNS", "80")
    code, out, _ = run(capsys, "contrast", *folders)
    assert code == 0
    assert "specific to a" in out
    assert max(map(len, out.splitlines())) <= 80
