"""How many coefficients along sentences a study keeps."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

CONFIDENT = 32  # values, of all layers


@dataclass(frozen=True)
class StoredSizes:
    """How much was kept: the number of cells, of sentences and of bytes.

    `budget` is the most that they may take; `left_out` cells did not fit into it.
    """

    cells: int
    sentences: int
    bytes: int
    budget: int
    left_out: int


@dataclass(frozen=True)
class ColouredText:
    """A text cut into tokens, with the memory's coefficient at each; `sentence` of the corpus."""

    sentence: int | None
    tokens: tuple[str, ...]
    coefficients: tuple[float, ...]


@dataclass(frozen=True)
class PageCoefficients:
    """The sentences of a memory's page; `largest` is that of the scan, which all are shares of.

    `source` is None where neither the model is loaded nor the study has kept them; `advice` says
    what to do then.
    """

    source: Literal["model", "study"] | None
    largest: float
    sentences: tuple[ColouredText, ...]
    advice: str = ""
