"""The experts of a mixture: how the router loads them, what for, and what comes of it.

A place is a prefix; its experts are those that the router chose for it. The parts of a text are
stretches of it in its own order, so that the files of a folder, or the documents of a file, are not
mixed. Whether an expert is for some of them is said by the information between expert and part,
beside the same number for sentences that were dealt to the parts at random.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from ffmem.analyses.controls import agreement_of_shuffles
from ffmem.analyses.experts.record import Experts, ExpertUse, LayerExperts
from ffmem.analyses.inputs.prefix_sample import PrefixSample, prefix_batches
from ffmem.analyses.inputs.value_rankings import LayerValueRankings
from ffmem.analyses.statistics import Interval, bootstrap, wilson
from ffmem.errors import FfmemError
from ffmem.memories.recording import LayerRecord, record
from ffmem.models.feedforward import FeedForward
from ffmem.models.language_model import LanguageModel
from ffmem.steps import sized_steps
from ffmem.store.scan_store import ScanStore

PARTS = 8  # of the text
ROUNDS = 200  # shuffles, and resamples of sentences
LOG_2 = math.log(2)
ROWS = 64  # prefixes whose coefficients are held at once


@dataclass(frozen=True)
class ExpertRouting:
    """One layer on a sample: places by sentence and expert, and shares of the layer's sum."""

    counts: Tensor  # [sentence, expert]
    output: Tensor  # [sentence, expert], 0 where it is not chosen
    shared: Tensor  # [sentence]


@dataclass(frozen=True)
class Specialisation:
    """Mutual information of a layer's experts and the parts of the text."""

    information: float
    shuffled: Interval
    excess: Interval
    by_expert: Tensor
    by_expert_shuffled: Tensor
    busiest: Tensor


def measure(
    model: LanguageModel,
    store: ScanStore,
    sample: PrefixSample,
    values: tuple[LayerValueRankings, ...],
    generator: torch.Generator,
) -> Experts:
    """Loads over the scanned text, specialisation and output on the sample, agreement of values."""
    layers = [model.layer(number) for number in store.manifest.mixtures]
    if not layers:
        raise FfmemError(f"{model.name} has no experts in the scanned layers")
    rankings = {one.layer: one for one in values}
    found = []
    for layer, routing in zip(layers, read_routing(model, layers, sample), strict=True):
        special = specialisation(routing.counts, generator)
        uses = _expert_uses(layer, store, routing, special, rankings[layer.number])
        found.append((_layer_experts(layer, uses, routing, special, rankings, generator), uses))
    return Experts(
        layers=tuple(one for one, _ in found),
        experts=tuple(use for _, uses in found for use in uses),
        parts=PARTS,
        sentences=len(sample),
        prefixes=store.manifest.counts["prefixes"],
    )


def _expert_uses(
    layer: FeedForward,
    store: ScanStore,
    routing: ExpertRouting,
    special: Specialisation,
    ranking: LayerValueRankings,
) -> list[ExpertUse]:
    prefixes = max(store.manifest.counts["prefixes"], 1)
    found = []
    counted = zip(layer.parts.expert_numbers, store.experts(layer.number), strict=True)
    for place, (expert, counts) in enumerate(counted):
        found.append(
            ExpertUse(
                layer=layer.number,
                expert=expert,
                load=counts.routed / prefixes,
                mean_weight=counts.mean_weight,
                fire_rate=counts.fire_rate,
                specialisation=float(special.by_expert[place]),
                shuffled=float(special.by_expert_shuffled[place]),
                busiest=int(special.busiest[place]) + 1,
                output=float(routing.output[:, place].mean()),
                agreement=agreement(ranking, f"E{expert}"),
            )
        )
    return found


def _layer_experts(
    layer: FeedForward,
    uses: list[ExpertUse],
    routing: ExpertRouting,
    special: Specialisation,
    rankings: dict[int, LayerValueRankings],
    generator: torch.Generator,
) -> LayerExperts:
    """A layer's experts together."""
    loads = torch.tensor([use.load for use in uses], dtype=torch.double)
    ranking, parts = rankings[layer.number], layer.parts
    routed = _cells_of(ranking, "E")
    shared = _cells_of(ranking, "S")
    return LayerExperts(
        layer=layer.number,
        experts=parts.experts,
        per_place=float(loads.sum()),
        effective=float(entropy(loads).exp()),
        unused=int((loads == 0).sum()),
        information=special.information,
        shuffled=special.shuffled,
        excess=special.excess,
        routed=bootstrap(1 - routing.shared, generator),
        shared=bootstrap(routing.shared, generator) if parts.shared else None,
        agreement=share_of(ranking, routed),
        shared_agreement=share_of(ranking, shared) if parts.shared else None,
        shuffled_agreement=agreement_of_shuffles(
            ranking.top[routed], ranking.triggers.next[routed, 0], generator
        ),
    )


def agreement(ranking: LayerValueRankings, part: str) -> Interval:
    """The share of a part's cells that agree, of those that something fires."""
    return share_of(ranking, _cells_of(ranking, part))


def _cells_of(ranking: LayerValueRankings, part: str) -> Tensor:
    """The live cells of a part, or of all parts whose names begin like that, in the layer."""
    parts, memories = ranking.cells.parts(ranking.layer), ranking.cells.memories[ranking.layer]
    inside = torch.zeros(memories, dtype=torch.bool)
    start = 0
    for name, size in parts.sizes.items():
        inside[start : start + size] = name == part or (len(part) == 1 and name.startswith(part))
        start += size
    live = ranking.triggers.next[:, 0] >= 0
    return (inside.repeat(len(ranking.cells.signs)) & live).nonzero().flatten()


def share_of(ranking: LayerValueRankings, cells: Tensor) -> Interval:
    """How many of some cells have the token after their strongest trigger on top of their value."""
    agree = ranking.top[cells] == ranking.triggers.next[cells, 0]
    return wilson(int(agree.sum()), len(cells))


@torch.no_grad()
def read_routing(
    model: LanguageModel, layers: Sequence[FeedForward], sample: PrefixSample
) -> list[ExpertRouting]:
    """Run the model over the sample: who is chosen at every place, and the sums at the last."""
    size = len(sample)
    found = [
        ExpertRouting(
            torch.zeros(size, layer.parts.experts, dtype=torch.double),
            torch.zeros(size, layer.parts.experts, dtype=torch.double),
            torch.zeros(size, dtype=torch.double),
        )
        for layer in layers
    ]
    prefixes = [sample.prefix_tokens(row) for row in range(size)]
    batches = prefix_batches(prefixes, model.bos, ROWS)
    for batch in sized_steps(batches, size, "routing", lambda one: len(one.rows)):
        every = record(model, batch.tokens, "w")
        last = record(model, batch.tokens, "mwy", at=batch.columns + 1)
        own = torch.arange(batch.tokens.shape[1]) <= batch.columns[:, None]
        own[:, 0] &= model.bos is None  # the BOS is not a prefix
        for layer, routing in zip(layers, found, strict=True):
            weights = every.layer(layer.number).w[..., : layer.parts.experts].cpu()
            chosen = (weights != 0) & own[..., None]
            routing.counts[batch.rows] = chosen.sum(dim=1).double()
            shares = output_shares(layer, last.layer(layer.number))
            routing.output[batch.rows] = shares[:, : layer.parts.experts].cpu()
            routing.shared[batch.rows] = shares[:, layer.parts.experts :].sum(dim=1).cpu()
    return found


def output_shares(layer: FeedForward, reading: LayerRecord) -> Tensor:
    """[row, part]: what each part adds of the layer's sum, as the share of its projection on it."""
    mixture = layer.mixture
    assert mixture is not None
    y = reading.raw["values out"].double()
    found = torch.zeros(len(y), len(layer.parts.sizes), dtype=torch.double, device=y.device)
    start = 0
    for part, size in enumerate(layer.parts.sizes.values()):
        rows = (reading.w[:, part] != 0).nonzero().flatten()
        if len(rows):
            values = mixture.values_at(torch.arange(start, start + size)).double()
            added = reading.m[rows, start : start + size].double() @ values
            if mixture.biases is not None:
                added += reading.w[rows, part, None].double() * mixture.biases[part].double()
            found[rows, part] = (added * y[rows]).sum(dim=1) / (y[rows] ** 2).sum(dim=1)
        start += size
    return found


def specialisation(counts: Tensor, generator: torch.Generator) -> Specialisation:
    """How far the choice of expert tells the part of the text, beside chance.

    `counts` [sentence, expert] are in the text's order. Sentences are shuffled and resampled whole:
    places of one sentence are alike.
    """
    sentences = len(counts)
    labels = torch.arange(sentences) * PARTS // max(sentences, 1)
    own = _by_part(counts, labels)
    shuffles = [
        _by_part(counts, labels[torch.randperm(sentences, generator=generator)])
        for _ in range(ROUNDS)
    ]
    chance = torch.tensor([information(one) for one in shuffles])
    excess = []
    for _ in range(ROUNDS):
        drawn = torch.randint(sentences, (sentences,), generator=generator)
        times = torch.bincount(drawn, minlength=sentences)[:, None].double() * counts
        other = labels[torch.randperm(sentences, generator=generator)]
        excess.append(information(_by_part(times, labels)) - information(_by_part(times, other)))
    ends = torch.tensor([0.025, 0.975], dtype=torch.double)
    low, high = chance.double().quantile(ends).tolist()
    found, mean = information(own), float(chance.mean())
    least, most = torch.tensor(excess, dtype=torch.double).quantile(ends).tolist()
    return Specialisation(
        information=found,
        shuffled=Interval(mean, low, high, sentences),
        excess=Interval(found - mean, least, most, sentences),
        by_expert=unevenness(own),
        by_expert_shuffled=torch.stack([unevenness(one) for one in shuffles]).mean(dim=0),
        busiest=rates(own).argmax(dim=0),
    )


def _by_part(counts: Tensor, labels: Tensor) -> Tensor:
    """[part, expert]: places by part of the text."""
    return torch.zeros(PARTS, counts.shape[1], dtype=torch.double).index_add_(0, labels, counts)


def information(table: Tensor) -> float:
    """Mutual information of the rows and columns of a table of counts, in bits."""
    joint = table / table.sum().clamp(min=1)
    alone = joint.sum(dim=1, keepdim=True) * joint.sum(dim=0, keepdim=True)
    return float(torch.special.xlogy(joint, joint / alone.clamp(min=1e-300)).sum() / LOG_2)


def rates(table: Tensor) -> Tensor:
    """How often each expert [part, expert] is chosen in a part, for as many choices in each."""
    return table / table.sum(dim=1, keepdim=True).clamp(min=1)


def unevenness(table: Tensor) -> Tensor:
    """[expert]: 0 for one that is chosen as often in every part, 1 for one that is in one only."""
    chosen = rates(table)
    total = chosen.sum(dim=0)
    share = chosen / total.clamp(min=1e-300)
    found = 1 + torch.special.xlogy(share, share).sum(dim=0) / math.log(PARTS)
    return found.masked_fill(total == 0, torch.nan)


def entropy(shares: Tensor) -> Tensor:
    """The entropy of shares that need not add up to one, in nats."""
    p = shares / shares.sum().clamp(min=1e-300)
    return -torch.special.xlogy(p, p).sum()
