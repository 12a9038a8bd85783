"""One memory silenced, boosted or held at its strongest triggers, beside a memory as strong."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from ffmem.address import Address
from ffmem.analyses.causal.measure import other_memories, trigger_places
from ffmem.analyses.inputs.next_tokens import next_log_probabilities
from ffmem.errors import EditError
from ffmem.memories.edits import Edit
from ffmem.memories.value_vectors import value_vectors
from ffmem.models.language_model import LanguageModel
from ffmem.store.scan_store import ScanStore

NEXT_TOKENS = 5  # next tokens shown before and after
EditKind = Literal["silence", "boost", "hold"]


@dataclass(frozen=True)
class ProbabilityChange:
    """A next token with its probability before and after."""

    token: str
    before: float
    after: float


@dataclass(frozen=True)
class CoefficientEdit:
    """An edit of a coefficient: set to 0, multiplied, or held at a number."""

    edit: EditKind = "silence"
    amount: float = 0.0

    def of(self, cell: Address) -> Edit:
        """The change of one memory."""
        if self.edit == "boost":
            return Edit(cell, "scale", self.amount)
        return Edit(cell, "set", 0.0 if self.edit == "silence" else self.amount)


@dataclass(frozen=True)
class TriggerEffect:
    """One trigger before and after: the token that follows it, and the likeliest tokens."""

    rank: int
    next: str | None  # the token that really follows
    next_before: float | None
    next_after: float | None
    kl: float
    chances: tuple[ProbabilityChange, ...]


@dataclass(frozen=True)
class EffectView:
    """The strongest triggers with the memory changed at their last token.

    The control is the memory that adds a vector most nearly as long there, changed alike:
    `control_kl` is the mean divergence it brings, `control_value_after` what becomes of the value's
    top tokens then.
    """

    kl: float
    control_kl: float
    value_before: float  # probability of the value's top tokens together, mean over triggers
    value_after: float
    control_value_after: float
    triggers: tuple[TriggerEffect, ...]


@torch.no_grad()
def effect_view(
    model: LanguageModel,
    store: ScanStore,
    cell: Address,
    about: tuple[list[int], int],
    change: CoefficientEdit = CoefficientEdit(),  # noqa: B008 - frozen
) -> EffectView | None:
    """Change a coefficient at the end of the strongest triggers; None for a dead memory.

    `about` are the tokens that the value promotes most, and how many triggers are read.
    """
    watched, count = about
    places = trigger_places(store, [cell], count)
    if not places.prefixes:
        return None
    before = next_log_probabilities(model, places.prefixes)
    after = next_log_probabilities(model, places.prefixes, [change.of(cell)] * len(places.prefixes))
    others, _ = other_memories(model, [cell], places)
    matched = [_control_edit(model, cell, change, other) for other in others]
    control = next_log_probabilities(model, places.prefixes, matched)
    if not bool(torch.isfinite(after).all() and torch.isfinite(control).all()):
        raise EditError("these changes make numbers overflow; use smaller ones")
    triggers = [
        _trigger_effect(model, rank, (before[rank], after[rank]), int(token))
        for rank, token in enumerate(places.following)
    ]

    def together(chances: Tensor) -> float:
        return float(chances[:, watched].exp().sum(dim=1).mean())

    return EffectView(
        kl=float(divergence(before, after).mean()),
        control_kl=float(divergence(before, control).mean()),
        value_before=together(before),
        value_after=together(after),
        control_value_after=together(control),
        triggers=tuple(triggers),
    )


def _control_edit(
    model: LanguageModel, cell: Address, change: CoefficientEdit, other: Edit
) -> Edit:
    """The same change of a matched memory; held, it adds a vector as long as the memory would."""
    if change.edit != "hold":
        return change.of(other.address)
    layer = model.layer_of(cell)
    places = [model.index_of(cell), model.index_of(other.address)]
    lengths = value_vectors(layer, places).float().norm(dim=1)
    return Edit(
        other.address, "set", change.amount * float(lengths[0] / lengths[1].clamp(min=1e-30))
    )


def divergence(before: Tensor, after: Tensor) -> Tensor:
    """KL(before || after) of each row of log-probabilities, in nats."""
    return (before.exp() * (before - after)).sum(dim=-1).clamp(min=0)


def _trigger_effect(
    model: LanguageModel, place: int, pair: tuple[Tensor, Tensor], following: int
) -> TriggerEffect:
    before, after = pair[0].exp(), pair[1].exp()
    shown = list(dict.fromkeys([*top(before), *top(after)]))
    known = following >= 0
    return TriggerEffect(
        rank=place + 1,
        next=model.token_text(following) if known else None,
        next_before=float(before[following]) if known else None,
        next_after=float(after[following]) if known else None,
        kl=float(divergence(pair[0], pair[1])),
        chances=tuple(
            ProbabilityChange(model.token_text(token), float(before[token]), float(after[token]))
            for token in sorted(shown, key=lambda token: -float(before[token]))
        ),
    )


def top(chances: Tensor) -> list[int]:
    """The likeliest tokens."""
    return [int(token) for token in chances.topk(min(NEXT_TOKENS, len(chances))).indices]
