"""A model of the paper's size with random weights, to measure speed with.

    python -m benchmarks.paper_size --tokenizer MODEL_FOLDER --into FOLDER

OPT, 16 layers, d = 1024, 4,096 memories a layer, ReLU, pre-norm, tied, no final norm. Speed does
not depend on what the weights say; what enters the triggers does, a little: a trained model's
memories fire more rarely.
"""

from __future__ import annotations

import argparse

import torch
from transformers import AutoTokenizer, OPTConfig, OPTForCausalLM


def main() -> None:
    """Make the folder."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tokenizer", required=True, help="folder whose tokenizer is taken")
    parser.add_argument("--into", required=True)
    options = parser.parse_args()
    tokenizer = AutoTokenizer.from_pretrained(options.tokenizer)
    config = OPTConfig(
        vocab_size=len(tokenizer),
        hidden_size=1024,
        num_hidden_layers=16,
        ffn_dim=4096,
        num_attention_heads=8,
        word_embed_proj_dim=1024,
        max_position_embeddings=512,
        activation_function="relu",
        do_layer_norm_before=True,
        _remove_final_layer_norm=True,
    )
    torch.manual_seed(0)
    model = OPTForCausalLM(config).to(torch.bfloat16)
    model.save_pretrained(options.into)
    tokenizer.save_pretrained(options.into)
    print(f"{sum(p.numel() for p in model.parameters()):,} parameters in {options.into}")


if __name__ == "__main__":
    main()
