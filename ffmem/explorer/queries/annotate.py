"""Sheets to annotate, who has answered which, and how far people agree; blind where it must be."""

from __future__ import annotations

from dataclasses import dataclass

from ffmem.annotations.agreement import Agreement, agreement
from ffmem.annotations.sheets import PatternAnswer, Sheet, SheetPrefix, draw_sheets, sheet_of_key
from ffmem.errors import AddressError
from ffmem.explorer.context import StudyContext
from ffmem.explorer.queries.memory import cell_of
from ffmem.store.slots import TRIGGERS_SHOWN


@dataclass(frozen=True)
class SheetLine:
    """A sheet under its blind name."""

    name: str
    answered: bool


@dataclass(frozen=True)
class AnnotationProgress:
    """How many of the drawn sheets somebody has answered, and how many keys of their choice."""

    annotator: str
    answered: int
    chosen: int


@dataclass(frozen=True)
class Sheets:
    """All drawn sheets, as one annotator has answered them, and everybody's progress."""

    sheets: tuple[SheetLine, ...]
    progress: tuple[AnnotationProgress, ...]

    @property
    def next(self) -> str | None:
        """The first sheet without an answer."""
        return next((line.name for line in self.sheets if not line.answered), None)


@dataclass(frozen=True)
class SheetView:
    """A sheet as its annotator sees it: not whether it is a control, not which key.

    Only where somebody picked the key themselves is its address given. `said` is None as long as
    the annotator has not answered.
    """

    name: str
    address: str | None
    prefixes: tuple[SheetPrefix, ...]
    said: tuple[PatternAnswer, ...] | None


def scan_of(context: StudyContext) -> str:
    """The identity of the scan that sheets of this study record."""
    return context.store.manifest.key.digest


def sheets_of(context: StudyContext, annotator: str = "") -> Sheets:
    """Every drawn sheet, and who has answered how many."""
    drawn = set(_sheet_names(context))
    answered = context.annotations.sheets_by_annotator(scan_of(context))
    mine = answered.get(annotator, set())
    return Sheets(
        sheets=tuple(SheetLine(name, name in mine) for name in sorted(drawn)),
        progress=tuple(
            AnnotationProgress(who, len(theirs & drawn), len(theirs - drawn))
            for who, theirs in sorted(answered.items())
        ),
    )


def _sheet_names(context: StudyContext) -> list[str]:
    """The names of the sheets that were drawn."""
    names = context.annotations.names(scan_of(context))
    return [name for name in names if not Sheet(name, "", 0, None, None, ()).by_choice]


def draw(context: StudyContext, keys: int, controls: int, seed: int) -> int:
    """Draw sheets with control keys among them; how many are new."""
    return context.annotations.add_sheets(draw_sheets(context.store, keys, controls, seed))


def discard(context: StudyContext) -> int:
    """Remove the drawn sheets that nobody has answered; how many that were."""
    return context.annotations.discard(_sheet_names(context))


def sheet_by_name(context: StudyContext, name: str) -> Sheet:
    """A sheet of this study."""
    sheet = context.annotations.sheet(name)
    if sheet is None or sheet.scan != scan_of(context):
        raise AddressError(f"there is no sheet {name!r} in this study; see /annotate")
    return sheet


def sheet_of_memory(context: StudyContext, address: str) -> Sheet:
    """The sheet of a memory that somebody picked; it is saved with the first answer."""
    return sheet_of_key(context.store, cell_of(context, address))


def sheet_view(context: StudyContext, sheet: Sheet, annotator: str) -> SheetView:
    """A sheet with what this annotator last said of it."""
    history = context.annotations.history(sheet.name, annotator) if annotator else []
    return SheetView(
        name=sheet.name,
        address=sheet.key if sheet.by_choice else None,
        prefixes=sheet.prefixes[:TRIGGERS_SHOWN],
        said=history[-1] if history else None,
    )


def agreement_of(context: StudyContext) -> Agreement:
    """How far people agree on the sheets of this study."""
    return agreement(context.annotations.answers(scan_of(context)))
