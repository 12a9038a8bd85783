"""Memories that matter in most of several prompts, beside equally strong ones drawn at random."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from ffmem.errors import FfmemError, whole_number
from ffmem.memories.value_vectors import added_tokens, value_measures
from ffmem.memories.why.passes import LogitTarget, Prompt, forward_and_backward, read_prompt
from ffmem.memories.why.record import FactMemory, Facts
from ffmem.memories.why.silencing import Copy, Plan, Replacement, plan_for, true_effects
from ffmem.models.language_model import LanguageModel, check_model
from ffmem.steps import steps

TOP, VALUE_TOKENS = 20, 5
NEAREST = 20  # memories of like strength, one of which is drawn as a control
Neuron = tuple[int, int]  # a layer, and the memory's place in its arrays


@dataclass(frozen=True)
class _Reading:
    """One prompt: its target, and for every layer [memory] what was predicted and how strong."""

    prompt: Prompt
    target: LogitTarget
    predicted: list[Tensor]
    sums: list[Tensor]  # of coefficients over the places of the text
    strengths: list[Tensor]
    seconds: float  # of its forward pass


def facts(
    model: LanguageModel,
    prompts: Sequence[str],
    token: int | str | None = None,
    top: int = TOP,
    on_plan: Callable[[Plan], None] | None = None,
) -> Facts:
    """The memories that are among the `top` of most prompts, measured in all of them.

    Each prompt's target is the logit of `token`, or of its own likeliest token. A memory counts by
    its predicted effects over all places. Every memory that is found has a control: a memory of the
    same layer, of nearly the same strength (sum of |coefficient| x length of value) in these
    prompts, drawn at random. Both are silenced at every place of every prompt.
    """
    check_model(model)
    top = whole_number(top, "top")
    if len(prompts) < 2 or top < 1:
        raise FfmemError("facts need two prompts or more, and a top of 1 or more; give more")
    chosen = None if token is None else model.token_id(token)
    readings = [_read(model, text, chosen) for text in steps(prompts, "reading prompts")]
    needed = len(prompts) // 2 + 1
    counts = Counter(neuron for one in readings for neuron in _strongest(model, one, top))
    found = [neuron for neuron, count in counts.most_common() if count >= needed]
    controls = _controls(model, readings, found)
    if on_plan is not None and found:
        longest = max(readings, key=lambda one: one.prompt.columns)
        copies = len(readings) * (2 * len(found) + 2)
        on_plan(plan_for(model, longest.prompt, copies, longest.seconds))
    effects = _mean_effects(model, readings, found, controls)
    count = len(found)
    memories = [
        FactMemory(
            address=model.layer(neuron[0]).parts.address(*neuron),
            prompts=counts[neuron],
            effect=effects[place],
            promotes=_promotes(model, readings, neuron),
            control=model.layer(control[0]).parts.address(*control),
            control_effect=effects[count + place],
        )
        for place, (neuron, control) in enumerate(zip(found, controls, strict=True))
    ]
    return Facts(
        model=model.name,
        prompts=tuple(prompts),
        tokens=tuple(model.token_text(one.target.token) for one in readings),
        needed=needed,
        memories=tuple(sorted(memories, key=lambda one: -abs(one.effect))),
        joint=effects[-2] if found else 0.0,
        control_joint=effects[-1] if found else 0.0,
    )


def _read(model: LanguageModel, text: str, token: int | None) -> _Reading:
    prompt = read_prompt(model, text, None)

    def target_for(logits: Tensor) -> LogitTarget:
        best = int(logits[0, : model.vocab_size].argmax())
        return LogitTarget(best if token is None else token)

    passes = forward_and_backward(model, prompt, target_for)
    predicted, sums, strengths = [], [], []
    with torch.no_grad():
        for one in passes.layers:
            m = one.m[prompt.lead :].float()
            lengths = value_measures(one.layer, m.abs().sum(dim=0), lambda v: v.norm(dim=1))
            predicted.append(one.effects()[prompt.lead :].sum(dim=0))
            sums.append(m.sum(dim=0))
            strengths.append(m.abs().sum(dim=0) * lengths)
    target = target_for(passes.logits[None])
    return _Reading(prompt, target, predicted, sums, strengths, passes.seconds)


def _strongest(model: LanguageModel, reading: _Reading, top: int) -> list[Neuron]:
    """The memories with the largest predicted effects over all places."""
    found: list[tuple[float, Neuron]] = []
    for layer, predicted in zip(model.layers, reading.predicted, strict=True):
        sizes, places = predicted.abs().topk(min(top, len(predicted)))
        pairs = zip(sizes.tolist(), places.tolist(), strict=True)
        found += [(size, (layer.number, place)) for size, place in pairs if size]
    return [neuron for _, neuron in sorted(found, reverse=True)[:top]]


def _controls(
    model: LanguageModel, readings: Sequence[_Reading], found: Sequence[Neuron]
) -> list[Neuron]:
    """A memory of the same layer and of like strength for each, no memory twice."""
    generator, taken = random.Random(0), set(found)
    controls: list[Neuron] = []
    for number, memory in found:
        place = model.layers.index(model.layer(number))
        strengths = torch.stack([one.strengths[place] for one in readings]).mean(dim=0)
        order = (strengths - strengths[memory]).abs().argsort().tolist()
        free = [one for one in order if (number, one) not in taken][:NEAREST]
        if not free:
            raise FfmemError(
                f"layer {number} has no memories left that could be controls; choose a smaller top"
            )
        controls.append((number, generator.choice(free)))
        taken.add(controls[-1])
    return controls


def _mean_effects(
    model: LanguageModel,
    readings: Sequence[_Reading],
    found: Sequence[Neuron],
    controls: Sequence[Neuron],
) -> list[float]:
    """True effects, the mean over prompts: of each memory, each control, all of both kinds."""
    groups = [[one] for one in (*found, *controls)] + [list(found), list(controls)]
    if not found:
        return []
    rows = []
    for reading in readings:
        copies: list[Copy] = [_everywhere(reading.prompt, group) for group in groups]
        rows.append(true_effects(model, reading.prompt, reading.target, copies))
    return [sum(column) / len(rows) for column in zip(*rows, strict=True)]


def _everywhere(prompt: Prompt, neurons: Sequence[Neuron]) -> list[Replacement]:
    """Some memories silenced at every place of the text."""
    columns = range(prompt.lead, prompt.columns)
    return [Replacement(layer, column, one) for layer, one in neurons for column in columns]


def _promotes(
    model: LanguageModel, readings: Sequence[_Reading], neuron: Neuron
) -> tuple[str, ...]:
    """What its value promotes in the direction in which the prompts add it."""
    layer = model.layer(neuron[0])
    place = model.layers.index(layer)
    added = sum(float(one.sums[place][neuron[1]]) for one in readings)
    (tokens,) = added_tokens(model, layer, [neuron[1]], torch.tensor([added]), VALUE_TOKENS)
    return tuple(map(model.token_text, tokens))
