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
from ffmem.models.blocks.forms import activation_name, own_numbers, owner_of
from ffmem.models.blocks.trace import Trace, relative_error, rounding, sum_error
from ffmem.models.device_placement import tensor_of
from ffmem.models.effective_weights import is_linear
from ffmem.models.experts.routing import has_readable_experts
from ffmem.models.families import Family

if TYPE_CHECKING:
    from transformers import PreTrainedModel

EXPERTS = re.compile(r"expert|moe", re.IGNORECASE)
DENSE = "use a dense model of the same family"


@dataclass(frozen=True)
class Maps:
    """The paths of a layer's maps inside its block."""

    keys: str
    values: str
    gate: str | None
    experts: str | None = None
    after: str | None = None  # a norm inside a mixture, behind its sum
    beside: str | None = None  # values of a dense layer that are added to a mixture's sum


@dataclass(frozen=True)
class _Around:
    before: Tensor  # what enters the block
    x: Tensor
    y: Tensor
    output: Tensor
    vectors: Mapping[str, Tensor]  # of the block, as wide as the stream

    def holds(self, r: Tensor, o: Tensor) -> bool:
        return sum_error(r, self.y, o) < rounding(self.y.dtype)


def family_by_structure(model: PreTrainedModel, run: Trace, name: str) -> Family:
    """A row for this model, made from what one traced run shows."""
    blocks = _block_list(model, run, name)
    _refuse_experts(model.get_submodule(blocks), name)
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


def families_by_block(model: PreTrainedModel, run: Trace, name: str) -> dict[int, Family]:
    """A row for every block, each found by itself: some may be mixtures, or of another form.

    A block without any feed-forward layer, such as one of attention alone, has none.
    """
    blocks = _block_list(model, run, name)
    found: dict[int, Family] = {}
    for index, child in enumerate(model.get_submodule(blocks).children()):
        block = f"{blocks}.{index}"
        if block not in run.outputs:
            continue
        maps = _block_maps(model, run, block, name)
        rows = (surroundings(model, run, block, one) for one in maps)
        row = next(filter(None, rows), None)
        if row is not None:
            found[index] = replace(row, blocks=blocks)
        elif maps:
            raise ModelError(
                f"{name}: what {block}.{maps[0].values} ({type(child).__name__}) adds to the "
                f"residual follows no known form; {DENSE}"
            )
    if not found:
        raise ModelError(f"{name}: no feed-forward layer found at {blocks}.*")
    return found


def _block_maps(model: PreTrainedModel, run: Trace, block: str, name: str) -> list[Maps]:
    """The maps of a block: its experts with what adds them up, else those of a dense layer."""
    module = model.get_submodule(block)
    experts = [
        path
        for path, inside in module.named_modules()
        if has_readable_experts(inside) and f"{block}.{path}" in run.outputs
    ]
    if not experts:
        _refuse_experts(module, name)
        return _largest_first(candidate_maps(model, run, block), tensors_inside(run, block))
    mixture = experts[0].rpartition(".")[0]
    if len(experts) > 1 or not mixture:
        raise ModelError(
            f"{name}: {block} adds more than the sum of one mixture of experts, which follows no "
            f"known form; {DENSE}"
        )
    plain = Maps(mixture, mixture, None, experts[0], _norm_inside(run, block, mixture, experts[0]))
    dense = _largest_first(candidate_maps(model, run, block), tensors_inside(run, block))
    outside = [one.values for one in dense if not one.values.startswith(f"{mixture}.")]
    return [plain, *(replace(plain, beside=values) for values in outside)]


def _norm_inside(run: Trace, block: str, mixture: str, experts: str) -> str | None:
    """The module inside a mixture that its whole sum passes on the way out, if there is one."""
    y = run.outputs[f"{block}.{mixture}"]
    for path, (seen, out) in tensors_inside(run, f"{block}.{mixture}").items():
        whole = out.numel() == seen.numel() == y.numel() and out.reshape(y.shape).equal(y)
        if whole and not f"{mixture}.{path}.".startswith(f"{experts}."):
            return f"{mixture}.{path}"
    return None


def _block_list(model: PreTrainedModel, run: Trace, name: str) -> str:
    """The list of modules that holds most of the parameters and was run; refuses without one."""
    sizes = {
        path: sum(p.numel() for p in module.parameters())
        for path, module in model.named_modules()
        if isinstance(module, nn.ModuleList) and f"{path}.0" in run.outputs
    }
    if not sizes:
        raise ModelError(f"{name}: no list of blocks was found in {model.config.model_type!r}")
    return max(sizes, key=lambda path: (sizes[path], -path.count(".")))


def _refuse_experts(blocks: nn.Module, name: str) -> None:
    """Mixture-of-experts layers have no single value matrix: say so instead of guessing."""
    for path, module in blocks.named_modules():
        if EXPERTS.search(path):
            raise ModelError(
                f"{name}: its feed-forward layers are mixtures of experts "
                f"({type(module).__name__}), which ffmem does not read yet; " + DENSE
            )


def scales(model: PreTrainedModel, block: nn.Module, layer: str = "") -> dict[str | None, float]:
    """Numbers that may multiply what a layer adds: one, the block's, the config's, the layer's."""
    named = {**vars(block), **model.config.get_text_config().to_dict()}
    if layer:
        own = own_numbers(block.get_submodule(layer))
        named |= {f"{layer}.{name}": number for name, number in own.items()}
    numbers = {key: value for key, value in named.items() if isinstance(value, float) and value}
    return {None: 1.0, **{key: value for key, value in numbers.items() if value != 1.0}}


def _output_scales(block: nn.Module) -> dict[str | None, float]:
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


def candidate_maps(model: nn.Module, run: Trace, block: str) -> Iterator[Maps]:
    """Maps of a block that fit together as keys, values and gate."""
    inside = tensors_inside(run, block)
    linear = {path: inside[path] for path in _linear_paths(model.get_submodule(block), inside)}
    for values, (m, _) in linear.items():
        for keys, gate in _maps_before(linear, values, m):
            a = part(linear[(gate or keys).partition("[")[0]][1], gate or keys)
            beside = None if gate is None else part(linear[keys.partition("[")[0]][1], keys)
            numbers = list(own_numbers(owner_of(model.get_submodule(block), values)).values())
            if activation_name(m, a, beside, run, block, numbers)[1] < rounding(m.dtype):
                yield Maps(keys, values, gate)


def _linear_paths(block: nn.Module, paths: Iterable[str]) -> list[str]:
    """Those of some paths that lead to matrices; what an adapter consists of does not count."""
    adapters = [f"{path}." for path, part in block.named_modules() if hasattr(part, "base_layer")]
    return [
        path
        for path in paths
        if is_linear(block.get_submodule(path)) and not path.startswith(tuple(adapters))
    ]


def largest(candidates: Iterable[Maps], inside: Mapping[str, tuple[Tensor, Tensor]]) -> list[Maps]:
    """Those with the most memories: an adapter beside the feed-forward layer looks like one too."""
    ordered = _largest_first(candidates, inside)
    memories = [inside[maps.values][0].shape[-1] for maps in ordered]
    return [maps for maps, count in zip(ordered, memories, strict=True) if count == memories[0]]


def _largest_first(
    candidates: Iterable[Maps], inside: Mapping[str, tuple[Tensor, Tensor]]
) -> list[Maps]:
    """The candidates by their number of memories, the order of equals kept."""
    return sorted(dict.fromkeys(candidates), key=lambda maps: -inside[maps.values][0].shape[-1])


def _maps_before(
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


def surroundings(model: PreTrainedModel, run: Trace, block: str, maps: Maps) -> Family | None:
    """The row under which r + y = o holds in this block, if there is one; its blocks left open."""
    inside, module = tensors_inside(run, block), model.get_submodule(block)
    x, y = inside[maps.keys.partition("[")[0]][0], inside[maps.values][1]
    if maps.beside is not None:
        y = y.reshape(x.shape) + inside[maps.beside][1].reshape(x.shape)
    shape = run.outputs[block].shape
    if not x.numel() == y.numel() == run.inputs[block].numel() == run.outputs[block].numel():
        return None
    fits = {
        path: (seen.reshape(shape), out.reshape(shape))
        for path, (seen, out) in sorted(inside.items(), key=lambda item: item[0].count("."))
        if seen.numel() == out.numel() == y.numel()
    }
    for output, leaves, o in _block_ends(run, block, module, fits):
        for scale, number in scales(model, module, maps.values.rpartition(".")[0]).items():
            for after, given in _residual_additions(fits, y.reshape(shape)):
                row = Family(
                    "", maps.keys, maps.values, None, None, maps.gate, after or maps.after, scale,
                    output, leaves, maps.experts, None, None, maps.beside,
                )  # fmt: skip
                around = _Around(
                    run.inputs[block], x.reshape(shape), number * given, o, vectors_of(module)
                )
                for found in _families_with_surroundings(row, around, fits):
                    return found
    return None


def _block_ends(
    run: Trace, block: str, module: nn.Module, fits: Mapping[str, tuple[Tensor, Tensor]]
) -> Iterator[tuple[str | None, str | None, Tensor]]:
    """What r + y may be, with the number behind it: what leaves the block, or what a module reads.

    The second only where the block adds one more module's output to it, and nothing else.
    """
    ends = {name: run.outputs[block] / whole for name, whole in _output_scales(module).items()}
    for output, end in ends.items():
        yield output, None, end
    readers = tensors_inside(run, block).items()
    for output, end in ends.items():
        for path, (seen, _) in readers:
            if seen.numel() == end.numel():
                state = seen.reshape(end.shape)
                rest = (out for _, out in fits.values())
                if any(relative_error(state + out, end) < rounding(out.dtype) for out in rest):
                    yield output, path, state


def _families_with_surroundings(
    row: Family, around: _Around, fits: Mapping[str, tuple[Tensor, Tensor]]
) -> Iterator[Family]:
    """The row with norm or attention filled in, for each form that holds, the usual ones first."""
    if around.holds(around.x, around.output):
        yield row
    for path, (seen, out) in fits.items():
        if relative_error(out, around.x) < rounding(out.dtype):
            yield from _families_after(replace(row, norm=path), around, seen, fits)
    for path, (_, out) in fits.items():
        if around.holds(around.before + out, around.output):
            yield replace(row, attention=path)
    for path, (seen, out) in fits.items():
        if around.holds(around.x, seen) and out.equal(around.output):
            yield replace(row, norm=path)


def _families_after(
    row: Family, around: _Around, seen: Tensor, fits: Mapping[str, tuple[Tensor, Tensor]]
) -> Iterator[Family]:
    """The row if y is added to what its norm has `seen`, also times a vector of the block."""
    if around.holds(seen, around.output):
        yield row
    for name, gain in around.vectors.items():
        if around.holds(gain * seen, around.output):
            yield replace(row, residual=name, entry=entry(around, seen, fits))


def vectors_of(block: nn.Module) -> dict[str, Tensor]:
    """The vectors that a block holds itself, by name; those of its modules are not among them."""
    held = ((name, tensor_of(block, name)) for name, _ in block.named_parameters(recurse=False))
    return {name: vector for name, vector in held if vector is not None and vector.ndim == 1}


def entry(around: _Around, r: Tensor, fits: Mapping[str, tuple[Tensor, Tensor]]) -> str | None:
    """The vector that multiplies what enters the block where attention is added to it."""
    for name, gain in around.vectors.items():
        for _, out in fits.values():
            if relative_error(gain * around.before + out, r) < rounding(r.dtype):
                return name
    return None


def _residual_additions(
    fits: Mapping[str, tuple[Tensor, Tensor]], y: Tensor
) -> Iterator[tuple[str | None, Tensor]]:
    """What the layer may add to the residual: the values' sum, or that behind a further module."""
    yield None, y
    for path, (seen, out) in fits.items():
        if seen.equal(y) and not out.equal(seen):
            yield path, out
