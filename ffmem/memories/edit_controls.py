"""Controls for edits in one text: as strong a memory of the same layer, edited alike.

What an edit does is only seen beside what the same edit of another memory does. A control is the
memory that adds vectors most nearly as long where the edit is, among those that promote other
tokens. The strongest memory of a layer has no equal, so both lengths are told. The causal analysis
has a rule of its own (`other_memories`), which does not ask what a control promotes: it takes the
mean over many places, and a choice by tokens would move its verdict.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from ffmem.address import WHOLE, Address
from ffmem.memories.edits import Edit
from ffmem.memories.recording import record
from ffmem.memories.value_vectors import added_tokens, value_measures, value_vectors
from ffmem.models.feedforward import FeedForward
from ffmem.models.language_model import LanguageModel

VALUE_TOKENS = 10  # of a memory, none of which its control may promote as much
MOST_EDITS = 256  # that controls are sought for; sets have theirs in `ffmem effect`
AT_A_TIME = 4  # memories of like strength whose tokens are looked at together


@dataclass(frozen=True)
class EditControl:
    """What stands beside an edit: the edit of another memory, and the lengths that both add.

    A length is that of coefficient x value, added up over the places that the edit changes.
    """

    memory: Address
    control: Address
    edit: str
    strength: float
    control_strength: float

    @property
    def share(self) -> float:
        """How strong the control is, in units of the memory's strength."""
        return self.control_strength / self.strength if self.strength else 1.0


@torch.no_grad()
def edit_controls(
    model: LanguageModel, tokens: Tensor, lead: int, edits: Sequence[Edit]
) -> tuple[EditControl, ...]:
    """A control for every edit, no memory twice; none at all where one edit has none.

    That is a whole expert, a mean that is not known of others, or a layer without memories left.
    """
    if len(edits) > MOST_EDITS or any(
        edit.address.index == WHOLE or edit.is_mean for edit in edits
    ):
        return ()
    readings = record(model, tokens, "m")
    taken = {_neuron(model, edit.address) for edit in edits}
    found: list[EditControl] = []
    for edit in edits:
        one = _control(model, readings.layer(edit.address.layer).m[0], lead, edit, taken)
        if one is None:
            return ()
        taken.add(_neuron(model, one.control))
        found.append(one)
    return tuple(found)


def _neuron(model: LanguageModel, address: Address) -> tuple[int, int]:
    return address.layer, model.index_of(address)


def _control(
    model: LanguageModel, m: Tensor, lead: int, edit: Edit, taken: set[tuple[int, int]]
) -> EditControl | None:
    """The control of one edit; `m` [column, memory] are the layer's coefficients in the text."""
    layer, own = model.layer_of(edit.address), model.index_of(edit.address)
    columns = list(range(len(m)))
    if edit.positions is not None:
        columns = [at for at in columns if at + 1 - lead in edit.positions]
    there = m[columns].float()
    sums = there.abs().sum(dim=0)
    strengths = sums * value_measures(layer, sums, lambda values: values.norm(dim=1))
    order = (strengths - strengths[own]).abs().argsort(stable=True).tolist()
    free = [one for one in order if (layer.number, one) not in taken]
    signs = there.sum(dim=0).sign()
    (own_tokens,) = added_tokens(model, layer, [own], signs[[own]], VALUE_TOKENS)
    avoided = set(own_tokens)
    for start in range(0, len(free), AT_A_TIME):
        some = free[start : start + AT_A_TIME]
        promoted = added_tokens(model, layer, some, signs[some], VALUE_TOKENS)
        for one, tokens in zip(some, promoted, strict=True):
            if not avoided & set(tokens):
                return EditControl(
                    memory=edit.address,
                    control=layer.parts.address(layer.number, one),
                    edit=str(_alike(layer, edit, own, one)),
                    strength=float(strengths[own]),
                    control_strength=float(strengths[one]),
                )
    return None


def _alike(layer: FeedForward, edit: Edit, own: int, other: int) -> Edit:
    """The same edit of another memory; held at a number, it adds a vector as long."""
    amount = edit.amount
    if edit.action == "set" and amount:
        lengths = value_vectors(layer, [own, other]).float().norm(dim=1)
        amount = amount * float(lengths[0] / lengths[1].clamp(min=1e-30))
    address = layer.parts.address(layer.number, other)
    return replace(edit, address=address, amount=amount)
