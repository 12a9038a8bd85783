"""Studies that an earlier ffmem (store format 1, before digests) made are read as it read them.

The archive holds two finished studies of toys as `tests/small_study.py` makes them, one plain and
one gated, without what is large and made again from the rest (PNG, HTML, search index), and in
`answers.json` what that program answered to `ffmem show` and `ffmem search`.
"""

from __future__ import annotations

import json
import tarfile
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient

from ffmem.explorer.app import create_app
from ffmem.explorer.context import open_context
from ffmem.studies.study import Study
from tests.cli.test_commands import run

ARCHIVE = Path(__file__).parents[1] / "fixtures" / "studies.tar.xz"
KINDS = ("opt", "llama")


@pytest.fixture(scope="module")
def older(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("older")
    with tarfile.open(ARCHIVE) as archive:
        archive.extractall(folder)
    return folder


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest) -> str:
    found: str = request.param
    return found


@pytest.fixture
def answers(older: Path, kind: str) -> dict[str, Any]:
    """What the older program answered about one of the studies."""
    found: dict[str, Any] = json.loads((older / "answers.json").read_text())[kind]
    return found


def test_show_answers_as_before(
    older: Path, kind: str, answers: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    for option, name in (((), "show"), (("--sample",), "sample")):
        for address, expected in answers[name].items():
            code, out, _ = run(capsys, "show", str(older / kind), address, *option, "--json")
            assert code == 0
            before, now = leaves(expected), leaves(json.loads(out))
            assert {place: now.get(place) for place in before} == pytest.approx(before)


def test_search_answers_as_before(
    older: Path, kind: str, answers: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    for token, expected in answers["search"].items():
        words = ("search", str(older / kind), "--token", token, "-n", "1000", "--json")
        code, out, _ = run(capsys, *words)
        assert code == 0
        found = json.loads(out)
        (plus, minus), (plus_then, minus_then) = (
            comparable(answer["promoted by"]) for answer in (found, expected)
        )
        assert leaves(plus) == pytest.approx(leaves(plus_then))
        assert minus == minus_then
        endings = "triggers end in it"
        assert by_address(found[endings]) == by_address(expected[endings])


def leaves(answer: Any, place: str = "") -> dict[str, Any]:
    """Every number and text of a JSON answer by its place, which `pytest.approx` compares.

    Means and intervals are computed again, and differ from one processor to another in their
    last digits.
    """
    if isinstance(answer, dict | list):
        items = answer.items() if isinstance(answer, dict) else enumerate(answer)
        found: dict[str, Any] = {place: type(answer).__name__}
        for name, item in items:
            found |= leaves(item, f"{place}/{name}")
        return found
    return {place: answer}


def comparable(hits: list[dict[str, Any]]) -> tuple[list[Any], set[Any]]:
    """Hits in order; of - cells, whose probability was 0 then, the ranks alone.

    The probability of a - cell decides its place too, so that only the others have an order.
    """
    minus = {(hit["address"], hit["rank"]) for hit in hits if hit["address"].endswith("-")}
    names = ("address", "rank", "probability")  # what the older program said
    plus = [hit for hit in hits if not hit["address"].endswith("-")]
    return [{name: hit[name] for name in names} for hit in plus], minus


def by_address(hits: list[dict[str, Any]]) -> list[Any]:
    """Hits by how many triggers; of equals any order."""
    return sorted((-hit["triggers"], hit["address"]) for hit in hits)


def test_the_explorer_shows_it(older: Path, kind: str) -> None:
    explored = open_context(older / kind)
    with TestClient(create_app(explored), base_url="http://127.0.0.1:8600") as client:
        for path in ("/", "/memory/L2.10", "/api/memories/L2.10", "/search?by=words&q=river"):
            assert client.get(path).status_code == 200
        view = client.get("/api/memories/L2.10").json()
    assert view["agreement"] is not None  # the results beside the scan are read too
    assert view["triggers"]


def test_its_report_has_the_same_numbers(
    older: Path, kind: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The page has all figures; that they are drawn as files too does not depend on the age."""
    monkeypatch.setattr(Study, "draw", lambda _study: None)

    def numbers() -> dict[str, Any]:
        """What the analyses found; sentences about it may be worded better since then."""
        results = json.loads((older / kind / "numbers.json").read_text())["results"]
        return {at: leaf for at, leaf in leaves(results).items() if isinstance(leaf, float | int)}

    stored = numbers()
    code, _, _ = run(capsys, "report", str(older / kind))
    assert code == 0
    assert (older / kind / "report.html").exists()
    claims = json.loads((older / kind / "numbers.json").read_text())["claims"]
    assert {claim["verdict"] for claim in claims.values()} <= {"undecided", "does not hold"}
    assert claims["activity-dips"]["reason"].startswith("measured by an older ffmem")
    assert numbers() == pytest.approx(stored)


def test_verify_says_that_it_is_older_than_digests(
    older: Path, kind: str, capsys: pytest.CaptureFixture[str]
) -> None:
    code, out, _ = run(capsys, "verify", str(older / kind))
    assert code == 0
    assert "was written before files had digests" in out
