"""Sheets to annotate, who has answered which, and how far people agree; blind where it must be."""

from __future__ import annotations

from dataclasses import dataclass

from ffmem.annotations.agreement import Agreement, agreement
from ffmem.annotations.sheets import PatternAnswer, Sheet, SheetPrefix, draw_sheets, sheet_of_key
from ffmem.errors import AddressError
from ffmem.explorer.context import StudyContext
from ffmem.explorer.queries.memory import cell_of
from ffmem.explorer.templating import finite_or_none
from ffmem.store.slots import TRIGGERS_SHOWN

DISAGREEMENTS = 200  # shown, at most


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


@dataclass(frozen=True)
class PairLine:
    """Two annotators on the keys that both did; kappa is None where it has no meaning."""

    one: str
    other: str
    keys: int
    prefixes: int
    same: float
    kappa: float | None


@dataclass(frozen=True)
class FalseLine:
    """How often somebody saw a pattern on a control key, with a 95 % interval."""

    annotator: str
    controls: int
    share: float | None
    low: float | None
    high: float | None


@dataclass(frozen=True)
class DifferingPrefix:
    """A prefix that is labelled differently."""

    sheet: str
    key: str
    rank: int
    text: str
    labels: dict[str, str]


@dataclass(frozen=True)
class AgreementView:
    """How far annotators agree on the four labels of prefixes."""

    annotators: tuple[str, ...]
    pairs: tuple[PairLine, ...]
    alpha: float | None
    prefixes: int
    false_patterns: tuple[FalseLine, ...]
    differing: int
    disagreements: tuple[DifferingPrefix, ...]


def scan_of(context: StudyContext) -> str:
    """The identity of the scan that sheets of this study record."""
    return context.store.manifest.key.digest


def sheets_of(context: StudyContext, annotator: str = "") -> Sheets:
    """Every drawn sheet, and who has answered how many."""
    drawn = set(sheet_names(context))
    answered = context.annotations.sheets_by_annotator(scan_of(context))
    mine = answered.get(annotator, set())
    return Sheets(
        sheets=tuple(SheetLine(name, name in mine) for name in sorted(drawn)),
        progress=tuple(
            AnnotationProgress(who, len(theirs & drawn), len(theirs - drawn))
            for who, theirs in sorted(answered.items())
        ),
    )


def sheet_names(context: StudyContext) -> list[str]:
    """The names of the sheets that were drawn."""
    names = context.annotations.names(scan_of(context))
    return [name for name in names if not Sheet(name, "", 0, None, None, ()).by_choice]


def draw(context: StudyContext, keys: int, controls: int, seed: int) -> int:
    """Draw sheets with control keys among them; how many are new."""
    return context.annotations.add_sheets(draw_sheets(context.store, keys, controls, seed))


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


def agreement_view(context: StudyContext) -> AgreementView:
    """How far people agree on the sheets of this study."""
    answers = context.annotations.answers(scan_of(context))
    found = agreement(answers)
    sheets = {answer.sheet.name: answer.sheet for answer in answers}
    return AgreementView(
        annotators=tuple(found.false_patterns),
        pairs=tuple(
            PairLine(p.one, p.other, p.keys, p.prefixes, p.same, finite_or_none(p.kappa))
            for p in found.pairs
        ),
        alpha=finite_or_none(found.alpha),
        prefixes=found.prefixes,
        false_patterns=tuple(
            FalseLine(
                who, i.n, finite_or_none(i.estimate), finite_or_none(i.low), finite_or_none(i.high)
            )
            for who, i in found.false_patterns.items()
        ),
        differing=len(found.disagreements),
        disagreements=differing_prefixes(found, sheets),
    )


def differing_prefixes(found: Agreement, sheets: dict[str, Sheet]) -> tuple[DifferingPrefix, ...]:
    """The first prefixes on which labels differ, with their text."""
    lines = []
    for each in found.disagreements[:DISAGREEMENTS]:
        shown = sheets[each.sheet].prefixes[each.rank - 1]
        lines.append(
            DifferingPrefix(each.sheet, each.key, each.rank, shown.before + shown.last, each.labels)
        )
    return tuple(lines)
