"""Which end of a trigger does a key need? Remove a token and read the coefficient again (Fig 3).

Coefficients on prefixes with one token removed come in as few passes as give them all.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ffmem.address import Address
from ffmem.analyses.controls import random_keys
from ffmem.analyses.inputs.claim_effects import Effects, removal_effects
from ffmem.analyses.statistics import Interval, pool_by_key
from ffmem.memories.recording import record_forward, stop_after
from ffmem.models.language_model import LanguageModel
from ffmem.steps import sized_steps
from ffmem.store.cells import sign_factor
from ffmem.store.scan_store import ScanStore

REMOVALS = ("first", "last", "random")
DECILES = 10
BATCH_TOKENS = {"cuda": 65_536, "cpu": 1_024}  # tokens per batch; the fewer, the fewer are padding


@dataclass(frozen=True)
class Variant:
    """Variants of the paper's measurement.

    `interior` draws the random token between the first and the last, so that the three kinds never
    remove the same one; a trigger of two tokens then has no random token. `clipped` takes a
    coefficient below 0 (smooth activations, gates) for 0: the key has fallen silent.
    """

    interior: bool = False
    clipped: bool = True


AS_PUBLISHED = Variant()


@dataclass(frozen=True)
class CoefficientChange:
    """How a coefficient changes when one token is removed, in percent of what it was.

    `mean` pools the ratios of all triggers (as the paper does), its interval resamples keys;
    `ratio_of_means` weighs triggers by their coefficient; `median` is over triggers.
    """

    mean: Interval
    ratio_of_means: float
    median: float


@dataclass(frozen=True)
class LayerRemoval:
    """One layer's changes, and all that was left out of them.

    `deciles` is the control along the prefix: the mean change by where in the prefix the randomly
    removed token stood, from its first tenth to its last.
    """

    layer: int
    first: CoefficientChange
    last: CoefficientChange
    random: CoefficientChange
    deciles: tuple[Interval, ...]
    triggers: int  # measured
    keys: int  # with at least one measured trigger
    dead: int  # drawn keys that nothing in the corpus fires
    short: int  # triggers of one token: nothing would be left
    silent: int  # triggers that do not fire when read again


@dataclass(frozen=True)
class Removal:
    """Fig 3: the change of the coefficient by layer and by the token removed.

    `effects` are what its claims rest on, by key.
    """

    layers: tuple[LayerRemoval, ...]
    drawn: dict[int, tuple[str, ...]]  # the keys of every layer
    top: int  # triggers per key
    seed: int
    passes: int  # rows that the model read
    tokens: int  # tokens in them
    variant: Variant = AS_PUBLISHED
    effects: Effects = field(default_factory=dict)


@dataclass(frozen=True)
class _Triggers:
    """Every trigger of the drawn keys, as arrays of equal length."""

    keys: list[Address]
    key: np.ndarray[tuple[int], np.dtype[np.int64]]  # row in `keys`
    sentence: np.ndarray[tuple[int], np.dtype[np.int64]]  # row in the kept sentences
    position: np.ndarray[tuple[int], np.dtype[np.int64]]


def removal(
    model: LanguageModel,
    store: ScanStore,
    keys: int = 100,
    top: int = 50,
    seed: int = 0,
    variant: Variant = AS_PUBLISHED,
) -> Removal:
    """Measure `keys` random keys per layer on their `top` strongest triggers.

    The original prefix is read again in the batch of its shortened forms, so that a change is
    never one of precision. The token removed at random is drawn once for a prefix and shared by the
    keys it triggers.
    """
    drawn = random_keys(store, keys, seed, "removal")
    triggers = _triggers(store, [key for layer in drawn.values() for key in layer], top)
    long = triggers.position >= 2
    removed = _random_tokens(triggers, seed, variant.interior)
    asked = _questions(store, triggers, removed, np.flatnonzero(long))
    answers = shortened_coefficients(
        model, asked, BATCH_TOKENS["cuda" if model.device.type == "cuda" else "cpu"]
    )
    table = torch.full((len(long), 1 + len(REMOVALS)), float("nan"), dtype=torch.float64)
    found = answers.values.double().reshape(-1, 1 + len(REMOVALS))
    table[torch.from_numpy(long)] = found.clamp(min=0) if variant.clipped else found
    table[torch.from_numpy(removed == 0), 1 + REMOVALS.index("random")] = float("nan")
    generator = torch.Generator().manual_seed(seed)
    where = torch.from_numpy((removed - 0.5) / np.maximum(triggers.position, 1) * DECILES).long()
    layers = tuple(
        _layer(layer, triggers, _Table(table, where), generator) for layer in sorted(drawn)
    )
    names = {layer: tuple(str(key) for key in found) for layer, found in drawn.items()}
    effects = removal_effects([_changes_by_key(layer, triggers, table) for layer in sorted(drawn)])
    return Removal(layers, names, top, seed, answers.rows, answers.tokens, variant, effects)


def _changes_by_key(layer: int, triggers: _Triggers, coefficients: Tensor) -> Tensor:
    """[key, 6] of a layer: sum and number of the changes without first, last, random token.

    A trigger counts if it fires when read again and has all three.
    """
    rows = {row: place for place, row in enumerate(_keys_of(layer, triggers))}
    mine = torch.from_numpy(np.isin(triggers.key, list(rows)))
    m = coefficients[mine]
    whole = (m[:, 0] > 0) & ~m.isnan().any(dim=1)
    key = torch.tensor([rows[row] for row in triggers.key[mine.numpy()].tolist()], dtype=torch.long)
    changes = 100 * (m[whole, 1:] / m[whole, :1] - 1)
    columns = torch.stack([changes, torch.ones_like(changes)], dim=2).flatten(1)
    return torch.zeros(len(rows), columns.shape[1], dtype=torch.float64).index_add_(
        0, key[whole], columns
    )


def _keys_of(layer: int, triggers: _Triggers) -> list[int]:
    """The rows of a layer's keys."""
    return [row for row, key in enumerate(triggers.keys) if key.layer == layer]


def _triggers(store: ScanStore, keys: list[Address], top: int) -> _Triggers:
    slots = store.slots([store.cells.row(key) for key in keys], top=top)
    fires = slots.coefficient > 0
    return _Triggers(keys, slots.cell[fires], slots.sentence[fires], slots.position[fires])


def _random_tokens(
    triggers: _Triggers, seed: int, interior: bool
) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    """The token (from 1) to remove from each trigger, uniform, one for each place; 0 is none.

    All tokens of the prefix can be drawn, or with `interior` all but its first and last.
    """
    places = np.stack([triggers.sentence, triggers.position], axis=1)
    unique, which = np.unique(places.reshape(-1, 2), axis=0, return_inverse=True)
    share = np.random.default_rng([seed, 3]).random(len(unique))
    choices = np.maximum(unique[:, 1] - (2 if interior else 0), 0)
    drawn = np.floor(share * choices).astype(np.int64) + (2 if interior else 1)
    return np.where(choices > 0, drawn, 0)[which.reshape(-1)]


def _questions(
    store: ScanStore,
    triggers: _Triggers,
    removed: np.ndarray[tuple[int], np.dtype[np.int64]],
    rows: np.ndarray[tuple[int], np.dtype[np.int64]],
) -> list[CoefficientQuery]:
    """Four questions per trigger: as it is, and without its first, last and one random token."""
    sentences = {
        int(row): store.sentences.token_ids(int(row)) for row in np.unique(triggers.sentence)
    }
    asked = []
    for row in rows:
        key, position = triggers.keys[triggers.key[row]], int(triggers.position[row])
        sentence = int(triggers.sentence[row])
        for missing in (0, 1, position, int(removed[row])):
            text = ShortenedSentence(sentence, sentences[sentence], missing)
            asked.append(CoefficientQuery(key, text, position))
    return asked


@dataclass(frozen=True)
class _Table:
    """[trigger, 1 + kind]: coefficients, original first; and the random token's decile."""

    coefficients: Tensor
    decile: Tensor


def _layer(
    layer: int, triggers: _Triggers, table: _Table, generator: torch.Generator
) -> LayerRemoval:
    of_layer = _keys_of(layer, triggers)
    mine = torch.from_numpy(np.isin(triggers.key, of_layer))
    key = torch.from_numpy(triggers.key)[mine] - (of_layer[0] if of_layer else 0)
    m = table.coefficients[mine]
    short, fires = m[:, 0].isnan(), m[:, 0] > 0
    key, m, decile, count = key[fires], m[fires], table.decile[mine][fires], len(of_layer)
    first, last, random = (
        _change(m[:, [0, 1 + kind]], key, count, generator) for kind in range(len(REMOVALS))
    )
    changes = 100 * (m[:, 3] - m[:, 0]) / m[:, 0]
    decile = torch.where(changes.isnan(), -1, decile)
    deciles = tuple(
        _by_key(changes[decile == tenth], key[decile == tenth], count, generator)
        for tenth in range(DECILES)
    )
    return LayerRemoval(
        layer=layer,
        first=first,
        last=last,
        random=random,
        deciles=deciles,
        triggers=len(m),
        keys=len(key.unique()),
        dead=count - len(np.unique(triggers.key[mine.numpy()])),
        short=int(short.sum()),
        silent=int((~short & ~fires).sum()),
    )


def _change(m: Tensor, key: Tensor, keys: int, generator: torch.Generator) -> CoefficientChange:
    """From [trigger, before and after]; a trigger that the kind of removal does not fit is NaN."""
    there = ~m[:, 1].isnan()
    (before, after), key = m[there].T, key[there]
    changes = 100 * (after - before) / before
    return CoefficientChange(
        _by_key(changes, key, keys, generator),
        float(100 * (after.sum() / before.sum() - 1)),
        float(changes.median()) if len(changes) else float("nan"),
    )


def _by_key(changes: Tensor, key: Tensor, keys: int, generator: torch.Generator) -> Interval:
    sums = torch.zeros(keys, dtype=torch.float64).index_add_(0, key, changes)
    return pool_by_key(sums, torch.bincount(key, minlength=keys), generator)


@dataclass(frozen=True)
class Saliency:
    """Leave-one-out attribution of one key's coefficient to the tokens of one trigger.

    `changes` has for every token the change of the coefficient, in percent, when it is removed.
    """

    key: str
    coefficient: float
    tokens: tuple[int, ...]
    changes: tuple[float, ...]


def saliency(model: LanguageModel, key: Address, prefix: Sequence[int]) -> Saliency:
    """Remove every token of `prefix` (at least two, no BOS) in turn and read `key` at its end."""
    model.layer_of(key)
    ids = np.asarray(prefix, dtype=np.int32)
    asked = [
        CoefficientQuery(key, ShortenedSentence(0, ids, missing), len(ids))
        for missing in range(len(ids) + 1)
    ]
    found = shortened_coefficients(model, asked, BATCH_TOKENS["cuda"]).values.clamp(min=0).tolist()
    before = found[0]
    changes = tuple(100 * (m - before) / before if before else float("nan") for m in found[1:])
    return Saliency(str(key), before, tuple(int(token) for token in ids), changes)


@dataclass(frozen=True)
class ShortenedSentence:
    """A sentence without its token `missing` (from 1); 0 is the sentence as it is."""

    sentence: int  # any number that tells sentences apart
    tokens: NDArray[np.int32] = field(repr=False)
    missing: int

    def until(self, position: int) -> NDArray[np.int32]:
        """The tokens that are left of its first `position` ones."""
        kept = self.tokens[:position]
        return np.delete(kept, self.missing - 1) if 1 <= self.missing <= position else kept


@dataclass(frozen=True)
class CoefficientQuery:
    """The coefficient of `key` at the end of what is left of the first `position` tokens."""

    key: Address
    text: ShortenedSentence
    position: int


@dataclass(frozen=True)
class QueryAnswers:
    """One coefficient per question, in order, and what it took to find them."""

    values: Tensor
    rows: int
    tokens: int


@dataclass
class _Row:
    """One row that the model reads: the longest stretch any question needs of it."""

    tokens: NDArray[np.int32]
    asked: list[tuple[int, int, Address]]  # question, tokens read, key


def shortened_coefficients(
    model: LanguageModel, questions: Sequence[CoefficientQuery], budget: int
) -> QueryAnswers:
    """Answer all questions; coefficients have the key's own sign, and can be below 0.

    The model is causal, so one row serves every position of a sentence that lacks the same token,
    and a prefix without its last token is the original read one position earlier: no row of its
    own. All rows of one sentence are in one batch; batches hold sentences of like length that are
    asked about like layers, at most `budget` tokens unless one sentence alone needs more. The model
    runs as far as the deepest layer asked about.
    """
    values = torch.zeros(len(questions))
    rows = tokens = 0
    sentences = _rows_by_sentence(questions)
    batches = _batches(sentences, budget, 0 if model.bos is None else 1)
    for batch in sized_steps(batches, sum(map(len, sentences)), "shortened triggers", len):
        _read(model, batch, values)
        rows += len(batch)
        tokens += sum(len(row.tokens) for row in batch)
    return QueryAnswers(values, rows, tokens)


def _rows_by_sentence(questions: Sequence[CoefficientQuery]) -> list[list[_Row]]:
    by_text: dict[tuple[int, int], list[int]] = defaultdict(list)
    for number, question in enumerate(questions):
        missing = question.text.missing if question.text.missing < question.position else 0
        by_text[question.text.sentence, missing].append(number)
    found: dict[int, list[_Row]] = defaultdict(list)
    for (sentence, missing), numbers in by_text.items():
        asked = []
        for number in numbers:
            question = questions[number]
            left = question.position - (question.text.missing in range(1, question.position + 1))
            asked.append((number, left, question.key))
        farthest = max(left for _, left, _ in asked) + (1 if missing else 0)
        text = ShortenedSentence(sentence, questions[numbers[0]].text.tokens, missing)
        found[sentence].append(_Row(text.until(farthest), asked))
    return list(found.values())


def _batches(sentences: list[list[_Row]], budget: int, bos: int) -> Iterator[list[_Row]]:
    """Rows of whole sentences, those of the deepest layer first and among them the longest."""

    def width(rows: list[_Row]) -> int:
        return max(len(row.tokens) for row in rows) + bos

    def depth(rows: list[_Row]) -> int:
        return max(key.layer for row in rows for _, _, key in row.asked)

    batch: list[_Row] = []
    widest = 0
    for rows in sorted(sentences, key=lambda rows: (depth(rows), width(rows)), reverse=True):
        widest = max(widest, width(rows))
        if batch and (len(batch) + len(rows)) * widest > budget:
            yield batch
            batch, widest = [], width(rows)
        batch.extend(rows)
    if batch:
        yield batch


@torch.no_grad()
def _read(model: LanguageModel, batch: list[_Row], values: Tensor) -> None:
    bos = [] if model.bos is None else [model.bos]
    shape = (len(batch), max(len(row.tokens) for row in batch) + len(bos))
    tokens = torch.zeros(shape, dtype=torch.long)
    places: dict[int, list[tuple[int, int, int, int]]] = defaultdict(list)
    signs = torch.ones(len(values))
    for number, row in enumerate(batch):
        ids = torch.tensor(bos + row.tokens.tolist())
        tokens[number, : len(ids)] = ids
        for question, left, key in row.asked:
            places[key.layer].append((question, number, left - 1 + len(bos), model.index_of(key)))
            signs[question] = sign_factor(key)
    with ExitStack() as taps:
        readings = {
            layer: taps.enter_context(
                record_forward([model.layer(layer)], "m", _pick(wanted, shape))
            )[0]
            for layer, wanted in places.items()
        }
        with stop_after(model.layer(max(places))):
            model.run_blocks(tokens.to(model.device))
    for layer, wanted in places.items():
        questions = torch.tensor([question for question, *_ in wanted])
        found = readings[layer].m.float().cpu()
        values[questions] = found * signs[questions]


def _pick(wanted: list[tuple[int, int, int, int]], shape: tuple[int, int]) -> Callable[..., Tensor]:
    rows, columns, memories = torch.tensor([place[1:] for place in wanted]).T

    def keep(tensor: Tensor) -> Tensor:
        where: Any = tensor.device
        table = tensor.reshape(*shape, -1)
        return table[rows.to(where), columns.to(where), memories.to(where)].clone()

    return keep
