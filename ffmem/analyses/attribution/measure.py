"""Silence memories one by one in many prompts, and correlate what each method had predicted.

In every prompt the same pairs (memory, place) are judged by all methods: some of each layer, drawn
by how much they add. Each method is also judged by the pairs that it would list first.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from ffmem.analyses.attribution.record import Attribution, MethodAgreement
from ffmem.analyses.controls import permuted_model, random_rows
from ffmem.analyses.inputs.prefix_sample import PrefixSample
from ffmem.analyses.statistics import Interval, Resamples
from ffmem.errors import ModelError
from ffmem.memories.value_vectors import value_measures
from ffmem.memories.why.answer import direct_terms
from ffmem.memories.why.linear import linear_passes
from ffmem.memories.why.passes import (
    LayerSlopes,
    LogitTarget,
    Passes,
    Prompt,
    forward_and_backward,
)
from ffmem.memories.why.proposal import Pair, Proposal, propose
from ffmem.memories.why.silencing import true_effects
from ffmem.models.language_model import LanguageModel
from ffmem.models.wrapping import float32_copy
from ffmem.steps import steps

DRAWN, LISTED = 3, 10  # pairs of each layer; strongest pairs of each method
CONTROL_SHARE, FEWEST = 4, 10  # the control reads a fourth of the prompts, at least so many
METHODS = ("direct", "gradient", "linear", "random")
MOMENTS = 6  # numbers that a correlation is made of
ROUNDING = 1e-5  # of the largest effect: below it, differences of logits are rounding
CORRELATION = (-1.0, 1.0)
Place = tuple[int, int, int]  # layer, column, memory


@dataclass(frozen=True)
class PromptEffects:
    """One prompt: pairs with their true effects, and what every method predicts for them."""

    true: Tensor  # [pair]
    layers: Tensor  # [pair]
    predicted: Mapping[str, Tensor]  # by method, [pair]
    is_drawn: Tensor
    is_listed: Mapping[str, Tensor]  # by method, [pair]


def measure(model: LanguageModel, sample: PrefixSample, prompts: int, seed: int) -> Attribution:
    """Judge every method in the model, and on fewer prompts with its weights in random order."""
    rows = random_rows(len(sample), prompts, torch.Generator().manual_seed(seed)).tolist()
    own, refusal = read_prompts(float32_copy(model), sample, rows, seed)
    fewer = rows[: max(FEWEST, len(rows) // CONTROL_SHARE)]
    twin, _ = read_prompts(float32_copy(permuted_model(model, seed)), sample, fewer, seed)
    layers = [layer.number for layer in model.layers]
    return Attribution(
        layers=tuple(layers),
        methods=tuple(agreement(own, name, layers) for name in METHODS),
        permuted=tuple(agreement(twin, name, layers) for name in METHODS),
        gain=_gain(own, layers),
        prompts=len(own),
        drawn=DRAWN,
        listed=LISTED,
        refusal=refusal,
    )


def read_prompts(
    model: LanguageModel, sample: PrefixSample, rows: Sequence[int], seed: int
) -> tuple[list[PromptEffects], str]:
    """The effects in some prefixes, and why there is no linear reading where there is none."""
    generator, found, refusal = torch.Generator().manual_seed(seed), [], ""
    lead = [] if model.bos is None else [model.bos]
    for row in steps(rows, "silencing memories"):
        ids = torch.cat([torch.tensor(lead, dtype=torch.long), sample.prefix_tokens(row)])
        prompt = Prompt(ids[None].to(model.device), len(lead))
        proposals, refusal = _every_proposal(model, prompt, refusal)
        found.append(_prompt_effects(model, prompt, proposals, generator))
    return found, refusal


@dataclass(frozen=True)
class _Proposals:
    """What each method that the model has predicts for one prompt."""

    target: LogitTarget
    slopes: tuple[LayerSlopes, ...]
    by_method: dict[str, Proposal]


def _every_proposal(model: LanguageModel, prompt: Prompt, refusal: str) -> tuple[_Proposals, str]:
    """The predictions of every method; a linear reading that was refused is not tried again."""

    def likeliest(logits: Tensor) -> LogitTarget:
        return LogitTarget(int(logits[0, : model.vocab_size].argmax()))

    passes = forward_and_backward(model, prompt, likeliest)
    target = likeliest(passes.logits[None])
    found = {"gradient": propose(passes.layers, prompt.lead)}
    direct = _direct_proposal(model, prompt, passes, target)
    if direct is not None:
        found["direct"] = direct
    if not refusal:
        try:
            linear, _ = linear_passes(model, prompt, lambda _: target)
            found["linear"] = propose(linear.layers, prompt.lead)
        except ModelError as error:
            refusal = str(error)
    return _Proposals(target, passes.layers, found), refusal


def _direct_proposal(
    model: LanguageModel, prompt: Prompt, passes: Passes, target: LogitTarget
) -> Proposal | None:
    """The direct terms as predictions: 0 at all places but the last."""
    terms = direct_terms(model, passes, target, None)
    if terms is None:
        return None
    proposal = propose(passes.layers, prompt.lead)
    for layer in proposal.layers:
        layer.effects.zero_()
        layer.effects[-1] = terms[layer.number]
    return proposal


def _prompt_effects(
    model: LanguageModel, prompt: Prompt, proposals: _Proposals, generator: torch.Generator
) -> PromptEffects:
    """Silence the drawn pairs and those that each method lists."""
    gradient = proposals.by_method["gradient"]
    drawn = [
        pair for slopes in proposals.slopes for pair in drawn_pairs(slopes, gradient, generator)
    ]
    lists = {name: one.strongest(LISTED) for name, one in proposals.by_method.items()}
    lists["random"] = lists["gradient"]
    every = {_place(pair): pair for pair in (*drawn, *(p for one in lists.values() for p in one))}
    true = true_effects(
        model, prompt, proposals.target, [[pair.replacement] for pair in every.values()]
    )
    effects = torch.tensor(true, dtype=torch.float64)
    is_drawn = _members(every, drawn)
    predicted = {
        name: torch.tensor([_effect(one, pair) for pair in every.values()]).double()
        for name, one in proposals.by_method.items()
    }
    signs = 2.0 * torch.randint(2, (len(every),), generator=generator) - 1
    return PromptEffects(
        true=effects,
        layers=torch.tensor([pair.layer for pair in every.values()]),
        predicted=predicted | {"random": signs * predicted["gradient"]},
        is_drawn=is_drawn,
        is_listed={name: _members(every, one) for name, one in lists.items()},
    )


def drawn_pairs(slopes: LayerSlopes, proposal: Proposal, generator: torch.Generator) -> list[Pair]:
    """Pairs of a layer at random, each as likely as what it adds is long (Efraimidis, Spirakis)."""
    layer = proposal.layer(slopes.layer.number)
    m = slopes.m.detach().abs().float()
    lengths = value_measures(slopes.layer, m.sum(dim=0), lambda v: v.norm(dim=1))
    weights = (m * lengths * layer.changed).flatten().double().cpu()
    there = weights.nonzero()[:, 0]
    waits = -torch.rand(len(there), generator=generator, dtype=torch.float64).log()
    first = (waits / weights[there]).argsort()[:DRAWN]
    return [layer.flat(index) for index in there[first].tolist()]


def _place(pair: Pair) -> Place:
    """What names a pair."""
    return pair.layer, pair.column, pair.memory


def _members(every: Mapping[Place, Pair], some: Sequence[Pair]) -> Tensor:
    """[pair]: whether it is one of some."""
    there = set(map(_place, some))
    return torch.tensor([one in there for one in every])


def _effect(proposal: Proposal, pair: Pair) -> float:
    """What a method predicts for a pair."""
    return float(proposal.layer(pair.layer).effects[pair.column, pair.memory])


def agreement(
    prompts: Sequence[PromptEffects], method: str, layers: Sequence[int]
) -> MethodAgreement:
    """One method's correlations; without cases where the model does not have it."""
    known = [one for one in prompts if method in one.predicted]
    by_layer = [
        _stack([_moments(one, method, one.is_drawn & (one.layers == number)) for one in known])
        for number in layers
    ]
    listed = _stack([_moments(one, method, one.is_listed[method]) for one in known])
    return MethodAgreement(
        method=method,
        listed=_interval(listed),
        drawn=_interval(torch.stack(by_layer).sum(dim=0)),
        by_layer=tuple(map(_interval, by_layer)),
    )


def _gain(prompts: Sequence[PromptEffects], layers: Sequence[int]) -> Interval:
    """By how much the gradient's correlation over drawn pairs is above the direct terms'."""

    def moments(one: PromptEffects, method: str) -> Tensor:
        cells = [_moments(one, method, one.is_drawn & (one.layers == at)) for at in layers]
        return torch.stack(cells).sum(dim=0)

    both = [
        torch.cat([moments(one, "gradient"), moments(one, "direct")])
        for one in prompts
        if "direct" in one.predicted
    ]

    def statistic(sums: Tensor) -> Tensor:
        return pearson(sums[..., :MOMENTS]) - pearson(sums[..., MOMENTS:])

    return Resamples(_stack(both)).interval(statistic, largest=None, bounds=(-2.0, 2.0))


def _moments(one: PromptEffects, method: str, chosen: Tensor) -> Tensor:
    """The numbers of some pairs of one prompt from which a correlation over several is made.

    Both sides are in units of their root mean square, so that a few large effects do not decide
    all. Pairs whose effects are no more than rounding count for nothing.
    """
    x, y = one.predicted[method][chosen], one.true[chosen]
    least = ROUNDING * float(one.true.abs().max())
    if not len(y) or not float(y.abs().max()) > least:
        return torch.zeros(MOMENTS, dtype=torch.float64)
    x, y = (side / side.square().mean().sqrt().clamp(min=1e-30) for side in (x, y))
    sums = [x.sum(), y.sum(), x.square().sum(), y.square().sum(), (x * y).sum()]
    return torch.stack([torch.tensor(float(len(x)), dtype=torch.float64), *sums])


def _stack(units: Sequence[Tensor]) -> Tensor:
    """Rows of numbers as [unit, number]."""
    return torch.stack(list(units)) if units else torch.zeros(0, MOMENTS, dtype=torch.float64)


def _interval(tallies: Tensor) -> Interval:
    """The correlation over all pairs of all prompts, which are resampled."""
    return Resamples(tallies).interval(pearson, largest=None, bounds=CORRELATION)


def pearson(sums: Tensor) -> Tensor:
    """The correlation from sums [..., moment]; NaN where one side is constant."""
    n, x, y, xx, yy, xy = sums.unbind(dim=-1)
    spread = (n * xx - x.square()).clamp(min=0) * (n * yy - y.square()).clamp(min=0)
    return (n * xy - x * y) / spread.sqrt()
