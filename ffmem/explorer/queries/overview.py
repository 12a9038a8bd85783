"""The study at a glance: what was scanned, where to start, the claims, each layer in a line."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from ffmem.analyses.verdicts import Verdict, tally
from ffmem.explorer.context import StudyContext
from ffmem.explorer.queries.figures import FigureFile, figure_files
from ffmem.explorer.queries.start import StartCard, start_cards
from ffmem.report.about import read_by_models

BLOCKS = 96  # of a layer on the map, at most; each stands for as many neighbouring memories


@dataclass(frozen=True)
class LayerLine:
    """One layer: counts, and of every block of neighbouring memories the one that fires most."""

    layer: int
    memories: int
    dead: int
    fires: float  # share of prefixes, mean over cells
    largest: float  # median over cells of the largest coefficient
    blocks: tuple[float, ...]  # share of prefixes that fire the block's densest memory
    densest: tuple[int, ...]  # that memory


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
    readings: str  # what language models read, as a sentence; empty where none did
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
        readings=read_by_models(context.study),
        claims=judged,
        layers=layer_lines(context),
    )


@lru_cache(maxsize=4)
def layer_lines(context: StudyContext) -> tuple[LayerLine, ...]:
    """Every layer; a store does not change, so this is counted once."""
    return tuple(_layer_line(context, number) for number in context.store.memories)


def _layer_line(context: StudyContext, number: int) -> LayerLine:
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
        blocks=tuple(padded.max(axis=1).tolist()),
        densest=tuple((np.arange(len(best)) * size + best).tolist()),
    )
