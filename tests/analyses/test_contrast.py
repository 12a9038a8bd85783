"""Contrasts of corpora: counts equal brute force, planted cells are found, chance gives none."""

from __future__ import annotations

import json
import math
import random
from pathlib import Path

import numpy as np
import pytest

import ffmem
from ffmem.address import Address
from ffmem.analyses.contrast.measure import (
    Contrast,
    ContrastTable,
    PartCounts,
    compare_counts,
    log_odds,
    mirror_of,
    refuse_different,
    top_cells,
)
from ffmem.analyses.contrast.measure import contrast as compare
from ffmem.analyses.contrast.permutations import (
    DEALS,
    STEP,
    compare_parts,
    deal,
    scores_of,
    steps_of,
)
from ffmem.analyses.contrast.text_parts import PARTS, count_firing, read_parts
from ffmem.corpus.sentences import SentenceSettings
from ffmem.corpus.sources import Source
from ffmem.errors import CorpusError, StoreError
from ffmem.execution.plan import ScanPlan
from ffmem.execution.run import run_scan
from ffmem.memories.recording import record
from ffmem.models.language_model import LanguageModel
from ffmem.models.tiny import tiny_model, tiny_tokenizer
from ffmem.models.wrapping import wrap
from ffmem.scan.settings import ScanSettings
from ffmem.store.scan_store import ScanStore, common_thresholds
from tests.analyses.conftest import lines, planted_model
from tests.cli.test_commands import run

LINES = SentenceSettings(splitter="line", max_tokens=60)
Answer = tuple[Contrast, ContrastTable, list[PartCounts]]


def scan(
    model: LanguageModel,
    texts: list[str],
    out: Path,
    cut: SentenceSettings = LINES,
    most: int | None = None,
    **settings: object,
) -> ScanStore:
    path = out.with_suffix(".txt")
    path.write_text("\n".join(texts) + "\n")
    choices = ScanSettings(**{"top": 2, "sample": 2, "signed": model.gated, **settings})  # type: ignore[arg-type]
    return run_scan(model, ScanPlan(Source(str(path)), choices, cut, max_sentences=most), out)


def toy(kind: str) -> LanguageModel:
    return wrap(tiny_model(kind), tiny_tokenizer(), kind)


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


@pytest.fixture(scope="module")
def gated_scans(
    tmp_path_factory: pytest.TempPathFactory,
) -> tuple[list[ScanStore], LanguageModel, list[list[str]]]:
    model, folder = toy("llama"), tmp_path_factory.mktemp("gated")
    texts = [lines(40, 3), [f"{n} + {n} = {2 * n}" for n in range(30)]]
    return [scan(model, part, folder / f"{n}") for n, part in enumerate(texts)], model, texts


def in_layer_3(store: ScanStore, table: ContrastTable, corpus: int) -> set[int]:
    """The planted layer's memories that are specific to a corpus."""
    rows = store.cells.addresses(table.order(corpus))
    return {cell.index for cell in rows if cell.layer == 3}


def test_firing_is_counted_above_one_threshold_as_brute_force_does(
    gated_scans: tuple[list[ScanStore], LanguageModel, list[list[str]]],
) -> None:
    """Every prefix read by itself: counts, means and prefixes are those, in one of two scans' own
    counts too."""
    stores, model, texts = gated_scans
    bars = common_thresholds(stores)
    assert all(bar > 0 for bar in bars.values())
    assert bars == {n: max(one.threshold(n) for one in stores) for n in stores[0].memories}
    for store, own in zip(stores, texts, strict=True):
        counts = count_firing(model, store, read_parts(store, model, 1000), bars, "it")
        fires, sums = np.zeros(store.cells.count), np.zeros(store.cells.count)
        prefixes = 0
        for text in own:
            found = record(model, text, "m")
            read = slice(found.lead, found.layers[0].m.shape[1] - 1)  # all but the whole sentence
            for layer in found:
                m = layer.m[0, read].double().numpy()
                start = store.cells.rows_of(layer.layer.number).start
                for sign, first in ((1, start), (-1, start + m.shape[1])):
                    above = sign * m > bars[layer.layer.number]
                    fires[first : first + m.shape[1]] += above.sum(axis=0)
                    sums[first : first + m.shape[1]] += (sign * m * above).sum(axis=0)
            prefixes += found.layers[0].m[0, read].shape[0]
        # a coefficient may lie on the bar but for rounding
        assert abs(counts.fires.sum(axis=0) - fires).max() <= 1
        assert (counts.fires.sum(axis=0) == fires).mean() > 0.99
        assert counts.prefixes.sum() == prefixes == store.manifest.counts["prefixes"]
        assert counts.means * fires == pytest.approx(sums, rel=0.01, abs=0.01)
        for layer in store.memories:
            if store.threshold(layer) == bars[layer]:
                rows = store.cells.rows_of(layer)
                near = abs(counts.fires.sum(axis=0)[rows] - store.fire_counts[rows])
                assert near.max() <= 1


def test_counts_above_zero_would_be_something_else(
    gated_scans: tuple[list[ScanStore], LanguageModel, list[list[str]]],
) -> None:
    stores, model, _ = gated_scans
    text = read_parts(stores[0], model, 1000)
    here = count_firing(model, stores[0], text, common_thresholds(stores), "it")
    zero = count_firing(model, stores[0], text, dict.fromkeys(stores[0].memories, 0.0), "it")
    assert here.rate.mean() < 0.8 * zero.rate.mean()


def test_a_memory_of_one_corpus_alone_is_found(
    both: tuple[ScanStore, ScanStore, LanguageModel],
) -> None:
    """Memory 0 of layer 3 is fired by r, which only a has, 1 by s of b, 2 and 4 by l and m."""
    one, other, model = both
    found, table, _ = compare([one, other], model, ["a", "b"])
    assert (in_layer_3(one, table, 0), in_layer_3(one, table, 1)) == ({0}, {1})
    (cell,) = [cell for cell in found.top["a"] if cell.address.layer == 3]
    assert cell.address == Address(3, 0)
    assert cell.low > 1
    assert f"{cell.entropy:.2f}" == "0.00"
    assert cell.rates[1] == 0 < cell.rates[0]
    assert cell.trigger is not None
    assert cell.trigger.last == "r"
    assert cell.promotes[0] == "i"  # what the planted value promises
    assert sum(layer.specific[0] for layer in found.layers) == found.specific[0]
    (chance,) = found.permutations
    assert chance.bound <= 0.05 * chance.passing
    assert chance.with_any <= 0.1 * chance.deals


@pytest.mark.parametrize("kind", ["opt", "llama"])
def test_of_20_random_halves_of_one_text_at_most_2_have_any_specific_cell(
    kind: str, tmp_path: Path
) -> None:
    """Lines of one text in two sets at random, 20 times; the counts of each line are read once."""
    model, draw = toy(kind), np.random.default_rng(1)
    store = scan(model, lines(60, 3), tmp_path / kind)
    bars = common_thresholds([store])
    counts = count_firing(model, store, read_parts(store, model, 1000), bars, "whole")
    assert len(counts.prefixes) == 60
    some = 0
    for _ in range(20):
        order = draw.permutation(60)
        halves = [
            PartCounts(
                name, counts.fires[rows], counts.prefixes[rows], counts.means, len(rows), True
            )
            for name, rows in (("one", order[:30]), ("other", order[30:]))
        ]
        table, (chance,) = compare_counts(halves, 0.05)
        some += bool(table.calls.any())
        assert chance.with_any <= 0.1 * DEALS
    assert some <= 2


def test_text_that_comes_in_runs_is_not_taken_for_a_difference(tmp_path: Path) -> None:
    """Both corpora go through topics in runs of 8 lines: parts of 8 lines give no specific cell,
    while single lines, taken as independent, would give many."""
    model, draw = toy("opt"), random.Random(4)
    words = ["river", "stone", "light", "winter", "market", "garden", "engine", "harbour"]

    def runs() -> list[str]:
        return [
            " ".join([word] * draw.randint(2, 4))
            for word in draw.choices(words, k=PARTS)
            for _ in range(8)
        ]

    called = []
    for most in (PARTS * 8, 60):
        model_counts = []
        for name in "ab":
            store = scan(model, runs(), tmp_path / f"{name}{most}", most=most)
            text = read_parts(store, model, 1000)
            bars = common_thresholds([store])
            model_counts.append(count_firing(model, store, text, bars, name))
        assert all(len(one.prefixes) == min(most, PARTS) for one in model_counts)
        called.append(int(compare_counts(model_counts, 0.05)[0].calls[0].sum()))
    assert called[0] == 0 < called[1]


def test_scores_equal_plain_formulas() -> None:
    draw = np.random.default_rng(0)
    fires, prefixes = draw.integers(0, 9, (12, 5)).astype(float), draw.integers(9, 20, 12) * 1.0
    sides = deal(12, 5, 3)
    assert (sides[0] == [1] * 5 + [0] * 7).all()
    assert (sides.sum(axis=1) == 5).all()
    assert len({tuple(side) for side in sides.tolist()}) > 150
    found = scores_of(fires, prefixes, sides)
    for which in (0, 1, 77):
        for cell in range(5):
            rates, squares = [], []
            for side in (1, 0):
                rows = [part for part in range(12) if sides[which, part] == side]
                read = sum(prefixes[part] for part in rows)
                rate = sum(fires[part, cell] for part in rows) / read
                rest = sum((fires[part, cell] - rate * prefixes[part]) ** 2 for part in rows)
                rates.append(rate)
                squares.append((rest * len(rows) / (len(rows) - 1) + 0.25) / read**2)
            expected = (rates[0] - rates[1]) / math.sqrt(sum(squares))
            assert found[which, cell] == pytest.approx(expected)


def test_log_odds_equal_plain_formulas() -> None:
    fires, prefixes = np.array([[30.0], [10.0], [5.0]]), np.array([100.0, 200.0, 100.0])
    other = np.array([[1.0], [2.0]]), np.array([50.0, 50.0])
    ratio, error = log_odds((fires, prefixes), other)
    assert ratio[0] == pytest.approx(math.log(45.5 / 355.5) - math.log(3.5 / 97.5))
    rest = sum((f - n * 45 / 400) ** 2 for f, n in zip(fires[:, 0], prefixes, strict=True))
    by_part = rest * 3 / 2 * (400 / (45.5 * 355.5)) ** 2
    plain = 1 / 3.5 + 1 / 97.5  # more than these two parts vary
    assert error[0] == pytest.approx(math.sqrt(by_part + plain))


def test_the_bar_is_the_lowest_that_the_deals_allow() -> None:
    """By counting one by one; cells with a planted difference pass, and few others."""
    draw = np.random.default_rng(5)
    one, other = draw.poisson(5, (20, 300)) * 1.0, draw.poisson(5, (20, 300)) * 1.0
    one[:, :40] += draw.poisson(6, (20, 40))
    prefixes = np.full(20, 100.0)
    scores, passing = compare_parts((one, prefixes), (other, prefixes))
    bar = passing.bar(0.05)
    assert bar is not None
    every = scores_of(np.concatenate([one, other]), np.full(40, 100.0), deal(40, 20, 0))
    assert scores == pytest.approx(every[0])

    def held(step: int) -> bool:
        reach = [int((steps_of(row) >= step).sum()) for row in every]
        bound = sorted(reach[1:])[math.ceil(0.95 * 201) - 1]
        return reach[0] > 0 and bound <= 0.05 * reach[0]

    assert held(bar)
    assert not any(held(step) for step in range(bar))
    called = abs(scores) >= bar * STEP
    assert called[:40].all()
    assert called[40:].sum() <= 4
    assert ((passing.least_level(scores) <= 0.05) == called).all()


def test_two_signs_that_mirror_each_other_are_one_row(
    gated_scans: tuple[list[ScanStore], LanguageModel, list[list[str]]],
) -> None:
    """L1.0+ is specific to one corpus and L1.0- to the other; both signs of L1.1 to one."""
    stores, model, _ = gated_scans
    _, made, counts = compare(stores, model, ["words", "sums"])
    cells = stores[0].cells
    ratio, calls = np.zeros_like(made.log_odds), np.zeros_like(made.calls)
    odds = {Address(1, 0, "+"): 3.0, Address(1, 0, "-"): -2.0, Address(1, 1, "+"): 1.0}
    odds[Address(1, 1, "-")] = 1.5
    for cell, one in odds.items():
        row = cells.row(cell)
        ratio[:, row], calls[:, row] = (one, -one), True
    error = np.full_like(ratio, 0.1)
    table = ContrastTable(ratio, error, made.adjusted, calls, made.entropy)
    first, second = top_cells(stores, counts, table)
    assert [str(cell.address) for cell in first] == ["L1.0+", "L1.1-", "L1.1+"]
    assert [(str(cell.mirror), cell.mirror_corpus) for cell in first[:1]] == [("L1.0-", "sums")]
    assert first[1].mirror is None
    assert not second
    mirror = mirror_of(stores[1], table, 1, cells.row(Address(1, 0, "-")))
    assert mirror is not None
    assert (mirror.corpus, cells.address(mirror.row)) == (0, Address(1, 0, "+"))


def test_the_text_is_read_in_parts_of_documents_or_of_sentences(tmp_path: Path) -> None:
    model = toy("opt")
    every = [f"{text} {number}" for number, text in enumerate(lines(200, 1))]
    many = scan(model, every, tmp_path / "many")
    text = read_parts(many, model, 1000)
    sizes = np.bincount(text.part)
    assert (text.count, text.of_documents, sizes.sum()) == (PARTS, True, 200)
    assert sizes.max() - sizes.min() <= 1
    assert (np.diff(text.part) >= 0).all()
    some = read_parts(many, model, 50)
    assert len(some.sentences) == 50
    places = [every.index(one) for one in some.sentences.texts]
    assert places == sorted(places)
    assert max(places) > 150  # from all of the text, not from its beginning
    few = scan(model, [" ".join(lines(500, 1))], tmp_path / "few", SentenceSettings())
    text = read_parts(few, model, 1000)
    assert (text.count, text.of_documents) == (PARTS, False)
    first = scan(model, lines(200, 1), tmp_path / "first", most=30)
    assert read_parts(first, model, 1000).sentences.texts == lines(200, 1)[:30]
    with pytest.raises(StoreError, match="scan more text"):
        read_parts(scan(model, lines(5, 1), tmp_path / "five"), model, 1000)


def test_other_scans_are_refused_and_other_text_is_compared_with_a_warning(
    both: tuple[ScanStore, ScanStore, LanguageModel],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    one, _, model = both
    foreign = scan(toy("gpt2"), lines(10, 1), tmp_path / "foreign")
    final = scan(model, lines(10, 1), tmp_path / "final", include_final=True)
    for said, stores in {
        "twice": [one, one],
        "different model": [one, foreign],
        "different settings": [one, final],
    }.items():
        with pytest.raises(StoreError, match=said):
            refuse_different(stores)
    gone, new = (scan(model, lines(10, n), tmp_path / f"t{n}") for n in (5, 6))
    (tmp_path / "t5.txt").unlink()
    with pytest.raises(CorpusError, match="check the path"):
        refuse_different([one, gone])
    (tmp_path / "t6.txt").write_text("another text\n" * 10)
    with pytest.raises(StoreError, match="has changed since"):
        refuse_different([one, new])
    memory = ffmem.run_scan(model, lines(10, 7), tmp_path / "memory", splitter="line").store
    with pytest.raises(StoreError, match="lies in no file"):
        refuse_different([one, memory])
    folders = [str(one.folder.root), str(foreign.folder.root)]
    code, _, err = run(capsys, "contrast", *folders)
    assert (code, len(err.strip().splitlines())) == (2, 1)
    for name, words in (("plain", ()), ("clean", ("--wikitext-detok", "--drop-headings"))):
        (tmp_path / f"{name}.txt").write_text("\n".join(lines(20, 2)))
        out = ("-o", str(tmp_path / name), "--splitter", "line", "--layers", "1", "-k", "2")
        text = str(tmp_path / f"{name}.txt")
        assert run(capsys, "scan", "tiny:opt", text, *out, *words)[0] == 0
    both_folders = (str(tmp_path / "plain"), str(tmp_path / "clean"))
    code, out, err = run(capsys, "contrast", *both_folders, "--json")
    assert code == 0, err
    warnings = json.loads(out)["warnings"]
    assert len(warnings) == 2
    assert "drop_headings: plain False, clean True" in warnings[0]
    assert all(warning in " ".join(err.split()) for warning in warnings)


def test_three_corpora_are_each_compared_with_the_rest(
    both: tuple[ScanStore, ScanStore, LanguageModel], tmp_path: Path
) -> None:
    one, other, model = both
    draw = random.Random(9)
    texts = ["".join(draw.choices("wxyzlm", k=12)) for _ in range(120)]
    third = scan(model, texts, tmp_path / "c")
    found, table, _ = compare([one, other, third], model, ["a", "b", "c"])
    assert [in_layer_3(one, table, corpus) for corpus in range(3)] == [{0}, {1}, {3}]
    assert len(found.permutations) == 3


def test_the_command_writes_a_set_that_effect_takes(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, text in (("a", "the river runs to the sea"), ("b", "1 2 3 4 5 6 7 8 9")):
        (tmp_path / f"{name}.txt").write_text("\n".join(f"{text} {n}" for n in range(40)))
        words = ("-o", str(tmp_path / name), "--splitter", "line", "--sample", "0", "-k", "2")
        assert run(capsys, "scan", "tiny:llama", str(tmp_path / f"{name}.txt"), *words)[0] == 0
    folders = (str(tmp_path / "a"), str(tmp_path / "b"))
    chosen = tmp_path / "set.txt"
    words = ("--save", str(chosen), "-o", str(tmp_path / "out"), "--top", "5", "--json")
    code, out, err = run(capsys, "contrast", *folders, *words)
    assert code == 0, err
    found = json.loads(out)
    cells = chosen.read_text().splitlines()[1:]
    listed = {cell["address"] for cell in found["top"]["a"]}
    mirrored = {cell["mirror"] for cell in found["top"]["b"]}
    assert len(cells) == 5
    assert set(cells) <= listed | mirrored
    assert (tmp_path / "out" / "analyses" / "contrast.parquet").exists()
    assert (tmp_path / "out" / "figures" / "contrast.svg").exists()
    words = ("--set", f"@{chosen}=0", "--max-sentences", "2", "--random", "1", "--json")
    code, out, err = run(capsys, "effect", "tiny:llama", str(tmp_path / "b.txt"), *words)
    assert code == 0, err
    text = json.loads(out)["text"]
    assert (text["memories"], len(text["random"])) == (5, 1)
    monkeypatch.setenv("COLUMNS", "80")
    code, out, _ = run(capsys, "contrast", *folders)
    assert code == 0
    assert "specific to a" in out
    assert "trigger:" in out
    assert "random deals of the documents" in " ".join(out.split())
    assert max(map(len, out.splitlines())) <= 80
