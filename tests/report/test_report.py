"""The report says what the results say, everything escaped, nothing fetched."""

from __future__ import annotations

import json
import re
from collections import defaultdict
from dataclasses import replace
from html.parser import HTMLParser
from typing import Any

import pytest

from ffmem.patterns.record import Pattern
from ffmem.report.build import build
from ffmem.report.comparison import compare, write_comparison
from ffmem.report.examples import annotated_key
from ffmem.report.paper_claims import CLAIMS
from ffmem.report.report_writer import html, render
from ffmem.store.result_files import to_plain
from ffmem.studies.study import Study


class Data(HTMLParser):
    """Every <data> element of a page: where its number is, and what it is."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[tuple[str, str]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag == "data":
            given = dict(attrs)
            self.found.append((given["data-path"] or "", given["value"] or ""))


def at(numbers: Any, path: str) -> Any:
    for step in path.split("/"):
        numbers = numbers[int(step)] if isinstance(numbers, list) else numbers[step]
    return numbers


def test_every_number_of_the_page_is_in_the_numbers(toy_study: Study) -> None:
    page = (toy_study.folder / "report.html").read_text()
    numbers = json.loads((toy_study.folder / "numbers.json").read_text())
    data = Data()
    data.feed(page)
    assert len(data.found) > len(CLAIMS)
    for path, value in data.found:
        expected = at(numbers, path)
        assert value == str("nan" if expected is None else expected), path


def test_the_numbers_are_those_of_the_results(toy_study: Study) -> None:
    numbers = json.loads((toy_study.folder / "numbers.json").read_text())
    for name in toy_study.names:
        assert numbers["results"][name] == to_plain(toy_study.result(name))
    values = toy_study.result("values")
    claim = numbers["claims"]["predictive-values-are-high-up"]["finding"]
    expected = values.predictive.largest.upper / values.predictive.largest.n
    assert claim["number"]["estimate"] == pytest.approx(expected)


def test_every_claim_is_judged_on_plain_and_gated_models(
    toy_study: Study, gated_study: Study
) -> None:
    for study in (toy_study, gated_study):
        verdicts = build(study).verdicts
        assert [verdict.name for verdict in verdicts] == [claim.name for claim in CLAIMS]
        assert sum(verdict.finding is not None for verdict in verdicts) > 15


def test_text_of_the_corpus_is_shown_as_text(toy_study: Study) -> None:
    page = (toy_study.folder / "report.html").read_text()
    body = re.sub(r"<(script|svg).*?</\1>", "", page, flags=re.DOTALL)
    assert "<b>" not in body
    assert not re.search(r'(?:src|href)="(?:https?:)?//', body)


def test_what_is_missing_is_said(toy_study: Study, monkeypatch: pytest.MonkeyPatch) -> None:
    bare = Study(toy_study.store)
    monkeypatch.setattr(Study, "names", ("values",))
    report = build(bare)
    page = html(report)
    assert "Not measured in this study: refinement, last-layer" in page
    words = {verdict.analysis: verdict.word for verdict in report.verdicts}
    assert words["refinement"] == "not measured"
    assert words["values"] != "not measured"


def test_two_studies_stand_side_by_side(toy_study: Study, gated_study: Study, tmp_path) -> None:
    comparison = compare([toy_study, gated_study])
    assert [side.label for side in comparison.sides] == ["tiny:opt", "tiny:llama"]
    assert len(comparison.claims) == len(CLAIMS)
    assert {len(figure.spec["hconcat"]) for figure in comparison.figures} == {2}
    assert {figure.name for figure in comparison.figures} == set(toy_study.charts)
    page = write_comparison([toy_study, gated_study], tmp_path / "both.html").read_text()
    assert "tiny:opt · tiny:llama" in page


def test_studies_of_one_model_are_told_apart_by_folder(toy_study: Study) -> None:
    labels = [side.label for side in compare([toy_study, toy_study]).sides]
    assert labels == ["tiny:opt (opt)"] * 2


def test_table_3_shows_one_key_with_all_its_triggers_and_pattern_numbers(toy_study: Study) -> None:
    result = toy_study.result("patterns")
    key = toy_study.store.cells.in_layer(2, [5])[0]
    triggers = toy_study.store.triggers(key)[:25]
    patterns = (
        Pattern(key, "ends with one", "shallow", (1, 2, 3), "rules"),
        Pattern(key, "about: a, b, c", "semantic", (2, 3, 4, 5), "rules"),
    )
    other = Pattern(
        toy_study.store.cells.in_layer(1, [0])[0], "more", "shallow", (1, 2, 3), "rules"
    )
    found = annotated_key(replace(result, records=(other, *patterns)), toy_study.store)
    assert found is not None
    assert found.key == key
    assert [row.patterns for row in found.triggers[:6]] == [(1,), (1, 2), (1, 2), (2,), (2,), ()]
    assert [row.trigger.next for row in found.triggers] == [one.next for one in triggers]
    assert annotated_key(replace(result, records=()), toy_study.store) is None
    report = replace(build(toy_study), annotated=found)
    for template in ("report.md.j2", "report.html.j2"):
        text = render(template, report=report, pictures=defaultdict(str), script="")
        assert "about: a, b, c" in text
        assert "1, 2" in text
