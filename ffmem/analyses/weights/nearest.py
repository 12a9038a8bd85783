"""The memories nearest to one, by key and by value, with what they promote and what fires them."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from ffmem.address import Address
from ffmem.memories.value_vectors import value_vectors
from ffmem.models.language_model import LanguageModel
from ffmem.store.scan_store import ScanStore
from ffmem.store.search.lookup import MemoryIndex
from ffmem.text import cut

NEAR_TOKENS, BEFORE = 5, 60  # tokens and characters that describe a near memory


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
    return Nearest(
        _nearest_rows(store, keys, cell, count), _nearest_rows(store, values, cell, count)
    )


def cosines(rows: Tensor, one: Tensor) -> Tensor:
    """The cosine of each row with one vector, on the CPU."""
    one = one.to(rows.device).float()
    return torch.nn.functional.cosine_similarity(rows.float(), one[None], dim=1).cpu()


def _nearest_rows(
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
        tuple(_describe_one(lookup, near) for near in found.by_key),
        tuple(_describe_one(lookup, near) for near in found.by_value),
    )


def _describe_one(lookup: MemoryIndex, near: Near) -> Near:
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
