"""What changes when a memory is silenced or forced? Correlation with triggers is not yet cause.

Measured by next-token distributions after many prefixes, with one memory edited in each.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from ffmem.address import Address
from ffmem.analyses.analysis import PAPER_SIZES
from ffmem.analyses.causal.record import Causal, LayerCausal, MemoryEffect, NextTokenEffect
from ffmem.analyses.controls import random_rows
from ffmem.analyses.inputs.next_tokens import divergences, next_log_probabilities
from ffmem.analyses.inputs.prefix_sample import BATCH_TOKENS, NO_TOKEN, PrefixSample, prefix_batches
from ffmem.analyses.statistics import Interval, bootstrap
from ffmem.memories.edits import Edit
from ffmem.memories.recording import record
from ffmem.memories.value_vectors import value_tokens, value_vectors
from ffmem.models.language_model import LanguageModel
from ffmem.steps import steps
from ffmem.store.cells import sign_factor
from ffmem.store.scan_store import ScanStore

PREFIX_TRIES = 2  # random prefixes looked at to find one that does not fire a memory
TRIGGERS = 4  # of a memory, its strongest
TOKENS = 10  # of a value
UNRELATED = 4  # prefixes of a memory


@dataclass(frozen=True)
class _Places:
    """Prefixes with the memory that each is about and the token that follows (or NO_TOKEN)."""

    prefixes: list[Tensor]
    following: Tensor
    owners: Tensor  # row of `cells`


def measure(
    model: LanguageModel,
    store: ScanStore,
    sample: PrefixSample,
    generator: torch.Generator,
    memories: int = PAPER_SIZES.causal_memories,
) -> Causal:
    """Silence and force so many random memories of every layer, on their triggers and elsewhere.

    `sample` gives the unrelated text.
    """
    return Causal(
        layers=tuple(
            _layer_causal(model, store, number, sample, (generator, memories))
            for number in steps(store.memories, "layers")
        ),
        tokens=TOKENS,
    )


def _layer_causal(
    model: LanguageModel,
    store: ScanStore,
    layer: int,
    sample: PrefixSample,
    how: tuple[torch.Generator, int],
) -> LayerCausal:
    generator, memories = how
    cells = random_live_cells(store, layer, memories, generator)
    tops = [value_tokens(model, cell, TOKENS).tokens[0].cpu() for cell in cells]
    at_triggers = trigger_places(store, cells, TRIGGERS)
    elsewhere = quiet_places(model, cells, at_triggers, sample, generator)
    random = _random_places(cells, sample, UNRELATED, generator)
    largest = [float(store.array("largest")[store.cells.row(cell)]) for cell in cells]

    def silence(places: _Places) -> list[Edit]:
        return [Edit(cells[owner], "set", 0.0) for owner in places.owners.tolist()]

    def effect(
        places: _Places, before: Tensor, edits: Sequence[Edit], everywhere: bool = False
    ) -> NextTokenEffect:
        after = next_log_probabilities(model, places.prefixes, edits, everywhere)
        return _effect_of(before, after, places, (tops, generator))

    force = [Edit(cells[owner], "set", largest[owner]) for owner in elsewhere.owners.tolist()]
    others = other_memories(model, cells, at_triggers)
    plain, own, other = (
        next_log_probabilities(model, at_triggers.prefixes, edits)
        for edits in (None, silence(at_triggers), others)
    )
    quiet, text = (next_log_probabilities(model, one.prefixes) for one in (elsewhere, random))
    shifts = (divergences(plain, own), divergences(plain, other))
    resampling = torch.Generator().manual_seed(layer)  # the next layers draw the same memories
    return LayerCausal(
        layer=layer,
        memories=len(cells),
        triggers=len(at_triggers.prefixes),
        silenced=_effect_of(plain, own, at_triggers, (tops, generator)),
        other_silenced=_effect_of(plain, other, at_triggers, (tops, generator)),
        silenced_elsewhere=effect(elsewhere, quiet, silence(elsewhere)),
        forced=effect(elsewhere, quiet, force),
        unrelated=effect(random, text, silence(random), everywhere=True),
        by_memory=_memory_effects(cells, at_triggers, *shifts),
        lost_more=_effect_of(own, other, at_triggers, (tops, resampling)).value_log_probability,
    )


def _memory_effects(
    cells: Sequence[Address], places: _Places, silenced: Tensor, other: Tensor
) -> tuple[MemoryEffect, ...]:
    """The mean divergence over each memory's triggers, its own and that of the other memory."""
    return tuple(
        MemoryEffect(cells[owner], float(silenced[own].mean()), float(other[own].mean()))
        for owner in places.owners.unique().tolist()
        for own in [places.owners == owner]
    )


def random_live_cells(
    store: ScanStore, layer: int, count: int, generator: torch.Generator
) -> list[Address]:
    """Random cells of a layer among those that have a trigger."""
    alive = torch.from_numpy(store.slots(store.cells.rows_of(layer), top=1).cell)
    chosen = alive[random_rows(len(alive), count, generator)].sort().values
    return store.cells.in_layer(layer, chosen.numpy())


def trigger_places(store: ScanStore, cells: Sequence[Address], count: int) -> _Places:
    """The strongest triggers of each cell."""
    kept = store.sentences
    prefixes, following = [], []
    slots = store.slots([store.cells.row(cell) for cell in cells], top=count)
    for sentence, position in zip(slots.sentence.tolist(), slots.position.tolist(), strict=True):
        tokens = torch.from_numpy(kept.token_ids(sentence).astype(np.int64))
        prefixes.append(tokens[:position])
        following.append(int(tokens[position]) if position < len(tokens) else NO_TOKEN)
    return _Places(prefixes, torch.tensor(following), torch.from_numpy(slots.cell))


def quiet_places(
    model: LanguageModel,
    cells: Sequence[Address],
    like: _Places,
    sample: PrefixSample,
    generator: torch.Generator,
) -> _Places:
    """Random prefixes of the same lengths that do not fire the cell; a few may find none."""
    if not cells or not like.prefixes:
        return _Places([], torch.zeros(0, dtype=torch.long), torch.zeros(0, dtype=torch.long))
    drawn = [
        _prefix_of_length(sample, len(prefix), generator)
        for prefix in like.prefixes
        for _ in range(PREFIX_TRIES)
    ]
    m = last_coefficients(model, cells[0].layer, [prefix for prefix, _ in drawn])
    prefixes, following, owners = [], [], []
    for place, owner in enumerate(like.owners.tolist()):
        cell = cells[owner]
        tries = slice(place * PREFIX_TRIES, (place + 1) * PREFIX_TRIES)
        quiet = (m[tries, model.index_of(cell)] * sign_factor(cell) <= 0).nonzero().flatten()
        if len(quiet):
            prefix, next_token = drawn[place * PREFIX_TRIES + int(quiet[0])]
            prefixes.append(prefix)
            following.append(next_token)
            owners.append(owner)
    return _Places(prefixes, torch.tensor(following), torch.tensor(owners, dtype=torch.long))


def _prefix_of_length(
    sample: PrefixSample, length: int, generator: torch.Generator
) -> tuple[Tensor, int]:
    """The first `length` tokens of a random sentence that has more, else of the longest one."""
    sizes = sample.starts.diff()
    fit = (sizes > length).nonzero().flatten()
    if not len(fit):
        fit = sizes.argmax()[None]
    row = int(fit[torch.randint(len(fit), (1,), generator=generator)])
    tokens = sample.tokens[sample.starts[row] : sample.starts[row + 1]]
    return tokens[:length], int(tokens[length]) if length < len(tokens) else NO_TOKEN


def _random_places(
    cells: Sequence[Address], sample: PrefixSample, count: int, generator: torch.Generator
) -> _Places:
    """The same random prefixes of the sample for every cell."""
    rows = random_rows(len(sample), count, generator).tolist()
    return _Places(
        [sample.prefix_tokens(row) for _ in cells for row in rows],
        sample.gold[rows].repeat(len(cells)),
        torch.arange(len(cells)).repeat_interleave(len(rows)),
    )


@torch.no_grad()
def other_memories(model: LanguageModel, cells: Sequence[Address], places: _Places) -> list[Edit]:
    """At each place the other memory of most nearly the same strength |m| ||v||, to be silenced.

    What the other promotes plays no part, unlike in `memories/edit_controls.py`: a mean over many
    places asks what any memory as strong does to the tokens watched, and leaving out those that
    promote them too would favour the claim. One text, which a reader looks at alone, has no such
    mean.
    """
    if not places.prefixes:
        return []
    layer = cells[0].layer
    lengths = value_vectors(model.layer(layer)).float().norm(dim=1).cpu()
    strength = last_coefficients(model, layer, places.prefixes).abs() * lengths
    places_of = [model.index_of(cells[owner]) for owner in places.owners.tolist()]
    index = torch.tensor(places_of)[:, None]
    own = strength.gather(1, index)
    apart = (strength - own).abs().scatter(1, index, torch.inf)
    other = apart.argmin(dim=1)
    parts = model.layer(layer).parts
    return [Edit(parts.address(layer, one), "set", 0.0) for one in other.tolist()]


def _effect_of(
    before: Tensor,
    after: Tensor,
    places: _Places,
    about: tuple[Sequence[Tensor], torch.Generator],
) -> NextTokenEffect:
    """Compare two sets of log-probabilities, mean within each memory first."""
    tops, generator = about
    if not len(before):
        nothing = bootstrap(torch.zeros(0), generator)
        return NextTokenEffect(nothing, nothing, nothing, nothing)
    watched = torch.stack([tops[owner] for owner in places.owners.tolist()])
    old, new = before.gather(1, watched), after.gather(1, watched)
    known = places.following >= 0
    token = places.following.clamp(min=0)[:, None]
    gained = (after.gather(1, token).exp() - before.gather(1, token).exp()).squeeze(1)
    kl = divergences(before, after)

    def over_memories(numbers: Tensor, rows: Tensor) -> Interval:
        owners = places.owners[rows]
        means = [numbers[rows][owners == owner].double().mean() for owner in owners.unique()]
        return bootstrap(torch.stack(means) if means else torch.zeros(0), generator)

    every = torch.ones_like(known)
    return NextTokenEffect(
        value_probability=over_memories((new.exp() - old.exp()).sum(dim=1), every),
        value_log_probability=over_memories((new - old).mean(dim=1), every),
        next_probability=over_memories(gained, known),
        kl=over_memories(kl, every),
    )


@torch.no_grad()
def last_coefficients(model: LanguageModel, layer: int, prefixes: Sequence[Tensor]) -> Tensor:
    """One layer's coefficients [prefix, memory] at the last token, on the CPU."""
    found = torch.empty(len(prefixes), model.layer(layer).memories)
    for batch in prefix_batches(prefixes, model.bos, len(prefixes), BATCH_TOKENS):
        reading = record(model, batch.tokens, "m", at=batch.columns + 1).layer(layer)
        found[batch.rows] = reading.m.float().cpu()
    return found
