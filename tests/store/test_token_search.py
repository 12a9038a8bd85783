"""Searches by token against reading the tables row by row, with an index and without one."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from ffmem.address import Address
from ffmem.analyses.matches import MemorySearch, Question
from ffmem.analyses.search import answer
from ffmem.errors import StoreError
from ffmem.store.digests import file_digest
from ffmem.store.folder import StudyFolder
from ffmem.store.memory_page import evidence
from ffmem.store.scan_store import ScanStore
from ffmem.store.search.index import is_current_index
from ffmem.store.search.lookup import MemoryIndex
from tests.analyses.conftest import gated_store, relu_store  # noqa: F401
from tests.cli.test_commands import run

ENDS = ("promoted", "suppressed")
SURE = {"promoted": "probability", "suppressed": "suppressed_probability"}


@pytest.fixture(params=["relu_store", "gated_store"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> ScanStore:
    """A store without an index, with many values that are equally sure, in small row groups."""
    original: ScanStore = request.getfixturevalue(request.param)
    folder = tmp_path / "scan"
    shutil.copytree(original.folder.root, folder, ignore=shutil.ignore_patterns("prepared"))
    table = pq.read_table(folder / "values.parquet")
    for number, name in enumerate(SURE.values()):
        few = np.random.default_rng(number).integers(1, 4, len(table)) / 8
        place = table.column_names.index(name)
        table = table.set_column(place, name, pa.array(few.astype(np.float32)))
    pq.write_table(table, folder / "values.parquet", row_group_size=50)
    digest = {"values.parquet": file_digest(folder / "values.parquet")}
    replace(original.manifest, files=original.manifest.files | digest).write(StudyFolder(folder))
    return ScanStore.open(folder)


@pytest.fixture(params=["index", "tables"])
def lookup(request: pytest.FixtureRequest, store: ScanStore) -> MemoryIndex:
    if request.param == "index":
        MemoryIndex.open(store)
    found = MemoryIndex.at_once(store)
    assert is_current_index(store) == (found.index is not None) == (request.param == "index")
    return found


def values_of(store: ScanStore) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = pq.read_table(store.folder.table("values")).to_pylist()
    return rows


def slow_pushing(store: ScanStore, token: int, end: str) -> list[tuple[Address, int, float]]:
    """Every cell that has a token at an end, with its rank and probability, in order."""
    other = {"promoted": "suppressed", "suppressed": "promoted"}
    signs = {"+": end, "-": other[end]} if store.cells.signed else {"": end}
    found = []
    for row in values_of(store):
        for order, (sign, stored) in enumerate(signs.items()):
            if token in row[stored]:
                rank, sure = row[stored].index(token), row[SURE[stored]]
                cell = Address(row["layer"], row["memory"], sign)  # type: ignore[arg-type]
                key = (rank, -sure, -row["layer"], row["memory"], order)
                found.append((key, cell, rank, sure))
    return [entry[1:] for entry in sorted(found)]


@pytest.mark.parametrize("end", ENDS)
def test_cells_of_every_token_stand_in_the_order_of_rank_and_probability(
    store: ScanStore, lookup: MemoryIndex, end: str
) -> None:
    ties = 0
    for token in range(0, len(lookup.words), 3):
        expected = slow_pushing(store, token, end)
        found = lookup.promoters(token, end)  # type: ignore[arg-type]
        assert lookup.store.cells.addresses(found.rows) == [cell for cell, _, _ in expected]
        assert found.scores.tolist() == [rank for _, rank, _ in expected]
        ties += len(expected) - len({entry[1:] for entry in expected})
        if end == "promoted":
            sure = lookup.statistic("probability")[found.rows].tolist()
            assert sure == [probability for _, _, probability in expected]
    assert ties > 100


@pytest.mark.parametrize("end", ENDS)
def test_the_ends_of_values_are_rows_of_the_table(
    store: ScanStore, lookup: MemoryIndex, end: str
) -> None:
    for row in values_of(store)[::7]:
        for cell in store.cells.resolve(Address(row["layer"], row["memory"])):
            turned = cell.sign == "-"
            stored = ENDS[(end == "suppressed") != turned]
            pushes = lookup.value_tokens(cell, end)  # type: ignore[arg-type]
            assert [push.token for push in pushes] == row[stored]
            assert [push.text for push in pushes] == [lookup.words[one] for one in row[stored]]
            logits = [-x if turned else x for x in row[f"{stored}_logits"]]
            assert [push.logit for push in pushes] == pytest.approx(logits)


def test_cells_whose_triggers_end_in_a_token_are_those_of_the_table(
    store: ScanStore, lookup: MemoryIndex
) -> None:
    table = pq.read_table(store.folder.table("endings")).to_pylist()
    assert table
    for token in {row["token"] for row in table} | {0}:
        rows = [row for row in table if row["token"] == token]
        rows.sort(key=lambda row: (-row["count"], row["layer"], row["cell"]))
        found = lookup.ending_in(token)
        expected = [store.cells.in_layer(row["layer"], [row["cell"]])[0] for row in rows]
        assert lookup.store.cells.addresses(found.rows) == expected
        assert found.scores.tolist() == [row["count"] for row in rows]


def test_a_key_found_by_the_end_of_its_triggers_shows_the_strongest_that_ends_so(
    store: ScanStore, lookup: MemoryIndex
) -> None:
    """Also where its strongest trigger of all ends in something else."""
    kept, others = store.sentences, 0
    table = pq.read_table(store.folder.table("endings"))
    for token in set(table["token"].to_pylist()):
        text, rows = lookup.words[token], lookup.ending_in(token).rows
        if lookup.token_ids(text) != [token]:
            continue
        hits = answer(MemorySearch(lookup), Question("ends", text), 0, len(rows)).hits
        assert [hit.address for hit in hits] == list(map(str, store.cells.addresses(rows)))
        for cell, hit in zip(store.cells.addresses(rows), hits, strict=True):
            triggers = store.triggers(cell)
            last = [kept.token_ids(kept.row(one.sentence))[one.position - 1] for one in triggers]
            first = last.index(token)
            assert hit.score == last.count(token)
            assert hit.evidence == evidence(triggers[first], first + 1)
            others += first > 0
    assert others


def slow_clear(store: ScanStore, lookup: MemoryIndex, token: int) -> list[tuple[str, int]]:
    """Cells with a token among their first five, at half the first logit or more, by what it adds.

    What it adds is at their mean coefficient.
    """
    found = []
    for cell, rank, _ in slow_pushing(store, token, "promoted"):
        pushes, page = lookup.value_tokens(cell), store.cells.row(cell)
        if rank < 5 and abs(pushes[rank].logit) >= abs(pushes[0].logit) / 2:
            adds = abs(pushes[rank].logit) * float(lookup.statistic("mean")[page])
            found.append((-adds, str(cell), rank))
    return [(address, rank) for _, address, rank in sorted(found, key=lambda one: one[0])]


def test_only_memories_in_which_a_token_is_clear_are_listed_the_strongest_first(
    store: ScanStore, lookup: MemoryIndex
) -> None:
    study, some = MemorySearch(lookup), 0
    for token, text in list(enumerate(lookup.words))[::4]:
        if lookup.token_ids(text) != [token]:
            continue
        found = answer(study, Question("promotes", text, clear=True), 0, 500)
        clear = slow_clear(store, lookup, token)
        assert [(hit.address, hit.score) for hit in found.hits] == clear, text
        every = answer(study, Question("ends", text), 0, 500).hits
        clear_keys = [hit for hit in every if (hit.score or 0) >= 3]
        assert list(answer(study, Question("ends", text, clear=True), 0, 500).hits) == clear_keys
        some += 0 < len(clear) < len(slow_pushing(store, token, "promoted"))
    assert some


def test_the_command_prints_that_order_and_writes_nothing(
    capsys: pytest.CaptureFixture[str], store: ScanStore, lookup: MemoryIndex
) -> None:
    folder = str(store.folder.root)
    files = sorted(store.folder.root.rglob("*"))
    token = next(
        push for push in lookup.value_tokens(lookup.store.cells.address(0)) if push.text.isalpha()
    )
    words = ("search", folder, "--token", token.text, "-n", "9")
    code, out, _ = run(capsys, *words, "--json")
    assert code == 0
    found = json.loads(out)
    assert list(found) == ["promotes", "ends"]
    promotes = found["promotes"]
    hits, clear = promotes["hits"], slow_clear(store, lookup, token.token)
    assert promotes["question"]["clear"] == bool(clear)
    assert promotes["total"] == len(clear)
    assert [(hit["address"], hit["score"]) for hit in hits] == clear[:9]
    code, out, _ = run(capsys, *words)
    assert f"clearly promote {token.text}, those that add most to it first" in out.splitlines()[0]
    code, out, _ = run(
        capsys, "show", folder, str(last := store.cells.resolve(Address(2, 7))[-1]), "--json"
    )
    pushes = [push["token"] for push in json.loads(out)["promoted"]]
    assert pushes == [push.token for push in lookup.value_tokens(last)]
    assert sorted(store.folder.root.rglob("*")) == files


def test_a_text_that_is_no_token_is_one_sentence(
    capsys: pytest.CaptureFixture[str], store: ScanStore
) -> None:
    code, _, err = run(capsys, "search", str(store.folder.root), "--token", "Constantinople")
    assert code == 2
    assert "'Constantinople' is not one token of this model but" in err


def test_a_word_is_also_looked_for_with_or_without_a_space_in_front(store: ScanStore) -> None:
    lookup = MemoryIndex(store, ("a", " a", " b", " b", "word"))
    assert lookup.token_ids(" word") == [4]  # as in a vocabulary of words
    assert lookup.token_ids("a") == [0, 1]
    assert lookup.token_ids(" a") == [1]
    assert lookup.token_ids("b") == [2, 3]
    assert lookup.token_ids("c") == []


def test_words_of_triggers_are_found_without_an_index_too(store: ScanStore) -> None:
    found = MemoryIndex.at_once(store).trigger_words.with_words("the river")
    expected = MemoryIndex.open(store).trigger_words.with_words("the river")
    assert found.rows.tolist() == expected.rows.tolist() != []


@pytest.mark.parametrize("damage", ["cut", "gone"])
def test_a_damaged_index_is_not_used(store: ScanStore, damage: str) -> None:
    expected = MemoryIndex.open(store).promoters(5).rows.tolist()
    path = store.folder.index_array("promoting_rows")
    if damage == "gone":
        path.unlink()
    else:
        path.write_bytes(path.read_bytes()[:-20])
    for lookup in (MemoryIndex.at_once(store), MemoryIndex.open(store), MemoryIndex.at_once(store)):
        assert lookup.promoters(5).rows.tolist() == expected


@pytest.mark.parametrize("damage", ["cut", "gone"])
@pytest.mark.parametrize("table", ["values", "endings", "vocabulary"])
def test_a_damaged_table_is_one_sentence(store: ScanStore, table: str, damage: str) -> None:
    path = store.folder.table(table)
    if damage == "gone":
        path.unlink()
    else:
        path.write_bytes(path.read_bytes()[:-20])
    with pytest.raises(StoreError, match=rf"{table}.parquet cannot be read .*; copy .* again"):
        ask_everything(store)


def ask_everything(store: ScanStore) -> None:
    lookup = MemoryIndex.at_once(store)
    lookup.value_tokens(lookup.store.cells.address(7))
    lookup.promoters(5)
    lookup.ending_in(5)
