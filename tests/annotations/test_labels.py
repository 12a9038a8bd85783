"""Labels and lists: the newest counts, older databases get the tables, writers may meet."""

from __future__ import annotations

import sqlite3
import threading
from pathlib import Path

import pytest

from ffmem.annotations.database import Annotations
from ffmem.store.people.connection import TABLES
from ffmem.store.people.memory_labels import STAR_LIST, Label
from ffmem.store.people.revisions import ANSWERS, SHEETS
from tests.annotations.test_sheets import ANSWER, SHEET


@pytest.fixture
def annotations(tmp_path: Path) -> Annotations:
    return Annotations.open(str(tmp_path / "notes.sqlite"))


def test_the_newest_label_counts_and_belongs_to_its_scan(annotations: Annotations) -> None:
    mine, other = annotations.labels("one"), annotations.labels("two")
    assert mine.label("L1.0") == Label()
    assert mine.set_label("L1.0", Label("rivers", "see L2.7"))
    assert not mine.set_label("L1.0", Label("rivers", "see L2.7"))
    assert mine.set_label("L1.0", Label("river names"))
    assert mine.label("L1.0") == Label("river names")
    assert mine.labels() == {"L1.0": Label("river names")}
    assert other.labels() == {}
    mine.set_label("L1.0", Label())
    assert mine.labels() == {}


def test_a_list_holds_what_was_put_on_it_and_not_taken_off(annotations: Annotations) -> None:
    labels = annotations.labels("one")
    assert labels.add("places", ["L2.7", "L1.0", "L2.7"]) == 2
    assert labels.add("places", ["L1.0", "L3.1"]) == 1
    assert labels.add(STAR_LIST, ["L1.0"]) == 1
    assert labels.remove("places", ["L2.7", "L9.9"]) == 1
    assert labels.lists() == {STAR_LIST: ("L1.0",), "places": ("L1.0", "L3.1")}
    assert labels.lists("L3.1") == {"places": ("L3.1",)}
    labels.remove("places", ["L1.0", "L3.1"])
    assert list(labels.lists()) == [STAR_LIST]
    assert labels.add("places", ["L2.7"]) == 1  # and it can come back
    assert labels.lists()["places"] == ("L2.7",)


def test_a_database_from_before_there_were_labels_keeps_all_and_gets_them(tmp_path: Path) -> None:
    path = tmp_path / "old.sqlite"
    old = Annotations.open(str(path))
    old.add_sheets([SHEET])
    old.answer(SHEET, "ana", ANSWER)
    old.close()
    with sqlite3.connect(path) as connection:
        for table in ("labels", "list_members"):
            connection.execute(f"DROP TABLE {table}")
        names = {row[0] for row in connection.execute("SELECT name FROM sqlite_master")}
    connection.close()
    assert {SHEETS.name, ANSWERS.name} <= names
    assert not names & {"labels", "list_members"}
    again = Annotations.open(str(path))
    assert again.answers()[0].answers == tuple(ANSWER)
    again.labels("one").set_label("L1.0", Label("rivers"))
    assert again.labels("one").label("L1.0") == Label("rivers")
    assert {"labels", "list_members"} <= set(TABLES.tables)


def test_two_who_write_at_once_both_count(tmp_path: Path) -> None:
    path = str(tmp_path / "notes.sqlite")
    Annotations.open(path).close()

    def write(who: int) -> None:
        labels = Annotations.open(path).labels("one")
        for turn in range(5):
            labels.set_label("L1.0", Label(f"{who} {turn}"))
            labels.add("places", [f"L{who}.{turn}"])

    threads = [threading.Thread(target=write, args=(who,)) for who in (1, 2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    labels = Annotations.open(path).labels("one")
    assert len(labels.lists()["places"]) == 10
    assert labels.label("L1.0").label in ("1 4", "2 4")
