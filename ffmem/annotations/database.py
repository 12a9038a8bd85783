"""Sheets and answers in a database; rows are added and never changed, so nothing is lost."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from datetime import UTC, datetime
from typing import Any

from sqlalchemy import (
    Column,
    Connection,
    DateTime,
    Engine,
    ForeignKey,
    Integer,
    MetaData,
    String,
    Table,
    Text,
    UniqueConstraint,
    create_engine,
    event,
    func,
    insert,
    select,
)
from sqlalchemy.exc import ArgumentError, IntegrityError, SQLAlchemyError

from ffmem.annotations.records import Said, Saying, Sheet, ShownPrefix
from ffmem.errors import StoreError

TABLES = MetaData()
SHEETS = Table(
    "sheets",
    TABLES,
    Column("name", String(16), primary_key=True),
    Column("scan", String(64), nullable=False),
    Column("layer", Integer, nullable=False),
    Column("key", String(32)),
    Column("control", String(16)),
    Column("prefixes", Text, nullable=False),  # JSON
)
ANSWERS = Table(
    "answers",
    TABLES,
    Column("id", Integer, primary_key=True),
    Column("sheet", String(16), ForeignKey("sheets.name"), nullable=False),
    Column("annotator", String(200), nullable=False),
    Column("revision", Integer, nullable=False),  # from 1; the highest counts
    Column("made", DateTime(timezone=True), nullable=False),
    Column("digest", String(64), nullable=False),  # of what was said
    Column("said", Text, nullable=False),  # JSON
    UniqueConstraint("sheet", "annotator", "revision"),
)
TRIES = 20  # writers that meet on one sheet and annotator


class Annotations:
    """One database of sheets and answers; safe for several people at once."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    @classmethod
    def open(cls, url: str) -> Annotations:
        """Open a database by URL, or by the path of a SQLite file; makes its tables if absent."""
        where = url if "://" in url else f"sqlite:///{url}"
        where = where.replace("postgresql://", "postgresql+psycopg://", 1)
        options: dict[str, Any] = {"timeout": 30} if where.startswith("sqlite") else {}
        try:
            engine = create_engine(where, connect_args=options)
            if where.startswith("sqlite"):
                event.listen(engine, "connect", _written_through)
            with engine.begin() as connection:
                TABLES.create_all(connection)
        except (SQLAlchemyError, ArgumentError, ModuleNotFoundError) as error:
            reason = str(error).splitlines()[0]
            raise StoreError(
                f"the annotations in {where.split('@')[-1]} cannot be opened ({reason}); give a "
                "file, or a URL such as postgresql://user@host/name"
            ) from None
        return cls(engine)

    @contextmanager
    def _writing(self) -> Iterator[Connection]:
        try:
            with self._engine.begin() as connection:
                yield connection
        except IntegrityError:
            raise
        except SQLAlchemyError as error:
            reason = str(error).splitlines()[0]
            raise StoreError(
                f"the annotations could not be saved ({reason}); nothing was changed, so mend that "
                "and run the same command again"
            ) from None

    def add_sheets(self, sheets: Sequence[Sheet]) -> int:
        """Add the sheets that are not there yet; how many that were."""
        for _ in range(TRIES):
            known = set(self.names())
            new = [sheet for sheet in sheets if sheet.name not in known]
            if not new:
                return 0
            try:
                with self._writing() as connection:
                    connection.execute(insert(SHEETS), [_sheet_row(sheet) for sheet in new])
            except IntegrityError:
                continue  # somebody added some of them meanwhile: look again
            return len(new)
        raise StoreError("these sheets are being added by others; run the same command again")

    def names(self, scan: str | None = None) -> list[str]:
        """The names of all sheets, or of one scan's, in order."""
        question = select(SHEETS.c.name).order_by(SHEETS.c.name)
        question = question if scan is None else question.where(SHEETS.c.scan == scan)
        with self._engine.connect() as connection:
            return [str(name) for (name,) in connection.execute(question).all()]

    def kept(self, sheets: Sequence[Sheet]) -> list[Sheet]:
        """Add the sheets that are not there yet; all of them, as the database has them.

        A control sheet drawn with other options has other prefixes; the one given out first stays.
        """
        self.add_sheets(sheets)
        known = {sheet.name: sheet for sheet in self.sheets()}
        return [known[sheet.name] for sheet in sheets]

    def sheets(self) -> list[Sheet]:
        """All sheets, by name."""
        with self._engine.connect() as connection:
            rows = connection.execute(select(SHEETS).order_by(SHEETS.c.name)).all()
        return [_sheet(row._mapping) for row in rows]

    def sheet(self, name: str) -> Sheet | None:
        """One sheet, or None where there is none of this name."""
        with self._engine.connect() as connection:
            row = connection.execute(select(SHEETS).where(SHEETS.c.name == name)).first()
        return None if row is None else _sheet(row._mapping)

    def answered(self, scan: str) -> dict[str, set[str]]:
        """Which sheets of a scan each annotator has answered."""
        question = (
            select(ANSWERS.c.annotator, ANSWERS.c.sheet)
            .join(SHEETS, ANSWERS.c.sheet == SHEETS.c.name)
            .where(SHEETS.c.scan == scan)
            .distinct()
        )
        with self._engine.connect() as connection:
            rows = connection.execute(question).all()
        found: dict[str, set[str]] = {}
        for annotator, sheet in rows:
            found.setdefault(str(annotator), set()).add(str(sheet))
        return found

    def answer(self, sheet: Sheet, annotator: str, said: Sequence[Said]) -> bool:
        """Save an answer as the annotator's newest; False where it is the one already there."""
        text = json.dumps([asdict(each) for each in said], ensure_ascii=False)
        digest = hashlib.sha256(text.encode()).hexdigest()
        for _ in range(TRIES):
            latest = self._latest(sheet.name, annotator)
            if latest is not None and latest[1] == digest:
                return False
            row = {
                "sheet": sheet.name,
                "annotator": annotator,
                "revision": (latest[0] if latest else 0) + 1,
                "made": datetime.now(UTC),
                "digest": digest,
                "said": text,
            }
            try:
                with self._writing() as connection:
                    connection.execute(insert(ANSWERS), row)
            except IntegrityError:
                continue  # somebody saved this revision meanwhile: look again
            return True
        raise StoreError(
            f"sheet {sheet.name} is being saved by others under the name {annotator!r}; "
            "run the same command again"
        )

    def _latest(self, sheet: str, annotator: str) -> tuple[int, str] | None:
        question = (
            select(ANSWERS.c.revision, ANSWERS.c.digest)
            .where(ANSWERS.c.sheet == sheet, ANSWERS.c.annotator == annotator)
            .order_by(ANSWERS.c.revision.desc())
            .limit(1)
        )
        with self._engine.connect() as connection:
            found = connection.execute(question).first()
        return None if found is None else (int(found[0]), str(found[1]))

    def sayings(self, scan: str | None = None, key: str | None = None) -> list[Saying]:
        """What every annotator last said of every sheet, by sheet and annotator.

        With `scan`, or `key` too, only of the sheets of that scan, or of that key of it.
        """
        newest = (
            select(ANSWERS.c.sheet, ANSWERS.c.annotator, func.max(ANSWERS.c.revision).label("last"))
            .group_by(ANSWERS.c.sheet, ANSWERS.c.annotator)
            .subquery()
        )
        question = (
            select(SHEETS, ANSWERS.c.annotator, ANSWERS.c.said)
            .join(ANSWERS, ANSWERS.c.sheet == SHEETS.c.name)
            .join(
                newest,
                (newest.c.sheet == ANSWERS.c.sheet)
                & (newest.c.annotator == ANSWERS.c.annotator)
                & (newest.c.last == ANSWERS.c.revision),
            )
            .order_by(SHEETS.c.name, ANSWERS.c.annotator)
        )
        question = question if scan is None else question.where(SHEETS.c.scan == scan)
        question = question if key is None else question.where(SHEETS.c.key == key)
        with self._engine.connect() as connection:
            rows = [row._mapping for row in connection.execute(question).all()]
        return [Saying(_sheet(row), str(row["annotator"]), _said(row["said"])) for row in rows]

    def history(self, sheet: str, annotator: str) -> list[tuple[Said, ...]]:
        """Everything an annotator ever said of a sheet, oldest first."""
        question = (
            select(ANSWERS.c.said)
            .where(ANSWERS.c.sheet == sheet, ANSWERS.c.annotator == annotator)
            .order_by(ANSWERS.c.revision)
        )
        with self._engine.connect() as connection:
            return [_said(row[0]) for row in connection.execute(question).all()]

    def close(self) -> None:
        """Let go of the database."""
        self._engine.dispose()


def _written_through(connection: Any, _record: object) -> None:
    """What was saved is on the disk before it is said to be saved; people may read meanwhile."""
    connection.execute("PRAGMA synchronous=FULL")
    connection.execute("PRAGMA foreign_keys=ON")


def _sheet_row(sheet: Sheet) -> dict[str, Any]:
    shown = json.dumps([[p.before, p.last] for p in sheet.prefixes], ensure_ascii=False)
    return {
        "name": sheet.name,
        "scan": sheet.scan,
        "layer": sheet.layer,
        "key": sheet.key,
        "control": sheet.control,
        "prefixes": shown,
    }


def _sheet(row: Any) -> Sheet:
    shown = tuple(ShownPrefix(before, last) for before, last in json.loads(row["prefixes"]))
    return Sheet(row["name"], row["scan"], row["layer"], row["key"], row["control"], shown)


def _said(text: str) -> tuple[Said, ...]:
    return tuple(
        Said(each["description"], each["kind"], tuple(each["ranks"])) for each in json.loads(text)
    )
