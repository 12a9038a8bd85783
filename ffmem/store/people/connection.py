"""The door to the database of annotations: whatever is wrong with it is one sentence.

A file can come with somebody else's study: what it says is data, and nothing that it wants done is.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from stat import S_ISREG
from typing import Any

from sqlalchemy import URL, Connection, Engine, MetaData, create_engine, event, inspect, make_url
from sqlalchemy.exc import DBAPIError, IntegrityError, SQLAlchemyError
from sqlalchemy.pool import NullPool
from sqlalchemy.schema import CreateTable

from ffmem.errors import DatabaseError, shorten
from ffmem.locations import first_line, location

TABLES = MetaData()
WAIT = 10  # seconds for a server to reply, and for others to release a lock
JOURNAL = bytes.fromhex("d9d505f920a163d7")  # what a journal ends in that names another file
BY_URL = "give a file, or a URL such as postgresql://user@host/name"
ANOTHER = "give another --database"
SQLITE_ADVICE = {  # by the primary code; a lock has a sentence of its own
    sqlite3.SQLITE_FULL: "make room on its disk and try again",
    sqlite3.SQLITE_IOERR: "check its disk and try again",
    sqlite3.SQLITE_CANTOPEN: f"check that its folder is there and can be written, or {ANOTHER}",
    sqlite3.SQLITE_READONLY: f"ask its owner for permission, or {ANOTHER}",
    sqlite3.SQLITE_PERM: f"ask its owner for permission, or {ANOTHER}",
    sqlite3.SQLITE_NOTADB: f"it is another program's file or is damaged, so {ANOTHER}",
    sqlite3.SQLITE_CORRUPT: f"it is damaged, so put back a copy of it, or {ANOTHER}",
}
UNREACHED = "check that the server runs and that the URL is right, and try again"
POSTGRES_ADVICE = {  # by the first letters of the SQL state, which comes from a server that replies
    "28": "check the user and the password in the URL",
    "42501": f"ask its owner for permission, or {ANOTHER}",
    "42": f"it is another program's or was changed, so {ANOTHER}",
    "53100": "make room on the server's disk and try again",
    "55P03": "it is locked by another program; try again",
    "57": "wait until the server runs again, and try again",
}


class Database:
    """An open database of annotations; safe for several people at once."""

    def __init__(self, engine: Engine, name: str) -> None:
        self._engine, self.name = engine, name

    @classmethod
    def open(cls, url: str) -> Database:
        """Open a database by URL, or by the path of a SQLite file.

        Tables that are absent are made: in a new database all, in an older one those that came
        later. A database of another program is left as it is.
        """
        try:
            if "://" in url:
                where = make_url(url.replace("postgresql://", "postgresql+psycopg://", 1))
            else:  # a ? or % of the path would mean something else inside a URL
                where = URL.create("sqlite", database=str(location(url)))
            opened = cls(_engine(where), _name(where))
        except (SQLAlchemyError, ModuleNotFoundError, ValueError) as error:
            name = shorten(url.split("@")[-1])
            raise DatabaseError(
                f"the annotations in {name} cannot be opened ({_first_line(error)}); {BY_URL}"
            ) from None
        with opened._in_one_sentence("cannot be opened"), opened._engine.begin() as connection:
            opened._make_tables(connection)
        return opened

    @contextmanager
    def reading(self) -> Iterator[Connection]:
        """A connection to read from; its rows are read before the `with` ends."""
        with self._in_one_sentence("cannot be read"), self._engine.connect() as connection:
            yield connection

    @contextmanager
    def parsing(self) -> Iterator[None]:
        """What is inside the `with` reads what ffmem once wrote; anything else is told."""
        try:
            yield
        except (ValueError, TypeError, LookupError, RecursionError) as error:
            raise DatabaseError(
                f"the annotations in {self.name} hold what ffmem did not write "
                f"({_first_line(error)}); {ANOTHER}"
            ) from None

    @contextmanager
    def writing(self) -> Iterator[Connection]:
        """A connection whose work is kept whole or not at all; an IntegrityError passes."""
        with (
            self._in_one_sentence("cannot be written", IntegrityError),
            self._engine.connect() as connection,
        ):
            yield connection
            try:
                connection.commit()
            except DBAPIError as error:
                if not error.connection_invalidated:
                    raise
                raise DatabaseError(
                    f"the connection to the annotations in {self.name} broke while something was "
                    f"saved ({_first_line(error)}), so nobody knows whether it is saved; do the "
                    "same again: what is there already is not saved twice"
                ) from None

    def close(self) -> None:
        """Let go of the database; it opens again when it is asked."""
        self._engine.dispose()

    @contextmanager
    def _in_one_sentence(self, what: str, *passes: type[SQLAlchemyError]) -> Iterator[None]:
        """Tell trouble inside the `with` in one sentence; a write that fails changes nothing."""
        try:
            yield
        except passes:
            raise
        except SQLAlchemyError as error:
            raise DatabaseError(
                f"the annotations in {self.name} {what} ({_first_line(error)}); "
                + self._advice(error)
            ) from None

    def _advice(self, error: SQLAlchemyError) -> str:
        """What to do about it."""
        if not isinstance(error, DBAPIError):  # all connections are in use
            return "try again"
        cause = error.orig
        if isinstance(cause, sqlite3.Error):
            code = getattr(cause, "sqlite_errorcode", 0) & 0xFF  # the primary one
            if code in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
                return f"{_holder(Path(self.name))} holds it locked, so wait for that and try again"
            return SQLITE_ADVICE.get(code, f"it is another program's or was changed, so {ANOTHER}")
        state = getattr(cause, "sqlstate", None) or ""
        fits = [advice for start, advice in POSTGRES_ADVICE.items() if state.startswith(start)]
        return next(iter(fits), "try again") if state else UNREACHED

    def _make_tables(self, connection: Connection) -> None:
        """Make the tables that are absent; refuses a database of another program."""
        found = inspect(connection)
        names = set(found.get_table_names())
        known = names & TABLES.tables.keys()
        alien = {
            table
            for table in known
            if {each["name"] for each in found.get_columns(table) if "computed" not in each}
            != {*TABLES.tables[table].c.keys()}
        }
        if not known and connection.dialect.name == "sqlite":  # a server may have many programs'
            alien = names
        if alien:
            raise DatabaseError(
                f"{self.name} is a database of another program, or of another version of ffmem "
                f"(see its table {shorten(min(alien))!r}); {ANOTHER}"
            )
        for made in TABLES.sorted_tables:
            if made.name not in known:  # two may open a new database at once
                connection.execute(CreateTable(made, if_not_exists=True))


def _engine(where: URL) -> Engine:
    """An engine that waits for nothing without end."""
    if where.get_backend_name() != "sqlite":
        # Connections are looked at before use, so that a server that was restarted is no trouble.
        engine = create_engine(where, pool_pre_ping=True, connect_args={"connect_timeout": WAIT})
        event.listen(engine, "connect", _limit_waiting)
        return engine
    # A file is quick to open, so nothing is left open.
    engine = create_engine(where, poolclass=NullPool, connect_args={"timeout": WAIT})
    event.listen(engine, "do_connect", _refuse_alien_journal)
    event.listen(engine, "connect", _write_through)
    return engine


def _refuse_alien_journal(_dialect: object, _record: object, where: Any, _options: object) -> None:
    """Refuse a file beside which lies a journal that SQLite would do harm with.

    Where a journal names another file at its end, SQLite deletes that file, whatever it is. It
    writes such names only for transactions over several files.
    """
    journal = Path(f"{os.path.realpath(where[0])}-journal")
    with suppress(FileNotFoundError):  # others write: a journal comes and goes at any moment
        found = journal.stat()
        alien = not S_ISREG(found.st_mode)  # a pipe, for which SQLite would wait for ever
        if not alien:
            with journal.open("rb") as file:
                file.seek(max(os.fstat(file.fileno()).st_size - len(JOURNAL), 0))
                alien = file.read() == JOURNAL
        if alien:
            raise DatabaseError(
                f"{shorten(str(journal))} is not a journal that ffmem leaves, and nothing was done "
                f"with it; delete it if you do not know it, or {ANOTHER}"
            )


def _write_through(connection: sqlite3.Connection, _record: object) -> None:
    """What was saved is on the disk before it is said to be saved; people may read meanwhile."""
    connection.execute("PRAGMA synchronous=FULL")
    connection.execute("PRAGMA foreign_keys=ON")
    connection.set_authorizer(_let_no_program_run)


def _let_no_program_run(*asked: object) -> int:
    """Deny what a view or a trigger of the file asks for: it could take for ever."""
    return sqlite3.SQLITE_OK if asked[-1] is None else sqlite3.SQLITE_DENY


def _limit_waiting(connection: Any, _record: object) -> None:
    connection.execute(f"SET lock_timeout = '{WAIT}s'")
    connection.commit()


def _name(where: URL) -> str:
    """The database as a sentence names it: without a password."""
    if where.get_backend_name() == "sqlite":
        return where.database or "memory"
    shown = where.set(drivername=where.get_backend_name(), password=None, query={})
    return shown.render_as_string()


def _first_line(error: Exception) -> str:
    """What went wrong, in the words of whoever noticed."""
    cause = error.orig if isinstance(error, DBAPIError) and error.orig is not None else error
    return shorten(first_line(cause))


def _holder(file: Path) -> str:
    """Who has a lock on a file, as far as this system tells."""
    for link in Path("/proc").glob("[0-9]*/fd/*"):
        with suppress(OSError):  # of another user, or gone
            if os.path.samefile(link, file) and "lock:" in _fdinfo(link):
                process = link.parts[2]
                name = Path("/proc", process, "comm").read_text(encoding="utf-8").strip()
                return f"process {process} ({shorten(name)})"
    return "another program"


def _fdinfo(link: Path) -> str:
    return (link.parents[1] / "fdinfo" / link.name).read_text(encoding="utf-8")
