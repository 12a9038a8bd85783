"""What only the model can say of one memory: what its key needs, what is near it, what it does.

Also texts coloured by it: its coefficient at every token, from the study or the model.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ffmem.address import Address
from ffmem.analyses.causal import next_log_probabilities, other_memories, trigger_places
from ffmem.analyses.inputs.sentence_coefficients import coefficients_along
from ffmem.analyses.removal import saliency
from ffmem.errors import AddressError, EditError
from ffmem.explorer.queries.prompt import token_ids, token_texts
from ffmem.memories.edits import Edit
from ffmem.memories.folded_weights import WakeUpLink, key_tokens, wake_up_link
from ffmem.memories.value_vectors import value_vectors
from ffmem.models.language_model import LanguageModel
from ffmem.store.lookup import MemoryIndex
from ffmem.store.memory_page import cut, stored_coefficients
from ffmem.store.scan_store import ScanStore

NEXT_TOKENS = 5  # next tokens shown before and after
NEAR_TOKENS, BEFORE = 5, 60  # tokens and characters that describe a near memory
EditKind = Literal["silence", "boost", "hold"]


@dataclass(frozen=True)
class TokenEffect:
    """A token of a trigger, and how the coefficient changes without it, in percent."""

    token: str
    change: float | None


@dataclass(frozen=True)
class TriggerSaliency:
    """Every token of one trigger; empty where it has but one token."""

    rank: int
    tokens: tuple[TokenEffect, ...]


def trigger_saliency(
    model: LanguageModel, store: ScanStore, cell: Address, rank: int
) -> TriggerSaliency:
    """Remove each token of a cell's trigger (rank from 1) in turn and read the key again."""
    slots = store.slots([store.cells.row(cell)])
    if not 1 <= rank <= len(slots):
        raise AddressError(f"{cell} has {len(slots)} stored triggers, no trigger {rank}")
    where, position = int(slots.sentence[rank - 1]), int(slots.position[rank - 1])
    if position < 2:
        return TriggerSaliency(rank, ())
    kept = store.sentences
    found = saliency(model, cell, kept.token_ids(where)[:position].tolist())
    pieces = kept.pieces(where)[:position]
    return TriggerSaliency(
        rank,
        tuple(
            TokenEffect(piece, None if math.isnan(change) else round(change, 2))
            for piece, change in zip(pieces, found.changes, strict=True)
        ),
    )


@dataclass(frozen=True)
class NearTrigger:
    """The strongest trigger of a memory, the beginning of its prefix cut."""

    coefficient: float
    before: str
    last: str
    next: str


@dataclass(frozen=True)
class Near:
    """Another memory, and the cosine between the two; what it promotes, and what fires it."""

    address: str
    cosine: float
    promotes: tuple[str, ...] = ()
    trigger: NearTrigger | None = None


@dataclass(frozen=True)
class Nearest:
    """The memories nearest to one, by key and by value, of all layers; itself left out."""

    by_key: tuple[Near, ...]
    by_value: tuple[Near, ...]


@torch.no_grad()
def nearest(model: LanguageModel, store: ScanStore, cell: Address, count: int = 8) -> Nearest:
    """Compare one memory's key and value with those of all memories in the scan.

    A gated memory's key has two halves; the cosine of keys is the mean over both.
    """
    home, index = model.layer_of(cell), model.index_of(cell)
    own, value = home.keys[index], value_vectors(home, [index])[0]
    own_gate = None if home.gate_keys is None else home.gate_keys[index]
    keys, values = [], []
    for number in store.memories:
        layer = model.layer(number)
        both = [(layer.keys, own)]
        if (gate := layer.gate_keys) is not None and own_gate is not None:
            both.append((gate, own_gate))
        keys.append(torch.stack([cosines(rows, one) for rows, one in both]).mean(dim=0))
        values.append(cosines(value_vectors(layer), value))
    return Nearest(nearest_rows(store, keys, cell, count), nearest_rows(store, values, cell, count))


def cosines(rows: Tensor, one: Tensor) -> Tensor:
    """The cosine of each row with one vector, on the CPU."""
    one = one.to(rows.device).float()
    return torch.nn.functional.cosine_similarity(rows.float(), one[None], dim=1).cpu()


def nearest_rows(
    store: ScanStore, by_layer: list[Tensor], cell: Address, count: int
) -> tuple[Near, ...]:
    """The largest cosines of all layers."""
    found = []
    for layer, cosine in zip(store.memories, by_layer, strict=True):
        top = cosine.topk(min(count + 1, len(cosine)))
        for value, index in zip(top.values.tolist(), top.indices.tolist(), strict=True):
            found.append((value, store.cells.parts(layer).address(layer, index, cell.sign)))
    found.sort(key=lambda pair: (-pair[0], pair[1]))
    others = [(value, address) for value, address in found if address != cell]
    return tuple(Near(str(address), round(value, 4)) for value, address in others[:count])


def describe(lookup: MemoryIndex, found: Nearest) -> Nearest:
    """The same memories with their tokens and a trigger each."""
    return Nearest(
        tuple(describe_one(lookup, near) for near in found.by_key),
        tuple(describe_one(lookup, near) for near in found.by_value),
    )


def describe_one(lookup: MemoryIndex, near: Near) -> Near:
    """The tokens that a memory promotes, and its strongest trigger."""
    cell = Address.parse(near.address)
    promotes = tuple(push.text for push in lookup.value_tokens(cell, count=NEAR_TOKENS))
    first = lookup.store.triggers(cell)[:1]
    trigger = (
        NearTrigger(
            first[0].coefficient, cut(first[0].before, BEFORE), first[0].last, first[0].next
        )
        if first
        else None
    )
    return replace(near, promotes=promotes, trigger=trigger)


@dataclass(frozen=True)
class NearToken:
    """A token, and the cosine of its embedding with a key or gate."""

    token: str
    cosine: float


@dataclass(frozen=True)
class KeyView:
    """What a memory waits for by its weights alone: tokens near its key and gate.

    `link` is the inner product of its value with the key of another memory, where one is named.
    """

    key: tuple[NearToken, ...]
    gate: tuple[NearToken, ...]
    link: WakeUpLink | None


def key_view(model: LanguageModel, cell: Address, other: str | None, count: int = 10) -> KeyView:
    """The tokens nearest to a key, and what the value does to a later key."""

    def near(side: str) -> tuple[NearToken, ...]:
        found = key_tokens(model, cell, count, side)
        pairs = zip(found.tokens[0].tolist(), found.logits[0].tolist(), strict=True)
        return tuple(NearToken(model.token_text(token), round(c, 4)) for token, c in pairs)

    gated = model.layer_of(cell).gated
    link = None if other is None else wake_up_link(model, cell, other)
    return KeyView(near("key"), near("gate") if gated else (), link)


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
    matched = [control_edit(model, cell, change, other) for other in others]
    control = next_log_probabilities(model, places.prefixes, matched)
    if not bool(torch.isfinite(after).all() and torch.isfinite(control).all()):
        raise EditError("these changes make numbers overflow; use smaller ones")
    triggers = [
        trigger_effect(model, rank, (before[rank], after[rank]), int(token))
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


def control_edit(model: LanguageModel, cell: Address, change: CoefficientEdit, other: Edit) -> Edit:
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


def trigger_effect(
    model: LanguageModel, place: int, pair: tuple[Tensor, Tensor], following: int
) -> TriggerEffect:
    """One trigger before and after."""
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


@dataclass(frozen=True)
class ColouredText:
    """A text cut into tokens, with the memory's coefficient at each; `sentence` of the corpus."""

    sentence: int | None
    tokens: tuple[str, ...]
    coefficients: tuple[float, ...]


@dataclass(frozen=True)
class PageCoefficients:
    """The sentences of a memory's page; `largest` is that of the scan, which all are shares of.

    `source` is None where neither the model is loaded nor the study has kept them; `advice` says
    what to do then.
    """

    source: Literal["model", "study"] | None
    largest: float
    sentences: tuple[ColouredText, ...]
    advice: str = ""


def coefficients_from_store(
    store: ScanStore, cell: Address, sentences: Sequence[int]
) -> PageCoefficients:
    """The stored coefficients along these sentences of the corpus."""
    known, row = stored_coefficients(store), store.cells.row(cell)
    largest, kept = float(store.array("largest")[row]), store.sentences
    along = {number: known.along(row, number, largest) for number in sentences} if known else {}
    found = [
        ColouredText(number, tuple(kept.pieces(kept.row(number))), short_numbers(numbers))
        for number, numbers in along.items()
        if numbers is not None
    ]
    if found:
        return PageCoefficients("study", largest, tuple(found))
    advice = (
        f"The study keeps the coefficients along the triggers of some memories, and {cell} is "
        "not among them: load the model to see them."
        if known is not None
        else "The coefficients along these sentences are not stored: load the model to see them, "
        f"or keep those of the memories that are shown first with "
        f"`ffmem analyse {store.folder.root} --only coefficients`."
    )
    return PageCoefficients(None, largest, (), advice)


def model_coefficients(
    model: LanguageModel, store: ScanStore, cell: Address, sentences: Sequence[int]
) -> PageCoefficients:
    """The same, read by the model in one go."""
    kept = store.sentences
    rows = [kept.row(number) for number in sentences]
    texts = [torch.from_numpy(kept.token_ids(row).astype(np.int64)) for row in rows]
    along = coefficients_along(model, [cell], texts)
    return PageCoefficients(
        "model",
        float(store.array("largest")[store.cells.row(cell)]),
        tuple(
            ColouredText(number, tuple(kept.pieces(row)), short_numbers(numbers[0]))
            for number, row, numbers in zip(sentences, rows, along, strict=True)
        ),
    )


def text_coefficients(model: LanguageModel, cell: Address, text: str) -> ColouredText:
    """Any text, coloured by one memory."""
    (numbers,) = coefficients_along(model, [cell], [torch.tensor(token_ids(model, text))])
    return ColouredText(None, token_texts(model, text), short_numbers(numbers[0]))


def short_numbers(numbers: NDArray[np.float32]) -> tuple[float, ...]:
    """Numbers with as many digits as anybody reads."""
    return tuple(float(f"{number:.4g}") for number in numbers.tolist())
