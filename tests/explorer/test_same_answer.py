"""A command with `--json` and a route of the API give the same keys and numbers."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
from fastapi.testclient import TestClient

from ffmem.analyses.study import Study
from ffmem.cli import main as cli
from ffmem.explorer.app import create_app
from ffmem.explorer.context import StudyContext, open_context

TEXT = "the river and the stone"
EDITED = ("--position", "3", "--token", "s", "--set", "L1.3=0")


@dataclass(frozen=True)
class Pair:
    """A command, FOLDER and MODEL being the study's, and the request that asks the same."""

    words: tuple[str, ...]
    path: str
    part: Callable[[Any], Any] = lambda answer: answer  # of the route's answer
    printed: Callable[[Any], Any] = lambda said: said  # of what the command prints


PAIRS = (
    Pair(
        ("show", "FOLDER", "L2.7"), "/api/memories/L2.7?triggers=200", lambda found: found["page"]
    ),
    Pair(
        ("show", "FOLDER", "L2.7", "--saliency"),
        "/api/memories/L2.7/saliency?trigger=2",
        printed=lambda said: said["saliency"][1],
    ),
    Pair(
        ("show", "FOLDER", "L2.7", "--key", "--wakes", "L3.1"),
        "/api/memories/L2.7/key?wakes=L3.1",
        printed=lambda said: said["key"],
    ),
    Pair(("show", "FOLDER", "L2.7", "--text", TEXT), f"/api/memories/L2.7/text?text={TEXT}"),
    *(
        Pair(
            ("search", "FOLDER", f"--{kind}", text, *words, "-n", "25"),
            f"/api/search?by={kind}&q={text}{query}",
        )
        for kind, text, words, query in (
            ("words", "river", (), ""),
            ("words", "river", ("--layer", "2", "--where", "fires>3"), "&layer=2&where=fires>3"),
            ("meaning", "river stone", ("--sort", "largest"), "&sort=largest"),
            ("pattern", "the", (), ""),
            ("phrase", "the river", (), ""),
        )
    ),
    Pair(
        ("search", "FOLDER", "--where", "value_norm>0", "--sort", "key_norm", "-n", "25"),
        "/api/search?by=any&where=value_norm>0&sort=key_norm",
    ),
    Pair(("prompt", "MODEL", TEXT, "--study", "FOLDER"), f"/api/prompt?text={TEXT}"),
    Pair(
        (*("prompt", "MODEL", TEXT, "--study", "FOLDER"), *EDITED),
        f"/api/prompt?text={TEXT}&position=3&word=s&edit=L1.3=0",
    ),
    Pair(
        ("why", "MODEL", TEXT, "--position", "9", "--top", "7", "--study", "FOLDER"),
        f"/api/why?text={TEXT}&position=9&top=7",
    ),
)


def test_a_token_is_two_questions_of_a_search(
    client: TestClient, explored: StudyContext, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["search", str(explored.folder), "--token", "e", "-n", "25", "--json"]
    assert cli.run(words) == 0
    said = json.loads(capsys.readouterr().out)
    for kind in ("promotes", "ends"):
        assert said[kind]["hits"]
        clear = "&clear=true" if said[kind]["question"]["clear"] else ""
        assert_same(said[kind], client.get(f"/api/search?by={kind}&q=e{clear}").json())


def test_a_comparison_has_the_same_studies_verdicts_and_memories(
    explored: StudyContext, capsys: pytest.CaptureFixture[str]
) -> None:
    """A command draws no figure that it does not write."""
    folder = explored.folder
    assert cli.run(["compare", str(folder), str(folder), "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    beside = open_context(folder, others=[folder])
    with TestClient(create_app(beside), base_url="http://127.0.0.1:8600") as asking:
        answer = asking.get("/api/compare").json()
        for words, query in (((), ""), (("--match",), "&match=true")):
            pair = ["compare", str(folder), str(folder), "--memories", "-n", "5", *words, "--json"]
            assert cli.run(pair) == 0
            rows = asking.get(f"/api/compare/memories?count=5{query}").json()
            assert rows["total"] > 5
            assert_same(json.loads(capsys.readouterr().out), rows)
    assert any(one["finding"] for one in said["studies"][0]["verdicts"])
    assert answer["figures"]
    assert_same(said, answer | {"figures": []})


@pytest.mark.parametrize("pair", PAIRS, ids=lambda pair: " ".join(pair.words))
def test_a_command_and_a_route_say_the_same(
    client: TestClient,
    explored: StudyContext,
    capsys: pytest.CaptureFixture[str],
    pair: Pair,
) -> None:
    names = {"FOLDER": str(explored.folder), "MODEL": explored.live.name}
    assert cli.run([*(names.get(word, word) for word in pair.words), "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    answer = client.get(pair.path)
    assert answer.status_code == 200, answer.text
    assert_same(pair.printed(said), pair.part(answer.json()))


def test_a_file_has_what_a_command_and_a_route_say(
    toy_study: Study, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = toy_study.folder
    written = json.loads((folder / "numbers.json").read_text())
    claims = list(written["claims"].values())
    assert cli.run(["compare", str(folder), str(folder), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["studies"][0]["verdicts"] == claims
    with TestClient(create_app(open_context(folder)), base_url="http://127.0.0.1:8600") as asking:
        shown = asking.get("/api/overview").json()["claims"]
    assert shown == [one for one in claims if one["finding"]] != []
    for name, result in written["results"].items():
        assert json.loads((folder / "analyses" / f"{name}.json").read_text())["result"] == result


def assert_same(one: Any, other: Any) -> None:
    """Equal, but for how a processor rounds sums."""
    assert type(one) is type(other)
    match one:
        case dict():
            assert list(one) == list(other)
            for name, value in one.items():
                assert_same(value, other[name])
        case list():
            assert len(one) == len(other)
            for value, its in zip(one, other, strict=True):
                assert_same(value, its)
        case float():
            assert other == pytest.approx(one, rel=1e-4, abs=1e-6)
        case _:
            assert one == other
