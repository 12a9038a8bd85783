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
from functools import cache, partial
from inspect import signature
from typing import Any, Protocol
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.hooks import RemovableHandle

from ffmem.models.device_placement import tensor_of

EXPERTS_FORM = "ffmem"
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


ExpertListener = Callable[[RoutedCoefficients], None]
_listeners: WeakKeyDictionary[nn.Module, list[ExpertListener]] = WeakKeyDictionary()
_stock: WeakKeyDictionary[nn.Module, str | None] = WeakKeyDictionary()


def _is_experts(module: nn.Module) -> bool:
    """Whether a module holds experts that transformers runs through its registry."""
    if not all(hasattr(module, flag) for flag in FLAGS):
        return False
    down = module.down_proj
    return isinstance(down, Tensor) and down.ndim == 3 and down.dtype.itemsize > 1  # not packed


def experts_in(model: nn.Module) -> list[nn.Module]:
    """Every such module of a model."""
    return [module for module in model.modules() if _is_experts(module)]


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

    def listen(self, experts: nn.Module, listener: ExpertListener) -> None:
        """Let a listener know the coefficients of some experts whenever they run."""
        if not self._readers:
            for module in self._modules:
                _stock[module] = module.config._experts_implementation  # type: ignore[union-attr,assignment]
            registry()
            self._on.enter_context(experts_function(self._modules, EXPERTS_FORM))
        self._readers += 1
        _listeners.setdefault(experts, []).append(listener)

    def leave(self, experts: nn.Module, listener: ExpertListener) -> None:
        """No longer; after the last the model runs as it did."""
        _listeners[experts].remove(listener)
        self._readers -= 1
        if not self._readers:
            self._on.close()


_switches: WeakKeyDictionary[nn.Module, ExpertsSwitch] = WeakKeyDictionary()


def _switch_of(model: nn.Module) -> ExpertsSwitch:
    """The one switch of a model, however often it is wrapped."""
    if model not in _switches:
        _switches[model] = ExpertsSwitch(model)
    return _switches[model]


class CoefficientSource(Protocol):
    """Experts that can be read: with the parameters and flags of those in the registry."""

    @property
    def experts(self) -> Any:
        """The module, or what stands for it."""

    def listen(self, listener: ExpertListener) -> Callable[[], None]:
        """Let a listener know the coefficients whenever they run, until what is returned is."""

    def total(self, output: Tensor, places: int) -> Tensor:
        """The experts' sum at every place, from what their module gives."""


class RegisteredExperts:
    """Experts that run through the registry."""

    def __init__(self, model: nn.Module, experts: nn.Module) -> None:
        self.experts, self._switch = experts, _switch_of(model)

    def listen(self, listener: ExpertListener) -> Callable[[], None]:
        """Turn our function on."""
        self._switch.listen(self.experts, listener)
        return partial(self._switch.leave, self.experts, listener)

    def total(self, output: Tensor, places: int) -> Tensor:
        """The output itself: it is the sum of the experts already."""
        del places
        return output


class WeightedInputs(nn.Module):
    """Experts that all read every place, each times the router's weight: 0 where not chosen.

    As in Llama 4; coefficients have the weight in them, and count with weight 1. The parameters
    are those of the module itself.
    """

    has_gate = is_transposed = is_concatenated = True
    has_bias = has_post_expert_norm = False

    down_proj: nn.Parameter
    gate_up_proj: nn.Parameter

    def __init__(self, module: Any) -> None:
        super().__init__()
        self.down_proj, self.gate_up_proj = module.down_proj, module.gate_up_proj
        self._module: list[Any] = [module]  # in a list, so that it is not a part of this one

    @property
    def experts(self) -> Any:
        """Itself."""
        return self

    def _apply_gate(self, scores: Tensor) -> Tensor:
        gate, keys = scores.chunk(2, dim=-1)
        m: Tensor = keys * self._module[0].act_fn(gate)
        return m

    def listen(self, listener: ExpertListener) -> Callable[[], None]:
        """Work out from every input what the module makes of it before the down map."""

        def hook(_module: nn.Module, args: tuple[Tensor, ...]) -> None:
            count = self.down_proj.shape[0]
            x = args[0].view(count, -1, args[0].shape[-1])
            expert, place = x.any(dim=-1).nonzero(as_tuple=True)
            counts = torch.bincount(expert, minlength=count)
            scores = _linear(self, "gate_up_proj", x[expert, place], counts)
            weights = torch.ones_like(scores[:, 0])
            c = self._apply_gate(scores)
            listener(RoutedCoefficients(c, weights, scores, expert, place))

        handle: RemovableHandle = self._module[0].register_forward_pre_hook(hook)
        return handle.remove

    def total(self, output: Tensor, places: int) -> Tensor:
        """The sum over the experts, which come one behind the other."""
        return output.view(-1, places, output.shape[-1]).sum(dim=0)


def _is_like_llama4(module: nn.Module) -> bool:
    """Whether a module is like Llama 4's experts."""
    names = ("gate_up_proj", "down_proj")
    stacks = [getattr(module, name, None) for name in names]
    if _is_experts(module) or not all(isinstance(s, Tensor) and s.ndim == 3 for s in stacks):
        return False
    return hasattr(module, "act_fn") and len(signature(module.forward).parameters) == 1


def has_readable_experts(module: nn.Module) -> bool:
    """Whether a module holds experts that can be read."""
    return _is_experts(module) or _is_like_llama4(module)


def coefficient_source(model: nn.Module, experts: nn.Module) -> CoefficientSource:
    """How to read the experts of a module."""
    return RegisteredExperts(model, experts) if _is_experts(experts) else WeightedInputs(experts)


def _read_experts(experts: Any, hidden: Tensor, index: Tensor, weights: Tensor) -> Tensor:
    """The experts' sum for hidden [place, width], routed by index and weights [place, k]."""
    listeners = _listeners.get(experts)
    if not listeners:
        return stock_sum(experts, hidden, index, weights)
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
    if experts.has_gate and not torch.is_grad_enabled():
        c = m.mul_(weight)  # a product of gate and keys, which nobody else has
    else:
        c = (m * weight).to(m.dtype)
    for listener in listeners:
        listener(RoutedCoefficients(c, weight[:, 0], scores, expert, order // k))
    y = _linear(experts, "down_proj", c, counts)
    if experts.has_bias:
        y = y + weight * experts.down_proj_bias[expert]
    if not y.is_cuda and y.dtype == torch.float32:
        total = y.new_zeros(x.shape).index_add_(0, order // k, y)
    else:  # in the same order every time, and in float32
        total = _in_order(y, order, index.numel()).view(len(x), k, -1).sum(dim=1)
    return total.to(hidden.dtype).view_as(hidden)


def stock_sum(experts: Any, hidden: Tensor, index: Tensor, weights: Tensor) -> Tensor:
    """The experts' sum by the function that the model came with."""
    own = type(experts).forward.__wrapped__  # the module's loop over experts, "eager"
    function: Any = registry().get(_stock.get(experts), own)
    y: Tensor = function(experts, hidden, index, weights)
    return y


@cache
def registry() -> Any:
    """Transformers' functions by name, ours among them; to import them takes seconds."""
    from transformers.integrations.moe import ALL_EXPERTS_FUNCTIONS

    ALL_EXPERTS_FUNCTIONS.register(EXPERTS_FORM, _read_experts)
    return ALL_EXPERTS_FUNCTIONS


def _in_order(lines: Tensor, order: Tensor, count: int) -> Tensor:
    """The lines as they were before they were put into an order, 0 where a place has none."""
    if len(order) < count:
        found = lines.new_zeros(count, lines.shape[-1])
        found[order] = lines
        return found
    back = torch.empty_like(order)
    back[order] = torch.arange(count, device=order.device)
    return lines[back]  # many times faster on a GPU than to write them where they belong


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
    if torch.is_grad_enabled() and (lines.requires_grad or weight.requires_grad):
        rows = lines.to(weight.dtype).split(counts.tolist())
        return torch.cat([one @ weight[expert] for expert, one in enumerate(rows)])
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
