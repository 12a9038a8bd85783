"""One memory silenced, boosted or held at its strongest triggers, beside one as strong."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

import torch
from torch import Tensor

from ffmem.address import Address
from ffmem.analyses.causal.measure import trigger_places
from ffmem.analyses.inputs.next_tokens import divergences, next_log_probabilities
from ffmem.errors import EditError
from ffmem.memories.edit_controls import edit_controls
from ffmem.memories.edits import Edit
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
    control: str | None  # the memory that is changed for comparison
    chances: tuple[ProbabilityChange, ...]


@dataclass(frozen=True)
class EffectView:
    """The strongest triggers with the memory changed at their last token.

    The control at each trigger is the memory of the layer that adds a vector most nearly as long
    there, of those that promote other tokens, changed alike: `control_kl` is the mean divergence it
    brings, `control_value_after` what becomes of the value's top tokens then. Both are unknown
    where a trigger has no such memory.
    """

    kl: float
    control_kl: float | None
    value_before: float  # probability of the value's top tokens together, mean over triggers
    value_after: float
    control_value_after: float | None
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
    controls = _controls(model, places.prefixes, change.of(cell))
    control = next_log_probabilities(model, places.prefixes, controls) if controls else None
    if not all(bool(torch.isfinite(one).all()) for one in (after, control) if one is not None):
        raise EditError("these changes make numbers overflow; use smaller ones")
    triggers = [
        _trigger_effect(
            model,
            rank,
            (before[rank], after[rank]),
            int(token),
            str(controls[rank].address) if controls else None,
        )
        for rank, token in enumerate(places.following)
    ]

    def together(chances: Tensor) -> float:
        return float(chances[:, watched].exp().sum(dim=1).mean())

    return EffectView(
        kl=float(divergences(before, after).mean()),
        control_kl=None if control is None else float(divergences(before, control).mean()),
        value_before=together(before),
        value_after=together(after),
        control_value_after=None if control is None else together(control),
        triggers=tuple(triggers),
    )


def _controls(model: LanguageModel, prefixes: Sequence[Tensor], change: Edit) -> list[Edit]:
    """The same change of another memory for each prefix; none at all where one has no control."""
    lead = torch.tensor([] if model.bos is None else [model.bos], dtype=torch.int64)
    found: list[Edit] = []
    for prefix in prefixes:
        at_the_end = replace(change, positions=(len(prefix),))
        tokens = torch.cat([lead, prefix])[None]
        controls = edit_controls(model, tokens, len(lead), [at_the_end])
        found += [replace(Edit.parse(one.edit), positions=None) for one in controls]
    return found if len(found) == len(prefixes) else []


def _trigger_effect(
    model: LanguageModel,
    place: int,
    pair: tuple[Tensor, Tensor],
    following: int,
    control: str | None,
) -> TriggerEffect:
    before, after = pair[0].exp(), pair[1].exp()
    shown = list(dict.fromkeys([*top(before), *top(after)]))
    known = following >= 0
    return TriggerEffect(
        rank=place + 1,
        next=model.token_text(following) if known else None,
        next_before=float(before[following]) if known else None,
        next_after=float(after[following]) if known else None,
        kl=float(divergences(pair[0], pair[1])),
        control=control,
        chances=tuple(
            ProbabilityChange(model.token_text(token), float(before[token]), float(after[token]))
            for token in sorted(shown, key=lambda token: -float(before[token]))
        ),
    )


def top(chances: Tensor) -> list[int]:
    """The likeliest tokens."""
    return [int(token) for token in chances.topk(min(NEXT_TOKENS, len(chances))).indices]
