"""Sheets for annotators and their answers, as plain values.

Sheets of a key's triggers, and sheets of cases: changes of the last layer to be judged by people,
pairs of tokens, real and shuffled.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ffmem.address import Address
from ffmem.analyses.controls import random_keys
from ffmem.analyses.last_layer.record import Judgement
from ffmem.analyses.patterns.measure import POOL, PURPOSE
from ffmem.analyses.patterns.prefixes import (
    Prefix,
    PseudoKeys,
    first_prefixes,
    prefixes_of_texts,
    random_prefixes,
)
from ffmem.analyses.patterns.record import (
    MIN_TRIGGERS,
    KeyPatterns,
    Label,
    Pattern,
    PatternKind,
    trigger_labels,
)
from ffmem.errors import StoreError
from ffmem.store.scan_store import ScanStore
from ffmem.store.slots import TRIGGERS_SHOWN

if TYPE_CHECKING:
    from ffmem.analyses.last_layer.record import Case, LastLayer

CHOICE_PREFIX = "chosen-"  # begins the name of a sheet that somebody picked by looking at the key
ON_A_SHEET = 25


@dataclass(frozen=True)
class SheetPrefix:
    """One line of a sheet: the text before the last token, and that token."""

    before: str
    last: str


@dataclass(frozen=True)
class Sheet:
    """A key, or a control key, under a name that does not tell which."""

    name: str
    scan: str  # digest of the scan it was drawn from
    layer: int
    key: str | None  # the address, or None for a control key
    control: str | None  # "random" or "matched", or None for a real key
    prefixes: tuple[SheetPrefix, ...]

    @property
    def address(self) -> Address | None:
        """The key, or None for a control key."""
        return None if self.key is None else Address.parse(self.key)

    @property
    def by_choice(self) -> bool:
        """Whether its key was picked, not drawn: then no study of random keys counts it."""
        return self.name.startswith(CHOICE_PREFIX)


@dataclass(frozen=True)
class PatternAnswer:
    """One pattern as an annotator gave it."""

    description: str
    kind: PatternKind
    ranks: tuple[int, ...]


@dataclass(frozen=True)
class SheetAnswer:
    """One annotator's latest answer to one sheet; it may have no pattern."""

    sheet: Sheet
    annotator: str
    answers: tuple[PatternAnswer, ...]

    @property
    def labels(self) -> list[Label]:
        """The label of every prefix on the sheet."""
        return trigger_labels(self.patterns(), len(self.sheet.prefixes))

    def key_patterns(self) -> KeyPatterns:
        """The same for Fig 2; only for sheets of real keys."""
        key = self.sheet.address
        if key is None:
            raise ValueError(f"sheet {self.sheet.name} is of a control key, not of a key")
        return KeyPatterns(key, len(self.sheet.prefixes), tuple(self.patterns()))

    def patterns(self) -> list[Pattern]:
        """The answer as patterns of the sheet's key."""
        key = self.sheet.address
        return [
            Pattern(key, one.description, one.kind, one.ranks, self.annotator)
            for one in self.answers
        ]


def to_answers(patterns: Sequence[Pattern]) -> tuple[PatternAnswer, ...]:
    """Patterns of a program as an annotator's answer."""
    return tuple(PatternAnswer(found.description, found.kind, found.ranks) for found in patterns)


def sheet_prefixes(
    store: ScanStore, sheets: Sequence[Sheet], seed: int = 0
) -> dict[str, list[Prefix]]:
    """The prefixes of every sheet that was drawn from this scan, by the sheet's name, in order.

    Those of control keys are looked for among the random prefixes of `seed` first, then everywhere.
    """
    mine = [sheet for sheet in sheets if sheet.scan == store.manifest.key.digest]
    controls = {sheet.name: _texts(sheet) for sheet in mine if sheet.key is None}
    wanted = {text for texts in controls.values() for text in texts}
    known = {prefix.text: prefix for prefix in random_prefixes(store, POOL, seed)}
    known |= prefixes_of_texts(store, wanted - known.keys())
    if lost := wanted - known.keys():
        raise StoreError(
            f"the control prefix {min(lost)!r} is not in the scan that its sheet was drawn from; "
            "give the database that belongs to this scan"
        )
    return {
        sheet.name: first_prefixes(store, Address.parse(sheet.key))
        if sheet.key is not None
        else [known[text] for text in controls[sheet.name]]
        for sheet in mine
    }


def _texts(sheet: Sheet) -> list[str]:
    return [shown.before + shown.last for shown in sheet.prefixes]


def draw_sheets(store: ScanStore, keys: int = 10, controls: int = 1, seed: int = 0) -> list[Sheet]:
    """Sheets for `keys` random keys per layer and `controls` control keys of each kind.

    The keys are those that `ffmem patterns` draws with the same seed, so that annotators can be
    compared. Keys with fewer than three triggers have no patterns and no sheet. Sheets come in
    the order of their names, which is random.
    """
    pseudo = PseudoKeys(random_prefixes(store, POOL, seed), seed + 1, TRIGGERS_SHOWN)
    digest = store.manifest.key.digest
    found: list[Sheet] = []
    for layer, drawn in random_keys(store, keys, seed, PURPOSE).items():
        alive = [
            (key, triggers)
            for key in drawn
            if len(triggers := first_prefixes(store, key)) >= MIN_TRIGGERS
        ]
        for key, triggers in alive:
            name = _blind(digest, seed, str(key))
            found.append(Sheet(name, digest, layer, str(key), None, _to_sheet_prefixes(triggers)))
        for turn in range(controls if alive else 0):
            matched = pseudo.of_matching_frequency(layer, alive[turn % len(alive)][1])
            for control in (pseudo.random(layer), matched):
                name = _blind(digest, seed, f"{control.kind} {layer} {turn}")
                shown = _to_sheet_prefixes(list(control.shown))
                found.append(Sheet(name, digest, layer, None, control.kind, shown))
    return sorted(found, key=lambda sheet: sheet.name)


def sheet_of_key(store: ScanStore, key: Address) -> Sheet:
    """A sheet for one key that somebody has picked; refuses a key with too few triggers."""
    triggers = first_prefixes(store, key)
    if len(triggers) < MIN_TRIGGERS:
        raise StoreError(
            f"{key} has {len(triggers)} triggers, and a pattern needs {MIN_TRIGGERS}; "
            "choose another key"
        )
    digest = store.manifest.key.digest
    name = CHOICE_PREFIX + _blind(digest, 0, str(key))
    return Sheet(name, digest, key.layer, str(key), None, _to_sheet_prefixes(triggers))


def _blind(digest: str, seed: int, what: str) -> str:
    return hashlib.sha256(f"{digest} {seed} {what}".encode()).hexdigest()[:8]


def _to_sheet_prefixes(prefixes: list[Prefix]) -> tuple[SheetPrefix, ...]:
    return tuple(
        SheetPrefix(prefix.text[: len(prefix.text) - len(prefix.last)], prefix.last)
        for prefix in prefixes
    )


@dataclass(frozen=True)
class CaseLine:
    """One change as it is shown; `control` is not: then `old` is another case's."""

    prefix: str
    old: str  # the residual's token
    layer: str  # what the layer alone says
    new: str  # the output
    gold: str | None  # how the text goes on
    control: bool


@dataclass(frozen=True)
class CaseSheet:
    """Some cases, controls among them, under a name that is a digest of them."""

    name: str
    scan: str  # digest of the scan they were drawn from
    cases: tuple[CaseLine, ...]


@dataclass(frozen=True)
class CaseAnswer:
    """One annotator's latest answer to a sheet of cases, one judgement each."""

    sheet: CaseSheet
    annotator: str
    judged: tuple[Judgement, ...]


def draw_case_sheets(
    found: LastLayer, scan: str, controls: int | None = None
) -> list[tuple[CaseSheet, tuple[Judgement, ...]]]:
    """Sheets of all cases and of some controls, mixed, each with the rule's judgements.

    The order is that of a digest of each case, so it tells nothing and is always the same.
    """
    pairs = [(_case_line(case, False), _judgement(case)) for case in found.cases]
    pairs += [(_case_line(case, True), _judgement(case)) for case in found.controls[:controls]]
    pairs.sort(key=lambda pair: _digest(scan, pair[0].prefix, pair[0].old, pair[0].new))
    sheets = []
    for start in range(0, len(pairs), ON_A_SHEET):
        shown, judged = zip(*pairs[start : start + ON_A_SHEET], strict=True)
        texts = [text for case in shown for text in (case.prefix, case.old, case.new)]
        sheets.append((CaseSheet(_digest(scan, *texts), scan, shown), judged))
    return sheets


def judgements_by_case(case_answers: Sequence[CaseAnswer]) -> dict[CaseLine, dict[str, Judgement]]:
    """Everybody's judgement of every case."""
    found: dict[CaseLine, dict[str, Judgement]] = {}
    for case_answer in case_answers:
        for case, judgement in zip(case_answer.sheet.cases, case_answer.judged, strict=True):
            found.setdefault(case, {})[case_answer.annotator] = judgement
    return found


def _case_line(case: Case, control: bool) -> CaseLine:
    return CaseLine(case.prefix, case.residual, case.feedforward, case.output, case.gold, control)


def _judgement(case: Case) -> Judgement:
    return "related" if case.related else "distant"


def _digest(*texts: str) -> str:
    return hashlib.sha256("\n".join(texts).encode()).hexdigest()[:8]
