"""The values with the highest top-token probability, and whether their triggers agree.

The paper's own values are among them: what its text says of single memories, looked up in its own
checkpoint. Table 2 names six values by layer and number with the word that each promotes most.
Anyone who has the checkpoint can see whether a value here is the value there.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from ffmem.address import Address
from ffmem.analyses.controls import random_rows, random_rows_like
from ffmem.analyses.inputs.value_rankings import LayerValueRankings
from ffmem.analyses.statistics import PAPER_LAYERS, UPPER, bootstrap
from ffmem.analyses.values.record import PaperValue, Predictive, ValueGroup, ValueRow
from ffmem.memories.value_vectors import value_tokens
from ffmem.models.language_model import LanguageModel
from ffmem.store.scan_store import ScanStore

PAPER_MEMORIES, PAPER_WORDS = 4096, 267_744
TABLE_2 = (  # layer and number as printed, the value's top word
    (15, 222, "each"),
    (16, 752, "played"),
    (13, 2601, "extratropical"),
    (15, 881, "part"),
    (16, 2070, "line"),
    (12, 3186, "jail"),
)
# Of the paper's most confident values: in layers 11 to 16; with an agreeing trigger; all.
PAPER_UPPER, PAPER_AGREEING, PAPER_VALUES = 97, 46, 100
ORIGINS = ((0, 0), (0, -1), (1, 0), (1, -1))  # what printed numbers may count from, as we count


def predictive_values(
    model: LanguageModel,
    store: ScanStore,
    read: Sequence[LayerValueRankings],
    generator: torch.Generator,
) -> Predictive:
    """Compare the values of highest top-token probability with what follows triggers."""
    probability = torch.cat([part.probability for part in read])
    sizes = torch.tensor([len(part.top) for part in read])
    places = torch.arange(len(read)).repeat_interleave(sizes)
    precision = torch.cat([_precisions(part) for part in read])
    chosen = probability.argsort(descending=True, stable=True)[:PAPER_VALUES]
    first_upper = len(read) - round(UPPER * len(read))

    def group(name: str, rows: Tensor) -> ValueGroup:
        known = precision[rows][~precision[rows].isnan()]
        return ValueGroup(
            name=name,
            n=len(rows),
            upper=int((places[rows] >= first_upper).sum()),
            agreeing=int((known > 0).sum()),
            precision=bootstrap(known, generator),
        )

    return Predictive(
        largest=group("largest probability", chosen),
        random=group("random", random_rows(len(probability), PAPER_VALUES, generator)),
        random_same_layers=group(
            "random of the same layers", random_rows_like(places, chosen, generator)
        ),
        rows=tuple(table_rows(model, store, read, chosen, precision)),
        first_upper_layer=read[min(first_upper, len(read) - 1)].layer,
    )


def _precisions(part: LayerValueRankings) -> Tensor:
    """Share of each cell's triggers that the value's top token follows; NaN without triggers."""
    known = part.triggers.next >= 0
    hits = (part.triggers.next == part.top[:, None]) & known
    return hits.sum(dim=1).double() / known.sum(dim=1)


def table_rows(
    model: LanguageModel,
    store: ScanStore,
    read: Sequence[LayerValueRankings],
    chosen: Tensor,
    precision: Tensor,
) -> list[ValueRow]:
    """One row per chosen value, with its strongest agreeing trigger; `precision` is of all."""
    firsts = torch.tensor([0, *(len(part.top) for part in read)]).cumsum(0)
    rows = []
    for row in chosen.tolist():
        place = int(torch.searchsorted(firsts, row, right=True)) - 1
        part, cell = read[place], row - int(firsts[place])
        hits = part.triggers.next[cell] == part.top[cell]
        triggers = store.triggers(part.address(cell))
        first = int(hits.nonzero()[0]) if hits.any() else None
        shown = None if first is None else triggers[first]
        rows.append(
            ValueRow(
                address=part.address(cell),
                prediction=model.token_text(int(part.top[cell])),
                probability=float(part.probability[cell]),
                precision=float(precision[row]),
                triggers=len(triggers),
                before="" if shown is None else shown.before + shown.last,
                next="" if shown is None else shown.next,
            )
        )
    return rows


def is_papers_model(model: LanguageModel) -> bool:
    """Whether a model has the shape of the paper's: its layers, memories and words."""
    sizes = [layer.memories for layer in model.layers]
    return (
        sizes == [PAPER_MEMORIES] * PAPER_LAYERS
        and model.vocab_size == PAPER_WORDS
        and model.head.classes is not None
    )


def paper_values(model: LanguageModel, predictive: Predictive | None) -> list[PaperValue]:
    """Table 2's values, under the way to count that fits best, and two counts over the first 100.

    The counts are left out where the values were not analysed.
    """
    tries = [_values(model, *origin) for origin in ORIGINS]
    best = max(tries, key=lambda found: sum(value.matches for value in found))
    if predictive is None or predictive.largest.n != PAPER_VALUES:
        return best
    group, among = predictive.largest, f"of the {PAPER_VALUES} most confident values"
    return [
        *best,
        PaperValue(f"{among} in layers 11 to 16", str(PAPER_UPPER), str(group.upper)),
        PaperValue(f"{among} with an agreeing trigger", str(PAPER_AGREEING), str(group.agreeing)),
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
