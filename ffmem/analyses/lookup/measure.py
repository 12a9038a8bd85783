"""Which keys of a layer fire at one place of a text, and which values they add."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from ffmem.address import Address
from ffmem.analyses.patterns.by_memory import study_patterns
from ffmem.corpus.conversations import question_text
from ffmem.memories.edits import Edit, edited
from ffmem.memories.projection import top_tokens
from ffmem.memories.prompt_answer import PromptQuestion, token_texts
from ffmem.memories.prompt_explanation import cell_address, explain_prompt, next_text
from ffmem.memories.recording import LayerRecord
from ffmem.memories.value_vectors import value_measures, value_vectors
from ffmem.models.language_model import LanguageModel
from ffmem.store.memory_page import fold_equal
from ffmem.store.scan_store import ScanStore
from ffmem.text import Snippet

STRONGEST = 3  # memories shown, beside a weak and a silent one
WEAK = 0.1  # of what the strongest adds
LINES = 2  # patterns or triggers of a memory
BEFORE = 32  # characters of a trigger before its last token
TOKENS = 4  # that a value, or the layer, promotes
FOLLOWS = 3  # next tokens
LOOKED_AT = 64  # silent memories, for one that something in the scan fires


Role = Literal["strongest", "weak", "silent"]


@dataclass(frozen=True)
class ShownMemory:
    """A memory of the layer: what its key stands for, its coefficient, what its value promotes.

    `stands_for` are patterns of its triggers, or else its strongest triggers; empty without a scan.
    """

    address: Address
    role: Role
    coefficient: float
    stands_for: tuple[str, ...]
    tokens: tuple[str, ...]


@dataclass(frozen=True)
class NextToken:
    """A token that may follow, with the model's probability."""

    text: str
    probability: float


@dataclass(frozen=True)
class LayerLookup:
    """What a layer's keys find in what was read, and what it adds: Figure 1 for any text.

    `active` of its `memories` fire. `adds` are the tokens that the sum of all of them promotes.
    """

    model: str
    layer: int
    layers: int  # of the model
    memories: int
    active: int
    read: tuple[str, ...]  # tokens, the last one is at the place
    shown: tuple[ShownMemory, ...]
    adds: tuple[str, ...]
    follows: tuple[NextToken, ...]  # likeliest first


@torch.no_grad()
def layer_lookup(
    model: LanguageModel,
    question: PromptQuestion,
    layer: int,
    store: ScanStore | None = None,
    edits: Sequence[Edit] = (),
) -> LayerLookup:
    """The layer (from 1) at the place of a prompt that is asked about, with edits if there are any.

    A scan of the model in `store` says what keys stand for.
    """
    model.layer(layer)  # refuses one that there is not
    text = question.text
    if question.chat:
        text = question_text(text, model.tokenizer, model.name)
    read = token_texts(model, text)
    with edited(model, edits):
        view = explain_prompt(model, text, question.position, strongest=0)
    reading, step = view.records.layer(layer), view.steps[layer - 1]
    likely = view.likeliest(FOLLOWS)
    return LayerLookup(
        model=model.name,
        layer=layer,
        layers=len(model.layers),
        memories=reading.layer.memories,
        active=step.active,
        read=read[: view.position],
        shown=tuple(
            _shown_memory(model, reading, role, index, store)
            for role, index in choice(reading, store)
        ),
        adds=tuple(
            map(
                model.token_text,
                top_tokens(model, reading.y, "direction", TOKENS).tokens[0].tolist(),
            )
        ),
        follows=tuple(
            NextToken(next_text(model, one), float(view.distribution[one])) for one in likely
        ),
    )


def choice(reading: LayerRecord, store: ScanStore | None) -> Iterator[tuple[Role, int]]:
    """The memories that add most, one that adds a tenth of that, and one that stays silent.

    The silent one has the coefficient nearest to 0 and, of those alike, the key that fits least;
    where there is a scan, the first such memory that something in it fires.
    """
    layer, m = reading.layer, reading.m[0]
    strength = m.float().abs() * value_measures(layer, m, lambda values: values.norm(dim=1))
    best = strength.topk(min(STRONGEST, len(m))).indices.tolist()
    yield from (("strongest", index) for index in best)
    others = strength.clone()
    others[best] = 0
    if bool(others.any()):
        distance = (others - WEAK * strength.max()).abs().masked_fill(others == 0, torch.inf)
        best.append(int(distance.argmin()))
        yield "weak", best[-1]
    silent = [index for index in least(m, reading.a[0]) if index not in best]
    fired = (one for one in silent if stands_for(store, cell_address(layer, one, 0.0)))
    for index in (next(fired, silent[0]),) if silent else ():
        yield "silent", index


def least(m: Tensor, a: Tensor) -> list[int]:
    """Memories with the coefficients nearest to 0, of those alike the lowest score first."""
    by_score = a.float().argsort(stable=True)[: len(m)]
    order = m.float().abs()[by_score].argsort(stable=True)
    found: list[int] = by_score[order][:LOOKED_AT].tolist()
    return found


def _shown_memory(
    model: LanguageModel, reading: LayerRecord, role: Role, index: int, store: ScanStore | None
) -> ShownMemory:
    layer, coefficient = reading.layer, float(reading.m[0, index])
    address = cell_address(layer, index, coefficient)
    value = value_vectors(layer, [index]).float()
    added = -value if coefficient < 0 else value
    tokens = top_tokens(model, added, "direction", TOKENS).tokens[0].tolist()
    names = tuple(map(model.token_text, tokens))
    return ShownMemory(address, role, coefficient, stands_for(store, address), names)


def stands_for(store: ScanStore | None, cell: Address) -> tuple[str, ...]:
    """The patterns of a cell's triggers, those of most triggers first, or else triggers."""
    if store is None or cell.layer not in store.memories:
        return ()
    patterns = study_patterns(store.folder).foremost(str(cell))
    if patterns:
        return tuple(one.text for one in patterns[:LINES])
    folded = fold_equal(store.triggers(cell)[: 5 * LINES], LINES)
    return tuple(str(Snippet.of(one, BEFORE)).strip() for one, _ in folded)
