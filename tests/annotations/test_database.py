from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest

from ffmem.analyses.last_layer.record import Judgement
from ffmem.annotations.database import Annotations
from ffmem.annotations.sheets import CaseAnswer, PatternAnswer
from ffmem.store.people.revisions import Revisions
from tests.annotations.test_cases import SAID
from tests.annotations.test_cases import SHEET as CASES
from tests.annotations.test_sheets import ANSWER, SHEET


@pytest.fixture(params=["sqlite", "postgresql"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return str(tmp_path / "notes.sqlite")
    return str(request.getfixturevalue("postgres"))


@pytest.fixture
def annotations(url: str, request: pytest.FixtureRequest) -> Iterator[Annotations]:
    opened = Annotations.open(url)
    yield opened
    opened.close()


def named(request: pytest.FixtureRequest) -> str:
    """A sheet name for one test alone: the server outlives it."""
    return f"{abs(hash(request.node.name)) % 10**12:x}"


def test_importing_twice_changes_nothing_and_a_change_keeps_the_old_answer(
    annotations: Annotations, url: str, request: pytest.FixtureRequest
) -> None:
    sheet = replace(SHEET, name=named(request))
    assert annotations.add_sheets([sheet]) == 1
    assert annotations.add_sheets([sheet]) == 0
    assert annotations.answer(sheet, "mara", ANSWER)
    assert not annotations.answer(sheet, "mara", ANSWER)
    assert annotations.answer(sheet, "mara", ANSWER[:1])
    assert annotations.answer(sheet, "mara", ANSWER)  # back to the first: a new revision
    again = Annotations.open(url)
    assert again.history(sheet.name, "mara") == [tuple(ANSWER), tuple(ANSWER[:1]), tuple(ANSWER)]
    [answer] = [each for each in again.answers() if each.sheet == sheet]
    assert (answer.annotator, answer.answers) == ("mara", tuple(ANSWER))
    again.close()


def test_cases_have_the_same_guarantees(
    annotations: Annotations, url: str, request: pytest.FixtureRequest
) -> None:
    sheet = replace(CASES, name=named(request))
    assert [annotations.add_case_sheets([sheet]) for _ in range(2)] == [1, 0]
    assert annotations.judge(sheet, "mara", SAID)
    assert not annotations.judge(sheet, "mara", SAID)
    other: list[Judgement] = ["distant", *SAID[1:]]
    assert annotations.judge(sheet, "mara", other)
    again = Annotations.open(url)
    assert sheet in again.case_sheets()
    mine = [each for each in again.case_answers() if each.sheet == sheet]
    assert mine == [CaseAnswer(sheet, "mara", tuple(other))]
    assert sheet.name not in {each.name for each in again.sheets()}
    again.close()


def test_two_people_at_once_lose_nothing(
    annotations: Annotations, url: str, request: pytest.FixtureRequest
) -> None:
    sheet = replace(SHEET, name=named(request))
    annotations.add_sheets([sheet])
    said = [[PatternAnswer(f"pattern {n}", "shallow", (1, 2, n + 3))] for n in range(5)]
    trouble: list[Exception] = []

    def work(person: str) -> None:
        mine = Annotations.open(url)
        try:
            for each in said:
                mine.answer(sheet, person, each)
        except Exception as error:
            trouble.append(error)
        finally:
            mine.close()

    # two people, and one of them at two machines
    threads = [threading.Thread(target=work, args=(who,)) for who in ("ana", "bo", "bo")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert trouble == []
    assert annotations.history(sheet.name, "ana") == [tuple(each) for each in said]
    both = annotations.history(sheet.name, "bo")
    assert {each[0].description for each in both} == {f"pattern {n}" for n in range(5)}
    last = {s.annotator: s.answers for s in annotations.answers() if s.sheet == sheet}
    assert last["ana"] == tuple(said[-1])


def test_an_answer_saved_between_looking_and_writing_is_not_overwritten(
    annotations: Annotations, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    sheet = replace(SHEET, name=named(request))
    annotations.add_sheets([sheet])
    meanwhile = [lambda: annotations.answer(sheet, "bo", ANSWER[:1])]

    looked = Revisions.latest

    def interrupted(self: Revisions, name: str, annotator: str) -> tuple[int, str] | None:
        found = looked(self, name, annotator)
        if meanwhile:
            meanwhile.pop()()
        return found

    monkeypatch.setattr(Revisions, "latest", interrupted)
    assert annotations.answer(sheet, "bo", ANSWER)
    assert annotations.history(sheet.name, "bo") == [tuple(ANSWER[:1]), tuple(ANSWER)]


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="needs a list of open files")
def test_a_file_is_open_only_while_it_is_asked(tmp_path: Path) -> None:
    file = tmp_path / "notes.sqlite"
    opened = Annotations.open(str(file))
    opened.add_sheets([SHEET])
    links = []
    for link in Path("/proc/self/fd").iterdir():
        with suppress(FileNotFoundError):  # the handle that lists them
            links.append(os.readlink(link))
    assert str(file) not in links
    assert opened.sheet(SHEET.name) == SHEET
