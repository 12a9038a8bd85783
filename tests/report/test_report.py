"""The report says what the results say, everything escaped, nothing fetched."""

from __future__ import annotations

import html as html_escapes
import json
import re
import shutil
from collections import defaultdict
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any, get_args

import pytest
from altair.utils.schemapi import SchemaBase, SchemaValidationError

import ffmem.report
from ffmem.analyses.statistics import wilson
from ffmem.errors import StoreError
from ffmem.figures import style
from ffmem.patterns.record import Pattern
from ffmem.report.build import SECTIONS, Report, build, figure_texts, html, summarise
from ffmem.report.comparison import compare, read_summary, write_comparison
from ffmem.report.examples import FIGURES, annotated_key
from ffmem.report.paper_claims import CLAIMS, judge
from ffmem.report.rendering import render, script_source
from ffmem.report.verdicts import Outcome, PersonsCases, PersonsPatterns, results_with_judgements
from ffmem.store.result_files import ResultFile, to_plain, write_result
from ffmem.studies.study import Study, charts_of, open_study


@pytest.fixture(scope="module")
def report(toy_study: Study) -> Report:
    return build(toy_study)


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


def test_no_line_of_a_page_ends_inside_a_number(toy_study: Study) -> None:
    page = (toy_study.folder / "report.html").read_text()
    words = re.sub("<script.*?</script>|<style.*?</style>|<svg.*?</svg>", "", page, flags=re.S)
    claims = words[words.index('id="claims"') : words.index('id="appendix"')]
    assert re.search("\\d\u00a0\\.\\.\u00a0[-\\d]", claims)
    assert re.search("\\d\u00a0%", claims)
    assert not re.search(r"\d \.\. ", claims)


def test_a_page_names_results_by_short_digests(report: Report) -> None:
    values = [value for note in report.analyses for value in note.made_from.values()]
    assert any(re.fullmatch("[0-9a-f]{12}", str(value)) for value in values)
    assert max(len(str(value)) for value in values) < 20


def test_the_numbers_are_those_of_the_results(toy_study: Study) -> None:
    numbers = json.loads((toy_study.folder / "numbers.json").read_text())
    for name in toy_study.names:
        assert numbers["results"][name] == to_plain(toy_study.result(name))
    values = toy_study.result("values")
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
    page = (toy_study.folder / "report.html").read_text()
    assert f'<a href="#claims">{report.headline}</a>' in page
    assert report.headline in (toy_study.folder / "report.md").read_text()
    assert "(our own claim, not counted)" in page
    assert "nobody has judged the cases yet" in page
    assert "; untrained " in page


def test_what_people_said_is_read_from_the_study(toy_study: Study, tmp_path: Path) -> None:
    study = open_study(shutil.copytree(toy_study.folder, tmp_path / "study"))
    folder, rule = study.store.folder, study.result("patterns")
    for name in ("ann", "llm:model"):
        summary = replace(rule.summary, annotator=name)
        mine = PersonsPatterns(summary, rule.controls)
        file = folder.result("patterns-" + name.replace(":", "-"))
        write_result(file, ResultFile(file.stem, {}, 0.0, mine))
    shares = [
        PersonsCases("rules", wilson(2, 9), wilson(0, 5)),
        PersonsCases("ann", wilson(3, 9), wilson(1, 5)),
    ]
    agreed = {"shares": shares, "pairs": [], "alpha": 0.5}
    write_result(folder.result("case-agreement"), ResultFile("case-agreement", {}, 0.0, agreed))
    results = results_with_judgements(study)
    assert [one.summary.annotator for one in results["patterns"].people] == ["ann"]
    assert results["patterns"].rule == rule
    assert results["last-layer"].people == (shares[1],)
    verdict = next(one for one in judge(study) if one.name == "last-changes-are-distant")
    assert verdict.finding is not None
    assert verdict.finding.number == wilson(3, 9)
    assert (
        "by ann, who calls most related, of 1 people (alpha 0.50); by rule"
        in verdict.finding.detail
    )


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
    reasons = {verdict.analysis: verdict.reason for verdict in report.verdicts}
    assert reasons["refinement"] == "not measured"
    assert reasons["values"] != "not measured"


class Links(HTMLParser):
    """Every id of a page, and every place in it that a link leads to."""

    def __init__(self) -> None:
        super().__init__()
        self.ids: list[str] = []
        self.targets: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        if "id" in given and tag not in ("svg", "g", "path", "clippath"):
            self.ids.append(given["id"] or "")
        if tag == "a" and (given.get("href") or "").startswith("#"):
            self.targets.append((given["href"] or "")[1:])


def test_every_claim_leads_to_what_shows_it(toy_study: Study, report: Report) -> None:
    links = Links()
    links.feed((toy_study.folder / "report.html").read_text())
    assert set(links.targets) <= set(links.ids)
    assert len(links.ids) == len(set(links.ids))
    places = {verdict.name: report.evidence(verdict) for verdict in report.verdicts}
    assert set(places.values()) <= set(links.targets)
    assert places["upper-values-agree"] == "figure-values-agreement"
    assert places["last-changes-are-distant"] in ("last-layer", "refinement")
    (ranks,) = (verdict for verdict in report.verdicts if verdict.name == "ranks-improve")
    new = replace(ranks, name="a-claim-that-no-figure-names")
    assert report.evidence(new) == "figure-values-agreement"  # the first of the same analysis


def test_every_chart_is_as_the_schema_has_it(toy_study: Study, gated_study: Study) -> None:
    """Studies draw their charts without looking at it."""
    for study in (toy_study, gated_study):
        assert len(study.charts) > 20
        for chart in study.charts.values():
            chart.to_dict(validate=True)
    wrong = toy_study.chart("values-agreement").copy(deep=False)
    wrong.width = "wide"
    with pytest.raises(SchemaValidationError):
        wrong.to_dict(validate=True)


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


def test_figures_name_claims_that_there_are() -> None:
    shown = [name for part in SECTIONS for text in figure_texts(part) for name in text.claims]
    assert set(shown) <= {claim.name for claim in CLAIMS}
    assert len(shown) == len(set(shown))


def test_a_report_opens_with_the_finding_a_memory_and_four_figures(
    toy_study: Study, report: Report
) -> None:
    page = (toy_study.folder / "report.html").read_text()
    lead = page[page.index('<p class="lead">') : page.index("</header>")]
    assert len(report.finding) == 3
    for one in report.finding:
        assert f'data-path="claims/{one.verdict.name}/finding/number/estimate"' in lead
    assert "{" not in lead
    assert f'<a href="#claims">{report.headline}</a>' in lead
    order = [page.index(part) for part in ('class="memory"', 'class="first"', 'id="claims"')]
    assert order == sorted(order)
    assert page.count("small-chart") - page.count(".small-chart") >= len(FIGURES)
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
    page = (toy_study.folder / "report.html").read_text()
    script = re.findall(r'<script type="module">(.*?)</script>', page, flags=re.DOTALL)
    assert len(script) == 1
    policy = html_escapes.unescape(page[: page.index("</head>")])
    assert f"script-src {script_source(script[0])};" in policy
    assert "unsafe-eval" not in policy


def test_two_studies_stand_side_by_side(toy_study: Study, gated_study: Study, tmp_path) -> None:
    sides = [summarise(toy_study), summarise(gated_study)]
    comparison = compare(sides)
    assert [side.label for side in comparison.sides] == ["tiny:opt", "tiny:llama"]
    assert len(comparison.claims) == len(CLAIMS)
    assert {len(figure.spec["hconcat"]) for figure in comparison.figures} == {2}
    assert {figure.name for figure in comparison.figures} == set(toy_study.charts)
    few = [replace(side, figures=side.figures[:2]) for side in sides]  # each takes time to draw
    page = write_comparison(few, tmp_path / "both.html").read_text()
    assert "tiny:opt · tiny:llama" in page
    assert page.count("<figure") >= 2


def test_a_written_report_says_what_the_results_say_until_they_change(
    toy_study: Study, tmp_path: Path
) -> None:
    folder = tmp_path / "study"
    shutil.copytree(toy_study.folder, folder)
    store = open_study(folder).store
    written, fresh = read_summary(store), summarise(open_study(folder))
    assert written is not None
    assert json.dumps(to_plain(written.figures)) == json.dumps(to_plain(fresh.figures))
    assert to_plain(written.verdicts) == to_plain(fresh.verdicts)
    assert (written.about, written.model_name) == (fresh.about, fresh.model_name)
    result = store.folder.result("values")
    result.write_text(result.read_text() + "\n")
    assert read_summary(store) is None
    store.folder.report_numbers.write_text("{")
    assert read_summary(store) is None


def test_a_comparison_that_cannot_be_written_is_refused_before_it_is_made(
    toy_study: Study, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ffmem.report.comparison.compare", lambda _: pytest.fail("it is made"))
    (tmp_path / "file").touch()
    for path in (tmp_path, tmp_path / "file" / "both.html"):
        with pytest.raises(StoreError, match="cannot write"):
            write_comparison([summarise(toy_study)] * 2, path)


def test_studies_of_one_model_are_told_apart_by_folder(toy_study: Study) -> None:
    labels = [side.label for side in compare([summarise(toy_study)] * 2).sides]
    assert labels == ["tiny:opt (opt)"] * 2


def test_table_3_shows_one_key_with_all_its_triggers_and_pattern_numbers(
    toy_study: Study, report: Report
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
    assert [row.patterns for row in found.triggers[:6]] == [(1,), (1, 2), (1, 2), (2,), (2,), ()]
    assert [row.trigger.next for row in found.triggers] == [one.next for one in triggers]
    assert annotated_key(replace(result, records=()), toy_study.store) is None
    report = replace(report, annotated=found)
    for template in ("report.md.j2", "report.html.j2"):
        text = render(template, report=report, pictures=defaultdict(str), script="")
        assert "about: a, b, c" in text
        assert "1, 2" in text


def test_every_outcome_has_a_look_of_its_own() -> None:
    style = (Path(ffmem.report.__file__).parent / "templates" / "look.css").read_text()
    looks = [
        re.findall(rf"^\.verdict\.{outcome.replace(' ', '-')} {{(.*)}}", style, re.MULTILINE)
        for outcome in get_args(Outcome)
    ]
    assert all(len(look) == 1 for look in looks)
    assert len({look[0] for look in looks}) == len(looks)


def test_a_figure_without_enough_cases_is_words_and_no_empty_frame(
    toy_study: Study, report: Report
) -> None:
    page = (toy_study.folder / "report.html").read_text()
    for name, figure in report.figures.items():
        assert (f'data-chart="{name}"' in page) != figure.is_empty, name
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
        page = html(replace(report, sections=(part, *others)))
        assert ("Not drawn: no point has enough cases" in page) == empty
        assert (f'data-chart="{first.name}"' in page) != empty
