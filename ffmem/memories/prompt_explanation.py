"""What a model predicts at one place of a text, and each layer's step towards it."""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from torch import Tensor

from ffmem.errors import FfmemError
from ffmem.memories.projection import logits
from ffmem.memories.recording import LayerReading, read
from ffmem.memories.steps import Step, step_at
from ffmem.models.generation import continuation
from ffmem.models.language_model import LanguageModel


@dataclass(frozen=True)
class PromptView:
    """One place of a text: `position` tokens have been read, `distribution` is over the next."""

    position: int
    prefix: str
    steps: tuple[Step, ...]
    distribution: Tensor = field(repr=False)  # [token], adds up to one
    readings: tuple[LayerReading, ...] = field(repr=False)  # h, r, a, m, y, o here: [1, ...] each

    def likeliest(self, count: int) -> list[int]:
        """The most probable next tokens, best first."""
        return self.distribution.topk(min(count, len(self.distribution))).indices.tolist()

    def divergence_from(self, other: PromptView) -> float:
        """KL(this || other) in nats: how far the next-token distribution has moved."""
        tiny = torch.finfo(torch.float32).tiny
        mine, theirs = self.distribution.clamp(min=tiny), other.distribution.clamp(min=tiny)
        return float((mine * (mine / theirs).log()).sum())


def look(
    model: LanguageModel, text: str, position: int | None = None, strongest: int = 3
) -> PromptView:
    """Read `model` after the first `position` tokens of `text`; None means after all of them.

    Positions count from 1, negative ones from the end. Under `edited` this shows the edit.
    """
    tokens = model.encode(text)
    lead = 0 if model.bos is None else 1
    length = tokens.shape[1] - lead
    wanted = length if position is None else position if position > 0 else length + 1 + position
    if not 1 <= wanted <= length:
        raise FfmemError(
            f"the text has positions 1 to {length}, not {position}; choose one of them"
        )
    column = wanted - 1 + lead
    readings = read(model, tokens, "hramyo", at=torch.tensor([column]))
    final = logits(model, readings[-1].o[0], "state")
    if not final.isfinite().all():
        raise FfmemError(
            f"what {model.name} predicts here is not finite; where a coefficient is edited, choose "
            "a smaller number, else a wider --dtype"
        )
    return PromptView(
        position=wanted,
        prefix=""
        if model.tokenizer is None
        else model.tokenizer.decode(tokens[0, lead : column + 1]),
        steps=tuple(step_at(model, reading, strongest) for reading in readings),
        distribution=final.softmax(dim=-1).cpu(),
        readings=readings,
    )


def continued(model: LanguageModel, text: str, position: int, count: int) -> str:
    """What the model writes after the first `position` tokens of `text`, the likeliest each time.

    At most `count` tokens; under `edited` this is the edited model's.
    """
    lead = 0 if model.bos is None else 1
    tokens = model.encode(text)[:, : position + lead]
    room = model.longest - tokens.shape[1]
    if min(count, room) < 1 or model.tokenizer is None:
        return ""
    pad = model.tokenizer.eos_token_id
    written = continuation(model.model, tokens, min(count, room), pad)
    return str(model.tokenizer.decode(written))
