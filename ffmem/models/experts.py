"""Experts that are read while they run: an experts function of ours in transformers' registry.

transformers sends the forward pass of every experts module through a function chosen by name. Ours
sorts the places by the expert that they are routed to, multiplies activations by router weights,
hands these coefficients to whoever reads them, and adds up the values. It is in force only while
somebody reads; experts that nobody reads then go through the function that the model came with.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn
from torch.nn import functional
from transformers.integrations.moe import ALL_EXPERTS_FUNCTIONS

from ffmem.models.device_placement import tensor_of

NAME = "ffmem"
FLAGS = ("has_gate", "has_bias", "is_transposed", "_apply_gate", "down_proj")


@dataclass(frozen=True)
class RoutedCoefficients:
    """What the experts of a layer were multiplied with, sorted by expert and then by place.

    A line is one place at one of the experts that it is routed to.
    """

    coefficients: Tensor  # [line, memory]: router weight x activation
    weights: Tensor  # [line]: the router's
    scores: Tensor  # [line, memory or twice as many]: before the activation
    experts: Tensor  # [line]
    places: Tensor  # [line]: positions of the batch, counted through all its rows


Listener = Callable[[RoutedCoefficients], None]
_listeners: WeakKeyDictionary[nn.Module, list[Listener]] = WeakKeyDictionary()
_stock: WeakKeyDictionary[nn.Module, str | None] = WeakKeyDictionary()


def is_experts(module: nn.Module) -> bool:
    """Whether a module holds experts that transformers runs through its registry."""
    if not all(hasattr(module, flag) for flag in FLAGS):
        return False
    down = module.down_proj
    return isinstance(down, Tensor) and down.ndim == 3 and down.dtype.itemsize > 1  # not packed


def experts_in(model: nn.Module) -> list[nn.Module]:
    """Every such module of a model."""
    return [module for module in model.modules() if is_experts(module)]


@contextmanager
def experts_function(modules: Sequence[nn.Module], name: str) -> Iterator[None]:
    """Run some experts through the function of this name inside the `with`."""
    configs: list[Any] = list({id(module.config): module.config for module in modules}.values())
    before = [config._experts_implementation for config in configs]
    for config in configs:
        config._experts_implementation_internal = name
    try:
        yield
    finally:
        for config, own in zip(configs, before, strict=True):
            config._experts_implementation_internal = own


class ExpertsSwitch:
    """Turns our function on for a model while at least one of its layers is read."""

    def __init__(self, model: nn.Module) -> None:
        self._modules = experts_in(model)
        self._on = ExitStack()
        self._readers = 0

    def listen(self, experts: nn.Module, listener: Listener) -> None:
        """Let a listener know the coefficients of some experts whenever they run."""
        if not self._readers:
            for module in self._modules:
                _stock[module] = module.config._experts_implementation  # type: ignore[union-attr,assignment]
            self._on.enter_context(experts_function(self._modules, NAME))
        self._readers += 1
        _listeners.setdefault(experts, []).append(listener)

    def leave(self, experts: nn.Module, listener: Listener) -> None:
        """No longer; after the last the model runs as it did."""
        _listeners[experts].remove(listener)
        self._readers -= 1
        if not self._readers:
            self._on.close()


_switches: WeakKeyDictionary[nn.Module, ExpertsSwitch] = WeakKeyDictionary()


def switch_of(model: nn.Module) -> ExpertsSwitch:
    """The one switch of a model, however often it is wrapped."""
    if model not in _switches:
        _switches[model] = ExpertsSwitch(model)
    return _switches[model]


def read_experts(experts: Any, hidden: Tensor, index: Tensor, weights: Tensor) -> Tensor:
    """The experts' sum for hidden [place, width], routed by index and weights [place, k]."""
    listeners = _listeners.get(experts)
    if not listeners:
        own = type(experts).forward.__wrapped__  # the module's loop over experts, "eager"
        function: Any = ALL_EXPERTS_FUNCTIONS.get(_stock.get(experts), own)
        y: Tensor = function(experts, hidden, index, weights)
        return y
    x, k = hidden.reshape(-1, hidden.shape[-1]), index.shape[-1]
    expert, order = index.reshape(-1).sort(stable=True)
    counts = torch.bincount(expert, minlength=len(experts.down_proj))[: len(experts.down_proj)]
    lines = int(counts.sum())  # an index behind the last expert stands for none
    expert, order = expert[:lines], order[:lines]
    weight = weights.reshape(-1)[order][:, None]
    name = "gate_up_proj" if experts.has_gate else "up_proj"
    scores = _linear(experts, name, x[order // k], counts)
    if experts.has_bias:
        scores = scores + getattr(experts, f"{name}_bias")[expert]
    m = experts._apply_gate(scores) if experts.has_gate else experts.act_fn(scores)
    c = (m * weight).to(m.dtype)
    for listener in listeners:
        listener(RoutedCoefficients(c, weight[:, 0], scores, expert, order // k))
    y = _linear(experts, "down_proj", c, counts)
    if experts.has_bias:
        y = y + weight * experts.down_proj_bias[expert]
    if not y.is_cuda and y.dtype == torch.float32:
        total = y.new_zeros(x.shape).index_add_(0, order // k, y)
    else:  # in the same order every time, and in float32
        each = y.new_zeros(index.numel(), y.shape[-1])
        each[order] = y
        total = each.view(len(x), k, -1).sum(dim=1)
    return total.to(hidden.dtype).view_as(hidden)


ALL_EXPERTS_FUNCTIONS.register(NAME, read_experts)


def _linear(experts: Any, name: str, lines: Tensor, counts: Tensor) -> Tensor:
    """Each line through its own expert's map; `counts` lines for each expert, one after another."""
    weight = getattr(experts, name)
    if not experts.is_transposed:
        weight = weight.transpose(1, 2)
    grouped = getattr(functional, "grouped_mm", None)
    if grouped is not None and lines.is_cuda and weight.dtype == torch.bfloat16:
        ends = counts.cumsum(0, dtype=torch.int32)
        product: Tensor = grouped(lines.to(weight.dtype), weight, offs=ends)
        return product
    found = lines.new_empty(len(lines), weight.shape[-1], dtype=weight.dtype)
    start = 0
    for expert, count in enumerate(counts.tolist()):
        if count:
            rows = lines[start : start + count].to(weight.dtype)
            torch.mm(rows, weight[expert], out=found[start : start + count])
        start += count
    return found


def expert_rows(experts: nn.Module, name: str) -> Tensor:
    """A stack of maps as [expert, output, input], whichever way the module stores it; a view."""
    stack = tensor_of(experts, name)
    assert stack is not None
    return stack.transpose(1, 2) if experts.is_transposed else stack
