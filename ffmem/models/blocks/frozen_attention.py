"""Attention whose pattern is constant for gradients: they pass through the values alone.

transformers sends attention through a function chosen by name in a model's configs. Ours calls the
model's own function with queries and keys that no gradient passes, so that what it gives stays the
same to the last bit. It is in force only inside the `with`, for one model.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from torch import Tensor, nn

_attending: ContextVar[set[nn.Module] | None] = ContextVar("attending", default=None)


@contextmanager
def frozen_attention(model: nn.Module) -> Iterator[set[nn.Module]]:
    """Freeze attention patterns; yields the modules that went through the function meanwhile."""
    configs: list[Any] = [getattr(module, "config", None) for module in model.modules()]
    configs = [one for one in configs if hasattr(one, "_attn_implementation_internal")]
    before = {id(one): (one, one._attn_implementation_internal) for one in configs}
    attending: set[nn.Module] = set()
    token = _attending.set(attending)
    try:
        for config, name in before.values():
            if name is not None:
                config._attn_implementation_internal = _register(name)
        yield attending
    finally:
        for config, name in before.values():
            config._attn_implementation_internal = name
        _attending.reset(token)


def _register(name: str) -> str:
    """The name of the frozen form of an attention function."""
    from transformers import AttentionInterface
    from transformers.masking_utils import ALL_MASK_ATTENTION_FUNCTIONS, AttentionMaskInterface

    functions, frozen = AttentionInterface(), f"ffmem_frozen_{name}"
    if frozen not in functions:
        AttentionInterface.register(frozen, _frozen(functions, name))
        if name in ALL_MASK_ATTENTION_FUNCTIONS:
            AttentionMaskInterface.register(frozen, ALL_MASK_ATTENTION_FUNCTIONS[name])
    return frozen


def _frozen(functions: Any, name: str) -> Callable[..., Any]:
    def attend(module: nn.Module, query: Tensor, key: Tensor, *args: Any, **options: Any) -> Any:
        attending = _attending.get()
        if attending is not None:
            attending.add(module)
        stock = getattr(sys.modules[type(module).__module__], "eager_attention_forward", None)
        function = functions.get_interface(name, stock)
        return function(module, query.detach(), key.detach(), *args, **options)

    return attend
