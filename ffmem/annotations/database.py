"""Sheets, answers and labels in a database; rows are added, never changed, so nothing is lost."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from sqlalchemy import URL, Engine, create_engine, event
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.pool import NullPool

from ffmem.annotations.labels import MemoryLabels
from ffmem.annotations.revisions import ANSWERS, CASE_SHEETS, JUDGEMENTS, SHEETS, TABLES, Revisions
from ffmem.annotations.sheets import (
    CaseAnswer,
    CaseLine,
    CaseSheet,
    Judgement,
    PatternAnswer,
    Sheet,
    SheetAnswer,
    SheetPrefix,
)
from ffmem.errors import StoreError
from ffmem.locations import location


class Annotations:
    """One database of sheets and answers; safe for several people at once."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._answers = Revisions(engine, SHEETS, ANSWERS)
        self._judgements = Revisions(engine, CASE_SHEETS, JUDGEMENTS)

    @classmethod
    def open(cls, url: str) -> Annotations:
        """Open a database by URL, or by the path of a SQLite file.

        Tables that are absent are made: in a new database all, in an older one those that came
        later.
        """
        where: str | URL = url.replace("postgresql://", "postgresql+psycopg://", 1)
        if "://" not in url:  # a ? or % of the path would mean something else inside a URL
            where = URL.create("sqlite", database=str(location(url)))
        is_file = str(where).startswith("sqlite")
        options: dict[str, Any] = {}
        if is_file:  # quick to open, so nothing is left open
            options = {"poolclass": NullPool, "connect_args": {"timeout": 30}}
        try:
            engine = create_engine(where, **options)
            if is_file:
                event.listen(engine, "connect", _write_through)
            with engine.begin() as connection:
                TABLES.create_all(connection)
        except (SQLAlchemyError, ModuleNotFoundError, ValueError) as error:
            name, reason = str(where).split("@")[-1], str(error).splitlines()[0]
            raise StoreError(
                f"the annotations in {name} cannot be opened ({reason}); give a "
                "file, or a URL such as postgresql://user@host/name"
            ) from None
        return cls(engine)

    def add_sheets(self, sheets: Sequence[Sheet]) -> int:
        """Add the sheets that are not there yet; how many that were."""
        return self._answers.add([_sheet_row(sheet) for sheet in sheets])

    def names(self, scan: str | None = None) -> list[str]:
        """The names of all sheets, or of one scan's, in order."""
        return self._answers.names(scan)

    def add_and_get_sheets(self, sheets: Sequence[Sheet]) -> list[Sheet]:
        """Add the sheets that are not there yet; all of them, as the database has them.

        A control sheet drawn with other options has other prefixes; the one given out first stays.
        """
        self.add_sheets(sheets)
        known = {sheet.name: sheet for sheet in self.sheets()}
        return [known[sheet.name] for sheet in sheets]

    def sheets(self) -> list[Sheet]:
        """All sheets, by name."""
        return [_sheet(row) for row in self._answers.sheets()]

    def sheet(self, name: str) -> Sheet | None:
        """One sheet, or None where there is none of this name."""
        return next((_sheet(row) for row in self._answers.sheets(name)), None)

    def sheets_by_annotator(self, scan: str) -> dict[str, set[str]]:
        """Which sheets of a scan each annotator has answered."""
        return self._answers.sheets_by_annotator(scan)

    def answer(self, sheet: Sheet, annotator: str, answers: Sequence[PatternAnswer]) -> bool:
        """Save an answer as the annotator's newest; False where it is the one already there."""
        text = json.dumps([asdict(each) for each in answers], ensure_ascii=False)
        return self._answers.save(sheet.name, annotator, text)

    def answers(self, scan: str | None = None, key: str | None = None) -> list[SheetAnswer]:
        """The latest answer of every annotator to every sheet, by sheet and annotator.

        With `scan`, or `key` too, only of the sheets of that scan, or of that key of it.
        """
        return [
            SheetAnswer(_sheet(row), str(row["annotator"]), _parse_answers(row["said"]))
            for row in self._answers.newest(scan=scan, key=key)
        ]

    def history(self, sheet: str, annotator: str) -> list[tuple[PatternAnswer, ...]]:
        """Everything an annotator ever said of a sheet, oldest first."""
        return [_parse_answers(text) for text in self._answers.history(sheet, annotator)]

    def add_case_sheets(self, sheets: Sequence[CaseSheet]) -> int:
        """Add the sheets of cases that are not there yet; how many that were."""
        return self._judgements.add([_case_sheet_row(sheet) for sheet in sheets])

    def case_sheets(self) -> list[CaseSheet]:
        """All sheets of cases, by name."""
        return [_case_sheet(row) for row in self._judgements.sheets()]

    def judge(self, sheet: CaseSheet, annotator: str, judged: Sequence[Judgement]) -> bool:
        """Save a judgement per case as the annotator's newest; False where it is there already."""
        return self._judgements.save(sheet.name, annotator, json.dumps(list(judged)))

    def case_answers(self, scan: str | None = None) -> list[CaseAnswer]:
        """Everybody's latest judgements of the cases of every sheet, or of one scan's."""
        return [
            CaseAnswer(_case_sheet(row), str(row["annotator"]), tuple(json.loads(row["said"])))
            for row in self._judgements.newest(scan=scan)
        ]

    def labels(self, scan: str) -> MemoryLabels:
        """The labels, notes and lists of one scan's memories."""
        return MemoryLabels(self._engine, scan)

    def close(self) -> None:
        """Let go of the database."""
        self._engine.dispose()


def _write_through(connection: Any, _record: object) -> None:
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
    shown = tuple(SheetPrefix(before, last) for before, last in json.loads(row["prefixes"]))
    return Sheet(row["name"], row["scan"], row["layer"], row["key"], row["control"], shown)


def _parse_answers(text: str) -> tuple[PatternAnswer, ...]:
    return tuple(
        PatternAnswer(each["description"], each["kind"], tuple(each["ranks"]))
        for each in json.loads(text)
    )


def _case_sheet_row(sheet: CaseSheet) -> dict[str, Any]:
    shown = json.dumps([asdict(case) for case in sheet.cases], ensure_ascii=False)
    return {"name": sheet.name, "scan": sheet.scan, "cases": shown}


def _case_sheet(row: Any) -> CaseSheet:
    shown = tuple(CaseLine(**case) for case in json.loads(row["cases"]))
    return CaseSheet(row["name"], row["scan"], shown)
