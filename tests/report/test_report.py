"""The report says what the results say, everything escaped, nothing fetched."""

from __future__ import annotations

import html as html_escapes
import json
import re
import shutil
from collections.abc import Iterator
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from urllib.parse import urljoin

import pytest
from altair.utils.schemapi import SchemaBase, SchemaValidationError

from ffmem.analyses.catalogue import (
    ANALYSES,
    CLAIMS,
    PREFIX_ANALYSES,
    judge,
    results_with_judgements,
)
from ffmem.analyses.claim import Finding, interval_text
from ffmem.analyses.inputs.blind_readings import READER, reader_name
from ffmem.analyses.last_layer.record import BlindCases, JudgesCases
from ffmem.analyses.open_claims.need import WAYS
from ffmem.analyses.patterns.record import (
    BlindReadings,
    JudgesPatterns,
    PairAgreement,
    Pattern,
)
from ffmem.analyses.result_files import ResultFile, write_result
from ffmem.analyses.statistics import wilson
from ffmem.analyses.study import Study, charts_of, open_study
from ffmem.cli.main import main
from ffmem.errors import StoreError
from ffmem.figures import style
from ffmem.figures.saving import rows_of
from ffmem.records import to_plain
from ffmem.report import examples
from ffmem.report.about import references
from ffmem.report.build import Report, build, chapters, html
from ffmem.report.comparison import compare, shared_charts, summarise, write_comparison
from ffmem.report.examples import annotated_key, key_rows, whole_words
from ffmem.report.rendering import script_source
from ffmem.workflows import control_analyses


@pytest.fixture(scope="module")
def report(toy_study: Study) -> Report:
    return build(toy_study)


def pages_of(study: Study) -> dict[str, str]:
    """The first page and the chapters, by their place in the study's folder."""
    folder = study.folder
    files = [folder / "report.html", *sorted((folder / "report").glob("*.html"))]
    return {str(file.relative_to(folder)): file.read_text() for file in files}


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
    numbers = json.loads((toy_study.folder / "numbers.json").read_text())
    found = []
    for page in pages_of(toy_study).values():
        data = Data()
        data.feed(page)
        found += data.found
    assert len(found) > len(CLAIMS)
    assert {path.partition("/")[0] for path, _ in found} >= {"claims", "questions", "left_out"}
    for path, value in found:
        expected = at(numbers, path)
        assert value == str("nan" if expected is None else expected), path


def test_the_questions_are_the_papers_with_the_numbers_of_their_claims(
    toy_study: Study, report: Report
) -> None:
    numbers = json.loads((toy_study.folder / "numbers.json").read_text())
    text = (toy_study.folder / "report.md").read_text()
    assert 10 <= len(report.rows) <= 15
    for row, written in zip(report.rows, numbers["questions"], strict=True):
        assert row.verdict.source == "paper"
        assert written["verdict"] == row.verdict.name
        assert len(row.by_layer) in (0, len(toy_study.store.memories))
        line = next(line for line in text.splitlines() if line.startswith(f"| {row.asks} |"))
        finding = row.verdict.finding
        assert finding is not None
        assert interval_text(finding.number, row.verdict.unit) in line
        estimates = [control.number.estimate for control in row.controls]
        ends = [estimates[at] for at in row.control_ends]
        assert set(ends) == ({min(estimates), max(estimates)} if estimates else set())
    assert len(text.splitlines()) <= 60


def test_a_control_of_a_question_is_the_claims_own_and_that_of_permuted_weights(
    toy_study: Study, report: Report
) -> None:
    row = next(one for one in report.rows if one.verdict.name == "upper-values-agree")
    finding = row.verdict.finding
    assert finding is not None
    (control,) = toy_study.scanned_controls
    permuted = control.result("values").effects.agreement.strongest_upper
    assert [control.name for control in row.controls] == ["keys shuffled", "permuted weights"]
    assert [control.number for control in row.controls] == [finding.control, permuted]


def test_a_report_says_what_would_decide_what_is_undecided(
    toy_study: Study, report: Report
) -> None:
    page = html_escapes.unescape((toy_study.folder / "report.html").read_text()).replace(
        "\u00a0", " "
    )
    text = (toy_study.folder / "report.md").read_text()
    mine = [v for v in report.verdicts if (v.source, v.word) == ("paper", "undecided")]
    assert len(mine) == sum(map(len, report.open.values())) > 0
    for need, verdicts in report.open.items():
        assert f"- {need}: {', '.join(one.name for one in verdicts)}" in text
        assert f"<strong>{need[0].upper()}{need[1:]}:</strong>" in page
        assert {one.need.text for one in verdicts if one.need} == {need}
    kinds = {one.need.kind for one in report.verdicts if one.need}
    assert kinds & WAYS.keys()
    for kind, way in WAYS.items():  # what more is measured by, and what only a person can give
        assert (f": {way}" in page) == (f": {way}" in text) == (kind in kinds)


def test_a_report_cites_the_paper_and_the_methods_of_its_analyses(report: Report) -> None:
    keys = [re.findall(r"^@\w+\{(\w+),", entry)[0] for entry in report.references]
    assert keys[0] == "geva2021"
    cited = {key for row in ANALYSES.values() for key in row.cites}
    assert cited < set(keys)
    assert not cited & {re.findall(r"^@\w+\{(\w+),", entry)[0] for entry in references(("values",))}


def test_no_line_of_a_page_ends_inside_a_number(toy_study: Study) -> None:
    page = (toy_study.folder / "report.html").read_text()
    words = re.sub("<script.*?</script>|<style.*?</style>|<svg.*?</svg>", "", page, flags=re.S)
    assert re.search("\\d\u00a0\\.\\.\u00a0[-\\d]", words)
    assert re.search("\\d\u00a0%", words)
    assert not re.search(r"\d \.\. ", words)


def test_a_page_names_results_by_short_digests(report: Report) -> None:
    values = [value for note in report.analyses for value in note.made_from.values()]
    assert any(re.fullmatch("[0-9a-f]{12}", str(value)) for value in values)
    assert max(len(str(value)) for value in values) < 20


def test_the_numbers_are_those_of_the_results(toy_study: Study) -> None:
    numbers = json.loads((toy_study.folder / "numbers.json").read_text())
    for name in toy_study.names:
        assert numbers["results"][name] == to_plain(toy_study.result(name))
    values = toy_study.result("values")
    assert numbers["claims"] == {one.name: to_plain(one) for one in judge(toy_study)}
    claim = numbers["claims"]["predictive-values-are-high-up"]["finding"]
    expected = values.predictive.largest.upper / values.predictive.largest.n
    assert claim["number"]["estimate"] == pytest.approx(expected)


def test_every_claim_is_judged_on_plain_and_gated_models(
    report: Report, gated_study: Study
) -> None:
    for verdicts in (report.verdicts, build(gated_study).verdicts):
        assert [verdict.name for verdict in verdicts] == [claim.name for claim in CLAIMS]
        assert sum(verdict.finding is not None for verdict in verdicts) > 15


def test_the_report_begins_with_what_holds_and_says_why_not(
    toy_study: Study, report: Report
) -> None:
    pages = pages_of(toy_study)
    assert f'<p class="lead">{report.headline}.</p>' in pages["report.html"]
    assert report.headline in (toy_study.folder / "report.md").read_text()
    assert "nobody has judged the cases yet" in pages["report/refinement.html"]
    assert "(our own claim, not counted)" in pages["report/values.html"]
    assert "; permuted weights " in pages["report/values.html"]


def verdict_of(report: Report, name: str) -> Finding:
    found = next(one.finding for one in report.verdicts if one.name == name)
    assert found is not None
    return found


def test_language_models_that_read_blind_count_before_the_rule_and_are_called_so(
    toy_study: Study, tmp_path: Path
) -> None:
    """People would count before them; the note is the first thing on the page."""
    study = open_study(shutil.copytree(toy_study.folder, tmp_path / "study"))
    folder, name = study.store.folder, reader_name(READER)
    rule, last = study.result("patterns"), study.result("last-layer")
    drawn = {key for keys in rule.drawn.values() for key in keys}
    records = tuple(replace(one, annotator=name) for one in rule.records if str(one.key) in drawn)
    pair = PairAgreement(name, "rules", 4, 40, 0.5, 0.3)
    mine = replace(rule.summary, annotator=name)
    read = BlindReadings(mine, rule.controls, mine, rule.summary, (pair, pair), 9, 8, records)
    judged = ("related", *(None for _ in last.cases[1:]))
    cases = BlindCases(name, wilson(1, 1), wilson(0, 5), 150, 6, judged, 0.4)
    for file, result in (
        ("patterns", replace(rule, readings=read)),
        ("last-layer", replace(last, readings=cases)),
    ):
        key = study.record(file).made_from
        write_result(folder.result(file), ResultFile(file, key, 0.0, result))
    again = open_study(study.folder)
    found = results_with_judgements(again)
    assert [one.summary.annotator for one in found["patterns"].judges] == [name]
    assert [one.annotator for one in found["last-layer"].judges] == [name]
    verdict = next(one for one in judge(again) if one.name == "several-patterns-a-key")
    assert verdict.finding is not None
    assert f"by {name}; by rule" in verdict.finding.detail
    (control,) = verdict.controls  # of the same reader, not of the rule
    assert control.effect.estimate == verdict.finding.effects[0].found.estimate
    found_now = build(again)
    page, pages = html(found_now), chapters(found_now)
    note = "A language model has read the keys and the last layer’s cases of this study blind"
    assert 0 < page.index(note) < page.index('<ul class="lead">')
    said = "a language model has read keys or cases of this study, and no person"
    assert said in pages["keys"]
    assert pages["keys"].count(f"{name}, not of people") == 2
    assert "not read" in pages["refinement"]
    assert " The last column says" in pages["refinement"]
    assert "6 of the\n150 cases and controls that it read are this study’s" in pages["refinement"]
    (row,) = (one for one in found_now.rows if one.verdict.name == "most-triggers-are-covered")
    assert row.controls[-1].name == "permuted weights"
    assert row.controls[-1].number == verdict_of(found_now, row.verdict.name).number
    assert note not in html(build(toy_study))
    assert pages["keys"].index('id="figure-patterns-read-blind"') < pages["keys"].index(
        'id="figure-patterns"'
    )
    assert "patterns-read-blind" in next(
        one.open_figures for one in found_now.sections if one.name == "keys"
    )


@pytest.mark.usefixtures("few_figures")
def test_a_language_model_of_the_user_s_choice_is_called_one_at_first_sight(
    toy_study: Study, tmp_path: Path
) -> None:
    study = open_study(shutil.copytree(toy_study.folder, tmp_path / "study"))
    folder, rule = study.store.folder, study.result("patterns")
    for name in ("llm:model", "ann"):
        mine = JudgesPatterns(replace(rule.summary, annotator=name), rule.controls)
        file = folder.result("patterns-" + name.replace(":", "-"))
        write_result(file, ResultFile(file.stem, {}, 0.0, mine))
        found = build(open_study(study.folder))
        note = "A language model has read the keys of this study blind, and no person."
        assert found.read_by_models == (note if name == "llm:model" else "")
        assert f"by {name}" in chapters(found)["keys"]
        if name == "llm:model":
            page = html(found)
            assert 0 < page.index(note) < page.index('<ul class="lead">')
            assert "“llm:”, a language model has read keys" in chapters(found)["keys"]
            both = [summarise(one, figures=False) for one in (open_study(study.folder), toy_study)]
            assert [one.about.get("Readings") for one in both] == [note, None]
            page = write_comparison(both, tmp_path / "both.html").read_text(encoding="utf-8")
            assert page.count(note) == 1


def test_what_people_said_is_read_from_the_study(toy_study: Study, tmp_path: Path) -> None:
    study = open_study(shutil.copytree(toy_study.folder, tmp_path / "study"))
    folder, rule = study.store.folder, study.result("patterns")
    for name in ("ann", "llm:model"):
        summary = replace(rule.summary, annotator=name)
        mine = JudgesPatterns(summary, rule.controls)
        file = folder.result("patterns-" + name.replace(":", "-"))
        write_result(file, ResultFile(file.stem, {}, 0.0, mine))
    shares = [
        JudgesCases("rules", wilson(2, 9), wilson(0, 5)),
        JudgesCases("ann", wilson(3, 9), wilson(1, 5)),
    ]
    agreed = {"shares": shares, "pairs": [], "alpha": 0.5}
    write_result(folder.result("case-agreement"), ResultFile("case-agreement", {}, 0.0, agreed))
    results = results_with_judgements(study)
    assert [one.summary.annotator for one in results["patterns"].judges] == ["ann"]
    assert results["patterns"].rule == rule
    assert results["last-layer"].judges == (shares[1],)
    verdict = next(one for one in judge(study) if one.name == "last-changes-are-distant")
    assert verdict.finding is not None
    assert verdict.finding.number == wilson(3, 9)
    assert (
        "by ann, who calls most related, of 1 people (alpha 0.50); by rule"
        in verdict.finding.detail
    )


def test_text_of_the_corpus_is_shown_as_text(toy_study: Study) -> None:
    for page in pages_of(toy_study).values():
        body = re.sub(r"<(script|svg).*?</\1>", "", page, flags=re.DOTALL)
        assert "<b>" not in body
        assert not re.search(r'(?:src|href)="(?:https?:)?//', body)


def test_what_is_missing_is_said(toy_study: Study, monkeypatch: pytest.MonkeyPatch) -> None:
    bare = Study(toy_study.store)
    monkeypatch.setattr(Study, "names", ("values",))
    report = build(bare)
    assert {row.verdict.analysis for row in report.rows} == {"values"}
    assert "Not measured in this study: refinement, last-layer" in chapters(report)["refinement"]
    reasons = {verdict.analysis: verdict.reason for verdict in report.verdicts}
    assert reasons["refinement"] == "not measured"
    assert reasons["values"] != "not measured"


class Links(HTMLParser):
    """Every id of a page, and every place that a link leads to."""

    def __init__(self) -> None:
        super().__init__()
        self.ids: list[str] = []
        self.targets: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        if "id" in given and tag not in ("svg", "g", "path", "clippath"):
            self.ids.append(given["id"] or "")
        if tag == "a":
            self.targets.append(given["href"] or "")


def test_every_claim_leads_to_what_shows_it(toy_study: Study, report: Report) -> None:
    found = {}
    for place, page in pages_of(toy_study).items():
        found[place] = Links()
        found[place].feed(page)
        assert len(found[place].ids) == len(set(found[place].ids))
    followed = {urljoin(at, to) for at, links in found.items() for to in links.targets}
    for address in followed:
        page, _, name = address.partition("#")
        assert page in found, address
        assert not name or name in found[page].ids, address
    places = {verdict.name: report.evidence(verdict) for verdict in report.verdicts}
    for verdict in report.verdicts:
        chapter = f"report/{report.chapter_of(verdict)}.html"
        assert {f"{chapter}#{places[verdict.name]}"} <= followed
    for row in report.rows:
        assert f"report/{row.chapter}.html#claim-{row.verdict.name}" in followed
    assert places["upper-values-agree"] == "figure-values-agreement"
    assert places["last-changes-are-distant"] in ("last-layer", "refinement")
    (ranks,) = (verdict for verdict in report.verdicts if verdict.name == "ranks-improve")
    new = replace(ranks, name="a-claim-that-no-figure-names")
    assert report.evidence(new) == "figure-values-agreement"  # the first of the same analysis


def test_a_chapter_opens_what_is_decided_and_folds_the_rest(
    toy_study: Study, report: Report
) -> None:
    pages = pages_of(toy_study)
    for section in report.sections:
        page = pages[f"report/{section.name}.html"]
        body = re.sub(r"<(script|style|svg).*?</\1>", "", page, flags=re.DOTALL)
        unfolded = re.sub(r"<details.*?</details>", "", body, flags=re.DOTALL)
        for verdict in section.verdicts:
            assert f'id="claim-{verdict.name}"' in body
            is_open = f'id="claim-{verdict.name}"' in unfolded
            assert is_open == (verdict.word in ("holds", "does not hold"))
        for figure in section.figures:
            assert f'id="figure-{figure.name}"' in body
            is_open = f'<figure id="figure-{figure.name}"' in unfolded
            assert is_open == (figure.name in section.open_figures)


MOST_SERIES = 4  # of a figure


def legends(part: Any) -> Iterator[list[str]]:
    """The series of every legend of a chart."""
    inner = part.values() if isinstance(part, dict) else part if isinstance(part, list) else ()
    if isinstance(part, dict) and part.get("legend") and "domain" in part.get("scale", {}):
        yield part["scale"]["domain"]
    for one in inner:
        yield from legends(one)


def test_every_chart_is_as_the_schema_has_it(toy_study: Study, gated_study: Study) -> None:
    """Studies draw their charts without looking at it."""
    for study in (toy_study, gated_study):
        assert len(study.charts) > 20
        for name, chart in study.charts.items():
            assert all(len(names) <= MOST_SERIES for names in legends(chart.to_dict())), name
    wrong = toy_study.chart("values-agreement").copy(deep=False)
    wrong.width = "wide"
    with pytest.raises(SchemaValidationError):
        wrong.to_dict(validate=True)


@pytest.mark.parametrize("kind", ["toy_study", "gated_study"])
def test_figures_show_the_range_of_all_models_without_what_was_learned(
    kind: str, request: pytest.FixtureRequest
) -> None:
    """A few figures show none: they have permuted keys of their own (what was read blind), numbers
    whose size differs from model to model (mass, logits), or no claim that rests on them.
    """
    study: Study = request.getfixturevalue(kind)
    for name in control_analyses(study.names):
        controls = study.controls_of(name)
        shows = {one.name for one in ANALYSES[name].figures() if one.beside is not None}
        assert len(controls) == (6 if name in PREFIX_ANALYSES else 1)
        for figure, chart in study._charts_of(name).items():
            spec = chart.to_dict()
            drawn = {row["control"] for row in rows_of(spec) if "beside" in row}
            assert drawn == ({*range(1, len(controls) + 1)} if figure in shows else set())
            assert ("'field': 'beside'" in str(spec)) == bool(drawn)
            said = " ".join(spec["title"]["subtitle"])
            assert ("weights in random order" in said) == (len(drawn) == 1), figure
            assert ("in 6 models with permuted or random" in said) == (len(drawn) == 6), figure
            alone = charts_of(name, study.result(name))[figure].to_dict()
            assert "'field': 'beside'" not in str(alone)


def test_the_range_is_that_of_the_results_of_controls(toy_study: Study) -> None:
    steps = [one.conventions[0].steps for one in toy_study.controls_of("refinement")]
    shares = sorted(row.settled.estimate for each in steps for row in each if row.layer == 2)
    rows = rows_of(toy_study.chart("refinement-settled").to_dict())
    mine = [row for row in rows if (row["layer"], row["convention"]) == (2, "default")]
    assert sorted(row["beside"] for row in mine if "beside" in row) == shares
    assert {row["series"] for row in mine if "beside" not in row}


def test_charts_are_made_without_a_search_of_the_schema(
    gated_study: Study, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As for `y="low:Q"` in place of a channel."""

    def search(*_given: object, **_names: object) -> None:
        raise AssertionError("a field is not named by a channel")

    monkeypatch.setattr(SchemaBase, "from_dict", search)
    for name in gated_study.names:
        charts_of(name, gated_study.result(name))
    with pytest.raises(AssertionError, match="not named by a channel"):
        style.base([{"low": 1}]).mark_line().encode(y="low:Q")


def test_a_report_opens_with_the_finding_the_questions_a_memory_and_one_figure(
    toy_study: Study, report: Report
) -> None:
    page = (toy_study.folder / "report.html").read_text()
    start = page.index('<ul class="lead">')
    lead = page[start : page.index("</ul>", start)]
    assert len(report.finding) == 3
    for one in report.finding:
        assert f'data-path="claims/{one.verdict.name}/finding/number/estimate"' in lead
    assert "{" not in lead
    order = [page.index(f'id="{part}"') for part in ("questions", "memory", "figure", "cite")]
    assert order == sorted(order)
    assert page.count("data-chart=") == 1
    titles = [figure.title for figure in report.figures.values()]
    assert len(titles) == len(set(titles))


def test_the_memory_that_opens_a_report_is_as_the_store_has_it(
    toy_study: Study, report: Report
) -> None:
    assert report.memory is not None
    page = toy_study.memory(report.memory.address)
    first, shown = page.triggers[0], report.memory.triggers[0]
    assert (shown.last, shown.next) == (first.last, first.next or "end")
    assert first.before.endswith(shown.before.removeprefix("…"))
    assert [one.token for one in report.memory.promoted] == [
        one.text for one in page.promoted[: len(report.memory.promoted)]
    ]
    assert report.memory.promoted[0].share == 1


def test_only_the_pages_own_script_may_run(toy_study: Study) -> None:
    for page in pages_of(toy_study).values():
        script = re.findall(r'<script type="module">(.*?)</script>', page, flags=re.DOTALL)
        assert len(script) == 1
        policy = html_escapes.unescape(page[: page.index("</head>")])
        assert f"script-src {script_source(script[0])};" in policy
        assert "unsafe-eval" not in policy


def test_two_studies_stand_side_by_side(toy_study: Study, gated_study: Study, tmp_path) -> None:
    sides = [summarise(toy_study), summarise(gated_study)]
    comparison = compare(sides)
    assert [side.label for side in comparison.studies] == ["tiny:opt", "tiny:llama"]
    assert len(comparison.claims) == len(CLAIMS)
    assert {len(chart["hconcat"]) for chart in shared_charts(sides).values()} == {2}
    assert {figure.name for figure in comparison.figures} == set(toy_study.charts)
    few = [replace(side, figures=side.figures[:2]) for side in sides]  # each takes time to draw
    page = write_comparison(few, tmp_path / "both.html").read_text()
    assert "tiny:opt · tiny:llama" in page
    assert page.count("<figure") >= 2


def test_a_comparison_that_cannot_be_written_is_refused_before_it_is_made(
    toy_study: Study, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ffmem.report.comparison.compare", lambda _: pytest.fail("it is made"))
    (tmp_path / "file").touch()
    for path in (tmp_path, tmp_path / "file" / "both.html"):
        with pytest.raises(StoreError, match="cannot write"):
            write_comparison([summarise(toy_study)] * 2, path)


def test_studies_of_one_model_are_told_apart_by_folder(toy_study: Study) -> None:
    labels = [side.label for side in compare([summarise(toy_study)] * 2).studies]
    assert labels == ["tiny:opt (opt)"] * 2


def test_table_1_prefers_patterns_of_whole_words_and_shows_one_of_each_kind(
    toy_study: Study, report: Report, monkeypatch: pytest.MonkeyPatch
) -> None:
    wide, clear = toy_study.store.cells.in_layer(2, [5, 6])
    patterns = (
        Pattern(wide, "ends with a piece", "shallow", tuple(range(1, 11)), "rules"),
        Pattern(clear, "ends with a word", "shallow", (1, 2, 3, 5), "rules"),
        Pattern(clear, "ends with more", "shallow", (1, 2, 3), "rules"),
        Pattern(clear, "about: a, b, c", "semantic", (3, 4, 5), "rules"),
    )
    found = replace(toy_study.result("patterns"), records=patterns, readings=None)
    monkeypatch.setattr(examples, "whole_words", lambda *_: frozenset())
    (row,) = key_rows(found, toy_study.store)
    assert (row.key, row.patterns) == (wide, patterns[:1])
    monkeypatch.setattr(
        examples, "whole_words", lambda _, key: frozenset({1, 2, 3} if key == clear else ())
    )
    (row,) = key_rows(found, toy_study.store)
    assert (row.key, row.patterns) == (clear, (patterns[1], patterns[3]))
    triggers = toy_study.store.triggers(clear)
    both_first = [triggers[rank - 1].before + triggers[rank - 1].last for rank in (3, 5, 1, 2)]
    texts = [one.trigger.before + one.trigger.last for one in row.triggers]
    assert texts == list(dict.fromkeys(both_first))[:3]
    page = chapters(replace(report, keys=(row,)))["keys"]
    assert "ends with a word" in page
    assert "about: a, b, c" in page


def test_whole_words_stand_between_spaces_or_marks(toy_study: Study) -> None:
    counts = {True: 0, False: 0}
    for key in toy_study.store.cells.in_layer(2, range(20)):
        found = whole_words(toy_study.store, key)
        for rank, one in enumerate(toy_study.store.triggers(key)[:25], 1):
            parted = [
                (one.before[-1:] + one.last[:1]).isalnum() and bool(one.before),
                (one.last[-1:] + one.next[:1]).isalnum() and bool(one.next),
            ]
            counts[rank in found] += 1
            assert (rank in found) == (not any(parted))
    assert min(counts.values()) > 0


def test_table_3_shows_one_key_with_all_its_triggers_and_pattern_numbers(
    toy_study: Study, report: Report, monkeypatch: pytest.MonkeyPatch
) -> None:
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
    same: dict[str, list[int]] = {}  # equal prefixes are one row
    for rank, one in enumerate(triggers, 1):
        same.setdefault(one.before + one.last, []).append(rank)
    widest = [{2, 3, 4, 5}, {1, 2, 3}]
    assert [row.times for row in found.triggers] == [len(ranks) for ranks in same.values()]
    assert [row.patterns for row in found.triggers] == [
        tuple(n for n, those in enumerate(widest, 1) if those & set(ranks))
        for ranks in same.values()
    ]
    first = [triggers[ranks[0] - 1].next for ranks in same.values()]
    assert [row.trigger.next for row in found.triggers] == first
    assert annotated_key(replace(result, records=()), toy_study.store) is None
    third = toy_study.store.cells.in_layer(2, [7])[0]
    wide = (
        Pattern(third, "ends with a piece", "shallow", tuple(range(1, 11)), "rules"),
        Pattern(third, "about: d, e, f", "semantic", (1, 2, 3), "rules"),
    )
    with_wide = replace(result, records=(*patterns, *wide))
    for whole, expected in ((frozenset(), third), (frozenset({2}), key)):
        monkeypatch.setattr(
            examples, "whole_words", lambda _, one, whole=whole: whole if one == key else set()
        )
        chosen = annotated_key(with_wide, toy_study.store)
        assert chosen is not None
        assert chosen.key == expected
    page = chapters(replace(report, annotated=found))["keys"]
    assert "about: a, b, c" in page
    assert "1, 2" in page


def test_a_figure_without_enough_cases_is_words_and_no_empty_frame(
    toy_study: Study, report: Report
) -> None:
    every = "".join(chapters(report).values())
    for name, figure in report.figures.items():
        assert (f'data-chart="{name}"' in every) != figure.is_empty, name
    first = report.sections[0].figures[0]
    others = [replace(one, figures=()) for one in report.sections[1:]]
    rows = [{"layer": 1, "n": 3, "share": 0.5}, {"layer": 2, "n": 29, "share": 0.5}]
    for least, empty in ((30, True), (29, False)):
        bars = style.base(rows, style.enough_cases(least=least)).mark_bar()
        line = style.base([{"zero": 0}]).mark_rule()
        spec = (bars.encode(x="layer:O", y="share:Q") + line.encode(y="zero:Q")).to_dict()
        few = replace(first, spec=spec)
        assert few.is_empty == empty
        part = replace(report.sections[0], figures=(few,))
        page = chapters(replace(report, sections=(part, *others)))[part.name]
        assert ("Not drawn: no point has enough cases" in page) == empty
        assert (f'data-chart="{first.name}"' in page) != empty


@pytest.mark.usefixtures("few_figures")
def test_ci_can_fail_on_an_outcome(
    toy_study: Study,
    report: Report,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(Study, "draw", lambda _study: None)
    folder = shutil.copytree(toy_study.folder, tmp_path / "study")
    failing = next(one for one in report.verdicts if one.word == "does not hold")

    def run(*conditions: str) -> tuple[int, str]:
        monkeypatch.setattr("sys.argv", ["ffmem", "report", str(folder), *conditions])
        with pytest.raises(SystemExit) as ended:
            main()
        return int(ended.value.code or 0), capsys.readouterr().err

    assert run("--fail-if", f"{failing.name}=holds") == (0, "")
    code, said = run(
        "--fail-if", f"{failing.name}=holds", "--fail-if", f"{failing.name}=does-not-hold"
    )
    assert code == 1
    assert f"{failing.name}: does not hold" in said
    for wrong, why in (("no-claim=holds", "no claim"), (f"{failing.name}=fails", "OUTCOME")):
        code, said = run("--fail-if", wrong)
        assert code == 2
        assert why in said
