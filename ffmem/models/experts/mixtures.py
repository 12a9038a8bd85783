"""A mixture of experts as one layer of memories: what hooks on its maps would see, if it had them.

Memories stand one behind the other: expert by expert, then those of the shared experts. A mixture
has no single key or value map, so a stand-in is called in its place whenever the mixture has run:
hooks on it get tensors with an entry for every memory of the layer, 0 where its expert was not
chosen, and may change coefficients as they may in a dense layer.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from functools import cached_property
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

from ffmem.address import Parts
from ffmem.models.blocks.trace import Trace, first_tensor
from ffmem.models.device_placement import device_of, tensor_of
from ffmem.models.experts.mixture_reading import (
    MapRole,
    MixtureListener,
    MixtureReading,
    SharedExpert,
)
from ffmem.models.experts.routing import (
    CoefficientSource,
    ExpertListener,
    RegisteredExperts,
    RoutedCoefficients,
    expert_rows,
)
from ffmem.models.experts.stand_ins import MapPlaceholder, MixtureMap, ValueStandIn
from ffmem.models.feedforward import FeedForward, LinearPart


class Mixture:
    """The experts of one layer, those shared included, and how to read them as they run.

    `modules` are those whose outputs add up to y, in the order in which they run: one, or also a
    dense layer that the block adds. `factor` is a number that the routed sum is multiplied by
    outside the experts; it counts as a part of the coefficients. `norm` is one that y passes
    before it leaves the module.
    """

    def __init__(
        self,
        modules: Sequence[nn.Module],
        source: CoefficientSource,
        shared: Sequence[SharedExpert],
        factor: float,
        norm: nn.Module | None = None,
    ) -> None:
        self.modules = tuple(modules)
        self.norm = norm
        self.per_place = 1  # experts chosen for a place
        self.numbers: tuple[int, ...] = ()  # of the experts that are seen, where not all are
        self.experts: Any = source.experts  # its parameters and flags are not those of any module
        self.shared = tuple(shared)
        self.factor = factor
        self._source = source
        self._listeners: list[MixtureListener] = []
        self._hooks = ExitStack()
        self._x: Tensor | None = None
        self._routed: RoutedCoefficients | None = None
        self._tensors: dict[tuple[int, str], Tensor] = {}
        self._sums: list[Tensor] = []  # of the modules before the last
        self.keys, self.gate, self.router = (
            MapPlaceholder(self),
            MapPlaceholder(self),
            MapPlaceholder(self),
        )
        self.values = ValueStandIn(self)

    @cached_property
    def parts(self) -> Parts:
        """Experts and shared experts with their sizes."""
        down = self.experts.down_proj
        size = down.shape[1] if self.experts.is_transposed else down.shape[2]
        beside = tuple(one.memories for one in self.shared)
        return Parts(len(self.numbers) or len(down), size, beside, self.numbers)

    def only(self, numbers: Sequence[int]) -> Mixture:
        """The same mixture, of whose routed experts only these are seen; all others still run."""
        found = Mixture(self.modules, self._source, self.shared, self.factor, self.norm)
        found.numbers, found.per_place = tuple(numbers), self.per_place
        return found

    def _own_experts(self, stack: Tensor) -> Tensor:
        """The rows of the experts that are seen, of something with one row for every expert."""
        return stack[list(self.numbers)] if self.numbers else stack

    @property
    def width(self) -> int:
        """Numbers in one value."""
        down = self.experts.down_proj
        return int(down.shape[2] if self.experts.is_transposed else down.shape[1])

    @property
    def gated(self) -> bool:
        """Whether any of the experts are gated, so that coefficients have either sign."""
        return bool(self.experts.has_gate) or any(one.gate_map for one in self.shared)

    @property
    def device(self) -> torch.device:
        """The device of the experts."""
        return device_of(self.experts)

    @property
    def dtype(self) -> torch.dtype:
        """The precision of the experts' weights."""
        dtype: torch.dtype = self.experts.down_proj.dtype
        return dtype

    @property
    def parameters(self) -> int:
        """Numbers in keys, values and biases; the router's are not among them."""
        own = sum(parameter.numel() for parameter in self.experts.parameters(recurse=False))
        return own + sum(part.parameters for part in self.shared_maps)

    @property
    def shared_maps(self) -> list[LinearPart]:
        """The maps of all shared experts."""
        maps = [(one.key_map, one.value_map, one.gate_map) for one in self.shared]
        return [part for three in maps for part in three if part is not None]

    def half(self, scores: Tensor, role: MapRole) -> Tensor:
        """The gate's or the keys' part of what the experts' first map gives: the last axis."""
        if not self.experts.has_gate:
            return scores
        if not getattr(self.experts, "is_concatenated", True):
            return scores[..., ::2] if role == "gate" else scores[..., 1::2]
        first, second = scores.chunk(2, dim=-1)
        return first if role == "gate" else second

    def rows(self, role: MapRole) -> Tensor:
        """[memory, width]: keys, gate keys or values of all parts; a copy."""
        beside = [one.map(role).weight for one in self.shared]
        if role == "values":
            own = self._own_experts(expert_rows(self.experts, "down_proj")).transpose(1, 2)
            beside = [weight.T for weight in beside]
        else:
            name = "gate_up_proj" if self.experts.has_gate else "up_proj"
            stack = self._own_experts(expert_rows(self.experts, name))
            own = self.half(stack.transpose(1, 2), role).transpose(1, 2)
        return torch.cat([own.reshape(-1, own.shape[-1]), *beside])

    def key_biases(self, role: MapRole) -> Tensor | None:
        """[memory]: what is added to the scores of the keys or gate keys; None where nothing is."""
        name = "gate_up_proj" if self.experts.has_gate else "up_proj"
        own = tensor_of(self.experts, f"{name}_bias") if self.experts.has_bias else None
        beside = [one.map(role).bias for one in self.shared]
        if own is None and all(each is None for each in beside):
            return None
        routed = torch.zeros(self.parts.experts * self.parts.size, device=self.device)
        if own is not None:
            routed = self.half(self._own_experts(own), role).flatten()
        nothing = [torch.zeros(one.memories, device=self.device) for one in self.shared]
        pairs = zip(beside, nothing, strict=True)
        return torch.cat([routed, *(zero if each is None else each for each, zero in pairs)])

    def values_at(self, indices: Tensor) -> Tensor:
        """[memory, width]: the values of some memories, without a copy of all."""
        indices = indices.to(self.device)
        down = expert_rows(self.experts, "down_proj")
        found = down.new_empty(len(indices), down.shape[1])
        routed, expert, inside = self._routed_places(indices)
        found[routed] = down[expert, :, inside]
        for one, here, columns in self._shared_places(indices):
            found[here] = one.value_map.columns(columns).to(found)
        return found

    def put_values(self, indices: Tensor, rows: Tensor) -> None:
        """Write the values of some memories into the experts' own weights."""
        indices = indices.to(self.device)
        down = expert_rows(self.experts, "down_proj")
        rows = rows.to(down)
        routed, expert, inside = self._routed_places(indices)
        down[expert, :, inside] = rows[routed]
        for one, here, columns in self._shared_places(indices):
            one.value_map.weight[:, columns] = rows[here].T.to(one.value_map.weight)

    def _routed_places(self, indices: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Which places are those of routed experts; their experts, and the memories there."""
        parts = self.parts
        routed = indices < parts.experts * parts.size
        numbers = torch.tensor(list(parts.expert_numbers), device=self.device)
        return routed, numbers[indices[routed] // parts.size], indices[routed] % parts.size

    def _shared_places(self, indices: Tensor) -> Iterator[tuple[SharedExpert, Tensor, Tensor]]:
        """Each shared expert, which places are its own, and the memories there."""
        start = self.parts.experts * self.parts.size
        for one in self.shared:
            here = (indices >= start) & (indices < start + one.memories)
            yield one, here, indices[here] - start
            start += one.memories

    @property
    def biases(self) -> Tensor | None:
        """[part, width]: what each part adds beside its values, times its weight; or None."""
        own = tensor_of(self.experts, "down_proj_bias") if self.experts.has_bias else None
        if own is None and all(one.value_map.bias is None for one in self.shared):
            return None
        nothing = torch.zeros(1, self.width, dtype=self.dtype, device=self.device)
        first = nothing.expand(self.parts.experts, -1) if own is None else self._own_experts(own)
        beside = [nothing if (b := one.value_map.bias) is None else b[None] for one in self.shared]
        return torch.cat([first, *beside])

    def sum_on(self, run: Trace, names: Mapping[nn.Module, str]) -> Tensor:
        """The value of y on a traced run, by the modules' names in the model."""
        if self.norm is not None:
            return run.inputs[names[self.norm]]
        first, *others = (run.outputs[names[module]] for module in self.modules)
        return sum((other.reshape(first.shape) for other in others), first)

    def listen(self, listener: MixtureListener) -> Callable[[], None]:
        """Call a listener after every forward pass of the mixture, until what is returned is."""
        if not self._listeners:
            self._attach()
        self._listeners.append(listener)

        def leave() -> None:
            self._listeners.remove(listener)
            if not self._listeners:
                self._hooks.close()

        return leave

    @property
    def runs_through_function(self) -> bool:
        """Whether the experts are a module that runs through transformers' registry."""
        return isinstance(self._source, RegisteredExperts)

    def listen_to_experts(self, listener: ExpertListener) -> Callable[[], None]:
        """Call a listener with what the experts themselves do, before any factor."""
        return self._source.listen(listener)

    def present(self, handle: RemovableHandle) -> RemovableHandle:
        """Call the stand-ins as long as a hook on one of them is there."""
        remove, leave = handle.remove, self.listen(self._show)

        def remove_and_leave() -> None:
            remove()
            leave()
            handle.remove = remove  # type: ignore[method-assign] # a second call does nothing

        handle.remove = remove_and_leave  # type: ignore[method-assign]
        return handle

    def _show(self, reading: MixtureReading) -> Tensor | None:
        for role, stand_in in (("keys", self.keys), ("gate", self.gate)):
            if stand_in.has_hooks:
                stand_in(reading.x, reading.scores(role))  # type: ignore[arg-type]
        if self.router.has_hooks:
            self.router(reading.x, reading.part_weights)
        return self.values(reading.coefficients, reading) if self.values.has_hooks else None

    def _attach(self) -> None:
        self._hooks.callback(self._source.listen(self._note_routing))
        *others, last = self.modules
        before = self.modules[0].register_forward_pre_hook(self._begin, with_kwargs=True)
        self._hooks.callback(before.remove)
        for other in others:
            self._hooks.callback(other.register_forward_hook(self._note_sum).remove)
        if self.norm is None:
            self._hooks.callback(last.register_forward_hook(self._end).remove)
        else:
            self._hooks.callback(self.norm.register_forward_pre_hook(self._end_inside).remove)
        for number, one in enumerate(self.shared):
            values = one.value_map.module
            self._hooks.callback(values.register_forward_pre_hook(self._input(number)).remove)
            watched = {"keys": one.key_map.module, "weigher": one.weigher}
            watched["gate"] = None if one.gate_map is None else one.gate_map.module
            for name, module in watched.items():
                if module is not None:
                    hook = module.register_forward_hook(self._output(number, name))
                    self._hooks.callback(hook.remove)

    def _input(self, number: int) -> Callable[..., None]:
        def hook(_module: nn.Module, args: tuple[Tensor, ...]) -> None:
            self._tensors[number, "values"] = args[0].flatten(0, -2)

        return hook

    def _output(self, number: int, name: str) -> Callable[..., None]:
        def hook(_module: nn.Module, _args: Any, output: Tensor) -> None:
            self._tensors[number, name] = output.flatten(0, -2)

        return hook

    def _note_routing(self, routed: RoutedCoefficients) -> None:
        if self.factor != 1.0:
            routed = replace(
                routed,
                coefficients=routed.coefficients * self.factor,
                weights=routed.weights * self.factor,
            )
        self._routed = lines_of(routed, self.numbers) if self.numbers else routed

    def _begin(self, _module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        self._x = first_tensor(args or (kwargs.get("hidden_states"),))
        self._tensors, self._routed, self._sums = {}, None, []

    def _note_sum(self, _module: nn.Module, _args: Any, output: Any) -> None:
        y = first_tensor(output)
        assert y is not None
        self._sums.append(y.detach().flatten(0, -2))

    def _end(self, _module: nn.Module, _args: Any, output: Any) -> Any:
        y = first_tensor(output)
        assert y is not None
        new = self._present_sum(y)
        if new is None:
            return None
        return new if isinstance(output, Tensor) else (new, *output[1:])

    def _end_inside(self, _module: nn.Module, args: tuple[Any, ...]) -> Any:
        if self._x is None:  # a value is read through the norm, and the mixture does not run
            return None
        new = self._present_sum(args[0])
        return None if new is None else (new, *args[1:])

    def _present_sum(self, last: Tensor) -> Tensor | None:
        """Call the listeners; what to give instead of the last module's sum, if they change it."""
        assert self._x is not None
        assert self._routed is not None
        y = sum(self._sums, last.flatten(0, -2))
        reading = MixtureReading(self, self._x.flatten(0, -2), y, self._routed, self._tensors)
        self._tensors, self._routed, self._x = {}, None, None
        for listener in dict.fromkeys(self._listeners):  # several hooks, one call
            changed = listener(reading)
            if changed is not None:
                reading.y = changed
        if reading.y.data_ptr() == y.data_ptr():
            return None
        new = reading.y - sum(self._sums) if self._sums else reading.y
        return new.view_as(last)


def lines_of(routed: RoutedCoefficients, numbers: Sequence[int]) -> RoutedCoefficients:
    """The lines of some experts, which are counted anew."""
    own = torch.tensor(numbers, device=routed.experts.device)
    lines = torch.isin(routed.experts, own).nonzero()[:, 0]
    return RoutedCoefficients(
        routed.coefficients[lines],
        routed.weights[lines],
        routed.scores[lines],
        torch.searchsorted(own, routed.experts[lines]),
        routed.places[lines],
    )


def with_experts(layer: FeedForward, numbers: Sequence[int]) -> FeedForward:
    """The same layer, of whose experts only these are seen; a dense layer as it is."""
    if layer.mixture is None:
        return layer
    mixture = layer.mixture.only(numbers)
    return replace(
        layer,
        key_map=MixtureMap(mixture, "keys"),
        value_map=MixtureMap(mixture, "values"),
        gate_map=None if layer.gate_map is None else MixtureMap(mixture, "gate"),
        mixture=mixture,
    )
