"""An architecture without a row, understood from its structure on one traced run.

The value map is the one whose input is an activation of another map's output (times a third
map's output in a gated layer). What is found here is only a proposal in the form of a row: it
passes through the same measurements and identities as a row of the table.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from torch import Tensor, nn

from ffmem.errors import ModelError
from ffmem.models.block_forms import activation_name
from ffmem.models.device_placement import tensor_of
from ffmem.models.families import Family
from ffmem.models.trace import Trace, relative_error, rounding, sum_error

if TYPE_CHECKING:
    from transformers import PreTrainedModel

EXPERTS = re.compile(r"expert|moe", re.IGNORECASE)


@dataclass(frozen=True)
class _Maps:
    keys: str
    values: str
    gate: str | None


@dataclass(frozen=True)
class _Around:
    before: Tensor  # what enters the block
    x: Tensor
    y: Tensor
    output: Tensor

    def holds(self, r: Tensor, o: Tensor) -> bool:
        return sum_error(r, self.y, o) < rounding(self.y.dtype)


def family_by_structure(model: PreTrainedModel, run: Trace, name: str) -> Family:
    """A row for this model, made from what one traced run shows."""
    blocks = block_list(model, run)
    if blocks is None:
        raise ModelError(f"{name}: no list of blocks was found in {model.config.model_type!r}")
    refuse_experts(model.get_submodule(blocks), name)
    children = [f"{blocks}.{index}" for index, _ in model.get_submodule(blocks).named_children()]
    unplaced = None
    for block in (child for child in children if child in run.outputs):
        inside = tensors_inside(run, block)
        for maps in largest(candidate_maps(model, run, block), inside):
            found = surroundings(model, run, block, maps)
            if found is not None:
                return replace(found, blocks=blocks)
            unplaced = f"{block}.{maps.values}"
    kind = model.config.model_type
    if unplaced is not None:
        raise ModelError(
            f"{name}: no table row for {kind!r}, and what {unplaced} adds to the residual follows "
            "no known form; if one fits, add a row as docs/how-to/add-a-family.md says"
        )
    raise ModelError(
        f"{name}: no table row for {kind!r}, and none of its maps reads an activation of another's "
        "output, as values do; if one does, add a row as docs/how-to/add-a-family.md says"
    )


def block_list(model: nn.Module, run: Trace) -> str | None:
    """The list of modules that holds most of the parameters and was run."""
    sizes = {
        name: sum(p.numel() for p in module.parameters())
        for name, module in model.named_modules()
        if isinstance(module, nn.ModuleList) and f"{name}.0" in run.outputs
    }
    return max(sizes, key=lambda name: (sizes[name], -name.count(".")), default=None)


def refuse_experts(blocks: nn.Module, name: str) -> None:
    """Mixture-of-experts layers have no single value matrix: say so instead of guessing."""
    for path, module in blocks.named_modules():
        if EXPERTS.search(path):
            raise ModelError(
                f"{name}: its feed-forward layers are mixtures of experts "
                f"({type(module).__name__}), which ffmem does not read yet; "
                "use a dense model of the same family"
            )


def scales(model: PreTrainedModel, block: nn.Module) -> dict[str | None, float]:
    """Numbers that may multiply what a layer adds: one, the block's, then the config's own."""
    named = {**vars(block), **model.config.get_text_config().to_dict()}
    numbers = {key: value for key, value in named.items() if isinstance(value, float) and value}
    return {None: 1.0, **{key: value for key, value in numbers.items() if value != 1.0}}


def output_scales(block: nn.Module) -> dict[str | None, float]:
    """Numbers that may multiply what leaves a block: one, then those stored with its weights."""
    stored = [name for name, tensor in block.named_buffers() if tensor.numel() == 1]
    return {None: 1.0, **{name: float(tensor_of(block, name)) for name in stored}}  # type: ignore[arg-type]


def tensors_inside(run: Trace, block: str) -> dict[str, tuple[Tensor, Tensor]]:
    """(input, output) of every module inside a block, by its path from the block."""
    return {
        name.removeprefix(block + "."): (run.inputs[name], run.outputs[name])
        for name in run.outputs
        if name.startswith(block + ".") and name in run.inputs
    }


def candidate_maps(model: nn.Module, run: Trace, block: str) -> Iterator[_Maps]:
    """Maps of a block that fit together as keys, values and gate."""
    inside = tensors_inside(run, block)
    linear = {
        path: pair
        for path, pair in inside.items()
        if getattr(model.get_submodule(f"{block}.{path}"), "weight", None) is not None
        and model.get_submodule(f"{block}.{path}").weight.ndim == 2
    }
    for values, (m, _) in linear.items():
        for keys, gate in maps_before(linear, values, m):
            a = part(linear[(gate or keys).partition("[")[0]][1], gate or keys)
            beside = None if gate is None else part(linear[keys.partition("[")[0]][1], keys)
            if activation_name(m, a, beside, run, block)[1] < rounding(m.dtype):
                yield _Maps(keys, values, gate)


def largest(
    candidates: Iterable[_Maps], inside: Mapping[str, tuple[Tensor, Tensor]]
) -> list[_Maps]:
    """Those with the most memories: an adapter beside the feed-forward layer looks like one too."""
    memories = {maps: inside[maps.values][0].shape[-1] for maps in candidates}
    return [maps for maps, count in memories.items() if count == max(memories.values())]


def maps_before(
    linear: Mapping[str, tuple[Tensor, Tensor]], values: str, m: Tensor
) -> Iterator[tuple[str, str | None]]:
    """(keys, gate) pairs whose sizes fit the coefficients: plain, gated, then fused gated."""
    count = m.shape[-1]
    same = [p for p, (_, out) in linear.items() if out.shape == m.shape and p != values]
    yield from ((keys, None) for keys in same)
    yield from ((keys, gate) for gate in same for keys in same if keys != gate)
    for path, (_, out) in linear.items():
        if out.shape[:-1] == m.shape[:-1] and out.shape[-1] == 2 * count:
            yield f"{path}[half:]", f"{path}[:half]"
            yield f"{path}[:half]", f"{path}[half:]"


def part(output: Tensor, path: str) -> Tensor:
    """The half of a map's output that its path names, or all of it."""
    if not path.endswith("]"):
        return output
    first, second = output.chunk(2, dim=-1)
    return first if path.endswith("[:half]") else second


def surroundings(model: PreTrainedModel, run: Trace, block: str, maps: _Maps) -> Family | None:
    """The row under which r + y = o holds in this block, if there is one; its blocks left open."""
    inside, module = tensors_inside(run, block), model.get_submodule(block)
    x, y = inside[maps.keys.partition("[")[0]][0], inside[maps.values][1]
    shape = run.outputs[block].shape
    if not x.numel() == y.numel() == run.inputs[block].numel() == run.outputs[block].numel():
        return None
    fits = {
        path: (seen.reshape(shape), out.reshape(shape))
        for path, (seen, out) in sorted(inside.items(), key=lambda item: item[0].count("."))
        if seen.numel() == out.numel() == y.numel()
    }
    for output, whole in output_scales(module).items():
        for scale, number in scales(model, module).items():
            for after, given in residual_additions(fits, y.reshape(shape)):
                row = Family(
                    "", maps.keys, maps.values, None, None, maps.gate, after, scale, output
                )
                around = _Around(
                    before=run.inputs[block],
                    x=x.reshape(shape),
                    y=number * given,
                    output=run.outputs[block] / whole,
                )
                for found in families_with_surroundings(row, around, fits):
                    return found
    return None


def families_with_surroundings(
    row: Family, around: _Around, fits: Mapping[str, tuple[Tensor, Tensor]]
) -> Iterator[Family]:
    """The row with norm or attention filled in, for each form that holds, the usual ones first."""
    if around.holds(around.x, around.output):
        yield row
    for path, (seen, out) in fits.items():
        leads_in = relative_error(out, around.x) < rounding(out.dtype)
        if leads_in and around.holds(seen, around.output):
            yield replace(row, norm=path)
    for path, (_, out) in fits.items():
        if around.holds(around.before + out, around.output):
            yield replace(row, attention=path)
    for path, (seen, out) in fits.items():
        if around.holds(around.x, seen) and out.equal(around.output):
            yield replace(row, norm=path)


def residual_additions(
    fits: Mapping[str, tuple[Tensor, Tensor]], y: Tensor
) -> Iterator[tuple[str | None, Tensor]]:
    """What the layer may add to the residual: the values' sum, or that behind a further module."""
    yield None, y
    for path, (seen, out) in fits.items():
        if seen.equal(y) and not out.equal(seen):
            yield path, out
