"""Do values of lower layers not predict, or do they only speak another language?

The same agreement under several ways to read a value, each beside its own chance level:
raw (straight through the output embedding), norm-folded, through the input embedding, and
measured: the memory is forced on and the change of the model's own next-token scores is read.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from ffmem.analyses.controls import agreement_of_shuffles, random_rows, shuffle_rows
from ffmem.analyses.inputs.next_token_effects import next_log_probabilities
from ffmem.analyses.inputs.prefix_sample import PrefixSample
from ffmem.analyses.inputs.trigger_tokens import trigger_tokens
from ffmem.analyses.inputs.value_rankings import cell_values, ranks_by_counting
from ffmem.analyses.statistics import Interval, wilson
from ffmem.memories.edits import Edit
from ffmem.memories.projection import Lens, best, in_chunks
from ffmem.models.language_model import LanguageModel
from ffmem.steps import steps
from ffmem.store.scan_store import ScanStore

MEASURED = "measured"


@dataclass(frozen=True)
class LensAgreement:
    """One layer under one lens, over cells whose strongest trigger has a next token.

    `agreement`: the value's top token is that next token. `top_10`: the next token is among its
    ten best. `median_rank` is a share of the vocabulary. Chance: next tokens of other keys.
    """

    layer: int
    lens: str
    agreement: Interval
    shuffled: Interval
    top_10: Interval
    shuffled_top_10: Interval
    median_rank: float
    shuffled_median_rank: float


@dataclass(frozen=True)
class Lenses:
    """All layers under all lenses that differ in this model."""

    rows: tuple[LensAgreement, ...]
    lenses: tuple[str, ...]
    measured_memories: int
    measured_prefixes: int


def lenses_of(model: LanguageModel) -> dict[str, Lens]:
    """The ways to read a value that make a difference in this model."""
    found = {"raw": Lens(final_norm="none")}
    if model.head.norm is not None:
        found["norm-folded"] = Lens()
    head = model.head
    if not head.tied and head.input_embedding.shape[1] == head.embedding.shape[1]:
        found["input embedding"] = Lens(embed="input")
    return found


def lenses(
    model: LanguageModel,
    store: ScanStore,
    sample: PrefixSample,
    generator: torch.Generator,
    size: tuple[int, int] = (50, 4),
) -> Lenses:
    """Agreement under every lens.

    `size` is how many memories of each layer are measured, and at how many random prefixes of
    the sample each is forced on, with its largest coefficient of the scan.
    """
    static = lenses_of(model)
    rows: list[LensAgreement] = []
    for layer in steps(store.memories, "layers"):
        following = trigger_tokens(store, layer).next[:, 0]
        cells = (following >= 0).nonzero().flatten()
        wanted = torch.stack([following[cells], shuffle_rows(following[cells], generator)], dim=1)
        values = cell_values(model.layer(layer), store.cells.signed)[cells]
        for name, lens in static.items():
            scores = (part for _, part in in_chunks(model, values, "piece", lens))
            rows.append(_row(model, (layer, name), scores, wanted, generator))
        chosen = random_rows(len(cells), size[0], generator)
        own = wanted[chosen, 0]
        wanted = torch.stack([own, shuffle_rows(own, generator)], dim=1)
        changes = measured_effects(
            model, store, (layer, cells[chosen]), sample, (generator, size[1])
        )
        rows.append(_row(model, (layer, MEASURED), changes, wanted, generator))
    return Lenses(tuple(rows), (*static, MEASURED), *size)


def measured_effects(
    model: LanguageModel,
    store: ScanStore,
    which: tuple[int, Tensor],
    sample: PrefixSample,
    how: tuple[torch.Generator, int],
) -> Iterator[Tensor]:
    """For some cells, the mean change of log-probabilities [cell, token] when forced on."""
    (layer, cells), (generator, count) = which, how
    rows = random_rows(len(sample), count, generator).tolist()
    prefixes = [sample.prefix_tokens(row) for row in rows]
    before = next_log_probabilities(model, prefixes)
    for some in cells.split(16):
        edits = []
        for address in store.cells.in_layer(layer, some.numpy()):
            largest = float(store.array("largest")[store.cells.row(address)])
            edits += [Edit(address, "set", largest)] * len(prefixes)
        after = next_log_probabilities(model, prefixes * len(some), edits)
        yield (after.view(len(some), len(prefixes), -1) - before).mean(dim=1)


def _row(
    model: LanguageModel,
    about: tuple[int, str],
    scores: Iterator[Tensor],
    wanted: Tensor,
    generator: torch.Generator,
) -> LensAgreement:
    tops, found, start = [], [], 0
    for part in scores:
        targets = wanted[start : start + len(part)].to(part.device)
        start += len(part)
        tops.append(best(part).cpu())
        found.append(ranks_by_counting(part, targets).cpu())
    nothing = torch.zeros(0, 2, dtype=torch.long)
    ranks = torch.cat(found) if found else nothing
    top = torch.cat(tops) if tops else nothing[:, 0]
    count = len(ranks)
    middle = ranks.double().median(dim=0).values if count else torch.full((2,), float("nan"))
    return LensAgreement(
        layer=about[0],
        lens=about[1],
        agreement=wilson(int((ranks[:, 0] == 0).sum()), count),
        shuffled=agreement_of_shuffles(top, wanted[:count, 0], generator),
        top_10=wilson(int((ranks[:, 0] < 10).sum()), count),
        shuffled_top_10=wilson(int((ranks[:, 1] < 10).sum()), count),
        median_rank=float(middle[0]) / model.vocab_size,
        shuffled_median_rank=float(middle[1]) / model.vocab_size,
    )
