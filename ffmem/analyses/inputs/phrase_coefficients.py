"""Which memories fire after the last token of a phrase."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from ffmem.memories.prompt_answer import token_ids
from ffmem.memories.recording import record
from ffmem.models.language_model import LanguageModel
from ffmem.store.scan_store import ScanStore
from ffmem.store.search.matching_cells import Matches


@torch.no_grad()
def firing_on(model: LanguageModel, store: ScanStore, phrase: str) -> Matches:
    """The cells that fire after the last token of a phrase, strongest first.

    The score is the coefficient as a share of the cell's largest in the scan, so that layers of
    different scale can be compared; a cell that the corpus never fired counts as 1.
    """
    token_ids(model, phrase)  # refuses one that is too long
    records = record(model, phrase, "m", at=-1)
    parts = [
        _cells(records.layer(number).m[0].float().cpu(), store.cells.signed)
        for number in store.memories
    ]
    coefficients = torch.cat(parts).numpy()
    largest = np.asarray(store.array("largest"))
    shares = coefficients / np.where(largest > 0, largest, np.maximum(coefficients, 1e-12))
    rows = np.flatnonzero(coefficients > 0)
    order = np.argsort(-shares[rows], kind="stable")
    return Matches.of(rows[order], shares[rows][order])


def _cells(m: Tensor, signed: bool) -> Tensor:
    """A layer's coefficients as cells: in a gated layer the positive parts, then the negative."""
    return torch.cat([m.clamp(min=0), (-m).clamp(min=0)]) if signed else m
