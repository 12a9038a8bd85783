"""Toys by type and config, each built once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from ffmem.models.language_model import LanguageModel
from ffmem.models.tiny import tiny_model
from ffmem.models.wrapping import wrap

torch.set_num_threads(1)

Look = Callable[..., LanguageModel]


@pytest.fixture(scope="session")
def look() -> Look:
    """look("opt", do_layer_norm_before=False): a toy, seen."""
    known: dict[str, LanguageModel] = {}

    def looked(kind: str, **changes: Any) -> LanguageModel:
        name = f"{kind} {sorted(changes.items())}"
        if name not in known:
            known[name] = wrap(tiny_model(kind, **changes))
        return known[name]

    return looked
