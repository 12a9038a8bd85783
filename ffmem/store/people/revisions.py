"""Rows that are added and never changed: sheets, what everybody ever said of them, what counts.

Only a sheet that nobody has answered can go again.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from sqlalchemy import (
    Column,
    DateTime,
    ForeignKey,
    Integer,
    String,
    Table,
    Text,
    UniqueConstraint,
    delete,
    func,
    insert,
    select,
)
from sqlalchemy.exc import IntegrityError

from ffmem.errors import StoreError
from ffmem.store.people.connection import TABLES, Database

WRITE_TRIES = 20  # writers that meet on one sheet and annotator


class Revisions:
    """One kind of sheets and the answers to them; the newest revision of an answer counts."""

    def __init__(self, database: Database, sheets: Table, answers: Table) -> None:
        self._database, self._sheets, self._answers = database, sheets, answers

    def add(self, rows: Sequence[dict[str, Any]]) -> int:
        """Add the sheets that are not there yet; how many that were."""
        for _ in range(WRITE_TRIES):
            known = set(self.names())
            new = [row for row in rows if row["name"] not in known]
            if not new:
                return 0
            try:
                with self._database.writing() as connection:
                    connection.execute(insert(self._sheets), new)
            except IntegrityError:
                continue  # somebody added some of them meanwhile: look again
            return len(new)
        raise StoreError("these sheets are being added by others; run the same command again")

    def discard(self, names: Sequence[str]) -> int:
        """Remove those of the sheets that nobody has answered; how many that were."""
        columns = self._sheets.c
        answered = select(self._answers.c.sheet)
        with self._database.writing() as connection:
            chosen = delete(self._sheets).where(columns.name.in_(names))
            return int(connection.execute(chosen.where(columns.name.not_in(answered))).rowcount)

    def names(self, scan: str | None = None) -> list[str]:
        """The names of all sheets, or of one scan's, in order."""
        sheets = self._sheets.c
        question = select(sheets.name).order_by(sheets.name)
        question = question if scan is None else question.where(sheets.scan == scan)
        with self._database.reading() as connection:
            return [str(name) for (name,) in connection.execute(question).all()]

    def sheets(self, name: str | None = None) -> list[Any]:
        """The rows of all sheets, or of the one of a name, by name."""
        question = select(self._sheets).order_by(self._sheets.c.name)
        question = question if name is None else question.where(self._sheets.c.name == name)
        with self._database.reading() as connection:
            return [row._mapping for row in connection.execute(question).all()]

    def save(self, sheet: str, annotator: str, text: str) -> bool:
        """Save what was said as the annotator's newest; False where it is already there."""
        digest = hashlib.sha256(text.encode()).hexdigest()
        for _ in range(WRITE_TRIES):
            latest = self.latest(sheet, annotator)
            if latest is not None and latest[1] == digest:
                return False
            row = {
                "sheet": sheet,
                "annotator": annotator,
                "revision": (latest[0] if latest else 0) + 1,
                "made": datetime.now(UTC),
                "digest": digest,
                "said": text,
            }
            try:
                with self._database.writing() as connection:
                    connection.execute(insert(self._answers), row)
            except IntegrityError:
                continue  # somebody saved this revision meanwhile: look again
            return True
        raise StoreError(
            f"sheet {sheet} is being saved by others under the name {annotator!r}; "
            "run the same command again"
        )

    def latest(self, sheet: str, annotator: str) -> tuple[int, str] | None:
        """The newest revision and its digest."""
        columns = self._answers.c
        question = (
            select(columns.revision, columns.digest)
            .where(columns.sheet == sheet, columns.annotator == annotator)
            .order_by(columns.revision.desc())
            .limit(1)
        )
        with self._database.reading() as connection:
            found = connection.execute(question).first()
        return None if found is None else (int(found[0]), str(found[1]))

    def newest(self, **only: str | None) -> list[Any]:
        """Every sheet's row with each annotator's newest answer, by sheet and annotator.

        `only` names columns of the sheets and what they must be; None is anything.
        """
        columns = self._answers.c
        newest = (
            select(columns.sheet, columns.annotator, func.max(columns.revision).label("last"))
            .group_by(columns.sheet, columns.annotator)
            .subquery()
        )
        question = (
            select(self._sheets, columns.annotator, columns.said)
            .join(self._answers, columns.sheet == self._sheets.c.name)
            .join(
                newest,
                (newest.c.sheet == columns.sheet)
                & (newest.c.annotator == columns.annotator)
                & (newest.c.last == columns.revision),
            )
            .order_by(self._sheets.c.name, columns.annotator)
        )
        for column, wanted in only.items():
            if wanted is not None:
                question = question.where(self._sheets.c[column] == wanted)
        with self._database.reading() as connection:
            return [row._mapping for row in connection.execute(question).all()]

    def sheets_by_annotator(self, scan: str) -> dict[str, set[str]]:
        """Which sheets of a scan each annotator has answered."""
        columns = self._answers.c
        question = (
            select(columns.annotator, columns.sheet)
            .join(self._sheets, columns.sheet == self._sheets.c.name)
            .where(self._sheets.c.scan == scan)
            .distinct()
        )
        with self._database.reading() as connection:
            rows = connection.execute(question).all()
        found: dict[str, set[str]] = {}
        for annotator, sheet in rows:
            found.setdefault(str(annotator), set()).add(str(sheet))
        return found

    def history(self, sheet: str, annotator: str) -> list[str]:
        """Everything an annotator ever said of a sheet, oldest first."""
        columns = self._answers.c
        question = (
            select(columns.said)
            .where(columns.sheet == sheet, columns.annotator == annotator)
            .order_by(columns.revision)
        )
        with self._database.reading() as connection:
            return [str(row[0]) for row in connection.execute(question).all()]


def _answers_to(sheets: str, name: str) -> Table:
    return Table(
        name,
        TABLES,
        Column("id", Integer, primary_key=True),
        Column("sheet", String(16), ForeignKey(f"{sheets}.name"), nullable=False),
        Column("annotator", String(200), nullable=False),
        Column("revision", Integer, nullable=False),  # from 1; the highest counts
        Column("made", DateTime(timezone=True), nullable=False),
        Column("digest", String(64), nullable=False),  # of what was said
        Column("said", Text, nullable=False),  # JSON
        UniqueConstraint("sheet", "annotator", "revision"),
    )


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
ANSWERS = _answers_to("sheets", "answers")

CASE_SHEETS = Table(
    "case_sheets",
    TABLES,
    Column("name", String(16), primary_key=True),
    Column("scan", String(64), nullable=False),
    Column("cases", Text, nullable=False),  # JSON
)
JUDGEMENTS = _answers_to("case_sheets", "judgements")
