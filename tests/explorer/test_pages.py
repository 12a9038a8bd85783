"""Every page answers, says what it should, and shows the corpus as text."""

from __future__ import annotations

import re
import shutil
from dataclasses import replace
from html import unescape
from pathlib import Path
from urllib.parse import quote, urljoin

import numpy as np
import pytest
from fastapi.testclient import TestClient

from ffmem.address import Address
from ffmem.analyses.patterns.by_memory import StudyPatterns
from ffmem.analyses.patterns.record import Pattern
from ffmem.explorer.app import create_app
from ffmem.explorer.context import StudyContext, open_context
from ffmem.explorer.memory_parts import WEIGHT_NOTES, pattern_groups
from ffmem.explorer.queries import overview, start
from ffmem.explorer.queries.figures import title_inside
from ffmem.explorer.queries.start import agreeing_rows, best_cells
from ffmem.report.build import write_report
from ffmem.report.rendering import script_source
from ffmem.store.search.columns import agreement_table
from ffmem.text import short_number
from tests.explorer.conftest import HOSTILE
from tests.waiting import time_limit

PAGES = [
    "/",
    "/memory/L2.7",
    "/search",
    "/search?by=any&sort=fires",
    "/search?by=dead",
    "/prompt",
    "/lists",
    "/api",
]


@pytest.mark.parametrize("path", PAGES)
def test_a_page_is_a_whole_document_with_its_place_in_the_navigation(
    client: TestClient, path: str
) -> None:
    answer = client.get(path)
    assert answer.status_code == 200
    assert answer.headers["content-type"].startswith("text/html")
    assert answer.text.count("<h1>") == 1
    assert answer.text.rstrip().endswith("</html>")
    assert "<script>" not in answer.text
    assert ' style="' not in answer.text  # the policy would not let it count


def test_text_of_the_corpus_is_never_html(client: TestClient, explored: StudyContext) -> None:
    hits = client.get("/api/search", params={"by": "words", "q": "script"}).json()["hits"]
    assert hits, "the hostile sentence triggers something"
    page = client.get(f"/memory/{hits[0]['address']}?triggers=200").text
    assert HOSTILE.split(">")[0] + ">" not in page
    assert "&lt;script&gt;" in re.sub(r"</?span[^>]*>", "", page)


def test_a_histogram_is_drawn_and_told_in_words(client: TestClient, explored: StudyContext) -> None:
    cell = explored.store.cells.address(3)
    found, counts = explored.store.histogram(cell), explored.store.counts(cell)
    assert found is not None
    page = client.get(f"/memory/{cell}").text
    (svg,) = re.findall(r'<svg class="bars histogram".*?</svg>', page)
    assert svg.count("<rect") == len(found.counts)
    told = re.findall(r"up to ([\d.,e-]+): ([\d,]+)", svg)
    assert [int(count.replace(",", "")) for _, count in told] == list(found.counts)
    assert float(told[-1][0].replace(",", "")) == pytest.approx(counts.largest, rel=1e-2)


def test_a_wrong_address_is_a_sentence_in_either_form(client: TestClient) -> None:
    for path in ("/memory/L9.1", "/api/memories/L9.1"):
        answer = client.get(path)
        assert answer.status_code == 404
        assert "no layer 9" in answer.text
    assert client.get("/api/memories/nonsense").json()["detail"].startswith("'nonsense'")


def test_random_leads_to_a_memory(client: TestClient) -> None:
    answer = client.get("/random", follow_redirects=False)
    assert answer.status_code == 303
    assert client.get(answer.headers["location"]).status_code == 200


def test_a_file_of_the_study_is_sandboxed_and_runs_no_script_but_the_programs(
    explored: StudyContext, tmp_path: Path
) -> None:
    """Whoever wrote the report cannot choose the script: its own policy names a planted one."""
    shutil.copytree(explored.store.folder.root, tmp_path / "study")
    context = open_context(tmp_path / "study")
    context.store.folder.report_page.unlink(missing_ok=True)
    with TestClient(create_app(context), base_url="http://127.0.0.1:8600") as client:
        assert client.get("/report").status_code == 404
        assert "/report" not in client.get("/").text
        page = write_report(context.study).read_text(encoding="utf-8")
        script = re.findall(r'<script type="module">(.*?)</script>', page, flags=re.DOTALL)
        assert [policy_of(client, "/report")["script-src"]] == [*map(script_source, script)]
        assert client.get("/report").text == page
        assert 'href="/report"' in client.get("/").text
        links = {urljoin("/report", link) for link in re.findall('href="([^"#]*.html)', page)}
        assert len(links) > 4
        for path in links:
            assert policy_of(client, path)["script-src"] == script_source(script[0])
        assert client.get("/report/none.html").status_code == 404
        assert client.get("/report/..%2Fmanifest.html").status_code in (404, 422)

        planted = "fetch('/api/lists')"
        allowing = f"script-src {script_source(planted)}"
        head = f'<meta http-equiv="Content-Security-Policy" content="{allowing}">'
        evil = f"<html><head>{head}</head><script>{planted}</script></html>"
        context.store.folder.report_page.write_text(evil, encoding="utf-8")
        assert client.get("/report").text == evil
        report = policy_of(client, "/report")
        assert report["script-src"] == script_source(script[0]) != script_source(planted)
        assert report["sandbox"] == "allow-scripts"
        for path in ("/figures/values-agreement.svg", "/figures/values-agreement.csv"):
            picture = policy_of(client, path)
            assert (picture["sandbox"], "script-src" in picture) == ("", False)


def policy_of(client: TestClient, path: str) -> dict[str, str]:
    """What the browser may do with an answer, each rule by its name."""
    answer = client.get(path)
    assert answer.status_code == 200
    assert answer.headers["x-content-type-options"] == "nosniff"
    (policy,) = answer.headers.get_list("content-security-policy")
    rules = dict(rule.strip().partition(" ")[::2] for rule in policy.split(";"))
    assert rules["default-src"] == "'none'"
    return rules


def test_the_overview_says_where_to_start(client: TestClient, explored: StudyContext) -> None:
    data = client.get("/api/overview").json()
    cards = {card["title"]: card for card in data["cards"]}
    for card in data["cards"]:
        for pointer in card["pointers"]:
            assert client.get(f"/memory/{quote(pointer['address'])}").status_code == 200
        if card["more"]:
            assert client.get(f"/search?{card['more']}").status_code == 200
            assert client.get(f"/api/search?{card['more']}").json()["total"] > 0
    table = agreement_table(explored.store.folder, explored.store.cells.count)
    assert table is not None
    for pointer in cards["Values that disagree with the text"]["pointers"]:
        row = explored.store.cells.row(Address.parse(pointer["address"]))
        assert table.agreeing[row] == 0
        assert table.triggers[row] >= 10
    assert data["claims"], "those of the values were measured"
    assert all(claim["finding"]["number"]["n"] for claim in data["claims"])
    page = client.get("/").text
    assert "Start here" in page
    assert data["headline"] in page


def test_the_values_that_are_right_most_often_come_first(explored: StudyContext) -> None:
    table = agreement_table(explored.store.folder, explored.store.cells.count)
    assert table is not None
    every = np.ones(explored.store.cells.count, dtype=bool)
    surer, other = best_cells(explored, every)[:2]  # by the top probability
    agreeing = np.zeros_like(table.agreeing)
    agreeing[[surer, other]] = 10, 18
    known = replace(table, triggers=np.full_like(table.triggers, 20), agreeing=agreeing)
    assert agreeing_rows(explored, known) == [other, surer]
    agreeing[surer] = 18
    assert agreeing_rows(explored, replace(known)) == [surer, other]
    agreeing[other] = 2  # too few
    assert agreeing_rows(explored, replace(known)) == [surer]


def test_what_follows_is_ranked_from_one_as_in_a_search(
    client: TestClient, explored: StudyContext
) -> None:
    found = client.get("/api/memories/L2.7").json()["page"]
    rank, tokens = found["agreement"]["median_rank"] + 1, found["vocabulary"]
    page = client.get("/memory/L2.7").text
    assert f"at a median of {short_number(rank)} of {tokens:,}." in page
    assert page.index('id="own"') < page.index('id="triggers"')  # a text of one's own is near
    for name in found["weights"]:
        assert WEIGHT_NOTES[name] in unescape(page)


def test_a_figure_has_its_title_words_and_claims(client: TestClient) -> None:
    titles = {one["name"]: one["title"] for one in client.get("/api/overview").json()["figures"]}
    assert titles["values-agreement"].startswith("Agreement of value and next token")
    assert len(set(titles.values())) == len(titles)
    page = client.get("/figure/values-agreement").text
    for words in ("How to read it", "The paper", "keys shuffled", titles["values-agreement"]):
        assert words in page
    assert client.get("/figure/nothing").status_code == 404
    assert client.get("/api/figures/values-agreement").json()["title"]["text"] in page


def test_a_picture_without_a_title_takes_no_longer_than_its_length(tmp_path: Path) -> None:
    picture = tmp_path / "values-ranks.svg"
    picture.write_text('role-title-text<text font-size="' * 30_000)
    with time_limit(60):
        assert title_inside(picture) == "Values ranks"


def test_patterns_that_cover_new_triggers_are_shown_and_the_rest_is_folded() -> None:
    def pattern(name: str, *ranks: int, annotator: str = "rules") -> Pattern:
        return Pattern(Address(1, 2), name, "shallow", ranks, annotator)

    said = pattern("said", 1, 2, 3, 4, 5)
    again = pattern("said that", 1, 2, 3, 4)
    other = pattern("by a person", 6, 7, 8)
    few = pattern("in", 8, 9, 10)
    mine = pattern("verbs", 1, 2, 3, annotator="ann")
    groups = pattern_groups([said, again, other, few, mine])
    assert groups == [("rules", [said, other, few], [again]), ("ann", [mine], [])]


def test_the_overview_says_that_a_language_model_has_read(
    client: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = unescape(client.get("/").text)
    assert "A language model" not in page
    monkeypatch.setattr(overview, "read_by_models", lambda _: "A language model has read.")
    assert " undecided. A language model has read.</p>" in client.get("/").text
    said = [one["finding"]["detail"] for one in client.get("/api/overview").json()["claims"]]
    for detail in filter(None, said):
        assert f"<small>{detail}</small>" in page


def test_a_scan_without_results_has_a_start(
    explored: StudyContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(start, "known_agreement", lambda _: None)
    monkeypatch.setattr(start, "study_patterns", lambda _: StudyPatterns({}))
    monkeypatch.setattr(type(explored.study), "names", ())
    cards = {card.title: card for card in start.start_cards(explored) if card.pointers}
    assert set(cards) == {"Confident values", "Specific keys", "Dense keys"}
    densest = cards["Dense keys"].pointers[0].address
    row = explored.store.cells.row(Address.parse(densest))
    fires = explored.lookup.statistic("fires")
    assert fires[row] == fires.max()
