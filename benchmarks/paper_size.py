"""The scan at the paper's size on a GPU: against a bare pass, and as a whole run.

    python -m benchmarks.paper_size TEXT... --tokenizer FOLDER [--seconds 300]
    python -m benchmarks.paper_size TEXT... --model FOLDER     # a trained one; the ratio alone

A random OPT (16 layers, d = 1024, 4,096 memories per layer, ReLU, pre-norm, tied, no final norm) in
bfloat16 reads real text. Printed: how fast text is made ready alone; the ratio of the scan to a
bare pass on the same batches, both sides in turn, from the first sentence on, for some token
budgets; and a whole scan, file to store. Speed does not depend on what the weights say; what enters
the triggers does, a little: a trained model's memories fire more rarely.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import islice
from pathlib import Path

import torch
from transformers import AutoTokenizer, OPTConfig, OPTForCausalLM

from benchmarks.scan import bare, in_turn, wait
from ffmem.corpus.batches import Batch
from ffmem.corpus.sentences import CorpusRequest, Sentences, SentenceSettings
from ffmem.corpus.sources import Source
from ffmem.corpus.tokeniser_processes import tokenise_in_processes
from ffmem.execution import single_process
from ffmem.execution.plan import ScanPlan
from ffmem.execution.ready_shards import shard_batches, shards_per_batch
from ffmem.execution.run import run_scan
from ffmem.models.language_model import LanguageModel
from ffmem.models.loading import load
from ffmem.scan.scanner import Scanner
from ffmem.scan.settings import ScanSettings

PAPER_TOKENS = 103e6  # of WikiText-103


def paper_shape(words: int, small: bool, **more: int) -> OPTConfig:
    """The paper's shape with so many words, or a small one."""
    width = 64 if small else 1024
    return OPTConfig(
        vocab_size=words,
        hidden_size=width,
        num_hidden_layers=2 if small else 16,
        ffn_dim=4 * width,
        num_attention_heads=8,
        word_embed_proj_dim=width,
        max_position_embeddings=512,
        activation_function="relu",
        do_layer_norm_before=True,
        _remove_final_layer_norm=True,
        **more,
    )


def make_model(tokenizer_folder: str, into: Path, small: bool) -> None:
    """Write the random model into a folder."""
    tokenizer = AutoTokenizer.from_pretrained(tokenizer_folder)
    config = paper_shape(len(tokenizer), small)
    torch.manual_seed(0)
    OPTForCausalLM(config).to(torch.bfloat16).save_pretrained(into)
    tokenizer.save_pretrained(into)


@contextmanager
def section(name: str) -> Iterator[None]:
    """A heading, and at the end how long it took."""
    print(f"\n## {name}", flush=True)
    began = time.perf_counter()
    yield
    print(f"({time.perf_counter() - began:.1f} s)", flush=True)


def read_shards(reading: CorpusRequest, model: LanguageModel, shards: int) -> list[Sentences]:
    """The first shards, and how fast they come when nothing else runs."""
    began, first, found = time.perf_counter(), 0.0, []
    for shard in islice(tokenise_in_processes(reading, model.tokenizer), shards):
        first = first or time.perf_counter() - began
        found.append(shard.sentences)
    took = time.perf_counter() - began
    tokens = sum(len(sentences.tokens) for sentences in found)
    print(
        f"{len(found)} shards, {sum(map(len, found)):,} sentences, {tokens:,} tokens: "
        f"{tokens / took:,.0f} tokens/s, the first after {first:.1f} s"
    )
    return found


def all_batches(model: LanguageModel, found: list[Sentences], budget: int) -> list[Batch]:
    """The batches that a scan makes of these shards."""
    ready: list[Batch] = []
    start, first = single_process.start_progress(budget), 0
    while first < len(found):
        group = found[first : first + shards_per_batch(first, start)]
        ready += shard_batches(model, Sentences.join(group), budget)
        first += len(group)
    return ready


def show_ratio(model: LanguageModel, found: list[Sentences], budget: int) -> None:
    """Scan against bare pass over all of it, from an empty state."""
    ready = all_batches(model, found, budget)
    tokens = sum(int(batch.lengths.sum()) for batch in ready)
    cells = sum(batch.tokens.numel() for batch in ready)
    for batch in ready[:3]:
        bare(model, batch.tokens)
    with Scanner(model, ScanSettings()) as throw_away:  # compiles the kernels
        for batch in ready[:3]:
            throw_away.read(batch)
        wait(model.device)
    with Scanner(model, ScanSettings()) as scanner:
        curve = in_turn(model, scanner, ready, 0)
    print(
        f"budget {budget:,}: {len(ready)} batches, padding and BOS {1 - tokens / cells:.1%}; "
        f"bare {tokens / sum(curve.bare):,.0f} tokens/s, scan {tokens / sum(curve.scan):,.0f}"
    )
    curve.show()


def whole_run(model: LanguageModel, source: Source, limit: int | None, out: Path) -> float:
    """One whole scan, file to store; returns tokens per second of the scan."""
    plan = ScanPlan(source, ScanSettings(), SentenceSettings(), max_sentences=limit)
    began = time.perf_counter()
    store = run_scan(model, plan, out)
    took = time.perf_counter() - began
    counts, seconds = store.manifest.counts, store.manifest.seconds
    speed = counts["tokens"] / seconds
    print(
        f"{counts['tokens']:,} tokens, {counts['sentences']:,} sentences, "
        f"{counts['sentences_kept']:,} kept: scan {seconds:.1f} s, {speed:,.0f} tokens/s; "
        f"with the store {took:.1f} s; 103 M tokens would take {PAPER_TOKENS / speed:.0f} s"
    )
    size = sum(path.stat().st_size for path in out.rglob("*") if path.is_file())
    print(f"store {size / 2**20:,.0f} MiB")
    return speed


def main() -> None:
    """Run all of it, the whole run sized so that it ends in time."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("text", help="a file, folder or glob of text")
    parser.add_argument("--tokenizer", help="folder whose tokenizer is taken")
    parser.add_argument("--model", help="folder of a model to take instead of the random one")
    parser.add_argument("--seconds", type=float, default=300, help="for everything")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--shards", type=int, default=40, help="2 MiB each, for the ratios")
    parser.add_argument("--budgets", default="16384,32768,65536")
    parser.add_argument("--small", action="store_true", help="a tiny model, to try this script")
    options = parser.parse_args()
    if not (options.model or options.tokenizer):
        parser.error("give --tokenizer, or --model")
    torch.backends.cuda.enable_cudnn_sdp(False)  # as in a scan, for both sides: scan/scanner.py
    began = time.perf_counter()
    dtype = "bfloat16" if options.device == "cuda" else "float32"
    print(torch.__version__, torch.cuda.get_device_name() if options.device == "cuda" else "cpu")
    with tempfile.TemporaryDirectory() as folder:
        with section("model"):
            if not options.model:
                make_model(options.tokenizer, Path(folder) / "model", options.small)
            name = options.model or str(Path(folder) / "model")
            model = load(name, device=options.device, dtype=dtype)
        source = Source(options.text)
        reading = CorpusRequest(source, SentenceSettings(max_tokens=511))
        with section("text made ready alone"):
            found = read_shards(reading, model, options.shards)
        budgets = [int(budget) for budget in options.budgets.split(",")]
        for budget in budgets:
            with section(f"scan / bare, budget {budget:,}"):
                part = found if budget == budgets[-1] else found[: max(1, len(found) // 3)]
                show_ratio(model, part, budget)
        if options.model:
            return
        with section("whole run, small, to know the speed"):
            speed = whole_run(model, source, 200_000, Path(folder) / "first")
        left = options.seconds - (time.perf_counter() - began) - 60
        per_sentence = sum(len(s.tokens) for s in found) / sum(map(len, found))
        limit = int(max(left, 20) * speed / per_sentence * 0.8)
        with section("whole run"):
            whole_run(model, source, limit, Path(folder) / "second")


if __name__ == "__main__":
    main()
