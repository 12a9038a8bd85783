"""The paper's own values: what its text says of single memories, looked up in its own checkpoint.

Table 2 names six values by layer and number with the word that each promotes most. Anyone who has
the checkpoint can see whether a value here is the value there.
"""

from __future__ import annotations

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
class PaperValue:
    """One thing that the paper says of its values, and what is so here."""

    says: str
    expected: str
    found: str

    @property
    def matches(self) -> bool:
        """Whether both are the same."""
        return self.found == self.expected


def is_papers_model(model: LanguageModel) -> bool:
    """Whether a model has the shape of the paper's: its layers, memories and words."""
    sizes = [layer.memories for layer in model.layers]
    return (
        sizes == [MEMORIES] * LAYERS
        and model.vocab_size == WORDS
        and model.head.classes is not None
    )


def paper_values(model: LanguageModel, predictive: Predictive | None) -> list[PaperValue]:
    """Table 2's values, under the way to count that fits best, and two counts over the surest.

    The counts are left out where the values were not analysed.
    """
    tries = [_values(model, *origin) for origin in ORIGINS]
    best = max(tries, key=lambda found: sum(value.matches for value in found))
    if predictive is None or predictive.largest.n != SUREST:
        return best
    group, among = predictive.largest, f"of the {SUREST} surest values"
    return [
        *best,
        PaperValue(f"{among} in layers 11 to 16", str(UPPER), str(group.upper)),
        PaperValue(f"{among} with an agreeing trigger", str(AGREEING), str(group.agreeing)),
    ]


def _values(model: LanguageModel, layer_shift: int, shift: int) -> list[PaperValue]:
    """The table's values if its numbers count from elsewhere; those outside the model left out."""
    found = []
    for layer, number, word in TABLE_2:
        if layer + layer_shift <= len(model.layers):
            address = Address(layer + layer_shift, number + shift)
            top = int(value_tokens(model, address, 1).tokens)
            found.append(PaperValue(f"top word of {address}", word, model.token_text(top)))
    return found
