from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace

import pytest

from ffmem.address import Address
from ffmem.analyses.inputs import blind_readings as shipped
from ffmem.analyses.inputs.blind_readings import (
    READER,
    SECOND,
    ReadPattern,
    ReadSheet,
    read_cases,
    read_sheets,
    reader_name,
)
from ffmem.analyses.patterns import readings
from ffmem.analyses.patterns.by_memory import StudyPatterns, study_patterns
from ffmem.analyses.patterns.charts import readings_chart
from ffmem.analyses.patterns.measure import blind_readings
from ffmem.analyses.patterns.prefixes import Prefix, random_prefixes
from ffmem.analyses.patterns.record import Pattern
from ffmem.analyses.patterns.rule_annotator import RuleAnnotator
from ffmem.analyses.patterns.surface_patterns import Background
from ffmem.analyses.result_files import ResultFile, write_result
from ffmem.annotations.memory_notes import memory_notes
from ffmem.annotations.sheets import Sheet, draw_sheets
from ffmem.models.language_model import LanguageModel
from ffmem.store.people.annotators import is_language_model, is_person
from ffmem.store.scan_store import ScanStore
from tests.analyses.conftest import scanned_lines
from tests.analyses.planted import filler


@pytest.fixture(scope="module")
def store(relu: LanguageModel, tmp_path_factory: pytest.TempPathFactory) -> ScanStore:
    draw = random.Random(0)
    lines = [" ".join(filler(draw))[:55] for _ in range(120)]
    return scanned_lines(relu, tmp_path_factory.mktemp("read") / "scan", lines, top=25, sample=32)


def as_read(sheet: Sheet, model: shipped.Source = "demo") -> ReadSheet:
    """A sheet in which the reader saw one shallow pattern, in the first three prefixes."""
    first = (ReadPattern("begins the sheet", "shallow", (1, 2, 3)),)
    return ReadSheet(
        model=model,
        layer=sheet.layer,
        key=sheet.key,
        control=sheet.control,
        prefixes=tuple(shown.before + shown.last for shown in sheet.prefixes),
        answers={READER: first if sheet.key else (), SECOND: first},
    )


@pytest.fixture
def sheets(store: ScanStore, monkeypatch: pytest.MonkeyPatch) -> list[ReadSheet]:
    """All sheets of the scan; the first key's lines are turned round, the second's one altered."""
    found = [as_read(sheet) for sheet in draw_sheets(store, keys=2, controls=1)]
    keys = [at for at, sheet in enumerate(found) if sheet.key]
    turned, altered = (found[at] for at in keys[:2])
    found[keys[0]] = replace(turned, prefixes=turned.prefixes[::-1])
    found[keys[1]] = replace(altered, prefixes=(*altered.prefixes[:-1], "of another text"))
    permuted = [replace(found[at], model="permuted") for at in keys]
    every = tuple(found + permuted)
    monkeypatch.setattr(readings, "read_sheets", lambda: every)
    return found


def annotator(store: ScanStore) -> RuleAnnotator:
    return RuleAnnotator(Background.of(random_prefixes(store, 500, 0)))


def test_sheets_are_found_by_their_prefixes_in_any_order_and_others_count_nowhere(
    store: ScanStore, sheets: list[ReadSheet]
) -> None:
    found = blind_readings(store, annotator(store))
    assert found is not None
    keys = [sheet for sheet in sheets if sheet.key]
    assert (found.sheets, found.found) == (len(sheets), len(sheets) - 1)
    assert found.summary.overall.keys == found.rule.overall.keys == len(keys) - 1
    assert found.permuted.overall.keys == len(keys)
    assert {str(one.key) for one in found.records} == {
        str(sheet.key) for sheet in keys if sheet is not keys[1]
    }
    for one in found.records:  # of the sheet that was turned round too
        triggers = [shown.before + shown.last for shown in store.triggers(one.key)]
        (sheet,) = [each for each in keys if each.key == str(one.key)]
        assert sorted(triggers[rank - 1] for rank in one.ranks) == sorted(sheet.prefixes[:3])
    assert len({one.ranks for one in found.records}) > 1
    assert {one.kind: one.false_patterns.n for one in found.controls} == {"random": 3, "matched": 3}
    second, rule = found.agreement
    assert (second.kappa, second.one) == (1.0, reader_name(READER))
    assert rule.prefixes == found.summary.overall.triggers
    chart = readings_chart(found).to_dict()
    assert "not by people" in " ".join(chart["title"]["subtitle"])


def test_a_memory_s_patterns_are_its_reader_s_too_and_say_so(
    store: ScanStore, sheets: list[ReadSheet]
) -> None:
    found = blind_readings(store, annotator(store))
    assert found is not None
    read = found.records[0]
    rule = replace(read, description="ends with ‘in’", ranks=(1, 2, 3, 4), annotator="rules")
    result = {"records": [rule], "readings": {"records": found.records}}
    path = store.folder.result("patterns")
    write_result(path, ResultFile("patterns", {}, 0.0, result))
    try:
        patterns = study_patterns(store.folder)
        assert patterns.by_address.keys() == {str(one.key) for one in found.records}
        assert patterns.of(str(read.key)) == (rule, read)
        assert patterns.foremost(str(read.key)) == (read,)
        (notes,) = memory_notes(store, [Address.parse(str(read.key))]).values()
        assert notes.patterns == ("begins the sheet (language model)",)
    finally:
        path.unlink()


def test_people_come_before_language_models_and_these_before_the_rule() -> None:
    every = [
        Pattern(Address(1, 2), "a word", "shallow", (1, 2, 3), name)
        for name in ("rules", "llm:some", reader_name(READER), "ann")
    ]
    rule, *models, person = every
    for names, expected in ((every, [person]), ([rule, *models], models), ([rule], [rule])):
        known = StudyPatterns({"L1.2": tuple(names)})
        assert known.foremost("L1.2") == tuple(expected)
    assert [one.text == one.description for one in every] == [True, False, False, True]


def test_another_scan_has_no_readings(store: ScanStore) -> None:
    """Of the sheets that come with ffmem; a key of the same name is not enough."""
    assert blind_readings(store, annotator(store)) is None


def test_the_shipped_readings_are_whole_and_no_person_s() -> None:
    every = read_sheets()
    count = {
        (model, control): sum(one.model == model and one.control == control for one in every)
        for model, control in {(one.model, one.control) for one in every}
    }
    assert count == {
        ("demo", None): 160,
        ("demo", "random"): 16,
        ("demo", "matched"): 16,
        ("permuted", None): 80,
    }
    for sheet in every:
        assert len(readings.sheet_patterns(sheet)) == len(sheet.answers[READER])
    assert len(readings.permuted_keys()) == 80
    cases = read_cases()
    assert [sum(one.control is blind for one in cases) for blind in (False, True)] == [100, 50]
    name = reader_name(READER)
    assert is_language_model(name)
    assert not is_person(name)
    assert name.startswith("language model, read blind")


def test_equal_prefixes_keep_their_places_apart() -> None:
    texts = ("a b", "c d", "a b", "e f")
    pattern = ReadPattern("the second and the repeated one", "shallow", (1, 2, 3))
    sheet = ReadSheet("demo", 1, "L1.5", None, texts, {READER: (pattern,)})

    def prefixes(order: Sequence[str]) -> list[Prefix]:
        return [Prefix.of(text) for text in order]

    (found,) = readings.sheet_patterns(sheet, prefixes(("e f", "a b", "a b", "c d")))
    assert found.ranks == (2, 3, 4)
    assert readings.sheet_patterns(sheet)[0].ranks == (1, 2, 3)
