"""The scan beside other libraries' ways to the strongest sentences, in one run on the CPU.

    pip install '.[peers]'
    python -m benchmarks.peers [--sentences 6000] [--rounds 3] [--corpus FILE] [--memory]

A random GPT-2 with ReLU (6 layers, d = 256, 1,024 memories) reads the same batches in turn, from
the first sentence on and from an empty state, as: a bare pass; ffmem's scan; TransformerLens,
`run_with_cache` of `mlp.hook_post` alone; nnsight, a trace that saves the same. The latter two keep
for every memory the 50 sentences with the largest coefficient by a top-k over the batch and what
was kept before, as their users would write it: the coefficient and the sentence. ffmem also keeps
the position in the sentence, settles ties by place, counts and sums over all prefixes, and 32
random triggers. With --memory each side reads alone in a process of its own, for the peak of its
resident memory above what it held before the first batch. For more sentences than the demo's text
has, name a file.
"""

from __future__ import annotations

import argparse
import copy
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from transformers import AutoTokenizer, GPT2Config, GPT2LMHeadModel

from benchmarks.scan import all_batches, bare, first_sentences, quartiles
from ffmem import demo
from ffmem.corpus.batches import Batch
from ffmem.models.language_model import LanguageModel
from ffmem.models.wrapping import wrap
from ffmem.scan.scanner import Scanner
from ffmem.scan.settings import ScanSettings

TOP = 50
Read = Callable[[Batch], object]


def gpt2(layers: int, width: int) -> LanguageModel:
    """A random GPT-2 with the demo model's tokenizer."""
    tokenizer = AutoTokenizer.from_pretrained(demo.MODEL)
    config = GPT2Config(
        vocab_size=len(tokenizer), n_positions=256, n_embd=width, n_layer=layers, n_head=8,
        activation_function="relu", resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0,
        bos_token_id=tokenizer.bos_token_id, eos_token_id=tokenizer.eos_token_id,
    )  # fmt: skip
    torch.manual_seed(0)
    return wrap(GPT2LMHeadModel(config).eval(), tokenizer)


class Strongest:
    """The 50 largest coefficients of each memory, one per sentence, and whose they are."""

    def __init__(self, layers: int) -> None:
        self.values: list[Tensor | None] = [None] * layers
        self.sentences: list[Tensor | None] = [None] * layers

    def take(self, layer: int, m: Tensor, batch: Batch) -> None:
        """A layer's coefficients [row, column, memory] of one batch."""
        columns = torch.arange(m.shape[1])
        inside = (columns >= batch.bos) & (columns < (batch.lengths - 1 + batch.bos)[:, None])
        largest = m.masked_fill(~inside[:, :, None], 0).amax(1)
        numbers = batch.sentences[:, None].expand_as(largest)
        if self.values[layer] is not None:
            largest = torch.cat([self.values[layer], largest])  # type: ignore[list-item]
            numbers = torch.cat([self.sentences[layer], numbers])  # type: ignore[list-item]
        self.values[layer], order = largest.topk(min(TOP, len(largest)), dim=0)
        self.sentences[layer] = numbers.gather(0, order)


def by_transformer_lens(model: LanguageModel) -> Read:
    """`run_with_cache` with a filter, no unembedding, and a top-k."""
    from transformer_lens.model_bridge import TransformerBridge

    layers = len(model.layers)
    with tempfile.TemporaryDirectory() as folder:
        model.model.save_pretrained(folder)
        bridge = TransformerBridge.boot_transformers(
            folder, hf_model=copy.deepcopy(model.model), tokenizer=model.tokenizer, device="cpu"
        )
    names = [f"blocks.{layer}.mlp.hook_post" for layer in range(layers)]
    found = Strongest(layers)

    @torch.inference_mode()
    def read(batch: Batch) -> None:
        _, cache = bridge.run_with_cache(
            batch.tokens, names_filter=names, stop_at_layer=layers, return_cache_object=False
        )
        for layer, name in enumerate(names):
            found.take(layer, cache[name], batch)

    read.found = found  # type: ignore[attr-defined]
    return read


def by_nnsight(model: LanguageModel) -> Read:
    """A trace that saves every activation, and a top-k."""
    from nnsight import NNsight

    wrapped: Any = NNsight(model.model.base_model)
    found = Strongest(len(model.layers))

    @torch.inference_mode()
    def read(batch: Batch) -> None:
        with wrapped.trace(batch.tokens, use_cache=False):
            saved = list().save()
            for block in wrapped.h:
                saved.append(block.mlp.act.output)
        for layer, m in enumerate(saved):
            found.take(layer, m, batch)

    read.found = found  # type: ignore[attr-defined]
    return read


def by_ffmem(model: LanguageModel) -> Read:
    """The scan."""
    scanner = Scanner(model, ScanSettings(top=TOP))

    def read(batch: Batch) -> None:
        with scanner:
            scanner.read(batch)

    read.scanner = scanner  # type: ignore[attr-defined]
    return read


def by_bare_pass(model: LanguageModel) -> Read:
    """Nothing but the model."""
    return lambda batch: bare(model, batch.tokens)


SIDES: dict[str, Callable[[LanguageModel], Read]] = {
    "bare": by_bare_pass,
    "ffmem": by_ffmem,
    "TransformerLens": by_transformer_lens,
    "nnsight": by_nnsight,
}


def agreement(scanner: Scanner, found: Strongest) -> float:
    """The share of a peer's sentences that fire, over all memories, that the scan kept too."""
    shares = []
    for number, state in scanner.state().items():
        ours = state.triggers.places // 65_536
        theirs, values = found.sentences[number - 1], found.values[number - 1]
        assert theirs is not None
        assert values is not None
        same = (theirs.T[:, :, None] == ours[:, None, :]).any(2)
        shares.append(float(same[values.T > 0].float().mean()))
    return sum(shares) / len(shares)


def seconds(read: Read, batch: Batch) -> float:
    """How long one batch takes."""
    began = time.perf_counter()
    read(batch)
    return time.perf_counter() - began


def one_round(
    model: LanguageModel, ready: list[Batch]
) -> tuple[dict[str, float], dict[str, float]]:
    """Each side's seconds over a bare pass's, all in turn; and the peers' agreement with ours."""
    sides = {name: make(model) for name, make in SIDES.items()}
    total = dict.fromkeys(sides, 0.0)
    for number, batch in enumerate(ready):
        names = list(sides)
        for name in names[number % 4 :] + names[: number % 4]:
            total[name] += seconds(sides[name], batch)
    scanner: Scanner = sides["ffmem"].scanner  # type: ignore[attr-defined]
    peers = {name: read.found for name, read in sides.items() if hasattr(read, "found")}
    agree = {name: agreement(scanner, found) for name, found in peers.items()}
    return {name: took / total["bare"] for name, took in total.items()}, agree


def memory_of(field: str) -> float:
    """A field of this process's memory, in MiB."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) / 1024 for line in lines if line.startswith(field))


@torch.inference_mode()
def print_memory(side: str, model: LanguageModel, ready: list[Batch]) -> None:
    """Let one side read everything alone; its peak above what the process held before."""
    read = SIDES[side](model)
    before = memory_of("VmRSS")
    Path("/proc/self/clear_refs").write_text("5")  # forget the peak so far
    for batch in ready:
        read(batch)
    print(f"{side:16} at most {memory_of('VmHWM') - before:,.0f} MiB above {before:,.0f}")


def main() -> None:
    """Print what each side costs, over some rounds after one that is not counted."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sentences", type=int, default=600)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--corpus", default="demo")
    parser.add_argument("--memory", action="store_true", help="peak memory instead of time")
    parser.add_argument("--alone", choices=SIDES, help="the memory of one side, in this process")
    options = parser.parse_args()
    if options.memory and not options.alone:
        for side in SIDES:
            command = [sys.executable, "-m", "benchmarks.peers", *sys.argv[1:], "--alone", side]
            subprocess.run(command, check=True)
        return
    torch.set_num_threads(options.threads)
    model = gpt2(6, 256)
    source = first_sentences(model, options.corpus)
    ready = list(all_batches(model, source, options.sentences, 2048))
    if options.alone:
        print_memory(options.alone, model, ready)
        return
    one_round(model, ready[-2:])  # first use of everything
    rounds = [one_round(model, ready) for _ in range(options.rounds)]
    tokens = sum(int(batch.lengths.sum()) for batch in ready)
    print(f"{options.sentences} sentences, {tokens:,} tokens, {len(ready)} batches, ", end="")
    print(f"{options.rounds} rounds, {options.threads} threads")
    for name in rounds[0][0]:
        low, middle, high = quartiles([ratios[name] for ratios, _ in rounds])
        print(f"{name:16} {middle:.2f} of a bare pass (quartiles {low:.2f} to {high:.2f})")
    for name, share in rounds[-1][1].items():
        print(f"{name}: {share:.4f} of its sentences are among ours")
    print(f"TransformerLens {version('transformer_lens')}, nnsight {version('nnsight')}")


if __name__ == "__main__":
    main()
