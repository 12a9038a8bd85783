"""Toys by type and config, each built once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import transformers

from ffmem.errors import ModelError
from ffmem.models.language_model import LanguageModel
from ffmem.models.tiny import tiny_model
from ffmem.models.wrapping import wrap

torch.set_num_threads(1)

Look = Callable[..., LanguageModel]

# Before transformers 5.18 these read ahead even as decoders, so they are refused there.
READ_AHEAD = {"big_bird", "megatron-bert", "rembert", "roformer"}


@pytest.fixture(autouse=True)
def _refusal_of_what_reads_ahead(request: pytest.FixtureRequest) -> None:
    kind = getattr(request.node, "callspec", None) and request.node.callspec.params.get("kind")
    old = tuple(map(int, transformers.__version__.split(".")[:2])) < (5, 18)
    if old and kind in READ_AHEAD:
        request.applymarker(pytest.mark.xfail(raises=ModelError, strict=True))


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
