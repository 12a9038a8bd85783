"""Time and memory of `ffmem weights` on a model of a given shape with random weights.

    python -m benchmarks.weights                                   # the 8B shape on a GPU
    python -m benchmarks.weights --layers 2 --width 256 --memories 1024 --words 8000 --dtype float32

Needs torch and transformers only. Prints seconds of each part, seconds per layer and the peak of
GPU memory beyond the model's own.
"""

from __future__ import annotations

import argparse
import time

import torch
from transformers import LlamaConfig, LlamaForCausalLM

from ffmem.analyses.weights.measure import layer_table, summarise_weights, weight_table
from ffmem.memories.weight_statistics import unembedding
from ffmem.models.loading import DTYPES
from ffmem.models.wrapping import wrap


def random_model(options: argparse.Namespace) -> LlamaForCausalLM:
    """A gated model of that shape; every weight is drawn, on the device."""
    config = LlamaConfig(
        vocab_size=options.words,
        hidden_size=options.width,
        intermediate_size=options.memories,
        num_hidden_layers=options.layers,
        num_attention_heads=max(1, options.width // 128),
        num_key_value_heads=max(1, options.width // 512),
        max_position_embeddings=512,
    )
    torch.manual_seed(0)
    torch.set_default_dtype(DTYPES[options.dtype])
    try:
        with torch.device(options.device):
            return LlamaForCausalLM(config).eval()
    finally:
        torch.set_default_dtype(torch.float32)


def main() -> None:
    """Measure once, after one layer to warm up."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--layers", type=int, default=32)
    parser.add_argument("--width", type=int, default=4096)
    parser.add_argument("--memories", type=int, default=14_336)
    parser.add_argument("--words", type=int, default=128_256)
    parser.add_argument("--dtype", default="bfloat16", choices=sorted(DTYPES))
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    options = parser.parse_args()
    model = wrap(random_model(options), None, "random")
    on_gpu = options.device.startswith("cuda")
    generator = torch.Generator().manual_seed(0)

    def now() -> float:
        if on_gpu:
            torch.cuda.synchronize()
        return time.monotonic()

    began = now()
    head = unembedding(model)
    print(f"unembedding: {now() - began:.2f} s")
    began = now()
    layer_table(model, 1, head, generator)
    print(f"one layer, warming up: {now() - began:.2f} s")
    del head
    own = torch.cuda.memory_allocated() if on_gpu else 0
    if on_gpu:
        torch.cuda.reset_peak_memory_stats()
    began = now()
    table = weight_table(model, generator)
    middle = now()
    found = summarise_weights(table, generator)
    took = now() - began
    print(f"{model.memories:,} memories in {options.layers} layers: {took:.1f} s")
    print(f"  {(middle - began) / options.layers:.2f} s per layer, summary {now() - middle:.2f} s")
    outside = sum(layer.cosines["key_value"].outside for layer in found.layers)
    print(f"  outside the band of mismatched pairs: {outside / options.layers:.3f} (chance 0.050)")
    if on_gpu:
        peak = torch.cuda.max_memory_allocated() - own
        print(f"  GPU memory beyond the model's {own / 2**30:.1f} GiB: {peak / 2**30:.2f} GiB")


if __name__ == "__main__":
    main()
