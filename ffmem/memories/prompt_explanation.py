"""A model's prediction at one place of a text, and each layer's step to it (logit lens)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from html import escape
from typing import Literal

import torch
from torch import Tensor

from ffmem.address import Address, Sign
from ffmem.errors import FfmemError, shorten, whole_number
from ffmem.memories.projection import logits, top_tokens
from ffmem.memories.recording import LayerRecord, Records, record
from ffmem.memories.value_vectors import added_values, value_measures
from ffmem.models.feedforward import FeedForward
from ffmem.models.language_model import LanguageModel, check_model
from ffmem.text import html_table, visible_token

END = "⏹"  # the end of a text, as a next token
MEMORY_TOKENS = 5  # of a strong memory that are named


@dataclass(frozen=True)
class PromptExplanation:
    """What a model predicts at one place of a text, and each layer's step towards it.

    `distribution` [token] is over the next token; `steps` has the top token of residual,
    feed-forward layer and output in each layer (a logit lens), with the strongest memories.
    """

    position: int
    prefix: str
    steps: tuple[Step, ...]
    distribution: Tensor = field(repr=False)  # [token], adds up to one
    records: Records = field(repr=False)  # h, r, a, m, y, o here: [1, ...] each

    def __repr__(self) -> str:
        last = self.steps[-1].output if self.steps else ""
        return (
            f"<PromptExplanation after {self.position} tokens, {shorten(self.prefix)!r}: "
            f"{last!r} next, {len(self.steps)} layers>"
        )

    def _repr_html_(self) -> str:
        columns = ("layer", "residual", "feed-forward", "output", "winner", "strongest memories")
        return (
            f"after <b>{escape(self.prefix)}</b>{html_table(columns, map(_step_row, self.steps))}"
        )

    def likeliest(self, count: int) -> list[int]:
        """The most probable next tokens, best first."""
        return self.distribution.topk(min(count, len(self.distribution))).indices.tolist()

    def divergence_from(self, other: PromptExplanation) -> float:
        """KL(this || other) in nats: how far the next-token distribution has moved."""
        tiny = torch.finfo(torch.float32).tiny
        mine, theirs = self.distribution.clamp(min=tiny), other.distribution.clamp(min=tiny)
        return float((mine * (mine / theirs).log()).sum())


def _step_row(step: Step) -> list[str]:
    strongest = "; ".join(
        f"{one.address} {one.coefficient:.2f} ({'  '.join(map(visible_token, one.tokens[:3]))})"
        for one in step.strongest
    )
    tokens = map(visible_token, (step.residual, step.feedforward, step.output))
    return [str(step.layer), *tokens, step.winner, strongest]


def explain_prompt(
    model: LanguageModel, text: str, position: int | None = None, strongest: int | None = 3
) -> PromptExplanation:
    """Explain the next token after the first `position` tokens of `text`, layer by layer.

    None means after all of them; positions count from 1, negative ones from the end. Each step has
    the top tokens of residual, feed-forward layer and output (a logit lens) and the `strongest`
    memories; None leaves the steps out, which take longer than the model does. Under `edited` this
    shows the edit.
    """
    check_model(model)
    tokens, lead, wanted = prompt_place(model, text, position)
    column = wanted - 1 + lead
    records = record(model, tokens, "hramyo", at=column + 1)  # of ids: the BOS is the first
    final = logits(model, records.layers[-1].o[0], "residual")
    if not final.isfinite().all():
        raise FfmemError(
            f"what {model.name} predicts here is not finite; where a coefficient is edited, choose "
            "a smaller number, else a wider --dtype"
        )
    return PromptExplanation(
        position=wanted,
        prefix=""
        if model.tokenizer is None
        else model.tokenizer.decode(tokens[0, lead : column + 1]),
        steps=() if strongest is None else steps_at(model, list(records), strongest),
        distribution=final.softmax(dim=-1).cpu(),
        records=records,
    )


def next_text(model: LanguageModel, token: int) -> str:
    """A next token as a person reads it: the one that ends a text has no text of its own."""
    ends = model.tokenizer is not None and token == model.tokenizer.eos_token_id
    return END if ends else model.token_text(token)


def prompt_place(model: LanguageModel, text: str, position: int | None) -> tuple[Tensor, int, int]:
    """The input of a prompt, the columns before its first token, and how many tokens are read."""
    position = None if position is None else whole_number(position, "position")
    tokens = model.encode(text)
    lead = 0 if model.bos is None else 1
    length = tokens.shape[1] - lead
    if not length:
        raise FfmemError(f"there is nothing to read in {text!r}; give at least one token")
    wanted = length if position is None else position if position > 0 else length + 1 + position
    if not 1 <= wanted <= length:
        raise FfmemError(
            f"the text has positions 1 to {length}, not {position}; choose one of them"
        )
    return tokens, lead, wanted


Winner = Literal["residual", "agreement", "composition", "ffn"]


@dataclass(frozen=True)
class StrongMemory:
    """A memory that adds much at this place: |coefficient| x length of its value."""

    address: Address
    coefficient: float
    strength: float
    tokens: tuple[str, ...]  # what its value promotes, in the direction in which it is added


@dataclass(frozen=True)
class Step:
    """One layer at one place: the top tokens of residual, layer and output, and who won."""

    layer: int
    residual: str
    feedforward: str
    output: str
    winner: Winner
    active: int  # memories with a positive coefficient (in a gated layer: with the gate on)
    strongest: tuple[StrongMemory, ...]


def winner(residual: int, feedforward: int, output: int) -> Winner:
    """The paper's four cases. R = F != O counts as composition."""
    if output == residual:
        return "agreement" if feedforward == residual else "residual"
    return "ffn" if output == feedforward else "composition"


@torch.no_grad()
def steps_at(
    model: LanguageModel, readings: Sequence[LayerRecord], strongest: int
) -> tuple[Step, ...]:
    """Describe layers with quantities r, a, m, y, o at one place: [1, ...] each.

    All of them are projected to the vocabulary together: reading its vectors takes the time.
    """
    where = model.head.device
    chosen = [_strong_memories(one, one.m[0], strongest) for one in readings]
    states = torch.cat([state.to(where) for one in readings for state in (one.r, one.o)])
    added = [one.y for one in readings] + [values for _, values in chosen]
    pieces = torch.cat([each.to(where).float() for each in added])
    tops = top_tokens(model, states, "residual", 1).tokens.view(-1, 2).tolist()
    rows = top_tokens(model, pieces, "direction", MEMORY_TOKENS).tokens.tolist()
    promoted = iter(rows[len(readings) :])
    return tuple(
        _step(model, reading, (residual, row[0], output), memories, promoted)
        for reading, (residual, output), row, (memories, _) in zip(
            readings, tops, rows, chosen, strict=False
        )
    )


def _step(
    model: LanguageModel,
    reading: LayerRecord,
    tops: tuple[int, int, int],
    memories: list[StrongMemory],
    promoted: Iterator[list[int]],
) -> Step:
    """One layer with its top tokens, and what the next of `promoted` say of its memories."""
    residual, feedforward, output = (next_text(model, one) for one in tops)
    fired = (reading.a if reading.layer.gated else reading.m)[0] > 0
    return Step(
        layer=reading.layer.number,
        residual=residual,
        feedforward=feedforward,
        output=output,
        winner=winner(*tops),
        active=int(fired.sum()),
        strongest=tuple(
            replace(memory, tokens=tuple(next_text(model, one) for one in next(promoted)))
            for memory in memories
        ),
    )


def _strong_memories(
    reading: LayerRecord, m: Tensor, count: int
) -> tuple[list[StrongMemory], Tensor]:
    """The memories of one layer that add most for coefficients m [memory], strongest first.

    Without their tokens, and with what each adds to the residual, but for its size.
    """
    layer = reading.layer
    lengths = value_measures(layer, m, lambda values: values.norm(dim=1))
    strength = m.float().abs() * lengths
    chosen = strength.topk(min(count, layer.memories)).indices.tolist()
    if not chosen:
        return [], torch.empty(0, layer.width)
    memories = [
        StrongMemory(
            address=cell_address(layer, index, float(m[index])),
            coefficient=float(m[index]),
            strength=float(strength[index]),
            tokens=(),
        )
        for index in chosen
    ]
    return memories, added_values(layer, chosen, m[chosen])


def cell_address(layer: FeedForward, index: int, coefficient: float) -> Address:
    """The cell that a coefficient belongs to: in a gated layer its sign is part of the address."""
    sign: Sign = "" if not layer.gated else "-" if coefficient < 0 else "+"
    return layer.parts.address(layer.number, index, sign)
