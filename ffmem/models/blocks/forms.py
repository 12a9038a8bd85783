"""From a family's row and one traced run to the list of a model's feed-forward layers.

Nothing is taken on trust: the form of each block is the one under which r + y = o holds on the
traced run, and the activation the one that turns pre-activations into coefficients.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from ffmem.errors import ModelError
from ffmem.models.blocks.trace import Trace, relative_error, rounding, sum_error
from ffmem.models.device_placement import tensor_of
from ffmem.models.effective_weights import has_plain_weight
from ffmem.models.families import Family
from ffmem.models.feedforward import EffectivePart, FeedForward, Form, Half, LinearPart

if TYPE_CHECKING:
    from transformers import PreTrainedModel


@dataclass(frozen=True)
class BlockPlace:
    """A block that has a feed-forward layer, and the numbers with which it adds the layer's sum."""

    number: int
    block_index: int
    block: nn.Module
    scale: float
    output_scale: float


@dataclass(frozen=True)
class LayerFit:
    """One layer's quantities on the traced run, and how well they fit together."""

    layer: FeedForward
    form_error: float  # r + y = o
    activation_error: float  # activation of the keys' scores = coefficients
    memory_error: float  # coefficients x values + bias = what the value map gives


HALVES: dict[str, Half] = {"": "", ":half]": ":half", "half:]": "half:"}


def part_at(block: nn.Module, path: str, run: Trace, name: str) -> LinearPart:
    """The linear map at `path`, or the half of it that the path names in brackets.

    `name` is the block's in the model.
    """
    path, _, half = path.partition("[")
    if half not in HALVES:
        raise ValueError(f"{path}[{half} names no part; write [:half] or [half:]")
    module = block.get_submodule(path)
    if has_plain_weight(module):
        return LinearPart(module, HALVES[half])
    entry, result = run.inputs[f"{name}.{path}"], run.outputs[f"{name}.{path}"]
    return EffectivePart(module, HALVES[half], entry.shape[-1], result.shape[-1], entry.dtype)


def module_at(block: nn.Module, path: str | None) -> nn.Module | None:
    """The module at `path`, or None where this block has none."""
    if path is None:
        return None
    try:
        return block.get_submodule(path)
    except AttributeError:
        return None


def owner_of(block: nn.Module, path: str) -> nn.Module:
    """The module that a part of the block is in: the layer that its value map belongs to."""
    return block.get_submodule(path.rpartition(".")[0])


def _has_feedforward(block: str, family: Family, run: Trace) -> bool:
    """Whether the row's key and value maps ran in a block.

    Hybrid models have no feed-forward layer in some blocks, and models that also read pictures
    leave some blocks out when there is only text.
    """
    paths = (family.keys, family.values)
    return all(f"{block}.{path.partition('[')[0]}" in run.outputs for path in paths)


def families_of(model: PreTrainedModel, family: Family, run: Trace) -> dict[int, Family]:
    """The row of every block that has a feed-forward layer, by the block's index."""
    try:
        blocks = model.get_submodule(family.blocks)
    except AttributeError:
        raise ModelError(f"the model has no blocks at {family.blocks!r}") from None
    return {
        index: family
        for index, _ in enumerate(blocks.children())
        if _has_feedforward(f"{family.blocks}.{index}", family, run)
    }


def block_places(
    model: PreTrainedModel, families: Mapping[int, Family]
) -> Iterator[tuple[BlockPlace, Family]]:
    """Every block that has a feed-forward layer, numbered from 1, and its row."""
    for number, (index, family) in enumerate(families.items(), start=1):
        block = model.get_submodule(f"{family.blocks}.{index}")
        scale = _number_of(model, block, family.scale)
        output_scale = _number_of(model, block, family.output)
        yield BlockPlace(number, index, block, scale, output_scale), family


def _number_of(model: PreTrainedModel, block: nn.Module, name: str | None) -> float:
    """A number by its name in the config or, if it is not there, in the block; 1 without a name.

    A name with dots is a path in the block.
    """
    if name is None:
        return 1.0
    config = model.config.get_text_config()
    path, _, last = name.rpartition(".")
    return float(getattr(config, name, None) or getattr(block.get_submodule(path), last))


def fit_layer(place: BlockPlace, family: Family, run: Trace) -> LayerFit:
    """One block's feed-forward layer, with its form and activation measured on the run."""
    block, name = place.block, f"{family.blocks}.{place.block_index}"
    for path in filter(None, (family.gate, family.after)):
        if f"{name}.{path.partition('[')[0]}" not in run.outputs:
            raise ModelError(f"{name} has no {path}, which the family's row names; fix the row")
    keys, values = (part_at(block, path, run, name) for path in (family.keys, family.values))
    gate = None if family.gate is None else part_at(block, family.gate, run, name)
    form, form_error = block_form(name, family, run, place)
    a = pre_activation(name, family.gate or family.keys, run, gate or keys)
    beside = None if gate is None else pre_activation(name, family.keys, run, keys)
    m = run.inputs[f"{name}.{family.values}"]
    numbers = list(own_numbers(owner_of(block, family.values)).values())
    activation, activation_error = activation_name(m, a, beside, run, name, numbers)
    key_maps = {family.keys: keys} if gate is None else {family.keys: keys, family.gate: gate}
    key_errors = (score_error(part, f"{name}.{path}", run) for path, part in key_maps.items())
    layer = FeedForward(
        number=place.number,
        block_index=place.block_index,
        block=block,
        key_map=keys,
        value_map=values,
        gate_map=gate,
        norm=module_at(block, family.norm),
        attention=module_at(block, family.attention),
        after=module_at(block, family.after),
        scale=place.scale,
        form=form,
        activation=activation,
        output_scale=place.output_scale,
        residual=family.residual,
        entry=family.entry,
        attention_norm=_attention_norm(name, family, run, block, form),
    )
    y = run.outputs[f"{name}.{family.values}"]
    return LayerFit(layer, form_error, max(activation_error, *key_errors), _map_error(values, m, y))


def _attention_norm(
    name: str, family: Family, run: Trace, block: nn.Module, form: Form
) -> nn.Module | None:
    """The module that the residual comes out of where it is a normed sum, if the run shows it."""
    if form not in ("post-norm", "normed-residual"):
        return None
    x = run.inputs[f"{name}.{family.keys.partition('[')[0]}"]
    found = [
        path
        for path, given in run.outputs.items()
        if path.startswith(f"{name}.")
        and path in run.inputs
        and run.inputs[path].shape == given.shape
        and given.numel() == x.numel()
        and given.reshape(x.shape).equal(x)
        and not run.inputs[path].reshape(x.shape).equal(x)
        and not any(block.get_submodule(path.removeprefix(f"{name}.")).children())
    ]
    return block.get_submodule(found[-1].removeprefix(f"{name}.")) if found else None


def _map_error(part: LinearPart, entry: Tensor, result: Tensor) -> float:
    """How far weight x entry + bias lies from what the map gave: coefficients x values, or keys."""
    columns = part.weight.T
    total = entry.to(columns.device).float() @ columns.float()
    if (bias := part.bias) is not None:
        total = total + bias.float()
    return relative_error(total, result)


def score_error(part: LinearPart, name: str, run: Trace) -> float:
    """How far x times the keys lies from the scores, where keys are read through the layer."""
    if not isinstance(part, EffectivePart):
        return 0.0
    name = name.partition("[")[0]
    return _map_error(part, run.inputs[name], part.of(run.outputs[name], dim=-1))


def pre_activation(block: str, path: str, run: Trace, part: LinearPart) -> Tensor:
    """What the traced run saw coming out of a key map, or out of its half of a fused one."""
    return part.of(run.outputs[f"{block}.{path.partition('[')[0]}"], dim=-1)


def block_form(block: str, family: Family, run: Trace, place: BlockPlace) -> tuple[Form, float]:
    """The form under which r + y = o, and the relative error that is left."""
    if run.calls.get(f"{block}.{family.values}", 0) != 1:
        raise ModelError(
            f"{block}.{family.values} does not run exactly once in a forward pass, so its "
            "coefficients have no single place; use a model that passes its blocks once"
        )
    if not norm_belongs(block, family, run):
        raise ModelError(
            f"{block}.{family.norm} leads neither into the feed-forward layer nor out of the "
            "block, so the blocks have more than one form or the family's row is wrong; "
            "fix the row or use another model"
        )
    y = run.outputs[f"{block}.{family.after or family.values}"]
    if family.beside is not None:
        y = y + run.outputs[f"{block}.{family.beside}"].reshape(y.shape)
    output = run.outputs[block] / place.output_scale
    if family.leaves is not None:
        output = run.inputs[f"{block}.{family.leaves}"].reshape(output.shape)
    gain = None if family.residual is None else tensor_of(place.block, family.residual)
    found = [
        (sum_error(r if gain is None else gain * r, place.scale * y.reshape(r.shape), o), form)
        for form, r, o in _candidate_forms(block, family, run, output)
        if r.numel() == y.numel()
    ]
    if not found:
        return "sequential", float("inf")
    error, form = min(found, key=lambda pair: pair[0])
    return form, error


def norm_belongs(block: str, family: Family, run: Trace) -> bool:
    """Whether the row's norm makes what the keys read or what leaves the block, if it ran."""
    norm = run.outputs.get(f"{block}.{family.norm}")
    if norm is None:
        return True
    x = run.inputs[f"{block}.{family.keys.partition('[')[0]}"]
    return any(
        goal.numel() == norm.numel()
        and relative_error(norm.reshape(goal.shape), goal) < rounding(norm.dtype)
        for goal in (x, run.outputs[block])
    )


def _candidate_forms(
    block: str, family: Family, run: Trace, output: Tensor
) -> Iterator[tuple[Form, Tensor, Tensor]]:
    """(form, r, o) for each way in which a block may use its feed-forward part.

    The order settles ties: a residual that is read before a norm is the usual one.
    """
    x = run.inputs[f"{block}.{family.keys.partition('[')[0]}"]
    if x.numel() != output.numel():
        return
    x = x.reshape(output.shape)
    norm, attention = f"{block}.{family.norm}", f"{block}.{family.attention}"
    if norm in run.inputs:
        yield "sequential", run.inputs[norm].reshape(output.shape), output
    elif family.norm is None:
        yield "sequential", x, output
    if attention in run.outputs and run.outputs[attention].shape == output.shape:
        yield "parallel", run.inputs[block] + run.outputs[attention], output
    if norm in run.inputs:
        if run.outputs[norm].reshape(output.shape).equal(output):
            yield "post-norm", x, run.inputs[norm].reshape(output.shape)
        yield "normed-residual", x, output


NAMES = (
    "relu",
    "relu2",
    "gelu",
    "gelu_new",
    "gelu_pytorch_tanh",
    "quick_gelu",
    "silu",
    "tanh",
    "gelu_10",
    "relu6",
    "sigmoid",
    "linear",
)


@cache
def stock_activation(name: str) -> nn.Module:
    """One of transformers' activations, which are not there before a model is."""
    from transformers.activations import ACT2FN

    found: nn.Module = ACT2FN[name]
    return found


def _candidate_activations(a: Tensor, trace: Trace, block: str) -> Iterator[tuple[str, Tensor]]:
    """Every reading of `a` through an activation: the usual ones, then the block's own modules."""
    for name in NAMES:
        yield name, stock_activation(name)(a)
    for name, seen in trace.inputs.items():
        if not name.startswith(block + ".") or name not in trace.outputs:
            continue
        given = trace.outputs[name]
        if given.shape == seen.shape == a.shape and seen.equal(a):
            yield name.removeprefix(block + "."), given


def activation_name(
    m: Tensor,
    a: Tensor,
    beside: Tensor | None,
    trace: Trace,
    block: str,
    numbers: Sequence[float] = (),
) -> tuple[str, float]:
    """The activation for which act(a), times `beside` in a gated layer, comes nearest to m.

    Computed in the model's own precision, in which the right one leaves no error at all and the
    usual names win over the block's own. Where none fits, rarer ones are tried, which need
    `numbers` of the layer or have a norm behind them. Returns its name and the relative error that
    is left, so that the caller can judge it.
    """
    if a.shape != m.shape or (beside is not None and beside.shape != m.shape):
        return "none", float("inf")
    name, error = nearest(m, _plain_coefficients(a, beside, trace, block))
    if error < rounding(m.dtype):
        return name, error
    rarer = nearest(m, _rare_coefficients(a, beside, numbers))
    found = min((name, error), rarer, key=lambda pair: pair[1])
    for path, before in _inputs_of_norms(m, trace, block):
        name, error = nearest(before, _plain_coefficients(a, beside, trace, block))
        found = min(found, (f"{name}, then {path}", error), key=lambda pair: pair[1])
    return found


def nearest(m: Tensor, candidates: Iterable[tuple[str, Tensor]]) -> tuple[str, float]:
    """The candidate that comes nearest to m, the first of equals, and its relative error.

    None is computed after one that leaves no error.
    """
    best, expected = ("none", float("inf")), m.double()
    size = torch.linalg.vector_norm(expected).item()
    for name, found in candidates:
        error = relative_error(found, expected, size)
        if error < best[1]:
            best = name, error
        if error == 0:
            break
    return best


def _plain_coefficients(
    a: Tensor, beside: Tensor | None, trace: Trace, block: str
) -> Iterator[tuple[str, Tensor]]:
    """act(a), times `beside` in a gated layer, for every activation."""
    for name, act in _candidate_activations(a, trace, block):
        yield name, act if beside is None else act * beside


def _rare_coefficients(
    a: Tensor, beside: Tensor | None, numbers: Sequence[float]
) -> Iterator[tuple[str, Tensor]]:
    """What some families make of a gate with numbers of their own.

    act(n a) beside in Falcon-H1; with clamps, (beside + 1) a sigmoid(n a) in MiniMax M3.
    """
    if beside is None:
        return
    for number in numbers:
        for name in NAMES:
            yield f"{name} of {number:g} x", stock_activation(name)(number * a) * beside
        for limit in numbers:
            gate, keys = a.clamp(max=limit), beside.clamp(-abs(limit), abs(limit))
            yield "swigluoai", (keys + 1) * gate * (number * gate).sigmoid()


def _inputs_of_norms(m: Tensor, trace: Trace, block: str) -> Iterator[tuple[str, Tensor]]:
    """What a module of the block made m from, as BitNet's norm between activation and values."""
    for name, given in trace.outputs.items():
        if name.startswith(block + ".") and given.shape == m.shape and given.equal(m):
            before = trace.inputs.get(name)
            if before is not None and before.shape == m.shape and not before.equal(m):
                yield name.removeprefix(block + "."), before


def own_numbers(module: nn.Module) -> dict[str, float]:
    """The numbers that a module keeps beside its weights, by name."""
    return {
        name: value for name, value in vars(module).items() if isinstance(value, float) and value
    }
