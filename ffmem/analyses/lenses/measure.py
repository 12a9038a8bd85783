"""Do values of lower layers not predict, or do they only speak another language?

The same agreement under several ways to read a value, each beside its own chance level:
raw (straight through the output embedding), norm-folded, through the input embedding, learned: by
an affine map from the layer's states to the last layer's, fitted on the scanned text, and measured:
the memory is forced on and the change of the model's own next-token scores is read.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from ffmem.analyses.controls import agreement_of_shuffles, random_rows, shuffle_rows
from ffmem.analyses.inputs.next_tokens import next_log_probabilities
from ffmem.analyses.inputs.prefix_sample import PrefixSample, prefix_batches
from ffmem.analyses.inputs.value_rankings import cell_values, target_ranks, trigger_tokens
from ffmem.analyses.lenses.record import PLACES, LensAgreement, Lenses, LensFit
from ffmem.analyses.lenses.similarity import similarity
from ffmem.analyses.statistics import Interval, wilson
from ffmem.memories.edits import Edit
from ffmem.memories.projection import Lens, additive, best, in_chunks
from ffmem.memories.recording import record
from ffmem.models.language_model import LanguageModel
from ffmem.steps import steps
from ffmem.store.scan_store import ScanStore

MEASURED, LEARNED = "measured", "learned"
SENTENCES = 1500  # of the scanned text that maps are fitted and tested on, at most
TRAINING = 0.8  # share of them that maps are fitted on
RIDGE = 0.1  # pull of a map towards doing nothing, in units of the states' mean variance


def lenses_of(model: LanguageModel) -> dict[str, Lens]:
    """The ways to read a value that make a difference in this model."""
    found = {"raw": Lens(final_norm="none")}
    if model.head.norm is not None:
        found["norm-folded"] = Lens()
    if model.head.classes is not None:
        found["linear"] = additive(Lens())
    inputs, outputs = model.head.vectors("input"), model.head.vectors()
    if not outputs.equals(inputs) and outputs.width == inputs.width:
        found["input embedding"] = Lens(embed="input")
    return found


def measure(
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
    states, fits = lens_states(model, store, generator), []
    for layer in steps(store.memories, "layers"):
        following = trigger_tokens(store, layer).next[:, 0]
        cells = (following >= 0).nonzero().flatten()
        wanted = torch.stack([following[cells], shuffle_rows(following[cells], generator)], dim=1)
        values = cell_values(model.layer(layer), store.cells.signed)[cells]
        for name, lens in static.items():
            scores = (part for _, part in in_chunks(model, values, "direction", lens))
            rows.append(_row(model, (layer, name), scores, wanted, generator))
        fit, learned = learn_lens(model, layer, states, generator)
        fits.append(fit)
        moved = learned.move(values)
        scores = (part for _, part in in_chunks(model, moved, "direction"))
        rows.append(_row(model, (layer, LEARNED), scores, wanted, generator))
        chosen = random_rows(len(cells), size[0], generator)
        own = wanted[chosen, 0]
        wanted = torch.stack([own, shuffle_rows(own, generator)], dim=1)
        changes = mean_effects(model, store, (layer, cells[chosen]), sample, (generator, size[1]))
        rows.append(_row(model, (layer, MEASURED), changes, wanted, generator))
    alike = similarity(model, states, store.memories, generator)
    return Lenses(tuple(rows), (*static, LEARNED, MEASURED), *size, tuple(fits), alike)


@dataclass(frozen=True)
class AffineMap:
    """h -> h + h D + b, in float32 on the CPU."""

    change: Tensor  # [width, width]
    shift: Tensor  # [width]

    def move(self, pieces: Tensor) -> Tensor:
        """What is added to a state, moved along with it: without the shift."""
        pieces = pieces.float()
        return pieces + pieces @ self.change.to(pieces.device)

    def __call__(self, states: Tensor) -> Tensor:
        """States [place, width] as they would be at the end."""
        return self.move(states) + self.shift.to(states.device)


def fit_map(states: Tensor, ends: Tensor) -> AffineMap:
    """The affine map from states to ends, both [place, width], by least squares.

    It is pulled towards the identity, so that few places leave directions alone that they do not
    show.
    """
    x, y = states.double(), ends.double()
    middle, goal = x.mean(dim=0), (y - x).mean(dim=0)
    x, change = x - middle, y - x - goal
    square = x.T @ x
    pull = RIDGE * square.diagonal().mean().clamp(min=1e-12)
    found = torch.linalg.solve(square + pull * torch.eye(len(square)).double(), x.T @ change)
    return AffineMap(found.float(), (goal - middle @ found).float())


@dataclass(frozen=True)
class ScannedStates:
    """Outputs [place, width] by layer, at random places of the scanned text, on the CPU.

    Maps are fitted on the first `training` places and tested on the others, each of which is of a
    sentence of its own.
    """

    outputs: dict[int, Tensor]
    training: int


def lens_prefixes(
    store: ScanStore, generator: torch.Generator
) -> tuple[list[Tensor], list[Tensor]]:
    """Random prefixes of the scan's random samples: to fit maps on, and of other sentences.

    Of the sentences to fit on several each, if there are few; of the others one each, because
    places of one sentence are alike.
    """
    rows = store.slots(slice(None), "sample").distinct_sentences()
    if not len(rows):
        rows = np.arange(len(store.sentences))
    chosen = rows[random_rows(len(rows), SENTENCES, generator).numpy()].tolist()
    fitting = round(TRAINING * len(chosen))
    parts = ((chosen[:fitting], max(1, round(PLACES / max(fitting, 1)))), (chosen[fitting:], 1))
    training, testing = (
        [prefix for row in some for prefix in random_prefixes(store, row, each, generator)]
        for some, each in parts
    )
    return training, testing


def random_prefixes(
    store: ScanStore, row: int, count: int, generator: torch.Generator
) -> list[Tensor]:
    """`count` different random prefixes of a sentence, or all if it has fewer."""
    tokens = torch.from_numpy(store.sentences.token_ids(row).astype(np.int64))
    return [tokens[: 1 + end] for end in random_rows(len(tokens), count, generator).tolist()]


@torch.no_grad()
def lens_states(
    model: LanguageModel, store: ScanStore, generator: torch.Generator
) -> ScannedStates:
    """The output of every layer at random places of the scanned text."""
    training, testing = lens_prefixes(store, generator)
    prefixes = training + testing
    found: dict[int, list[Tensor]] = {layer.number: [] for layer in model.layers}
    order = []
    for batch in prefix_batches(prefixes, model.bos, len(prefixes)):
        order.append(batch.rows)
        for reading in record(model, batch.tokens, "o", at=batch.columns + 1):
            found[reading.layer.number].append(reading.o.float().cpu())
    back = torch.cat(order).argsort()
    outputs = {layer: torch.cat(parts)[back] for layer, parts in found.items()}
    return ScannedStates(outputs, len(training))


def learn_lens(
    model: LanguageModel, layer: int, states: ScannedStates, generator: torch.Generator
) -> tuple[LensFit, AffineMap]:
    """Fit a layer's map on some places and test it on the others."""
    own, ends = states.outputs[layer], states.outputs[len(model.layers)]
    count = states.training
    learned = fit_map(own[:count], ends[:count])
    chance = fit_map(own[:count], shuffle_rows(ends[:count], generator))
    rest = own[count:]
    goal = _tops(model, ends[count:])

    def share(some: Tensor) -> Interval:
        return wilson(int((_tops(model, some) == goal).sum()), len(goal))

    return LensFit(layer, count, share(rest), share(learned(rest)), share(chance(rest))), learned


def _tops(model: LanguageModel, states: Tensor) -> Tensor:
    parts = [best(scores).cpu() for _, scores in in_chunks(model, states, "residual")]
    return torch.cat(parts) if parts else torch.zeros(0, dtype=torch.long)


def mean_effects(
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
        found.append(target_ranks(part, targets).cpu())
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
