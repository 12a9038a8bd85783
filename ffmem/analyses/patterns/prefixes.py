"""Prefixes as text and words: a key's triggers, and random ones to compare them with."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from ffmem.address import Address
from ffmem.analyses.inputs.english import WORD
from ffmem.store.scan_store import ScanStore
from ffmem.store.slots import TRIGGERS_SHOWN, SlotKind

FEW_SENTENCES = (
    500  # with fewer sentences than this in the random samples, all kept ones are drawn from
)


@dataclass(frozen=True)
class Prefix:
    """The first tokens of a sentence, as text; `ends` is the character after each token."""

    sentence: int
    text: str
    ids: tuple[int, ...]
    ends: tuple[int, ...]
    unfinished: bool = False  # its last word goes on in the sentence

    @classmethod
    def of(cls, text: str, sentence: int = 0) -> Prefix:
        """A prefix whose tokens are its words, each with the space before it."""
        ends = tuple(match.end() for match in re.finditer(r"\s*\S+", text))
        return cls(sentence, text, tuple(range(len(ends))), ends)

    def cut(self, tokens: int) -> Prefix:
        """The first tokens of it."""
        ends = self.ends[:tokens]
        within = self.unfinished if tokens >= len(self.ids) else _splits_word(self.text, ends[-1])
        return Prefix(self.sentence, self.text[: ends[-1]], self.ids[:tokens], ends, within)

    @property
    def last(self) -> str:
        """The text of the last token."""
        return self.text[self.ends[-2] if len(self.ends) > 1 else 0 :]

    @property
    def continues(self) -> bool:
        """Whether the last token goes on with a word that another one began."""
        return len(self.ends) > 1 and _splits_word(self.text, self.ends[-2])

    @cached_property
    def words(self) -> tuple[tuple[str, int, int], ...]:
        """Words and punctuation marks, each with its first character and the one after it."""
        return tuple((found[0], found.start(), found.end()) for found in WORD.finditer(self.text))


def _splits_word(text: str, place: int) -> bool:
    """Whether a letter or digit stands on either side of this place."""
    return text[place - 1 : place].isalnum() and text[place : place + 1].isalnum()


def _prefix_at(store: ScanStore, row: int, position: int) -> Prefix:
    """The first `position` tokens of the kept sentence in that row."""
    kept = store.sentences
    start = int(kept.starts[row])
    ends = tuple(int(end) for end in kept.token_ends[start : start + position])
    ids = tuple(int(token) for token in kept.tokens[start : start + position])
    text = kept.sentence(row)
    return Prefix(row, text[: ends[-1]], ids, ends, _splits_word(text, ends[-1]))


def trigger_prefixes(
    store: ScanStore, key: Address, kind: SlotKind = "trigger"
) -> list[tuple[Prefix, float]]:
    """A key's triggers, strongest first, or its random sample, with their coefficients."""
    slots = store.slots([store.cells.row(key)], kind)
    columns = (slots.sentence.tolist(), slots.position.tolist(), slots.coefficient.tolist())
    return [
        (_prefix_at(store, sentence, position), coefficient)
        for sentence, position, coefficient in zip(*columns, strict=True)
        if position
    ]


def first_prefixes(store: ScanStore, key: Address) -> list[Prefix]:
    """Those of a key's triggers, strongest first, that annotators see."""
    return [prefix for prefix, _ in trigger_prefixes(store, key)[:TRIGGERS_SHOWN]]


def prefixes_of_texts(store: ScanStore, wanted: Collection[str]) -> dict[str, Prefix]:
    """Prefixes of kept sentences by their text; a text that no sentence begins with is left out."""
    found: dict[str, Prefix] = {}
    for row in range(len(store.sentences) if wanted else 0):
        text, start = store.sentences.sentence(row), int(store.sentences.starts[row])
        ends = store.sentences.token_ends[start : int(store.sentences.starts[row + 1])]
        for position, end in enumerate(ends, 1):
            if (prefix := text[: int(end)]) in wanted and prefix not in found:
                found[prefix] = _prefix_at(store, row, position)
    return found


def random_prefixes(store: ScanStore, count: int, seed: int) -> list[Prefix]:
    """Prefixes of sentences in the random samples: uniform over sentences, then over positions.

    The whole sentence is left out, as in the scan. No place comes twice; where sentences are few
    a sentence comes several times, so there can be fewer than `count`.
    """
    generator = np.random.default_rng([seed, 4])
    rows = store.slots(slice(None), "sample").distinct_sentences()
    if len(rows) < FEW_SENTENCES:
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
    return [_prefix_at(store, row, position) for row, position in list(places)[:count]]


@dataclass(frozen=True)
class PseudoKey:
    """Prefixes that no key has chosen: `shown` to the annotator, `held` to score it with."""

    kind: str  # one of CONTROLS
    layer: int
    shown: tuple[Prefix, ...]
    held: tuple[Prefix, ...]


CONTROLS = ("random", "matched", "length", "strangers")
LIKE_FREQUENCY = 25  # last tokens of like frequency, at least, that a matched prefix is drawn from


class PseudoKeys:
    """Draws pseudo-keys, no two prefixes of one from a sentence, mostly from a pool of random ones.

    `random`: any prefixes. `matched`: their last tokens are as common as those of a key's triggers.
    `length`: they are as long as a key's triggers. `strangers`: one trigger of each of many keys.
    """

    def __init__(self, pool: Sequence[Prefix], seed: int, shown: int = TRIGGERS_SHOWN) -> None:
        self.pool, self.shown = pool, shown
        self._generator = np.random.default_rng([seed, 5])
        self._places: dict[str, list[int]] = {}  # in the pool, by last token
        for at, prefix in enumerate(pool):
            self._places.setdefault(_ending(prefix), []).append(at)
        self._alike: dict[int, list[str]] = {}
        self._sizes = np.array([len(prefix.ids) for prefix in pool])

    def random(self, layer: int) -> PseudoKey:
        """A pseudo-key of random prefixes."""
        order = self._generator.permutation(len(self.pool)).tolist()
        return self._pseudo_key("random", layer, (self.pool[at] for at in order))

    def of_matching_frequency(self, layer: int, triggers: Sequence[Prefix]) -> PseudoKey:
        """Prefixes whose last tokens are about as common as those of a key's triggers.

        For each trigger one of at least 25 last tokens of like frequency is drawn, so that matching
        makes no pattern by itself; a token may come as often as chance has it.
        """
        wanted = [self._endings_like(prefix) for prefix in triggers[: self.shown]]
        wanted = wanted or [sorted(self._places)]
        turns = (self._with_ending(wanted[turn % len(wanted)]) for turn in self._turns())
        return self._pseudo_key("matched", layer, turns)

    def of_matching_length(self, layer: int, triggers: Sequence[Prefix]) -> PseudoKey:
        """Random prefixes cut to the lengths, in tokens, of a key's triggers."""
        lengths = [len(prefix.ids) for prefix in triggers[: self.shown]] or [1]
        turns = (self._of_length(lengths[turn % len(lengths)]) for turn in self._turns())
        return self._pseudo_key("length", layer, turns)

    def strangers(self, layer: int, store: ScanStore) -> PseudoKey:
        """One trigger, of those an annotator sees, of each of many random keys of a layer."""
        rows = store.cells.rows_of(layer)
        drawn = rows.start + self._generator.permutation(rows.stop - rows.start)[: 4 * self.shown]
        slots = store.slots(drawn, top=self.shown)
        found: dict[int, Prefix] = {}
        for at in self._generator.permutation(len(slots)).tolist():
            if slots.position[at] and int(slots.cell[at]) not in found:
                place = int(slots.sentence[at]), int(slots.position[at])
                found[int(slots.cell[at])] = _prefix_at(store, *place)
        return self._pseudo_key("strangers", layer, found.values())

    def of_each_kind(
        self, layer: int, triggers: Sequence[Prefix], store: ScanStore
    ) -> list[PseudoKey]:
        """A pseudo-key of every kind to hold against a key with these triggers."""
        return [
            self.random(layer),
            self.of_matching_frequency(layer, triggers),
            self.of_matching_length(layer, triggers),
            self.strangers(layer, store),
        ]

    def _turns(self) -> range:
        return range(8 * self.shown)  # more than are needed: a sentence may come up again

    def _endings_like(self, prefix: Prefix) -> list[str]:
        """The last tokens of the pool that are about as common, by powers of two."""
        level = max(1, len(self._places.get(_ending(prefix), ()))).bit_length()
        if level not in self._alike:
            far = {
                ending: abs(len(those).bit_length() - level)
                for ending, those in self._places.items()
            }
            nearest = sorted(far, key=lambda ending: (far[ending], ending))
            same = sum(distance == 0 for distance in far.values())
            self._alike[level] = nearest[: max(LIKE_FREQUENCY, same)]
        return self._alike[level]

    def _with_ending(self, endings: Sequence[str]) -> Prefix:
        places = self._places[endings[int(self._generator.integers(len(endings)))]]
        return self.pool[places[int(self._generator.integers(len(places)))]]

    def _of_length(self, length: int) -> Prefix:
        """A prefix of the pool cut to `length` tokens; the longest one where all are shorter."""
        fit = np.flatnonzero(self._sizes >= min(length, self._sizes.max()))
        return self.pool[fit[self._generator.integers(len(fit))]].cut(length)

    def _pseudo_key(self, kind: str, layer: int, prefixes: Iterable[Prefix]) -> PseudoKey:
        """The first prefixes of different sentences, as many as are shown and held out."""
        found: dict[int, Prefix] = {}
        for prefix in prefixes:
            found.setdefault(prefix.sentence, prefix)
            if len(found) == 2 * self.shown:
                break
        chosen = list(found.values())
        return PseudoKey(kind, layer, tuple(chosen[: self.shown]), tuple(chosen[self.shown :]))


def _ending(prefix: Prefix) -> str:
    return prefix.last.strip().lower()
