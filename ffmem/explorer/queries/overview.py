"""The study at a glance: what was scanned, where to start, the claims, each layer in a line.

Also the experts of its mixtures: their use, and the patterns of their memories.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any
from urllib.parse import urlencode

import numpy as np
from numpy.typing import NDArray

from ffmem.address import Address
from ffmem.analyses.experts.record import Experts
from ffmem.analyses.patterns.by_memory import study_patterns
from ffmem.analyses.patterns.record import Pattern
from ffmem.analyses.verdicts import Verdict, tally
from ffmem.explorer.context import StudyContext
from ffmem.explorer.queries.figures import FigureFile, figure_files
from ffmem.store.memory_page import Evidence, evidence
from ffmem.store.search.columns import AgreementTable, agreement_table
from ffmem.store.slots import TRIGGERS_SHOWN, Trigger

POINTERS = 4  # memories of a card
EXAMPLES = 3  # prompts to begin with
ENOUGH_TRIGGERS = 10  # for a value to be called right or wrong
AGREES = 0.2  # share of triggers from which on a sure value is an agreeing one
DEPTHS = ("Lower", "Middle", "Upper")
BLOCKS = 96  # of a layer on the map, at most; each stands for as many neighbouring memories
EXPERTS = "experts"
EXPERT_KINDS = {"E": "routed experts", "S": "shared experts", "": "dense layers"}


@dataclass(frozen=True)
class LayerLine:
    """One layer: counts, and of every block of neighbouring memories the one that fires most."""

    layer: int
    memories: int
    dead: int
    fires: float  # share of prefixes, mean over cells
    largest: float  # median over cells of the largest coefficient
    probability: float | None  # median over cells of the value's top probability
    blocks: tuple[float, ...]  # share of prefixes that fire the block's densest memory
    densest: tuple[int, ...]  # that memory


@dataclass(frozen=True)
class Pointer:
    """A memory worth a look, what is to be seen of it, and one of its triggers."""

    address: str
    says: str
    tokens: tuple[str, ...]  # that its value promotes
    evidence: Evidence | None


@dataclass(frozen=True)
class StartCard:
    """A few memories of one kind, and the search that finds more."""

    title: str
    says: str
    pointers: tuple[Pointer, ...]
    more: str  # query of the search page; empty where there is none


@dataclass(frozen=True)
class PromptExample:
    """A text to begin with, and a change that is worth a try there."""

    text: str
    edit: str


@dataclass(frozen=True)
class Overview:
    """What made the study, where to start, what became of the claims, and its layers."""

    study: str
    model: str
    corpus: str
    sentences: int
    tokens: int
    prefixes: int
    memories: int
    signed: bool
    seconds: float
    triggers: int  # kept for every cell
    analyses: tuple[str, ...]
    figures: tuple[FigureFile, ...]
    report: bool  # whether one was written
    cards: tuple[StartCard, ...]  # those whose analyses were made
    headline: str  # how many claims have each outcome; empty where none was measured
    claims: tuple[Verdict, ...]  # those that were measured
    layers: tuple[LayerLine, ...]


def overview(context: StudyContext) -> Overview:
    """The study at a glance."""
    manifest = context.store.manifest
    verdicts = context.study.verdicts
    judged = tuple(one for one in verdicts if one.finding is not None)
    return Overview(
        study=context.name,
        model=str(manifest.key.model["name"]),
        corpus=str(manifest.key.corpus["path"]).rsplit("/", 1)[-1],
        sentences=manifest.counts["sentences"],
        tokens=manifest.counts["tokens"],
        prefixes=manifest.counts["prefixes"],
        memories=sum(context.store.memories.values()),
        signed=context.store.cells.signed,
        seconds=manifest.seconds,
        triggers=int(manifest.key.settings["top"]),
        analyses=context.study.names,
        figures=figure_files(context),
        report=context.store.folder.report_page.is_file(),
        cards=tuple(card for card in start_cards(context) if card.pointers),
        headline=tally(verdicts).text if judged else "",
        claims=judged,
        layers=layer_lines(context),
    )


def start_cards(context: StudyContext) -> Iterator[StartCard]:
    """The cards that this study's results can fill."""
    known = known_agreement(context)
    if known is not None:
        yield agreeing_card(context, known)
    yield pattern_card(context)
    if "causal" in context.study.names:
        yield causal_card(context)
    if known is not None:
        yield disagreeing_card(context, known)


def known_agreement(context: StudyContext) -> AgreementTable | None:
    """How often values are right, where that was measured and the scan knows their tokens."""
    store = context.store
    return agreement_table(store.folder, store.cells.count) if store.has_rankings else None


@lru_cache(maxsize=2)
def agreeing_card(context: StudyContext, known: AgreementTable) -> StartCard:
    """The values that are most often right about what follows their triggers."""
    pointers = []
    for row in agreeing_rows(context, known):
        cell = context.store.cells.address(row)
        triggers = context.store.triggers(cell)[:TRIGGERS_SHOWN]
        says = f"its first token follows {known.agreeing[row]} of {known.triggers[row]} triggers"
        shown = agreeing_triggers(context, cell) or list(enumerate(triggers))
        pointers.append(point(context, cell, says, shown))
    return StartCard(
        "Values that agree with the text",
        "The first token that the value promotes is what most often follows the triggers.",
        tuple(pointers),
        f"by=any&sort=agreement&agrees={100 * AGREES:g}",
    )


def agreeing_rows(context: StudyContext, known: AgreementTable) -> list[int]:
    """The cells whose values are right most often; of those that are so equally, the surest."""
    fits = (known.triggers >= ENOUGH_TRIGGERS) & (known.share >= AGREES)
    return best_cells(context, fits, known.share)


def agreeing_triggers(context: StudyContext, cell: Address) -> list[tuple[int, Trigger]]:
    """Of the triggers that pages show those that the value's first token follows, ranks from 0."""
    first = context.lookup.value_tokens(cell, count=1)[0].text
    triggers = enumerate(context.store.triggers(cell)[:TRIGGERS_SHOWN])
    return [(rank, one) for rank, one in triggers if one.next == first]


@lru_cache(maxsize=2)
def disagreeing_card(context: StudyContext, known: AgreementTable) -> StartCard:
    """The most certain of the values that are never right."""
    fits = (known.triggers >= ENOUGH_TRIGGERS) & (known.agreeing == 0)
    pointers = []
    for row in best_cells(context, fits):
        cell = context.store.cells.address(row)
        triggers = list(enumerate(context.store.triggers(cell)[:1]))
        says = f"its first token follows none of {known.triggers[row]} triggers"
        pointers.append(point(context, cell, says, triggers))
    return StartCard(
        "Values that disagree with the text",
        "The values that give their first token the highest probability, though it never follows "
        "a trigger.",
        tuple(pointers),
        "by=any&sort=probability&where=agreement<=0",
    )


@lru_cache(maxsize=2)
def prompt_examples(context: StudyContext) -> tuple[PromptExample, ...]:
    """Triggers with their memory silenced: short ones that the value's first token follows.

    Before agreement was measured, those of the memories that fire strongest for their layer.
    """
    known = known_agreement(context)
    right_ones = [] if known is None else agreeing_rows(context, known)
    agreeing = []
    for cell in map(context.store.cells.address, right_ones):
        right = [one.before + one.last for _, one in agreeing_triggers(context, cell)]
        agreeing += [PromptExample(min(right, key=len), f"{cell}=0")] if right else []
    if agreeing:
        return tuple(agreeing[:EXAMPLES])
    cells, largest = context.store.cells, context.lookup.statistic("largest")
    layers = list(context.store.memories)
    found = {}
    for layer in layers[len(layers) // 2 :: max(len(layers) // (2 * EXAMPLES), 1)]:
        rows = cells.rows_of(layer)
        cell = cells.address(rows.start + int(largest[rows].argmax()))
        for trigger in context.store.triggers(cell)[:1]:
            found[trigger.before + trigger.last] = f"{cell}=0"
    return tuple(PromptExample(text, edit) for text, edit in list(found.items())[:EXAMPLES])


def best_cells(
    context: StudyContext, fits: NDArray[np.bool_], score: NDArray[Any] | None = None
) -> list[int]:
    """Some cells by score, then by top probability, each with another first token.

    Tokens without a letter or digit come last: few people know what a lone byte says.
    """
    rows = np.flatnonzero(fits)
    surest = -context.lookup.statistic("probability")[rows]
    order = (
        np.argsort(surest, kind="stable") if score is None else np.lexsort((surest, -score[rows]))
    )
    first = rows[order][: 16 * POINTERS]
    tokens = context.lookup.top_texts(first, 1)
    distinct: dict[str, int] = {}
    for row, words in zip(first.tolist(), tokens, strict=True):
        distinct.setdefault(words[0].strip().casefold(), row)
    words_first = sorted(distinct, key=lambda word: not any(map(str.isalnum, word)))
    return [distinct[word] for word in words_first[:POINTERS]]


def pattern_card(context: StudyContext) -> StartCard:
    """From the lower, middle and upper layers the pattern that covers most triggers."""
    layers = list(context.store.memories)
    best: dict[int, tuple[Address, Pattern]] = {}
    for text, patterns in study_patterns(context.store.folder).by_address.items():
        cell = Address.parse(text)
        if not patterns or cell.layer not in context.store.memories:
            continue
        depth = layers.index(cell.layer) * len(DEPTHS) // len(layers)
        if depth not in best or len(patterns[0].ranks) > len(best[depth][1].ranks):
            best[depth] = (cell, patterns[0])
    pointers = []
    for depth, (cell, pattern) in sorted(best.items()):
        rank = pattern.ranks[0] - 1
        triggers = list(enumerate(context.store.triggers(cell)[: rank + 1]))[rank:]
        share = f"{len(pattern.ranks)} of {TRIGGERS_SHOWN} triggers"
        says = f"{DEPTHS[depth]} layers, {pattern.kind}: {pattern.description} ({share})"
        pointers.append(point(context, cell, says, triggers))
    return StartCard(
        "Clear patterns by depth",
        "What the triggers of a memory share, from each third of the layers.",
        tuple(pointers),
        urlencode({"by": "pattern", "q": best[max(best)][1].kind}) if best else "",
    )


def causal_card(context: StudyContext) -> StartCard:
    """The silenced memories that move the next token furthest beyond their controls."""
    every = [one for layer in context.study.result("causal").layers for one in layer.by_memory]
    best = sorted(every, key=lambda one: one.other_kl - one.kl)[:POINTERS]
    return StartCard(
        "Strongest effects when silenced",
        "Silencing one of these at its triggers moves the next-token distribution (KL) furthest "
        "beyond its control, another memory that adds as much there.",
        tuple(
            point(
                context,
                one.address,
                f"moves it by {one.kl:.3f} nats, its control by {one.other_kl:.3f} nats",
                list(enumerate(context.store.triggers(one.address)[:1])),
            )
            for one in best
            if one.kl > one.other_kl
        ),
        "",
    )


def point(
    context: StudyContext, cell: Address, says: str, triggers: Sequence[tuple[int, Trigger]]
) -> Pointer:
    """A memory with the first of some of its triggers (ranks from 0)."""
    row: NDArray[Any] = np.array([context.store.cells.row(cell)])
    shown = evidence(triggers[0][1], triggers[0][0] + 1) if triggers else None
    return Pointer(str(cell), says, tuple(context.lookup.top_texts(row, 3)[0]), shown)


@lru_cache(maxsize=4)
def layer_lines(context: StudyContext) -> tuple[LayerLine, ...]:
    """Every layer; a store does not change, so this is counted once."""
    return tuple(layer_line(context, number) for number in context.store.memories)


def layer_line(context: StudyContext, number: int) -> LayerLine:
    """One layer in a line."""
    rows, prefixes = (
        context.store.cells.rows_of(number),
        context.store.manifest.counts["prefixes"],
    )
    memories = context.store.memories[number]
    share = np.asarray(context.store.fire_counts[rows]) / max(prefixes, 1)
    by_memory = share.reshape(-1, memories).mean(axis=0)
    size = -(-memories // BLOCKS)
    padded = np.full((-(-memories // size), size), -1.0)
    padded.reshape(-1)[:memories] = by_memory
    best = padded.argmax(axis=1)
    return LayerLine(
        layer=number,
        memories=memories,
        dead=int((context.store.positive_counts[rows] == 0).sum()),
        fires=float(share.mean()),
        largest=float(np.median(context.store.array("largest")[rows])),
        probability=(
            float(np.median(context.lookup.statistic("probability")[rows]))
            if context.store.has_rankings
            else None
        ),
        blocks=tuple(padded.max(axis=1).tolist()),
        densest=tuple((np.arange(len(best)) * size + best).tolist()),
    )


@dataclass(frozen=True)
class PatternsPerMemory:
    """How many patterns the memories of one kind have, of those that were looked at."""

    kind: str  # of part: one of EXPERT_KINDS
    memories: int
    with_pattern: int
    patterns: int

    @property
    def mean(self) -> float:
        """Patterns per memory."""
        return self.patterns / max(self.memories, 1)


@dataclass(frozen=True)
class ExpertsView:
    """What there is to say of the experts; no `result` before the analysis has run."""

    result: Experts | None
    patterns: tuple[PatternsPerMemory, ...]
    figures: tuple[FigureFile, ...]


def has_experts(context: StudyContext) -> bool:
    """Whether the scanned layers have any."""
    return bool(context.store.manifest.mixtures)


def experts_view(context: StudyContext) -> ExpertsView:
    """The analysis of experts, its figures, and patterns where they were looked for."""
    study = context.study
    return ExpertsView(
        study.result(EXPERTS) if EXPERTS in study.names else None,
        patterns_per_memory(context) if "patterns" in study.names else (),
        tuple(figure for figure in figure_files(context) if figure.analysis == EXPERTS),
    )


def patterns_per_memory(context: StudyContext) -> tuple[PatternsPerMemory, ...]:
    """Patterns by the kind of part that a memory belongs to."""
    found = context.study.result("patterns")
    each = Counter(str(record.key) for record in found.records)
    drawn: dict[str, list[str]] = defaultdict(list)
    for addresses in found.drawn.values():
        for address in addresses:
            _, _, inside = address.partition(".")
            drawn[EXPERT_KINDS.get(inside[:1], EXPERT_KINDS[""])].append(address)
    return tuple(
        PatternsPerMemory(
            kind,
            len(drawn[kind]),
            sum(each[address] > 0 for address in drawn[kind]),
            sum(each[address] for address in drawn[kind]),
        )
        for kind in EXPERT_KINDS.values()
        if kind in drawn
    )
