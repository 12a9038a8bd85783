"""The settings that change what a scan finds."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from ffmem.errors import ScanError

PerSentence = Literal["max", "all"]
Dedupe = Literal["none", "sentence", "prefix"]
UNIT = 2.0**-24  # what one step of a cell's `totals` is worth
# A histogram's bin b holds coefficients above 2**(LOWEST + b), up to twice that; the first bin also
# all that are smaller, the last all that are larger.
BINS, LOWEST = 32, -16
ALL = 256  # the first sentences of a corpus, whose coefficients are all counted in bins
RAREST = 64  # later it is at least one sentence in this many
CANDIDATE_SLOTS = 2**24  # of a GPU's lists of candidates, which layers share
SLOT_BYTES = 8  # in those lists
# A mixture's buffer of candidates has room for so many times those that are worth a fold.
ROOM_OF_EXPERTS = 1
CANDIDATE_BYTES = 18  # of a candidate in that buffer


@dataclass(frozen=True)
class ScanSettings:
    """Which prefixes can be a cell's triggers (max-activating examples), and how many are kept.

    `top` and `sample` are slots per cell: the strongest triggers, and a random sample of all that
    fire. With `per_sentence="max"` a sentence enters once per cell, with its strongest prefix (the
    shortest of equals); with `"all"` every prefix enters. Prefixes of fewer than `min_prefix`
    tokens are left out, and so is the whole sentence, which has no next token, unless
    `include_final`. `dedupe` keeps one trigger per cell among sentences, or prefixes, of the same
    tokens. `signed` gives a memory two cells, one per sign of its coefficient; the model decides
    it (gated layers need it). `seed` draws the sample.
    """

    top: int = 50
    sample: int = 32
    per_sentence: PerSentence = "max"
    min_prefix: int = 1
    include_final: bool = False
    dedupe: Dedupe = "none"
    signed: bool = False
    seed: int = 0

    def __post_init__(self) -> None:
        _check_number("top", self.top, 1, 65_536)
        _check_number("sample", self.sample, 0, 65_536)
        _check_number("min_prefix", self.min_prefix, 0, 65_535)
        _check_number("seed", self.seed, 0, 2**63 - 1)
        _check_word("per_sentence", self.per_sentence, ("max", "all"))
        _check_word("dedupe", self.dedupe, ("none", "sentence", "prefix"))

    def cells(self, memories: int) -> int:
        """The number of cells of a layer with this many memories."""
        return 2 * memories if self.signed else memories


def _check_number(name: str, value: int, least: int, most: int) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
        raise ScanError(f"{name} is {value!r}; give a whole number from {least} to {most}")


def _check_word(name: str, value: str, words: tuple[str, ...]) -> None:
    if value not in words:
        raise ScanError(f"{name} is {value!r}; choose one of {', '.join(words)}")
