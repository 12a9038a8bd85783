"""Quick answers against slow obvious ones."""

from __future__ import annotations

import random
import re
import shutil
from collections import Counter
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from threading import Event
from typing import Any

import numpy as np
import pytest

from ffmem.address import Address
from ffmem.store.scan_store import ScanStore
from ffmem.store.search import index as search_index
from ffmem.store.search.index import Arrays, is_current_index, open_index
from ffmem.store.search.lookup import MemoryIndex
from ffmem.store.search.matching_cells import Matches
from ffmem.store.slots import TRIGGERS_SHOWN, single_triggers
from tests.analyses.conftest import gated_store, relu_store  # noqa: F401
from tests.execution.same_answer import every_cell


@pytest.fixture(params=["relu_store", "gated_store"])
def store(request: pytest.FixtureRequest) -> ScanStore:
    found: ScanStore = request.getfixturevalue(request.param)
    return found


def as_counts(lookup: MemoryIndex, found: Matches) -> dict[Address, int]:
    return dict(zip(lookup.store.cells.addresses(found.rows), found.scores.tolist(), strict=True))


def test_two_commands_can_make_the_index_at_once(relu_store: ScanStore, tmp_path: Path) -> None:  # noqa: F811
    """The second begins while the first has made half of it, and waits there."""
    folder = shutil.copytree(relu_store.folder.root, tmp_path / "study")
    shutil.rmtree(folder / "prepared", ignore_errors=True)
    store, begun, ended = ScanStore.open(folder), Event(), Event()

    def wait(_name: str) -> None:
        begun.set()
        assert ended.wait(60)

    def begin(name: str) -> None:
        if name == "the words of triggers":
            others.append(pool.submit(open_index, store, wait))
            assert begun.wait(60)

    others: list[Future[Arrays]] = []
    with ThreadPoolExecutor(1) as pool:
        try:
            first = open_index(store, begin)
        finally:
            ended.set()
        assert first.keys() == others[0].result().keys() >= {"promoted", "word_starts"}
    assert is_current_index(store)


def slow_words(store: ScanStore, wanted: set[str]) -> dict[Address, int]:
    """Count triggers whose prefix holds every word, by reading them all."""
    counts: Counter[Address] = Counter()
    for cell in every_cell(store):
        for trigger in store.triggers(cell)[:TRIGGERS_SHOWN]:
            read, whole = trigger.before + trigger.last, trigger.next + trigger.rest
            words = re.findall(r"[^\W_]+", read.lower())
            if re.match(r"[^\W_]", whole) and re.search(r"[^\W_]$", read):
                words = words[:-1]  # the last word goes on behind the prefix
            counts[cell] += wanted <= set(words)
    return {cell: count for cell, count in counts.items() if count}


@pytest.mark.parametrize("phrase", ["the", "River", "the, river!", "sat near", "nothing", "", "!"])
def test_words_of_triggers_are_counted_as_reading_them_does(store: ScanStore, phrase: str) -> None:
    lookup = MemoryIndex.open(store)
    wanted = set(re.findall(r"\w+", phrase.lower()))
    expected = slow_words(store, wanted) if wanted else {}
    found = lookup.trigger_words.with_words(phrase)
    assert as_counts(lookup, found) == expected
    assert np.all(np.diff(found.scores.astype(int)) <= 0)


def test_a_common_word_is_counted_in_advance_from_two_triggers_on(
    store: ScanStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(search_index, "COMMON", 0)
    monkeypatch.setattr(search_index, "CELLS", 100)  # so that there are several parts
    monkeypatch.setattr("ffmem.store.search.index.is_current_index", lambda _store: False)
    again = MemoryIndex.open(store)
    expected = {cell: n for cell, n in slow_words(store, {"the"}).items() if n > 1}
    assert expected
    assert as_counts(again, again.trigger_words.with_words("the")) == expected
    monkeypatch.undo()
    store.folder.index_note.unlink()


@pytest.mark.parametrize("dtype", [np.uint8, np.uint16, np.float64])
@pytest.mark.parametrize("most", [1, 7, 40, 120, 300])
def test_the_first_by_score_are_those_of_all(dtype: Any, most: int) -> None:
    scores = np.random.default_rng(3).integers(0, 6, 250).astype(dtype)  # with many ties
    every = Matches.of(np.arange(250) * 3, scores)
    whole, first = every.by_score(), every.by_score(most)
    order = sorted(range(250), key=lambda place: (-float(scores[place]), place))
    assert whole.rows.tolist() == [3 * place for place in order]
    assert first.rows.tolist() == whole.rows[:most].tolist()
    assert first.scores.tolist() == whole.scores[:most].tolist()
    assert first.total == 250


def test_a_phrase_in_too_many_triggers_says_how_much_was_counted(
    store: ScanStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    lookup = MemoryIndex.open(store)
    assert lookup.trigger_words.with_words("the river").looked_at == 1
    monkeypatch.setattr("ffmem.store.search.trigger_words.MOST_WORD_TRIGGERS", 3)
    assert lookup.trigger_words.with_words("the river").looked_at < 1


def test_arrays_are_made_once_and_again_when_the_scan_differs(
    store: ScanStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    heard: list[str] = []
    MemoryIndex.open(store)
    MemoryIndex.open(store, heard.append)
    assert not heard
    store.folder.index_note.write_text("{}")
    assert not is_current_index(store)
    MemoryIndex.open(store, heard.append)
    assert heard
    assert is_current_index(store)


def test_words_end_at_punctuation_of_any_alphabet_and_at_sentences() -> None:
    text = "“naïve” café—Ünïted don’t x1".encode()
    raw = np.frombuffer(text, dtype=np.uint8)
    starts, ends = search_index.word_spans(raw, np.array([0, len(raw)]))
    found = [text[a:b].decode() for a, b in zip(starts, ends, strict=True)]
    assert found == ["naïve", "café", "Ünïted", "don", "t", "x1"]
    two = np.frombuffer(b"onetwo three", dtype=np.uint8)
    starts, ends = search_index.word_spans(two, np.array([0, 3, 12]))
    assert list(zip(starts.tolist(), ends.tolist(), strict=True)) == [(0, 3), (3, 6), (7, 12)]


def test_a_word_is_cut_into_the_fewest_tokens() -> None:
    lookup = MemoryIndex(None, (" Con", "stant", "in", "ople", "s", "t", "an", "o", "p", "l", "e"))  # type: ignore[arg-type]
    assert lookup.pieces(" Constantinople") == [" Con", "stant", "in", "ople"]
    assert lookup.pieces("zebra") == []


def test_words_of_one_text_are_those_of_the_index() -> None:
    """The rule for characters and the rule for bytes cut any text in the same way."""
    draw = random.Random(1)
    kinds = [(32, 127), (0x80, 0x250), (0x1FE0, 0x20A0), (0x2FE0, 0x3060), (0xD800, 0xD801)]
    for _ in range(500):
        text = "".join(chr(draw.randrange(*draw.choice(kinds))) for _ in range(12))
        raw = np.frombuffer(text.encode("utf-8", "surrogatepass"), dtype=np.uint8)
        spans = zip(*search_index.word_spans(raw, np.array([0, len(raw)])), strict=True)
        expected = [bytes(raw[a:b]).decode("utf-8", "surrogatepass").lower() for a, b in spans]
        assert [word for _, _, word in search_index.word_places(text)] == expected
        for first, end, word in search_index.word_places(text):
            assert text[first:end].lower() == word


def test_single_triggers_are_those_of_their_cells(store: ScanStore) -> None:
    cells = every_cell(store)[::7]
    rows = np.array([store.cells.row(cell) for cell in cells])
    ranks = [place % 7 for place in range(len(cells))]
    pairs = zip(cells, ranks, strict=True)
    expected = [next(iter(store.triggers(c)[rank : rank + 1]), None) for c, rank in pairs]
    assert single_triggers(store, rows, ranks) == expected
    assert None in expected  # six are kept of each, and some cells never fire
