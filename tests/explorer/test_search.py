"""Search through the API: what is found, in which order, page by page, and as a table."""

from __future__ import annotations

import csv
import io
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from fastapi.testclient import TestClient

from ffmem.analyses import search
from ffmem.analyses.matches import By, Question, Sort
from ffmem.analyses.result_files import ResultFile, write_result
from ffmem.analyses.search import Hit, SearchAnswer
from ffmem.cli.main import ffmem
from ffmem.explorer import hit_table, memory_parts
from ffmem.explorer.context import StudyContext
from ffmem.memories.edits import read_set
from ffmem.memories.folded_weights import wake_up_link
from ffmem.models.loading import load
from ffmem.records import csv_cell
from ffmem.store.memory_page import Evidence, memory_page
from ffmem.store.search.lookup import TokenPush
from ffmem.text import Piece

STATISTICS = ["fires", "mean", "largest", "probability", "agreement"]


def found(client: TestClient, **asked: Any) -> dict[str, Any]:
    answer = client.get("/api/search", params=asked)
    assert answer.status_code == 200, answer.text
    data: dict[str, Any] = answer.json()
    return data


def test_a_promoted_token_is_among_those_of_every_hit(client: TestClient) -> None:
    page = client.get("/api/memories/L2.7").json()["page"]
    token = page["promoted"][3]["text"]
    hits = found(client, by="promotes", q=token, count=500)["hits"]
    mine = {hit["address"]: hit["score"] for hit in hits}
    assert mine[page["address"]] <= 3
    text = client.get("/search", params={"by": "promotes", "q": token}).text
    assert 'class="token asked"' in text
    assert 'class="token asked"' not in client.get("/search?by=words&q=the").text
    for hit in hits[:5]:
        promoted = client.get(f"/api/memories/{hit['address']}").json()["page"]["promoted"]
        assert token in [one["text"] for one in promoted]


@pytest.mark.parametrize("name", STATISTICS)
@pytest.mark.parametrize("layer", [None, 2])
def test_any_memory_by_a_statistic(
    client: TestClient, explored: StudyContext, name: str, layer: int | None
) -> None:
    where = {} if layer is None else {"layer": layer}
    for reverse in (False, True):
        answer = found(client, by="any", sort=name, reverse=reverse, count=500, **where)
        numbers = [hit[name] for hit in answer["hits"]]
        assert numbers == sorted(numbers, reverse=not reverse)
        whole = (
            explored.lookup.store.cells.count
            if layer is None
            else explored.lookup.store.cells.count // 3
        )
        assert answer["total"] == whole
        assert layer is None or all(hit["address"].startswith("L2.") for hit in answer["hits"])


@pytest.mark.parametrize(
    "question",
    [
        Question("words", "the", sort="mean"),
        Question("words", "the river"),
        Question("meaning", "the river"),
    ],
)
def test_a_large_answer_is_cut_to_the_same_first_memories(
    explored: StudyContext, question: Question, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = search.answer(explored.search, question, 0, 5)
    assert whole.total > 10
    monkeypatch.setattr(search, "MOST_HITS", 5)
    monkeypatch.setattr(search, "MOST_SAVED", 5)
    assert search.answer(explored.search, question, 0, 5) == whole


def test_dead_memories_never_fire(client: TestClient) -> None:
    answer = found(client, by="dead", count=500)
    assert all(hit["fires"] == 0 for hit in answer["hits"])
    layers = client.get("/api/overview").json()["layers"]
    assert answer["total"] == sum(layer["dead"] for layer in layers)


def test_pages_follow_one_another(client: TestClient) -> None:
    whole = found(client, by="any", sort="fires", count=60)["hits"]
    parts = [found(client, by="any", sort="fires", first=n, count=20)["hits"] for n in (0, 20, 40)]
    assert [hit for part in parts for hit in part] == whole


def test_a_pattern_is_found_by_its_words_and_stands_on_the_memory(
    client: TestClient, explored: StudyContext
) -> None:
    sign = explored.store.cells.signs[0]
    record = {
        "key": f"L2.7{sign}",
        "description": "ends with ‘<river>’",
        "kind": "shallow",
        "ranks": [1, 2, 5],
        "annotator": "ann",
    }
    path = explored.folder / "analyses" / "patterns-ann.json"
    assert found(client, by="pattern", q="RIVER")["total"] == 0
    assert "Nothing fits" in client.get("/search?by=pattern&q=RIVER").text
    write_result(path, ResultFile("patterns-ann", {}, 0.0, {"records": [record]}))
    try:
        page, answer = (
            client.get("/search?by=pattern&q=RIVER").text,
            found(client, by="pattern", q="RIVER"),
        )
        assert f"/memory/L2.7{sign}" in page
        hits, known = answer["hits"], 1 / explored.store.cells.count
        assert answer["looked_at"] == known
        assert f"Patterns are known of {100 * known:.2g} % of the memories" in page
        assert [(hit["address"], hit["score"]) for hit in hits] == [(f"L2.7{sign}", 3 / 25)]
        cards = client.get("/api/overview").json()["cards"]
        more = next(card["more"] for card in cards if card["title"].startswith("Clear patterns"))
        hits = client.get(f"/api/search?{more}").json()["hits"]
        assert [hit["address"] for hit in hits] == [f"L2.7{sign}"]
        page = client.get("/memory/L2.7").text
        assert "ends with ‘&lt;river&gt;’" in page
        assert 'data-ranks="1 2 5"' in page
    finally:
        path.unlink()
    assert found(client, by="pattern", q="RIVER")["total"] == 0


def test_the_table_to_download_has_every_hit(client: TestClient) -> None:
    answer = client.get("/search.csv", params={"by": "words", "q": "the"})
    assert answer.headers["content-type"].startswith("text/csv")
    rows = list(csv.DictReader(io.StringIO(answer.text, newline="")))
    data = found(client, by="words", q="the", count=500)
    assert len(rows) == data["total"]
    assert [row["address"].lstrip("'") for row in rows[:50]] == [
        hit["address"] for hit in data["hits"][:50]
    ]


def test_a_cell_that_a_spreadsheet_would_run_is_text() -> None:
    assert csv_cell("=1+1") == "'=1+1"
    assert csv_cell((" =x", "b")) == " =x b"
    assert csv_cell(-1.5) == -1.5


def test_a_form_without_a_layer_searches_all_of_them(client: TestClient) -> None:
    sent = {"by": "any", "q": "", "layer": ""}
    assert client.get("/search", params=sent).status_code == 200
    found = client.get("/api/search", params=sent).json()
    assert found == client.get("/api/search?by=any").json()


def test_a_phrase_that_is_too_long_is_not_the_models_fault(client: TestClient) -> None:
    for path in ("/search", "/api/search", "/search.csv"):
        answer = client.get(path, params={"by": "phrase", "q": "ab " * 130})
        assert answer.status_code == 400
        assert "tokens; give between 1 and" in answer.text


def test_a_missing_layer_is_a_sentence(client: TestClient) -> None:
    answer = client.get("/search?by=any&layer=77")
    assert answer.status_code == 404
    assert "no layer 77" in answer.text


def test_the_folder_holds_only_prepared_arrays_more(explored: StudyContext) -> None:
    assert {path.name for path in Path(explored.folder).iterdir()} <= {
        "analyses", "arrays", "figures", "prepared", "manifest.json",
        "values.parquet", "endings.parquet", "vocabulary.parquet", "annotations.sqlite",
    }  # fmt: skip


def test_memories_by_their_weights(client: TestClient, explored: StudyContext) -> None:
    numbers = [
        hit["weight"] for hit in found(client, by="any", sort="value_norm", count=60)["hits"]
    ]
    assert numbers == sorted(numbers, reverse=True)
    bar = numbers[20]
    kept = found(client, by="any", where=f"value_norm>={bar}", sort="key_value", count=500)
    expected = explored.lookup.statistic("value_norm") >= bar
    assert kept["total"] == expected.sum()
    kinds = {hit["kind"] for hit in kept["hits"]}
    kind = sorted(kinds)[0]
    only = found(client, by="any", where=f"class={kind}, value_norm>={bar}", count=500)
    assert {hit["kind"] for hit in only["hits"]} == {kind}
    page = client.get("/search", params={"by": "any", "sort": "value_norm"}).text
    assert "Value norm" in page


def test_what_is_found_is_a_set(client: TestClient) -> None:
    asked = {"by": "any", "sort": "fires"}
    text = client.get("/search.txt", params=asked).text
    addresses = [line for line in text.splitlines() if not line.startswith("#")]
    hits = found(client, **asked, count=5)["hits"]
    assert addresses[:5] == [hit["address"] for hit in hits]


def test_a_set_by_class_is_that_of_the_command_line(
    client: TestClient, explored: StudyContext, tmp_path: Path
) -> None:
    """The same addresses by a filter of weights, and both are files for `--set @FILE`."""
    kind = str(explored.lookup.statistic("class")[0])
    file, other = tmp_path / "explorer.txt", tmp_path / "command.txt"
    asked = {"by": "any", "where": f"class={kind}", "sort": "address"}
    file.write_text(client.get("/search.txt", params=asked).text)
    words = ["search", str(explored.folder), "--where", f"class={kind}", "-n", "10000"]
    done = CliRunner().invoke(ffmem, [*words, "--save", str(other)])
    assert done.exit_code == 0, done.output
    assert len(read_set(file)) == int((explored.lookup.statistic("class") == kind).sum())
    assert set(read_set(file)) == set(read_set(other))


@pytest.mark.parametrize("where", ["nonsense", "color=red", "fires>many"])
def test_a_wrong_condition_is_one_sentence(client: TestClient, where: str) -> None:
    answer = client.get("/api/search", params={"by": "any", "where": where})
    assert answer.status_code in (400, 404, 422)


def test_a_key_is_read_without_text(client: TestClient, explored: StudyContext) -> None:
    answer = client.get("/api/memories/L1.5/key", params={"wakes": "L3.2"})
    assert answer.status_code == 200, answer.text
    data = answer.json()
    cosines = [one["cosine"] for one in data["key"]]
    assert len(cosines) == 10
    assert cosines == sorted(cosines, reverse=True)
    expected = wake_up_link(load(explored.live.name), "L1.5", "L3.2")
    assert data["link"]["key"] == pytest.approx(expected.key, rel=1e-4, abs=1e-6)
    assert client.get("/api/memories/L3.5/key", params={"wakes": "L1.2"}).status_code != 200


def test_the_one_box_leads_to_what_it_is_asked_for(
    client: TestClient, explored: StudyContext
) -> None:
    def place(text: str) -> str:
        answer = client.get("/go", params={"q": text}, follow_redirects=False)
        assert answer.status_code == 303
        return answer.headers["location"]

    for text in ("L2.7", "l2.7", "2.7", " L2.7 "):
        assert place(text) == "/memory/L2.7"
        assert client.get("/go", params={"q": text}).status_code == 200
    assert place("L7.E3.1034") == "/memory/L7.E3.1034"
    assert place("l7.e3.1034") == "/memory/L7.E3.1034"
    token = explored.lookup.words[40]
    assert place(token).startswith("/search?by=&q=")
    assert place("the river") == "/search?by=&q=the+river"
    assert place("99.5").startswith("/search?")  # a number, since there is no layer 99
    assert place("nowhere to be found").startswith("/search?by=meaning")
    assert client.get("/memory/l2.7").status_code == 200


def test_words_are_found_with_a_trigger_that_holds_them(client: TestClient) -> None:
    hits = found(client, by="words", q="river stone", count=50)["hits"]
    assert hits
    for hit in hits:
        marked = {one["text"].lower() for one in hit["evidence"]["pieces"] if one["mark"] == "word"}
        whole = client.get(f"/api/memories/{hit['address']}").json()["page"]["triggers"]
        trigger = whole[hit["evidence"]["rank"] - 1]
        read = (trigger["before"] + trigger["last"]).lower()
        assert "river" in read
        assert "stone" in read
        assert marked & {"river", "stone"}
        assert hit["evidence"]["coefficient"] == pytest.approx(trigger["coefficient"])
    page = client.get("/search", params={"by": "words", "q": "river"}).text
    assert "<mark>river</mark>" in page


def test_a_word_finds_what_fires_on_it_and_what_promotes_it(
    client: TestClient, explored: StudyContext
) -> None:
    """Only where it is clear, each with a way to the rest; else the page says so."""
    page = client.get("/search", params={"q": "river"}).text
    fires = found(client, by="words", q="river", clear=True, count=500)
    every = found(client, by="words", q="river", count=500)
    assert [hit for hit in every["hits"] if hit["score"] >= 3] == fires["hits"]
    assert 8 < fires["total"] < every["total"]
    assert f"All {fires['total']}</a>" in page
    for hit in fires["hits"][:8]:
        assert f'href="/memory/{hit["address"]}"' in page
    assert "not one token of this model but" in page  # so no value promotes it
    token = explored.lookup.words[40]
    hits = found(client, by="promotes", q=token, clear=True)["hits"]
    page = client.get("/search", params={"by": "", "q": token}).text
    assert hits[0]["address"] in page.split('id="about-promotes"')[1]
    nothing = client.get("/search", params={"q": "Constantinople"}).text
    assert "No memory clearly fires on it" in nothing
    assert "No value clearly promotes it" in nothing


def test_a_text_is_not_ignored_beside_any_memory(client: TestClient) -> None:
    asked = {"q": "river", "sort": "fires"}
    words = found(client, by="words", **asked)
    assert found(client, by="any", **asked) == words
    assert words["total"] < found(client, by="any")["total"]
    answer = client.get("/search", params={"by": "dead", "q": "river"})
    assert answer.status_code == 404
    assert "leave the text empty" in answer.text


def test_columns_are_those_that_were_asked_for(client: TestClient) -> None:
    def heads(**asked: object) -> set[str]:
        text = client.get("/search", params={"by": "any", **asked}).text
        return set(re.findall(r"<th scope=.col.[^>]*><a [^>]*>([^<]*)", text))

    assert not {"Top probability", "Agrees", "Class"} & heads()
    assert "Top probability" in heads(sort="probability")
    assert "Agrees" in heads(agrees=1)
    kind = found(client, by="any", count=1)["hits"][0]["kind"]
    assert {"Key norm", "Class"} <= heads(sort="key_norm", where=f"class={kind}")


def test_a_promoted_token_comes_with_its_logit(client: TestClient) -> None:
    promoted = client.get("/api/memories/L2.7").json()["page"]["promoted"]
    hits = found(client, by="promotes", q=promoted[3]["text"], count=500)["hits"]
    mine = [hit for hit in hits if hit["address"] in ("L2.7", "L2.7+")]
    assert mine  # more than once where several tokens have this text
    for hit in mine:
        assert hit["logit"] == pytest.approx(promoted[int(hit["score"])]["logit"])


def test_nothing_typed_finds_nothing(client: TestClient) -> None:
    for by in ("promotes", "words", "meaning", "pattern", "phrase"):
        assert found(client, by=by)["total"] == 0
    assert "Give a word" in client.get("/search").text


def test_filters_are_conditions(client: TestClient, explored: StudyContext) -> None:
    lookup = explored.lookup
    rates, agreement = lookup.statistic("fire_rate"), lookup.statistic("agreement")
    low, high = (100 * float(rate) for rate in sorted(rates)[50:150:99])
    some = found(client, by="any", fires_from=low, fires_to=high, agrees=5, count=500)
    wanted = (rates >= low / 100) & (rates <= high / 100) & (agreement >= 0.05)
    assert some["total"] == wanted.sum()
    assert found(client, by="any", where="layer=2")["total"] == explored.store.cells.count // 3
    kind = found(client, by="any", count=1)["hits"][0]["kind"]
    assert {hit["kind"] for hit in found(client, by="any", kind=kind, count=50)["hits"]} == {kind}
    page = client.get("/search", params={"by": "any", "kind": kind, "fires_from": low}).text
    assert '<details class="filters" open>' in page
    answer = client.get("/api/search", params={"by": "any", "sign": "-"})
    if explored.store.cells.signed:
        assert answer.json()["total"] == explored.store.cells.count // 2
    else:
        assert answer.status_code == 404


def test_text_of_the_corpus_stays_text_in_evidence(client: TestClient) -> None:
    page = client.get("/search", params={"by": "words", "q": "script"}).text
    assert "<script>alert" not in page
    assert "&lt;<mark>script</mark>&gt;" in re.sub(r"</?span[^>]*>", "", page)


def test_text_from_corpus_tokens_and_results_is_shown_as_text(explored: StudyContext) -> None:
    hostile = "<script>alert(1)</script>"
    pieces = (
        Piece(hostile),
        Piece(hostile, "word"),
        Piece(hostile, "last"),
        Piece(hostile, "next"),
    )
    hit = Hit("L1.1", 0.0, (hostile,), 1, 1.0, 1.0, 0.5, None, hostile, None, None, hostile)
    hit = replace(hit, evidence=Evidence(1, 1.0, pieces))
    found = SearchAnswer(Question("words", hostile), hostile, 1, 1.0, 0, (hit,))
    page = memory_page(explored.lookup, explored.store.cells.address(0))
    parts = {
        "tokens": memory_parts.token_bars(page, [TokenPush(1, hostile, 1.0)], "promotes", 1.0),
        "hits": hit_table.hit_rows(found),
        "weights": memory_parts.weight_items({hostile: hostile}),
        "heading": hit_table.heading(found.question, "fires", hostile),
    }
    for name, text in parts.items():
        assert "script" in text, name
        assert "<script" not in text, name


def test_links_to_a_search_keep_what_was_asked_for() -> None:
    asked = Question("any", layer=3, sort="mean", reverse=True, fires_from=0.0)
    assert hit_table.link(asked) == "/search?by=any&layer=3&sort=mean&reverse=true&fires_from=0.0"
    other = hit_table.link(asked, sort="score", reverse=False, first=25)
    assert other == "/search?by=any&layer=3&fires_from=0.0&first=25"
    assert hit_table.link(Question("promotes", "a b&c")) == "/search?by=promotes&q=a+b%26c"


@pytest.mark.parametrize(
    ("by", "sort", "order"),
    [
        ("promotes", "score", "ascending"),  # rank 1 comes first
        ("words", "score", "descending"),
        ("any", "fires", "descending"),
        ("any", "address", "ascending"),
    ],
)
def test_the_head_of_a_column_says_how_it_is_sorted(by: By, sort: Sort, order: str) -> None:
    other = {"ascending": "descending", "descending": "ascending"}[order]
    assert f'aria-sort="{order}"' in hit_table.heading(Question(by, "x", sort=sort), sort, "it")
    turned = hit_table.heading(Question(by, "x", sort=sort, reverse=True), sort, "it")
    assert f'aria-sort="{other}"' in turned
