"""Why this token: the gradient proposes, silencing decides, and both are in the answer."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Literal, get_args

import torch
from torch import Tensor

from ffmem.address import Address
from ffmem.errors import FfmemError, ModelError, shorten, whole_number
from ffmem.memories.attribution import contributions
from ffmem.memories.prompt_explanation import cell_address
from ffmem.memories.recording import LayerRecord, Records, record
from ffmem.memories.value_vectors import added_tokens
from ffmem.memories.why.edges import edge_copies, waking_edges
from ffmem.memories.why.linear import linear_passes
from ffmem.memories.why.passes import (
    LogitTarget,
    Passes,
    Prompt,
    forward_and_backward,
    read_prompt,
)
from ffmem.memories.why.proposal import Pair, correlation, propose, upper_bound
from ffmem.memories.why.record import Effect, MemoryEffect, Missed, Why
from ffmem.memories.why.silencing import Plan, plan_for, true_effects
from ffmem.models.language_model import LanguageModel, check_model

TOP, VALUE_TOKENS = 40, 5
Method = Literal["gradient", "linear"]


def why(  # noqa: PLR0913 - one parameter per choice
    model: LanguageModel,
    text: str,
    token: int | str | None = None,
    against: int | str | None = None,
    position: int | None = None,
    top: int = TOP,
    against_text: str | None = None,
    method: Method = "gradient",
    edges: bool = False,
    seed: int = 0,
    on_plan: Callable[[Plan], None] | None = None,
) -> Why:
    """Why the model predicts a token: the memories that do it, by prediction and in truth.

    The target is the logit of `token` (None is the likeliest) after the first `position` tokens of
    `text`, or how far it is above the logit of `against`. Two passes predict what every memory at
    every place adds to it, through later layers too: coefficient x gradient. The `top` pairs of
    memory and place are then silenced one by one, which gives their true effects; a random sample
    of as many others shows what the list may lack. With `against_text`, of as many tokens, a
    coefficient is not silenced but replaced by that of the other text. The parts of the method
    `linear` add up to the target; models in which they do not are refused. With `edges` the answer
    says which earlier memories wake those of the list.
    """
    check_model(model)
    if method not in get_args(Method):
        raise FfmemError(f"there is no method {shorten(repr(method))}; choose gradient or linear")
    top = whole_number(top, "top")
    if top < 1:
        raise FfmemError(f"top is {top}; ask for at least one pair of memory and place")
    prompt = read_prompt(model, text, position)
    chosen = None if token is None else model.token_id(token)
    other = None if against is None else model.token_id(against)
    instead = (
        None if against_text is None else _other_coefficients(model, prompt, against_text, position)
    )

    def target_for(logits: Tensor) -> LogitTarget:
        best = int(logits[0, : model.vocab_size].argmax()) if chosen is None else chosen
        if best == other:
            raise FfmemError(
                f"{model.token_text(best)!r} cannot be compared with itself; name another token"
            )
        return LogitTarget(best, other)

    if method == "linear":
        passes, reading = linear_passes(model, prompt, target_for)
    else:
        passes, reading = forward_and_backward(model, prompt, target_for), None
    target = target_for(passes.logits[None])
    proposal = propose(passes.layers, prompt.lead, instead)
    pairs = proposal.strongest(top)
    if not pairs:
        raise FfmemError(
            "no coefficient would change, so there is nothing to explain; give another text"
        )
    sample = proposal.sample(top, pairs, seed)
    everywhere = {
        (pair.layer, pair.memory): proposal.layer(pair.layer).column_pairs(pair.memory)
        for pair in pairs
    }
    groups = [[pair] for pair in (*pairs, *sample)] + list(everywhere.values()) + [pairs]
    copies = [[pair.replacement for pair in group] for group in groups]
    if on_plan is not None:
        more = edge_copies(pairs) if edges else 0
        on_plan(plan_for(model, prompt, len(copies) + more, passes.seconds))
    true = iter(true_effects(model, prompt, target, copies))
    describe = _Describer(model, prompt, passes, target, instead)
    effects = [describe.effect(pair, next(true)) for pair in pairs]
    others = [describe.effect(pair, next(true)) for pair in sample]
    totals = [describe.memory(group, next(true)) for group in everywhere.values()]
    return Why(
        model=model.name,
        text=describe.text,
        tokens=describe.tokens,
        token=model.token_text(target.token),
        token_id=target.token,
        against="" if other is None else model.token_text(other),
        other_text=against_text or "",
        method=method,
        target=passes.target,
        effects=tuple(sorted(effects, key=lambda one: -abs(one.true))),
        memories=tuple(sorted(totals, key=lambda one: -abs(one.true))),
        layers=proposal.heat,
        leading=proposal.leading,
        joint=next(true),
        agreement=agreement(effects),
        direct_agreement=correlation([e.direct for e in effects], [e.true for e in effects]),
        missed=gaps(effects, others, proposal.size - len(pairs)),
        linear=reading,
        edges=waking_edges(model, prompt, pairs, instead) if edges else (),
    )


def _other_coefficients(
    model: LanguageModel, prompt: Prompt, text: str, position: int | None
) -> list[Tensor]:
    """The coefficients [column, memory] of every layer on another text of as many tokens."""
    other = read_prompt(model, text, position)
    text_tokens, own = other.columns - other.lead, prompt.columns - prompt.lead
    if text_tokens != own:
        raise FfmemError(
            f"the other text has {text_tokens} {'token' if text_tokens == 1 else 'tokens'} and the "
            f"text {own}; give one of as many, so that places belong together"
        )
    return [reading.m[0] for reading in record(model, other.tokens, "m")]


def direct_terms(
    model: LanguageModel, passes: Passes, target: LogitTarget, instead: Sequence[Tensor] | None
) -> dict[int, Tensor] | None:
    """The direct terms [memory] of every layer at the last place; None where there are none."""
    readings = passes.readings
    if instead is not None:  # terms are linear in coefficients
        readings = tuple(
            LayerRecord(one.layer, one.raw | {"values in": one.m - other[-1:]})
            for one, other in zip(readings, instead, strict=True)
        )
    records = Records(readings, lead=0)
    try:
        terms = contributions(model, records, target.token, 1).layers
        if target.against is None:
            return {part.layer: part.terms for part in terms}
        others = contributions(model, records, target.against, 1).layers
    except ModelError:  # the way to the logits is not linear
        return None
    return {one.layer: one.terms - other.terms for one, other in zip(terms, others, strict=True)}


class _Describer:
    """Turns pairs of one prompt into plain values."""

    def __init__(
        self,
        model: LanguageModel,
        prompt: Prompt,
        passes: Passes,
        target: LogitTarget,
        instead: Sequence[Tensor] | None,
    ) -> None:
        self.model, self.prompt = model, prompt
        self.direct = direct_terms(model, passes, target, instead)
        self._promoted: dict[tuple[int, int, bool], tuple[str, ...]] = {}
        ids = prompt.tokens[0, prompt.lead :]
        self.tokens = tuple(map(model.token_text, ids.tolist()))
        self.text = "".join(self.tokens) if model.tokenizer is None else model.tokenizer.decode(ids)

    def effect(self, pair: Pair, true: float) -> Effect:
        """One pair with its true effect."""
        at_end = pair.column == self.prompt.columns - 1
        term = math.nan if self.direct is None else float(self.direct[pair.layer][pair.memory])
        address = self.address(pair)
        return Effect(
            address=address,
            place=pair.column - self.prompt.lead + 1,
            token=self.tokens[pair.column - self.prompt.lead],
            coefficient=pair.coefficient,
            replaced_by=pair.replaced_by,
            direct=term if at_end else 0.0,
            predicted=pair.predicted,
            true=true,
            promotes=self.value_tokens(pair),
        )

    def memory(self, pairs: Sequence[Pair], true: float) -> MemoryEffect:
        """One memory at all its places; its sign is that of the strongest one."""
        strongest = max(pairs, key=lambda pair: abs(pair.predicted))
        predicted = sum(pair.predicted for pair in pairs)
        promotes = self.value_tokens(strongest)
        return MemoryEffect(self.address(strongest), len(pairs), predicted, true, promotes)

    def address(self, pair: Pair) -> Address:
        """The cell that the pair's coefficient belongs to."""
        return cell_address(self.model.layer(pair.layer), pair.memory, pair.coefficient)

    def value_tokens(self, pair: Pair) -> tuple[str, ...]:
        """The tokens that a memory's value promotes in the direction in which it is added."""
        key = (pair.layer, pair.memory, pair.coefficient < 0)
        if key not in self._promoted:
            added = torch.tensor([pair.coefficient])
            layer = self.model.layer(pair.layer)
            (tokens,) = added_tokens(self.model, layer, [pair.memory], added, VALUE_TOKENS)
            self._promoted[key] = tuple(map(self.model.token_text, tokens))
        return self._promoted[key]


def agreement(effects: Sequence[Effect]) -> float:
    """The correlation of predicted and true effects."""
    return correlation([one.predicted for one in effects], [one.true for one in effects])


def gaps(listed: Sequence[Effect], sample: Sequence[Effect], pairs: int) -> Missed:
    """How many pairs below the list may have a larger effect than the smallest of the list."""
    least = min(abs(one.true) for one in listed)
    above = sum(abs(one.true) > least for one in sample)
    return Missed(
        pairs=pairs,
        sampled=len(sample),
        above=above,
        bound=upper_bound(above, len(sample)) if pairs else 0.0,
        largest=max(sample, key=lambda one: abs(one.true), default=None),
    )
