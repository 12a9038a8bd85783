"""Texts coloured by one memory: its coefficient at every token, from the study or the model."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray

from ffmem.address import Address
from ffmem.analyses.inputs.sentence_coefficients import coefficients_along
from ffmem.explorer.queries.prompt import token_ids, token_texts
from ffmem.models.language_model import LanguageModel
from ffmem.store.memory_page import stored_coefficients
from ffmem.store.scan_store import ScanStore


@dataclass(frozen=True)
class ColouredText:
    """A text cut into tokens, with the memory's coefficient at each; `sentence` of the corpus."""

    sentence: int | None
    tokens: tuple[str, ...]
    coefficients: tuple[float, ...]


@dataclass(frozen=True)
class Coefficients:
    """The sentences of a memory's page; `largest` is that of the scan, which all are shares of.

    `source` is None where neither the model is loaded nor the study has kept them; `advice` says
    what to do then.
    """

    source: Literal["model", "study"] | None
    largest: float
    sentences: tuple[ColouredText, ...]
    advice: str = ""


def kept_coefficients(store: ScanStore, cell: Address, sentences: Sequence[int]) -> Coefficients:
    """What the study has kept along these sentences of the corpus."""
    known, row = stored_coefficients(store), store.cells.row(cell)
    largest, kept = float(store.array("largest")[row]), store.sentences
    along = {number: known.along(row, number, largest) for number in sentences} if known else {}
    found = [
        ColouredText(number, tuple(kept.pieces(kept.row(number))), short_numbers(numbers))
        for number, numbers in along.items()
        if numbers is not None
    ]
    if found:
        return Coefficients("study", largest, tuple(found))
    advice = (
        f"The study keeps the coefficients along the triggers of some memories, and {cell} is "
        "not among them: load the model to see them."
        if known is not None
        else "The coefficients along these sentences are not stored: load the model to see them, "
        f"or keep those of the memories that are shown first with "
        f"`ffmem analyse {store.folder.root} --only coefficients`."
    )
    return Coefficients(None, largest, (), advice)


def model_coefficients(
    model: LanguageModel, store: ScanStore, cell: Address, sentences: Sequence[int]
) -> Coefficients:
    """The same, read by the model in one go."""
    kept = store.sentences
    rows = [kept.row(number) for number in sentences]
    texts = [torch.from_numpy(kept.token_ids(row).astype(np.int64)) for row in rows]
    along = coefficients_along(model, [cell], texts)
    return Coefficients(
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
