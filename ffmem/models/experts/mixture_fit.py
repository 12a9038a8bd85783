"""A block's mixture of experts as one layer: its parts, and how nearly they add up."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from torch import Tensor, nn

from ffmem.errors import ModelError
from ffmem.models.blocks.discovery import DENSE, Maps, candidate_maps, scales, tensors_inside
from ffmem.models.blocks.forms import (
    BlockPlace,
    LayerFit,
    activation_name,
    block_form,
    module_at,
    part_at,
    score_error,
)
from ffmem.models.blocks.trace import Trace, relative_error, rounding
from ffmem.models.experts.mixture_reading import MixtureReading, SharedExpert
from ffmem.models.experts.mixtures import Mixture
from ffmem.models.experts.routing import coefficient_source
from ffmem.models.experts.stand_ins import MixtureMap
from ffmem.models.families import Family
from ffmem.models.feedforward import FeedForward

if TYPE_CHECKING:
    from transformers import PreTrainedModel


def fit_mixture(model: PreTrainedModel, place: BlockPlace, family: Family, run: Trace) -> LayerFit:
    """One block's mixture of experts with its form; its memories are measured when it is read."""
    name = f"{family.blocks}.{place.block_index}"
    form, form_error = block_form(name, family, run, place)
    assert family.experts is not None
    source = coefficient_source(model, place.block.get_submodule(family.experts))
    if getattr(source.experts, "has_post_expert_norm", False):
        raise ModelError(f"{name}.{family.experts} norms each expert's sum; {DENSE}")
    inner = family.after if (family.after or "").startswith(f"{family.values}.") else None
    y = run.inputs[f"{name}.{inner}"] if inner else run.outputs[f"{name}.{family.values}"]
    routed = source.total(run.outputs[f"{name}.{family.experts}"], y.numel() // y.shape[-1])
    shared, factor = shared_experts(model, run, f"{name}.{family.values}", routed, y)
    for maps in candidate_maps(model, run, name) if family.beside else ():
        if maps.values == family.beside:
            shared.append(shared_expert(model, run, name, maps, None))
    order = [path.removeprefix(f"{name}.") for path in run.outputs]  # as they finished
    paths = sorted(filter(None, (family.values, family.beside)), key=order.index)
    modules = [place.block.get_submodule(path) for path in paths]
    mixture = Mixture(modules, source, shared, factor, module_at(place.block, inner))
    layer = FeedForward(
        number=place.number,
        block_index=place.block_index,
        block=place.block,
        key_map=MixtureMap(mixture, "keys"),
        value_map=MixtureMap(mixture, "values"),
        gate_map=MixtureMap(mixture, "gate") if mixture.gated else None,
        norm=module_at(place.block, family.norm),
        attention=module_at(place.block, family.attention),
        after=module_at(place.block, family.after),
        scale=place.scale,
        form=form,
        activation="",
        output_scale=place.output_scale,
        mixture=mixture,
        residual=family.residual,
        entry=family.entry,
    )
    return LayerFit(layer, form_error, float("inf"), float("inf"))


def shared_experts(
    model: PreTrainedModel, run: Trace, mixture: str, routed: Tensor, y: Tensor
) -> tuple[list[SharedExpert], float]:
    """The shared experts that y adds to the routed ones, and the number that multiplies these."""
    module = model.get_submodule(mixture)
    if routed.numel() != y.numel():
        raise ModelError(f"the experts of {mixture} give vectors of another size; {DENSE}")
    routed, inside = routed.reshape(y.shape), tensors_inside(run, mixture)
    candidates = {maps.values: maps for maps in candidate_maps(model, run, mixture)}
    maps = [one for path, one in candidates.items() if inside[path][1].numel() == y.numel()]
    sums = [run.outputs[f"{mixture}.{one.values}"].reshape(y.shape) for one in maps]
    places = y.numel() // y.shape[-1]
    weighers = [path for path, (_, out) in inside.items() if out.numel() == places]
    for factor in scales(model, module).values():
        for weigher in (None, *weighers):
            s = 1.0 if weigher is None else inside[weigher][1].sigmoid().reshape(*y.shape[:-1], 1)
            total = sum((s * one for one in sums), factor * routed)
            if relative_error(total, y) < rounding(y.dtype):
                by = None if weigher is None else module.get_submodule(weigher)
                return [shared_expert(model, run, mixture, one, by) for one in maps], factor
    raise ModelError(
        f"what {mixture} adds is not the sum of its experts and its shared experts; {DENSE}"
    )


def shared_expert(
    model: nn.Module, run: Trace, name: str, maps: Maps, weigher: nn.Module | None
) -> SharedExpert:
    """A shared expert by the paths of its maps, which begin at the module of this name."""
    part = partial(part_at, model.get_submodule(name), run=run, name=name)
    gate = None if maps.gate is None else part(maps.gate)
    return SharedExpert(part(maps.keys), part(maps.values), gate, weigher)


def read_mixtures(
    model: PreTrainedModel, tokens: Tensor, run: Trace, seen: list[LayerFit]
) -> list[LayerFit]:
    """The same layers, with what a run that reads the experts shows of every mixture's memories.

    `run` went through the model's own loop over experts, so it is what the reading must equal.
    Every layer goes on from there: in 16 bits a last digit of one layer can send a place to another
    expert in the next.
    """
    names = {module: name for name, module in model.named_modules()}
    readings: dict[Mixture, tuple[float, tuple[str, float]]] = {}

    def note(reading: MixtureReading) -> Tensor:
        y = reading.mixture.sum_on(run, names).flatten(0, -2)
        errors = relative_error(reading.sum_by_expert(), y), relative_error(reading.y, y)
        lines, places = len(reading.routed.places), len(reading.x)
        reading.mixture.per_place = max(1, -(-lines // places))
        activation, error = _expert_activation(reading, run)
        shared = (score_error(one, names[one.module], run) for one in reading.mixture.shared_maps)
        readings[reading.mixture] = max(errors), (activation, max(error, *shared, 0.0))
        return y.to(reading.y)

    mixtures = [fit.layer.mixture for fit in seen if fit.layer.mixture is not None]
    if mixtures:
        with ExitStack() as listening:
            for mixture in mixtures:
                listening.callback(mixture.listen(note))
            model(input_ids=tokens, use_cache=False)
    found = []
    for fit in seen:
        if fit.layer.mixture is not None:
            error, (activation, activation_error) = readings[fit.layer.mixture]
            layer = replace(fit.layer, activation=activation)
            fit = LayerFit(layer, fit.form_error, activation_error, error)
        found.append(fit)
    return found


def _expert_activation(reading: MixtureReading, run: Trace) -> tuple[str, float]:
    """The activation of the experts, or `own gate` for a gate that is not activation x keys."""
    mixture, routed = reading.mixture, reading.routed
    weights = routed.weights[:, None].to(routed.scores.dtype)
    c, a = routed.coefficients, mixture.half(routed.scores, "gate")
    beside = (
        weights * mixture.half(routed.scores, "keys")
        if mixture.experts.has_gate
        else weights.expand_as(a)
    )
    name, error = activation_name(c, a, beside, run, "")
    if error < rounding(c.dtype) or not mixture.experts.has_gate:
        return name, error
    own = mixture.experts._apply_gate(routed.scores)
    return "own gate", relative_error(own * weights, c)
