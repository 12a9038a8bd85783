"""Save a trained model as a Hugging Face folder that loads with no custom code."""

import json
import shutil
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file

from making.files import write_whole


def save_model(model: Any, tokenizer: Path, folder: Path, record: dict[str, Any]) -> None:
    """Write bfloat16 weights, configs, the tokenizer's files and `curve.json`."""
    folder.mkdir(parents=True, exist_ok=True)
    weights = {
        name: tensor.detach().to("cpu", torch.bfloat16).contiguous()
        for name, tensor in model.state_dict().items()
        if name != "lm_head.weight"  # tied: the same tensor as the embedding
    }
    part = folder / "model.safetensors.part"
    save_file(weights, part, metadata={"format": "pt"})
    part.chmod(0o644)
    part.replace(folder / "model.safetensors")
    config = model.config.to_dict() | {"architectures": ["OPTForCausalLM"], "dtype": "bfloat16"}
    ids = {name: config[name] for name in ("bos_token_id", "eos_token_id", "pad_token_id")}
    for name, content in (
        ("config.json", config),
        ("generation_config.json", ids),
        ("curve.json", record),
    ):
        write_whole(folder / name, json.dumps(content, indent=1).encode())
    for name in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copyfile(tokenizer / name, folder / name)
