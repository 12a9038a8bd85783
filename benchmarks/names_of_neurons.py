"""Which tensor another library's hook gives, by family, and whether it is the coefficients.

    pip install '.[peers]'
    python -m benchmarks.names_of_neurons [--all]

A toy of each family runs in TransformerLens and in nnsight on the same token ids. Each hook's
tensor goes through `ffmem.check_coefficients`. Prints, as a table, the hooks whose tensor is not
what their name says in other families, or with --all every hook. Installs nothing.
"""

from __future__ import annotations

import argparse
import copy
import os
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib.metadata import version
from math import isfinite
from typing import Any

import torch
from torch import Tensor
from transformers import AutoTokenizer

import ffmem
from ffmem.models.blocks.trace import relative_error
from ffmem.models.language_model import LanguageModel

os.environ["HF_HUB_OFFLINE"] = "1"
LAYER = 2  # of three, counted from 1
TOKENS = torch.tensor([[2, 75, 104, 101, 35, 117, 108, 121, 104, 117]])
M, OUTPUT = "the coefficients", "the layer's output as it is added to the residual"
LENS_HOOKS = {  # by what their name says
    "mlp.hook_post": M,
    "mlp.hook_out": OUTPUT,
    "hook_mlp_out": OUTPUT,
}
MIXTURE = {"mlp.output": OUTPUT}
GATED = {"mlp.act_fn.output": M, "mlp.down_proj.input": M, "mlp.output": OUTPUT}
NORMED = {**GATED, "post_feedforward_layernorm.output": OUTPUT}
MODULES: dict[str, Mapping[str, str]] = {  # of a block, by family
    "gpt2": {"mlp.act.output": M, "mlp.c_proj.input": M, "mlp.output": OUTPUT},
    "bloom": {
        "mlp.gelu_impl.output": M,
        "mlp.dense_4h_to_h.input": M,
        "mlp.output": OUTPUT,
        "mlp.dense_4h_to_h.output": OUTPUT,
    },
    "opt": {"activation_fn.output": M, "fc2.input": M, "fc2.output": OUTPUT},
    "llama": GATED,
    "gemma": GATED,
    "gemma2": NORMED,
    "olmo2": NORMED,
    "granite": GATED,
    "mixtral": MIXTURE,
    "olmoe": MIXTURE,
}


@dataclass(frozen=True)
class Row:
    """One hook of one library in one family."""

    family: str
    library: str
    hook: str
    says: str  # what its name says
    is_a: str  # what its tensor is
    error: float  # of coefficients x values + bias = output, with the tensor for one side

    @property
    def lies(self) -> bool:
        """Whether the tensor is something else than the name says."""
        return self.is_a != self.says


def by_transformer_lens(model: LanguageModel) -> dict[str, Tensor]:
    """Every hook of a block in TransformerLens."""
    from transformer_lens.model_bridge import TransformerBridge

    with tempfile.TemporaryDirectory() as folder:
        model.model.save_pretrained(folder)
        assert model.tokenizer is not None
        model.tokenizer.save_pretrained(folder)
        bridge = TransformerBridge.boot_transformers(
            folder,
            hf_model=copy.deepcopy(model.model),
            tokenizer=AutoTokenizer.from_pretrained(folder),
            device="cpu",
        )
    _, cache = bridge.run_with_cache(TOKENS)
    block = f"blocks.{model.layer(LAYER).block_index}."
    return {
        name.removeprefix(block): tensor
        for name, tensor in cache.items()
        if name.startswith(block) and isinstance(tensor, Tensor)
    }


def by_nnsight(model: LanguageModel, hooks: Mapping[str, str]) -> dict[str, Tensor]:
    """Inputs and outputs of modules of a block in nnsight."""
    from nnsight import NNsight

    block = model.layer(LAYER).block
    path = next(name for name, module in model.model.named_modules() if module is block)
    wrapped, found = NNsight(model.model), {}
    for hook in hooks:
        with torch.inference_mode(), wrapped.trace(TOKENS, use_cache=False):
            tensor = part_of(wrapped, f"{path}.{hook}").save()
        found[hook] = tensor
    return found


def part_of(wrapped: Any, path: str) -> Any:
    """What stands at a path of nnsight's model."""
    for name in path.split("."):
        wrapped = wrapped[int(name)] if name.isdigit() else getattr(wrapped, name)
    return wrapped


def rows_of(family: str) -> Iterator[Row]:
    """Every hook of a family."""
    model = ffmem.load(f"tiny:{family}")
    y = ffmem.record(model, TOKENS, "y").layer(LAYER).y
    hooks = MODULES[family]
    libraries: list[tuple[str, dict[str, Tensor], Mapping[str, str]]] = [
        (f"TransformerLens {version('transformer_lens')}", by_transformer_lens(model), LENS_HOOKS),
        (f"nnsight {version('nnsight')}", by_nnsight(model, hooks), hooks),
    ]
    for library, tensors, names in libraries:
        for hook, says in names.items():
            tensor = tensors[hook]
            found = ffmem.check_coefficients(model, LAYER, tensor, TOKENS)
            error = found.error if says == M else relative_error(tensor.reshape(y.shape), y)
            yield Row(family, library, hook, says, found.is_a, error)


def text_of(row: Row, rows: list[Row]) -> str:
    """A row of the table; the last column is the same library's hook that is what this one says."""
    same = [one for one in rows if (one.library, one.says) == (row.library, row.says)]
    right = next((f"`{one.hook}`" for one in same if not one.lies), "none")
    error = f"{row.error:.1e}" if isfinite(row.error) else "other size"
    cells = (row.family, row.library, f"`{row.hook}`", row.says, row.is_a, error, right)
    return f"| {' | '.join(cells)} |"


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--all", action="store_true", help="every hook, not only those that differ")
    options = parser.parse_args()
    print("| family | library | hook | its name says | it is | relative error | use |")
    print("|---|---|---|---|---|---|---|")
    for family in MODULES:
        rows = list(rows_of(family))
        for row in rows:
            if row.lies or options.all:
                print(text_of(row, rows))


if __name__ == "__main__":
    main()
