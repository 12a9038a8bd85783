"""A change of values as a small file: old and new columns, to apply and to take back exactly."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor

from ffmem.errors import ModelError
from ffmem.files.whole_files import whole_folder
from ffmem.locations import location
from ffmem.models.feedforward import EffectivePart, FeedForward
from ffmem.models.fingerprint import weights_digest
from ffmem.version import VERSION

if TYPE_CHECKING:
    from ffmem.models.language_model import LanguageModel

FILE = "patch.safetensors"
NOTE = "patch.json"


@dataclass(frozen=True)
class ValueChange:
    """What happens to some memories of a layer: each value times its factor, and a bias added.

    A memory that is held at c has the factor 0, and c times its value goes into the layer's bias.
    """

    factors: dict[int, float]
    held: dict[int, float]


@dataclass(frozen=True)
class PatchNote:
    """What a patch is for: the model whose weights it changes, and the edits that it stands for."""

    model: str
    revision: str | None
    weights: str
    dtype: str
    edits: list[str]
    ffmem: str = VERSION


@torch.no_grad()
def write_patch(
    model: LanguageModel, changes: Mapping[int, ValueChange], edits: list[str], folder: Path
) -> Path:
    """Write the delta and its note as a new folder; the model stays as it is."""
    tensors: dict[str, Tensor] = {}
    for number, change in sorted(changes.items()):
        tensors |= _layer_delta(model.layer(number), change)
    dtype = str(model.dtype).removeprefix("torch.")
    note = PatchNote(model.name, model.revision, weights_digest(model.model), dtype, edits)
    folder = location(folder)
    text = json.dumps(asdict(note), indent=2, ensure_ascii=False) + "\n"
    with whole_folder(folder, ModelError) as part:
        (part / FILE).write_bytes(save(tensors))
        (part / NOTE).write_text(text, encoding="utf-8")
    return folder


def _layer_delta(layer: FeedForward, change: ValueChange) -> dict[str, Tensor]:
    """Old and new values of the memories that change, and of the layer's bias where it does."""
    _refuse_fixed_values(layer)
    name = f"layer.{layer.number}"
    memories = sorted({*change.factors, *change.held})
    factors = torch.tensor([change.factors.get(one, 0.0) for one in memories])
    before = layer.values_at(memories).clone()
    found = {
        f"{name}.memories": torch.tensor(memories),
        f"{name}.before": before.contiguous().cpu(),
        f"{name}.after": (before * factors.to(before)[:, None]).contiguous().cpu(),
    }
    held = torch.tensor([change.held.get(one, 0.0) for one in memories])
    if held.any():
        bias = layer.value_bias
        if bias is None:
            raise ModelError(
                f"layer {layer.number} has no bias that could hold a memory at a number other than "
                "0; write a patch with =0 or *2, or use the edit while the model runs"
            )
        found[f"{name}.bias_before"] = bias.clone().cpu()
        moved = bias.double() + held.double().to(bias.device) @ before.double()
        found[f"{name}.bias_after"] = moved.to(bias.dtype).cpu()
    if not all(tensor.isfinite().all() for tensor in found.values()):
        raise ModelError(
            f"the weights of layer {layer.number} would not be finite with this patch; choose "
            "smaller numbers"
        )
    return found


def apply_patch(model: LanguageModel, folder: str | Path) -> LanguageModel:
    """Apply a patch to the values of the model; refuse a patch that was made for other weights.

    The model is changed in place. Returns the same model under a name that includes the patch.
    """
    note, tensors = _read_patch(folder)
    dtype = getattr(torch, note.dtype)
    if weights_digest(model.model, dtype) != note.weights:
        raise ModelError(
            f"the patch {folder} was made for {note.model} with other weights than those of "
            f"{model.name}; give the model that it was made for, unpatched"
        )
    put_values(model, tensors, "after")
    return replace(model, name=f"{model.name} with the patch {folder}")


def remove_patch(model: LanguageModel, folder: str | Path) -> LanguageModel:
    """Restore the values from before the patch, bit for bit; returns the model under its name."""
    _, tensors = _read_patch(folder)
    for name, tensor in tensors.items():
        if name.endswith(".after"):
            memories = tensors[name.replace(".after", ".memories")]
            found = model.layer(int(name.split(".")[1])).values_at(memories.tolist())
            if found.shape != tensor.shape or not torch.equal(found.cpu(), tensor.to(found.dtype)):
                raise ModelError(
                    f"the patch {folder} is not in {model.name}, so it cannot be removed"
                )
    put_values(model, tensors, "before")
    return replace(model, name=model.name.removesuffix(f" with the patch {folder}"))


@torch.no_grad()
def put_values(model: LanguageModel, tensors: Mapping[str, Tensor], which: str) -> None:
    """Write one side of a patch into the model's own weights."""
    for name, memories in tensors.items():
        head, _, kind = name.rpartition(".")
        if kind != "memories":
            continue
        layer = model.layer(int(head.split(".")[1]))
        _refuse_fixed_values(layer)
        layer.put_values(memories, tensors[f"{head}.{which}"])
        if f"{head}.bias_{which}" in tensors and layer.value_bias is not None:
            layer.value_bias.copy_(tensors[f"{head}.bias_{which}"])


def _read_patch(folder: str | Path) -> tuple[PatchNote, dict[str, Tensor]]:
    """A patch from its folder, or one sentence why there is none."""
    path = location(folder)
    if not (path / NOTE).exists():
        raise ModelError(
            f"{path} holds no patch; make one with `ffmem patch MODEL --set EDIT -o DIR`"
        )
    try:
        note = PatchNote(**json.loads((path / NOTE).read_text(encoding="utf-8")))
        with safe_open(path / FILE, framework="pt") as file:
            return note, {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except (OSError, ValueError, TypeError, SafetensorError):
        raise ModelError(
            f"the patch in {path} is damaged; make it again with `ffmem patch`"
        ) from None


def _refuse_fixed_values(layer: FeedForward) -> None:
    """Values that are copies of what the layer stores cannot be changed in place."""
    shared = () if layer.mixture is None else layer.mixture.shared
    maps = [one.value_map for one in shared] if layer.mixture else [layer.value_map]
    if any(isinstance(one, EffectivePart) for one in maps):
        raise ModelError(
            f"the values of layer {layer.number} are quantised or have an adapter, so they cannot "
            "be patched; call dequantize() or merge_and_unload() on the model first"
        )
    weights = [one.module.weight for one in maps]
    if layer.mixture is not None:
        weights.append(layer.mixture.experts.down_proj)
    if any(one.device.type == "meta" for one in weights):
        raise ModelError(
            f"the values of layer {layer.number} are offloaded, so they cannot be patched; load "
            "the model onto one device"
        )
