"""Prefixes as text and words: a key's triggers, and random ones to compare them with."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from ffmem.address import Address
from ffmem.store.scan_store import ScanStore
from ffmem.store.slots import TRIGGERS_SHOWN, Kind

WORD = re.compile(r"\w+(?:[-'’]\w+)*|[^\w\s]")
FEW = 500  # with fewer sentences than this in the random samples, all kept ones are drawn from


@dataclass(frozen=True)
class Prefix:
    """The first tokens of a sentence, as text; `ends` is the character after each token."""

    sentence: int
    text: str
    ids: tuple[int, ...]
    ends: tuple[int, ...]

    @classmethod
    def of(cls, text: str, sentence: int = 0) -> Prefix:
        """A prefix whose tokens are its words, each with the space before it."""
        ends = tuple(match.end() for match in re.finditer(r"\s*\S+", text))
        return cls(sentence, text, tuple(range(len(ends))), ends)

    @property
    def last(self) -> str:
        """What the last token adds to the text."""
        return self.text[self.ends[-2] if len(self.ends) > 1 else 0 :]

    @cached_property
    def words(self) -> tuple[tuple[str, int, int], ...]:
        """Words and punctuation marks, each with its first character and the one after it."""
        return tuple((found[0], found.start(), found.end()) for found in WORD.finditer(self.text))


def prefix_at(store: ScanStore, row: int, position: int) -> Prefix:
    """The first `position` tokens of the kept sentence in that row."""
    kept = store.sentences
    start = int(kept.starts[row])
    ends = tuple(int(end) for end in kept.token_ends[start : start + position])
    ids = tuple(int(token) for token in kept.tokens[start : start + position])
    return Prefix(row, kept.sentence(row)[: ends[-1]], ids, ends)


def trigger_prefixes(
    store: ScanStore, key: Address, kind: Kind = "trigger"
) -> list[tuple[Prefix, float]]:
    """A key's triggers, strongest first, or its random sample, with their coefficients."""
    slots = store.slots([store.cells.row(key)], kind)
    columns = (slots.sentence.tolist(), slots.position.tolist(), slots.coefficient.tolist())
    return [
        (prefix_at(store, sentence, position), coefficient)
        for sentence, position, coefficient in zip(*columns, strict=True)
        if position
    ]


def random_prefixes(store: ScanStore, count: int, seed: int) -> list[Prefix]:
    """Prefixes of sentences in the random samples: uniform over sentences, then over positions.

    The whole sentence is left out, as in the scan. No place comes twice; where sentences are few
    a sentence comes several times, so there can be fewer than `count`.
    """
    generator = np.random.default_rng([seed, 4])
    rows = store.slots(slice(None), "sample").distinct_sentences()
    if len(rows) < FEW:
        rows = np.arange(len(store.sentences))
    sizes = np.diff(np.asarray(store.sentences.starts))[rows]
    rows, sizes = rows[sizes > 1], sizes[sizes > 1]
    places: dict[tuple[int, int], None] = {}
    rounds = 0
    while len(places) < count and rounds < 20:
        rounds += 1
        positions = 1 + np.floor(generator.random(len(rows)) * (sizes - 1)).astype(int)
        for at in generator.permutation(len(rows)):
            places[int(rows[at]), int(positions[at])] = None
    return [prefix_at(store, row, position) for row, position in list(places)[:count]]


@dataclass(frozen=True)
class PseudoKey:
    """Random prefixes dressed as a key: `shown` for the annotator, `held` to score it with."""

    kind: str  # "random" or "matched"
    layer: int
    shown: tuple[Prefix, ...]
    held: tuple[Prefix, ...]


class PseudoKeys:
    """Draws pseudo-keys from a pool of random prefixes, no two prefixes of one from a sentence."""

    def __init__(self, pool: Sequence[Prefix], seed: int, shown: int = TRIGGERS_SHOWN) -> None:
        self.pool, self.shown = pool, shown
        self._generator = np.random.default_rng([seed, 5])
        self._endings = Counter(prefix.last for prefix in pool)
        self._bins = [self._bin(prefix) for prefix in pool]

    def _bin(self, prefix: Prefix) -> int:
        """How common the last token is among random prefixes, in powers of two."""
        return self._endings[prefix.last].bit_length()

    def _ending(self, at: int) -> str:
        return self.pool[at].last.strip().lower()

    def random(self, layer: int) -> PseudoKey:
        """A pseudo-key of random prefixes."""
        order = self._generator.permutation(len(self.pool))
        return self._pseudo_key("random", layer, self._distinct(order.tolist()))

    def of_matching_frequency(self, layer: int, triggers: Sequence[Prefix]) -> PseudoKey:
        """Prefixes whose last tokens are as common as those of a key's triggers.

        No last token comes more than twice, so that matching makes no pattern by itself.
        """
        wanted = [self._bin(prefix) or 1 for prefix in triggers[: self.shown]] or [1]
        left: dict[int, list[int]] = {}
        for at in self._generator.permutation(len(self.pool)).tolist():
            left.setdefault(self._bins[at], []).append(at)
        found: list[int] = []
        seen, ends = set[int](), Counter[str]()
        for turn in range(2 * self.shown):
            level = wanted[turn % len(wanted)]
            at = None
            while at is None and any(left.values()):
                nearest = min((abs(b - level), b) for b, those in left.items() if those)[1]
                candidate = left[nearest].pop()
                if self.pool[candidate].sentence not in seen and ends[self._ending(candidate)] < 2:
                    at = candidate
            if at is None:
                break
            found.append(at)
            seen.add(self.pool[at].sentence)
            ends[self._ending(at)] += 1
        return self._pseudo_key("matched", layer, found)

    def _distinct(self, order: list[int]) -> list[int]:
        found: dict[int, int] = {}
        for at in order:
            found.setdefault(self.pool[at].sentence, at)
            if len(found) == 2 * self.shown:
                break
        return list(found.values())

    def _pseudo_key(self, kind: str, layer: int, found: list[int]) -> PseudoKey:
        chosen = [self.pool[at] for at in found]
        return PseudoKey(kind, layer, tuple(chosen[: self.shown]), tuple(chosen[self.shown :]))
