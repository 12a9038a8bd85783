"""The study at a glance: what was scanned, and each layer in a line."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from ffmem.explorer.context import StudyContext
from ffmem.explorer.queries.figures import FigureFile, figure_files

BLOCKS = 96  # of a layer on the map, at most; each stands for as many neighbouring memories


@dataclass(frozen=True)
class LayerLine:
    """One layer: counts, and of every block of neighbouring memories the one that fires most."""

    layer: int
    memories: int
    dead: int
    fires: float  # share of prefixes, mean over cells
    largest: float  # median over cells of the largest coefficient
    probability: float  # median over cells of the value's top probability
    blocks: tuple[float, ...]  # share of prefixes that fire the block's densest memory
    densest: tuple[int, ...]  # that memory


@dataclass(frozen=True)
class Overview:
    """What made the study, and its layers."""

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
    layers: tuple[LayerLine, ...]


def overview(explored: StudyContext) -> Overview:
    """The study at a glance."""
    manifest = explored.store.manifest
    return Overview(
        study=explored.name,
        model=str(manifest.key.model["name"]),
        corpus=str(manifest.key.corpus["path"]).rsplit("/", 1)[-1],
        sentences=manifest.counts["sentences"],
        tokens=manifest.counts["tokens"],
        prefixes=manifest.counts["prefixes"],
        memories=sum(explored.store.memories.values()),
        signed=explored.store.cells.signed,
        seconds=manifest.seconds,
        triggers=int(manifest.key.settings["top"]),
        analyses=explored.study.names,
        figures=figure_files(explored),
        report=explored.store.folder.report_page.is_file(),
        layers=layer_lines(explored),
    )


@lru_cache(maxsize=4)
def layer_lines(explored: StudyContext) -> tuple[LayerLine, ...]:
    """Every layer; a store does not change, so this is counted once."""
    return tuple(layer_line(explored, number) for number in explored.store.memories)


def layer_line(explored: StudyContext, number: int) -> LayerLine:
    """One layer in a line."""
    rows, prefixes = (
        explored.store.cells.rows_of(number),
        explored.store.manifest.counts["prefixes"],
    )
    memories = explored.store.memories[number]
    share = np.asarray(explored.store.fires[rows]) / max(prefixes, 1)
    by_memory = share.reshape(-1, memories).mean(axis=0)
    size = -(-memories // BLOCKS)
    padded = np.full((-(-memories // size), size), -1.0)
    padded.reshape(-1)[:memories] = by_memory
    best = padded.argmax(axis=1)
    return LayerLine(
        layer=number,
        memories=memories,
        dead=int((explored.store.array("fires")[rows] == 0).sum()),
        fires=float(share.mean()),
        largest=float(np.median(explored.store.array("largest")[rows])),
        probability=float(np.median(explored.lookup.statistic("probability")[rows])),
        blocks=tuple(padded.max(axis=1).tolist()),
        densest=tuple((np.arange(len(best)) * size + best).tolist()),
    )
