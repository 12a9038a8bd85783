"""Texts coloured by a memory: its coefficient at every token, from the study or the model."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray

from ffmem.address import Address
from ffmem.analyses.coefficients.measure import coefficients_along
from ffmem.analyses.coefficients.record import ColouredText, PageCoefficients
from ffmem.memories.prompt_answer import token_ids, token_texts
from ffmem.models.language_model import LanguageModel
from ffmem.store.memory_page import stored_coefficients
from ffmem.store.scan_store import ScanStore


def coefficients_from_store(
    store: ScanStore, cell: Address, sentences: Sequence[int]
) -> PageCoefficients:
    """The stored coefficients along these sentences of the corpus."""
    known, row = stored_coefficients(store), store.cells.row(cell)
    largest, kept = float(store.array("largest")[row]), store.sentences
    along = {number: known.along(row, number, largest) for number in sentences} if known else {}
    found = [
        ColouredText(number, tuple(kept.pieces(kept.row(number))), _short_numbers(numbers))
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
            ColouredText(number, tuple(kept.pieces(row)), _short_numbers(numbers[0]))
            for number, row, numbers in zip(sentences, rows, along, strict=True)
        ),
    )


def text_coefficients(model: LanguageModel, cell: Address, text: str) -> ColouredText:
    """Any text, coloured by one memory."""
    (numbers,) = coefficients_along(model, [cell], [torch.tensor(token_ids(model, text))])
    return ColouredText(None, token_texts(model, text), _short_numbers(numbers[0]))


def _short_numbers(numbers: NDArray[np.float32]) -> tuple[float, ...]:
    """Numbers with as many digits as anybody reads."""
    return tuple(float(f"{number:.4g}") for number in numbers.tolist())
