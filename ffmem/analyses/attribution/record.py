"""How well effects that are predicted agree with those of true silencing, as numbers."""

from __future__ import annotations

from dataclasses import dataclass

from ffmem.analyses.statistics import Interval


@dataclass(frozen=True)
class MethodAgreement:
    """The correlation of one method's predicted effects with true ones; prompts are resampled.

    `listed`: over the strongest pairs (memory, place) of each prompt by the method's own
    prediction. `drawn`: over pairs drawn at random from every layer, the more often the longer
    the vector that the memory adds; `by_layer` are these, layer by layer. Every list, and the
    drawn pairs of every layer of a prompt, count alike: both sides are scaled to the same size.
    """

    method: str  # direct, gradient, linear, or random: the gradient's sizes with random signs
    listed: Interval
    drawn: Interval
    by_layer: tuple[Interval, ...]


@dataclass(frozen=True)
class Attribution:
    """All methods in the model and in `permuted`, the model with its weights in random order.

    `gain` is by how much the gradient's correlation over drawn pairs is above the direct terms',
    paired by prompt. A method that the model does not have has no cases; `refusal` says why there
    is no linear reading. Effects are those on the logit of the likeliest token.
    """

    layers: tuple[int, ...]
    methods: tuple[MethodAgreement, ...]
    permuted: tuple[MethodAgreement, ...]
    gain: Interval
    prompts: int
    drawn: int  # pairs of each layer and prompt
    listed: int  # pairs of each method and prompt
    refusal: str
