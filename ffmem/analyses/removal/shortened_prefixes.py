"""Coefficients on prefixes with one token removed, in as few passes as give them all."""

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
from ffmem.memories.recording import record_forward, stop_after
from ffmem.models.language_model import LanguageModel
from ffmem.steps import sized_steps
from ffmem.store.cells import sign_factor

BATCH_TOKENS = {"cuda": 65_536, "cpu": 1_024}  # tokens per batch; the fewer, the fewer are padding


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


@dataclass
class _Row:
    """One row that the model reads: the longest stretch any question needs of it."""

    tokens: NDArray[np.int32]
    asked: list[tuple[int, int, Address]]  # question, tokens read, key


def shortened_coefficients(
    model: LanguageModel, questions: Sequence[CoefficientQuery], budget: int
) -> Tensor:
    """The coefficient of every question, in order, in the key's own sign; it can be below 0.

    The model is causal, so one row serves every position of a sentence that lacks the same token,
    and a prefix without its last token is the original read one position earlier: no row of its
    own. All rows of one sentence are in one batch; batches hold sentences of like length that are
    asked about like layers, at most `budget` tokens unless one sentence alone needs more. The model
    runs as far as the deepest layer asked about.
    """
    values = torch.zeros(len(questions))
    sentences = _rows_by_sentence(questions)
    batches = _batches(sentences, budget, 0 if model.bos is None else 1)
    for batch in sized_steps(batches, sum(map(len, sentences)), "shortened triggers", len):
        _read(model, batch, values)
    return values


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
