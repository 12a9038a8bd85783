"""Whatever is wrong with the database of annotations is one sentence, for reads and for writes."""

from __future__ import annotations

import os
import re
import socket
import sqlite3
import struct
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pytest
from sqlalchemy import Engine, event

from ffmem.annotations.database import Annotations
from ffmem.errors import DatabaseError
from ffmem.store.people import connection
from ffmem.store.people.memory_labels import Label
from tests.annotations.test_sheets import ANSWER, SHEET
from tests.waiting import time_limit

READS: list[Callable[[Annotations], object]] = [
    lambda opened: opened.names(),
    lambda opened: opened.sheets(),
    lambda opened: opened.answers(SHEET.scan),
    lambda opened: opened.history(SHEET.name, "ana"),
    lambda opened: opened.sheets_by_annotator(SHEET.scan),
    lambda opened: opened.labels(SHEET.scan).lists(),
]
WRITES: list[Callable[[Annotations], object]] = [
    lambda opened: opened.answer(SHEET, "ana", ANSWER[:1]),
    lambda opened: opened.labels(SHEET.scan).set_label("L1.1", Label("other")),
    lambda opened: opened.labels(SHEET.scan).add("list", ["L1.2"]),
]


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """A database with a sheet, an answer and a label."""
    path = tmp_path / "notes.sqlite"
    opened = Annotations.open(str(path))
    opened.add_sheets([SHEET])
    opened.answer(SHEET, "ana", ANSWER)
    opened.labels(SHEET.scan).set_label("L1.1", Label("one"))
    return path


def refused(ask: Callable[[], object]) -> str:
    """The one sentence in which something is refused."""
    with pytest.raises(DatabaseError) as found:
        ask()
    message = str(found.value)
    assert "\n" not in message
    assert "Error)" not in message  # no name of a class of Python
    return message


def change(path: Path, *statements: str) -> None:
    with closing(sqlite3.connect(path)) as other, other:
        for statement in statements:
            other.execute(statement)


def test_a_place_or_a_url_that_is_none_says_what_to_give(tmp_path: Path) -> None:
    missing = refused(lambda: Annotations.open(str(tmp_path / "no" / "folder" / "x.sqlite")))
    assert "check that its folder is there" in missing
    odd = refused(lambda: Annotations.open("nonsense://x"))
    assert "give a file, or a URL such as postgresql://user@host/name" in odd


@pytest.mark.parametrize(
    ("statement", "names"),
    [
        ("CREATE TABLE bookmarks (address TEXT)", "bookmarks"),
        ("CREATE TABLE labels (id INTEGER, colour TEXT)", "labels"),
    ],
)
def test_a_database_of_another_program_is_left_as_it_is(
    tmp_path: Path, statement: str, names: str
) -> None:
    path = tmp_path / "places.sqlite"
    change(path, statement)
    before = path.read_bytes()
    message = refused(lambda: Annotations.open(str(path)))
    assert f"{path} is a database of another program" in message
    assert f"(see its table {names!r}); give another --database" in message
    assert path.read_bytes() == before


def test_a_file_that_is_no_database_is_named(file: Path) -> None:
    """While it is open, too."""
    opened = Annotations.open(str(file))
    file.write_text("A letter to a friend. " * 1000)
    for ask in [*READS, *WRITES]:
        message = refused(lambda: ask(opened))  # noqa: B023 - called at once
        assert f"the annotations in {file} cannot be" in message
        assert "it is another program's file or is damaged" in message
    assert "it is another program's file" in refused(lambda: Annotations.open(str(file)))


def test_a_table_that_is_gone_is_told(file: Path) -> None:
    opened = Annotations.open(str(file))
    change(file, "DROP TABLE answers", "DROP TABLE labels", "DROP TABLE list_members")
    for ask in WRITES:
        assert "was changed, so give another --database" in refused(lambda: ask(opened))  # noqa: B023


@pytest.mark.parametrize(
    ("statement", "ask"),
    [
        ("UPDATE sheets SET prefixes = '[[1'", READS[1]),
        ("UPDATE sheets SET prefixes = '7'", READS[2]),
        ("UPDATE sheets SET layer = 'first'", READS[1]),
        (f"UPDATE answers SET said = '{'[' * 100_000}'", READS[2]),
        ("""UPDATE answers SET said = '[{"kind": "shallow"}]'""", READS[3]),
        ("UPDATE labels SET made = 'today'", lambda opened: opened.labels(SHEET.scan).labels()),
        ("UPDATE labels SET label = CAST(x'ff' AS TEXT)", WRITES[1]),
    ],
)
def test_content_that_ffmem_did_not_write_is_told(
    file: Path, statement: str, ask: Callable[[Annotations], object]
) -> None:
    opened = Annotations.open(str(file))
    change(file, statement)
    message = refused(lambda: ask(opened))
    assert str(file) in message
    assert message.endswith("give another --database")


def journal_that_names(victim: Path, file: Path) -> bytes:
    """The journal of an interrupted transaction over several files, as SQLite writes it."""
    page = int.from_bytes(file.read_bytes()[16:18])
    head = struct.pack(">IIIII", 0, 1, file.stat().st_size // page, 512, page)
    name, mark = str(victim).encode(), bytes.fromhex("d9d505f920a163d7")
    end = (
        struct.pack(">I", 0x40000000 // page + 1) + name + struct.pack(">II", len(name), sum(name))
    )
    return (mark + head).ljust(512, b"\0") + end + mark


def test_a_journal_never_makes_sqlite_delete_another_file(file: Path, tmp_path: Path) -> None:
    victim, link = tmp_path / "thesis.tex", tmp_path / "link.sqlite"
    journal = Path(f"{file}-journal")
    link.symlink_to(file)
    for path, ask in ((file, READS[0]), (link, WRITES[0])):
        opened = Annotations.open(str(path))
        victim.write_text("mine")
        journal.write_bytes(journal_that_names(victim, file))
        for again in (lambda: ask(opened), lambda: Annotations.open(str(path))):  # noqa: B023
            assert "is not a journal that ffmem leaves" in refused(again)
        assert victim.read_text() == "mine"
        journal.unlink()
    assert opened.names()


def test_nobody_waits_for_a_pipe_beside_a_database(file: Path) -> None:
    os.mkfifo(f"{file}-journal")
    with time_limit(10):
        assert "is not a journal" in refused(lambda: Annotations.open(str(file)))


def test_a_transaction_that_was_cut_off_is_taken_back(file: Path) -> None:
    """A journal that a killed process has left is what SQLite needs it for."""
    kept = file.read_bytes()
    with closing(sqlite3.connect(file)) as other:
        other.execute("PRAGMA cache_size = 1")  # pages go to the file before the commit
        other.execute("UPDATE sheets SET prefixes = ?", ("[" * 100_000,))
        cut, journal = file.read_bytes(), Path(f"{file}-journal").read_bytes()
        other.rollback()
    assert cut != kept
    file.write_bytes(cut)
    Path(f"{file}-journal").write_bytes(journal)
    assert Annotations.open(str(file)).sheets() == [SHEET]


# Without the limit it would never end, and could not be interrupted.
COUNTING = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n LIMIT 9) SELECT i FROM n"


@pytest.mark.parametrize(
    ("statements", "ask"),
    [
        (
            (
                "ALTER TABLE labels RENAME TO old",
                f"CREATE VIEW labels AS SELECT old.* FROM old, ({COUNTING})",
            ),
            lambda opened: opened.labels(SHEET.scan).labels(),
        ),
        (
            (
                "CREATE TRIGGER t BEFORE INSERT ON answers "
                f"BEGIN SELECT max(i) FROM ({COUNTING}); END",
            ),
            WRITES[0],
        ),
    ],
    ids=["view", "trigger"],
)
def test_no_program_inside_a_database_runs(
    file: Path, statements: tuple[str, ...], ask: Callable[[Annotations], object]
) -> None:
    change(file, *statements)
    message = refused(lambda: ask(Annotations.open(str(file))))
    assert message.endswith("it is another program's or was changed, so give another --database")


def test_a_column_that_makes_its_text_itself_is_another_programs(file: Path) -> None:
    columns = "id, scan, key, revision, made, label"
    made = "note AS (printf('%.*c', 900000000, 'x'))"
    change(file, "DROP TABLE labels", f"CREATE TABLE labels ({columns}, {made})")
    assert "(see its table 'labels')" in refused(lambda: Annotations.open(str(file)))


def test_a_lock_names_its_holder(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "WAIT", 0.01)
    opened = Annotations.open(str(file))
    holder = rf"process {os.getpid()} \(.+\)" if Path("/proc/self/fdinfo").is_dir() else ".+"
    with closing(sqlite3.connect(file)) as other:
        other.execute("BEGIN EXCLUSIVE")
        for ask in [*READS, *WRITES, lambda _opened: Annotations.open(str(file))]:
            message = refused(lambda: ask(opened))  # noqa: B023
            told = rf"\(database is locked\); {holder} holds it locked, so wait for that"
            assert re.search(told, message), message
        other.rollback()
    assert opened.answer(SHEET, "ana", ANSWER[:1])


def test_a_full_disk_is_told_and_nothing_is_half_written(file: Path) -> None:
    """SQLite answers as on a full disk where a file may have no more pages."""
    opened = Annotations.open(str(file))

    def limit(raw: sqlite3.Connection, _record: object) -> None:
        raw.execute("PRAGMA max_page_count = 1")  # it is larger already: not one page more

    event.listen(Engine, "connect", limit)
    try:
        keys = [f"L1.{number}" for number in range(1, 1000)]
        message = refused(lambda: opened.labels(SHEET.scan).add("list", keys))
    finally:
        event.remove(Engine, "connect", limit)
    assert "cannot be written (database or disk is full); make room on its disk" in message
    assert opened.labels(SHEET.scan).lists() == {}


class Door:
    """A socket before a server, which can be shut, and can break where a commit is asked for."""

    def __init__(self, server: Path) -> None:
        self.breaks: str | None = None  # "before" or "after" the commit reaches the server
        self._server, self._pairs, self._cut = server, list[socket.socket](), False
        self.listen(0)

    def listen(self, port: int) -> None:
        self._cut, self._socket = False, socket.create_server(("127.0.0.1", port))
        self.port = self._socket.getsockname()[1]
        threading.Thread(target=self._take, args=(self._socket,), daemon=True).start()

    def shut(self) -> None:
        for each in (self._socket, *self._pairs):
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
            each.close()
        self._pairs.clear()

    def _take(self, listening: socket.socket) -> None:
        with suppress(OSError):
            while True:
                here, there = listening.accept()[0], socket.socket(socket.AF_UNIX)
                there.connect(str(self._server))
                self._pairs += [here, there]
                for ends in ((here, there), (there, here)):
                    threading.Thread(target=self._carry, args=ends, daemon=True).start()

    def _carry(self, source: socket.socket, target: socket.socket) -> None:
        with suppress(OSError):
            while data := source.recv(65536):
                commits = self.breaks is not None and b"COMMIT\0" in data
                if self._cut or (commits and self.breaks == "before"):
                    break
                self._cut = commits  # then the server's reply gets lost
                target.sendall(data)
        for end in (source, target):
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)


@pytest.fixture
def door(postgres: str) -> Iterator[Door]:
    (folder,) = parse_qs(urlsplit(postgres).query)["host"]
    found = Door(Path(folder) / ".s.PGSQL.5432")
    yield found
    found.shut()


def test_a_server_that_goes_away_and_comes_back(door: Door) -> None:
    opened = Annotations.open(f"postgresql://ffmem:secret@127.0.0.1:{door.port}/postgres")
    opened.add_sheets([SHEET])
    door.shut()
    for ask in [*READS, *WRITES]:
        message = refused(lambda: ask(opened))  # noqa: B023
        assert "check that the server runs and that the URL is right, and try again" in message
        assert f"@127.0.0.1:{door.port}/postgres cannot be" in message
        assert "secret" not in message
    door.listen(door.port)
    for ask in [*READS, *WRITES]:
        ask(opened)
        door.shut()  # and is back before anybody asks
        door.listen(door.port)
    opened.close()


@pytest.mark.parametrize("breaks", ["before", "after"])
def test_a_commit_without_an_answer_is_told_and_can_be_done_again(door: Door, breaks: str) -> None:
    opened = Annotations.open(f"postgresql://ffmem@127.0.0.1:{door.port}/postgres")
    opened.add_sheets([SHEET])
    door.breaks = breaks
    message = refused(lambda: opened.answer(SHEET, breaks, ANSWER))
    assert "so nobody knows whether it is saved; do the same again" in message
    door.shut()
    door.breaks = None
    door.listen(door.port)
    assert opened.answer(SHEET, breaks, ANSWER) == (breaks == "before")
    assert opened.history(SHEET.name, breaks) == [tuple(ANSWER)]
    opened.close()


def test_a_server_that_says_nothing_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "WAIT", 2)  # the least that the library takes
    with socket.create_server(("127.0.0.1", 0)) as silent:
        port = silent.getsockname()[1]
        message = refused(lambda: Annotations.open(f"postgresql://ana@127.0.0.1:{port}/notes"))
    assert "check that the server runs" in message
