"""Sheets, answers and labels in a database; what was said is added, never changed or lost."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from operator import index
from typing import Any

from ffmem.analyses.last_layer.record import Judgement
from ffmem.annotations.sheets import (
    CaseAnswer,
    CaseLine,
    CaseSheet,
    PatternAnswer,
    Sheet,
    SheetAnswer,
    SheetPrefix,
)
from ffmem.store.people.connection import Database
from ffmem.store.people.memory_labels import MemoryLabels
from ffmem.store.people.revisions import ANSWERS, CASE_SHEETS, JUDGEMENTS, SHEETS, Revisions


class Annotations:
    """One database of sheets and answers; safe for several people at once."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._answers = Revisions(database, SHEETS, ANSWERS)
        self._judgements = Revisions(database, CASE_SHEETS, JUDGEMENTS)

    @classmethod
    def open(cls, url: str) -> Annotations:
        """Open a database by URL, or by the path of a SQLite file; a new one is made."""
        return cls(Database.open(url))

    def add_sheets(self, sheets: Sequence[Sheet]) -> int:
        """Add the sheets that are not there yet; how many that were."""
        return self._answers.add([_sheet_row(sheet) for sheet in sheets])

    def discard(self, names: Sequence[str]) -> int:
        """Remove those of the sheets that nobody has answered; how many that were."""
        return self._answers.discard(names)

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
        with self._database.parsing():
            return [_sheet(row) for row in self._answers.sheets()]

    def sheet(self, name: str) -> Sheet | None:
        """One sheet, or None where there is none of this name."""
        with self._database.parsing():
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
        with self._database.parsing():
            return [
                SheetAnswer(_sheet(row), str(row["annotator"]), _parse_answers(row["said"]))
                for row in self._answers.newest(scan=scan, key=key)
            ]

    def history(self, sheet: str, annotator: str) -> list[tuple[PatternAnswer, ...]]:
        """Everything an annotator ever said of a sheet, oldest first."""
        with self._database.parsing():
            return [_parse_answers(text) for text in self._answers.history(sheet, annotator)]

    def add_case_sheets(self, sheets: Sequence[CaseSheet]) -> int:
        """Add the sheets of cases that are not there yet; how many that were."""
        return self._judgements.add([_case_sheet_row(sheet) for sheet in sheets])

    def case_sheets(self) -> list[CaseSheet]:
        """All sheets of cases, by name."""
        with self._database.parsing():
            return [_case_sheet(row) for row in self._judgements.sheets()]

    def judge(self, sheet: CaseSheet, annotator: str, judged: Sequence[Judgement]) -> bool:
        """Save a judgement per case as the annotator's newest; False where it is there already."""
        return self._judgements.save(sheet.name, annotator, json.dumps(list(judged)))

    def case_answers(self, scan: str | None = None) -> list[CaseAnswer]:
        """Everybody's latest judgements of the cases of every sheet, or of one scan's."""
        with self._database.parsing():
            return [
                CaseAnswer(_case_sheet(row), str(row["annotator"]), tuple(json.loads(row["said"])))
                for row in self._judgements.newest(scan=scan)
            ]

    def labels(self, scan: str) -> MemoryLabels:
        """The labels, notes and lists of one scan's memories."""
        return MemoryLabels(self._database, scan)

    def close(self) -> None:
        """Let go of the database; it opens again when it is asked."""
        self._database.close()


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
    layer = index(row["layer"])
    return Sheet(row["name"], row["scan"], layer, row["key"], row["control"], shown)


def _parse_answers(text: str) -> tuple[PatternAnswer, ...]:
    return tuple(
        PatternAnswer(str(each["description"]), each["kind"], tuple(map(index, each["ranks"])))
        for each in json.loads(text)
    )


def _case_sheet_row(sheet: CaseSheet) -> dict[str, Any]:
    shown = json.dumps([asdict(case) for case in sheet.cases], ensure_ascii=False)
    return {"name": sheet.name, "scan": sheet.scan, "cases": shown}


def _case_sheet(row: Any) -> CaseSheet:
    shown = tuple(CaseLine(**case) for case in json.loads(row["cases"]))
    return CaseSheet(row["name"], row["scan"], shown)
