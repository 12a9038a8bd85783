"""Which memories fire on a phrase."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from ffmem.explorer.explored import Explored
from ffmem.explorer.queries.prompt import token_ids
from ffmem.memories.reading import read
from ffmem.models.language_model import LanguageModel
from ffmem.store.lookup import Found


@torch.no_grad()
def firing_on(model: LanguageModel, explored: Explored, phrase: str) -> Found:
    """The cells that fire after the last token of a phrase, strongest first.

    The score is the coefficient as a share of the cell's largest in the scan, so that layers of
    different scale can be compared; a cell that the corpus never fired counts as 1.
    """
    token_ids(model, phrase)  # refuses one that is too long
    tokens = model.encode(phrase)
    at = torch.tensor([tokens.shape[1] - 1])
    readings = read(model, tokens, "m", at=at)
    parts = [
        cells(readings[number - 1].m[0].float().cpu(), explored.store.manifest.signed)
        for number in explored.store.memories
    ]
    coefficients = torch.cat(parts).numpy()
    largest = np.asarray(explored.store.array("largest"))
    shares = coefficients / np.where(largest > 0, largest, np.maximum(coefficients, 1e-12))
    rows = np.flatnonzero(coefficients > 0)
    order = np.argsort(-shares[rows], kind="stable")
    return Found.of(rows[order], shares[rows][order])


def cells(m: Tensor, signed: bool) -> Tensor:
    """A layer's coefficients as cells: in a gated layer the positive parts, then the negative."""
    return torch.cat([m.clamp(min=0), (-m).clamp(min=0)]) if signed else m
