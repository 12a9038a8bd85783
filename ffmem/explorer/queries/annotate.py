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
class Progress:
    """How many of the drawn sheets somebody has answered, and how many keys of their choice."""

    annotator: str
    answered: int
    chosen: int


@dataclass(frozen=True)
class Sheets:
    """All drawn sheets, as one annotator has answered them, and everybody's progress."""

    sheets: tuple[SheetLine, ...]
    progress: tuple[Progress, ...]

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


def scan_of(explored: StudyContext) -> str:
    """What the sheets of this study carry."""
    return explored.store.manifest.key.digest


def sheets_of(explored: StudyContext, annotator: str = "") -> Sheets:
    """Every drawn sheet, and who has answered how many."""
    drawn = set(sheet_names(explored))
    answered = explored.annotations.sheets_by_annotator(scan_of(explored))
    mine = answered.get(annotator, set())
    return Sheets(
        sheets=tuple(SheetLine(name, name in mine) for name in sorted(drawn)),
        progress=tuple(
            Progress(who, len(theirs & drawn), len(theirs - drawn))
            for who, theirs in sorted(answered.items())
        ),
    )


def sheet_names(explored: StudyContext) -> list[str]:
    """The names of the sheets that were drawn."""
    names = explored.annotations.names(scan_of(explored))
    return [name for name in names if not Sheet(name, "", 0, None, None, ()).by_choice]


def draw(explored: StudyContext, keys: int, controls: int, seed: int) -> int:
    """Draw sheets with control keys among them; how many are new."""
    return explored.annotations.add_sheets(draw_sheets(explored.store, keys, controls, seed))


def sheet_by_name(explored: StudyContext, name: str) -> Sheet:
    """A sheet of this study."""
    sheet = explored.annotations.sheet(name)
    if sheet is None or sheet.scan != scan_of(explored):
        raise AddressError(f"there is no sheet {name!r} in this study; see /annotate")
    return sheet


def sheet_of_memory(explored: StudyContext, address: str) -> Sheet:
    """The sheet of a memory that somebody picked; it is saved with the first answer."""
    return sheet_of_key(explored.store, cell_of(explored, address))


def sheet_view(explored: StudyContext, sheet: Sheet, annotator: str) -> SheetView:
    """A sheet with what this annotator last said of it."""
    said = explored.annotations.history(sheet.name, annotator) if annotator else []
    return SheetView(
        name=sheet.name,
        address=sheet.key if sheet.by_choice else None,
        prefixes=sheet.prefixes[:TRIGGERS_SHOWN],
        said=said[-1] if said else None,
    )


def agreement_view(explored: StudyContext) -> AgreementView:
    """How far people agree on the sheets of this study."""
    sayings = explored.annotations.answers(scan_of(explored))
    found = agreement(sayings)
    sheets = {saying.sheet.name: saying.sheet for saying in sayings}
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
