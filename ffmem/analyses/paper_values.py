"""The paper's own values: what its text says of single memories, looked up in its own checkpoint.

Table 2 names six values by layer and number with the word that each promotes most. Anyone who has
the checkpoint can see whether a value here is the value there.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ffmem.address import Address
from ffmem.analyses.predictive_values import Predictive
from ffmem.memories.value_vectors import value_tokens
from ffmem.models.language_model import LanguageModel

LAYERS, MEMORIES, WORDS = 16, 4096, 267_744
TABLE_2 = (  # layer and number as printed, the value's top word
    (15, 222, "each"),
    (16, 752, "played"),
    (13, 2601, "extratropical"),
    (15, 881, "part"),
    (16, 2070, "line"),
    (12, 3186, "jail"),
)
UPPER, AGREEING, SUREST = 97, 46, 100  # of the surest values: in layers 11 to 16; with a trigger
ORIGINS = ((0, 0), (0, -1), (1, 0), (1, -1))  # what printed numbers may count from, as we count


@dataclass(frozen=True)
class NamedValue:
    """One value of the table, and what it promotes here."""

    address: Address  # as we count: layers from 1, memories from 0
    expected: str
    found: str

    @property
    def matches(self) -> bool:
        """Whether both name the same word."""
        return self.found == self.expected


@dataclass(frozen=True)
class Count:
    """A number of the text, there and here."""

    says: str
    expected: int
    found: int

    @property
    def matches(self) -> bool:
        """Whether both are the same number."""
        return self.found == self.expected


@dataclass(frozen=True)
class PaperValues:
    """Table 2's values, and two counts over the 100 surest, where the values were analysed."""

    values: tuple[NamedValue, ...]
    counts: tuple[Count, ...]

    @property
    def matching(self) -> int:
        """How many of all agree."""
        return sum(one.matches for one in (*self.values, *self.counts))


def is_papers_model(model: LanguageModel) -> bool:
    """Whether a model has the shape of the paper's: its layers, memories and words."""
    sizes = [layer.memories for layer in model.layers]
    return (
        sizes == [MEMORIES] * LAYERS
        and model.vocab_size == WORDS
        and model.head.classes is not None
    )


def paper_values(
    model: LanguageModel,
    predictive: Predictive | None,
    table: Sequence[tuple[int, int, str]] = TABLE_2,
) -> PaperValues:
    """Look up the table's values, under the way to count that fits best, and compare the counts."""
    tries = [_values(model, table, *origin) for origin in ORIGINS]
    best = max(tries, key=lambda found: sum(value.matches for value in found))
    counts: tuple[Count, ...] = ()
    if predictive is not None and predictive.largest.n == SUREST:
        group = predictive.largest
        counts = (
            Count(f"of the {SUREST} surest values in layers 11 to 16", UPPER, group.upper),
            Count(f"of the {SUREST} with an agreeing trigger", AGREEING, group.agreeing),
        )
    return PaperValues(best, counts)


def _values(
    model: LanguageModel, table: Sequence[tuple[int, int, str]], layer_shift: int, shift: int
) -> tuple[NamedValue, ...]:
    """The table's values if its numbers count from elsewhere; those outside the model left out."""
    found = []
    for layer, number, word in table:
        if layer + layer_shift <= len(model.layers):
            address = Address(layer + layer_shift, number + shift)
            top = int(value_tokens(model, address, 1).tokens)
            found.append(NamedValue(address, word, model.token_text(top)))
    return tuple(found)
