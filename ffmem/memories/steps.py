"""What one layer does to the prediction at one place: who wins, and which memories are strong."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from ffmem.address import Address, Sign
from ffmem.memories.projection import PAPER, Lens, top_tokens
from ffmem.memories.recording import LayerReading
from ffmem.memories.value_vectors import value_vectors
from ffmem.models.feedforward import FeedForward
from ffmem.models.language_model import LanguageModel

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
def step_at(
    model: LanguageModel, reading: LayerReading, strongest: int, lens: Lens = PAPER
) -> Step:
    """Describe one layer of a reading with quantities r, a, m, y, o at one place: [1, ...] each."""
    layer = reading.layer
    tops = {
        name: int(top_tokens(model, vector, kind, 1, lens).tokens)  # type: ignore[arg-type]
        for name, vector, kind in (
            ("r", reading.r, "state"),
            ("y", reading.y, "piece"),
            ("o", reading.o, "state"),
        )
    }
    fired = (reading.a if layer.gated else reading.m)[0] > 0
    return Step(
        layer=layer.number,
        residual=model.token(tops["r"]),
        feedforward=model.token(tops["y"]),
        output=model.token(tops["o"]),
        winner=winner(tops["r"], tops["y"], tops["o"]),
        active=int(fired.sum()),
        strongest=strong_memories(model, reading, reading.m[0], strongest, lens),
    )


def strong_memories(
    model: LanguageModel, reading: LayerReading, m: Tensor, count: int, lens: Lens = PAPER
) -> tuple[StrongMemory, ...]:
    """The memories of one layer that add most for coefficients m [memory], strongest first."""
    layer = reading.layer
    lengths = layer.values.float().norm(dim=1)
    strength = m.float().abs() * lengths
    chosen = strength.topk(min(count, layer.memories)).indices.tolist()
    if not chosen:
        return ()
    vectors = value_vectors(layer, chosen).float() * m[chosen, None].float().sign()
    tokens = top_tokens(model, vectors, "piece", 5, lens).tokens.tolist()
    return tuple(
        StrongMemory(
            address=cell_address(layer, index, float(m[index])),
            coefficient=float(m[index]),
            strength=float(strength[index]),
            tokens=tuple(model.token(token) for token in row),
        )
        for index, row in zip(chosen, tokens, strict=True)
    )


def cell_address(layer: FeedForward, index: int, coefficient: float) -> Address:
    """The cell that a coefficient belongs to: in a gated layer its sign is part of the address."""
    sign: Sign = "" if not layer.gated else "-" if coefficient < 0 else "+"
    return Address(layer.number, index, sign)
