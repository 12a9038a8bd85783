"""A short name for a model's weights and tokenizer, to tell two models apart."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

import torch
from torch import nn

from ffmem.models.device_placement import own_parameters, tensor_of

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

LOOKED_AT = 4096  # numbers of each parameter that count


@torch.no_grad()
def weights_digest(model: nn.Module, dtype: torch.dtype | None = None) -> str:
    """Twelve hex digits over every parameter's name, shape, type and some of its numbers.

    With `dtype` as if the model had been loaded in that precision. Evenly spaced numbers are
    enough to tell trained models apart, and reading them takes milliseconds where hashing every
    byte of a large model would take minutes.
    """
    found = hashlib.sha256()
    for name, parameter in sorted(own_parameters(model)):
        tensor = tensor_of(model, name)
        assert tensor is not None
        flat = tensor.detach().reshape(-1)
        kind = dtype or parameter.dtype
        some = flat[:: max(1, len(flat) // LOOKED_AT)].to(kind).float().cpu().numpy()
        found.update(f"{name} {tuple(parameter.shape)} {kind}".encode())
        found.update(some.tobytes())
    return found.hexdigest()[:12]


def tokenizer_digest(tokenizer: PreTrainedTokenizerBase | None) -> str:
    """Twelve hex digits over the whole vocabulary and how it is applied to text."""
    if tokenizer is None:
        return "none"
    backend = getattr(tokenizer, "backend_tokenizer", None)
    words = sorted(tokenizer.get_vocab().items())
    described = backend.to_str() if backend is not None else repr(words)
    return hashlib.sha256(described.encode()).hexdigest()[:12]
