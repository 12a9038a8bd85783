"""What a user waits for at a first and at a second scan, beside a bare pass over the same text.

    python -m benchmarks.first_scan MODEL CORPUS [--sentences 200] [--rounds 3]
    python -m benchmarks.first_scan --vocabulary 160000 CORPUS

In every round the loaded model reads the text bare; then it is scanned with an empty cache, until
the scan can be read and until its values are ranked, and scanned again with the cache that this
left. Medians over rounds with the quartiles, by the wall clock or, with --clock cpu, in processor
time of all threads. With --vocabulary the model is a random Llama (6 x 1,024 memories, width 256)
with so many tokens, of which a text's words are the first.
"""

from __future__ import annotations

import argparse
import os
import re
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from itertools import islice
from pathlib import Path

import torch
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import Whitespace
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

from benchmarks.scan import CLOCK, bare, quartiles, seconds
from ffmem import demo
from ffmem.corpus.sentences import SentenceSettings
from ffmem.corpus.sources import Source, documents
from ffmem.execution.plan import ScanPlan, token_budget
from ffmem.execution.ready_shards import ready_shards
from ffmem.execution.run import run_scan
from ffmem.execution.single_process import start_progress
from ffmem.models.loading import load
from ffmem.scan.settings import ScanSettings


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model", nargs="?")
    parser.add_argument("corpus")
    parser.add_argument("--vocabulary", type=int)
    parser.add_argument("--sentences", type=int, default=200)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--clock", choices=["wall", "cpu"], default="wall")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    if options.clock == "cpu":
        CLOCK[0] = time.process_time
    began = time.perf_counter()
    with tempfile.TemporaryDirectory() as name:
        if options.vocabulary:
            save_random(Path(name), options.vocabulary)
        model = load(name if options.vocabulary else options.model)
    print(f"loaded in {time.perf_counter() - began:.1f} s; {model.vocab_size:,} tokens")
    plan = ScanPlan(
        Source(demo.corpus(options.corpus)),
        ScanSettings(signed=model.gated),
        SentenceSettings(),
        max_sentences=options.sentences,
    )
    progress = start_progress(token_budget(model, plan))
    batches = [one for part in ready_shards(model, plan, progress) for one in part.batches]
    names = ("bare", "first, readable", "first, whole", "second")
    took: dict[str, list[float]] = {name: [] for name in names}

    def scan(folder: Path, values: bool) -> Callable[[], object]:
        return lambda: run_scan(model, replace(plan, values=values), folder)

    for number in range(options.rounds + 1):
        with tempfile.TemporaryDirectory() as name:
            os.environ["FFMEM_CACHE"] = f"{name}/cache"
            one, other = Path(name) / "one", Path(name) / "other"
            plain = seconds(lambda: [bare(model, one.tokens) for one in batches], model.device)
            readable = seconds(scan(one, values=False), model.device)
            whole = readable + seconds(scan(one, values=True), model.device)
            second = seconds(scan(other, values=True), model.device)
        if number:  # in the first round loops are compiled
            for kind, found in zip(names, (plain, readable, whole, second), strict=True):
                took[kind].append(found)
    print(f"{options.sentences:,} sentences, bare pass {quartiles(took['bare'])[1]:.2f} s")
    for kind in names[1:]:
        pairs = zip(took[kind], took["bare"], strict=True)
        low, middle, high = quartiles([one / other for one, other in pairs])
        print(f"{kind} / bare = {middle:.2f} (quartiles {low:.2f} to {high:.2f})")


def save_random(folder: Path, tokens: int) -> None:
    """A random model whose tokens are words: those of the demo's text, and more that none has."""
    text = " ".join(islice(documents(Source(demo.corpus("demo"))), 2000))
    words = list(dict.fromkeys(["<unk>", "</s>", *re.findall(r"\w+|[^\w\s]", text)]))[:tokens]
    words += [f"word {number}" for number in range(tokens - len(words))]
    model = WordLevel({word: number for number, word in enumerate(words)}, unk_token="<unk>")
    tokenizer = Tokenizer(model)
    tokenizer.pre_tokenizer = Whitespace()
    kind = PreTrainedTokenizerFast(tokenizer_object=tokenizer, unk_token="<unk>", eos_token="</s>")
    kind.save_pretrained(folder)
    config = LlamaConfig(
        vocab_size=tokens,
        hidden_size=256,
        intermediate_size=1024,
        num_hidden_layers=6,
        num_attention_heads=4,
        bos_token_id=None,
        eos_token_id=1,
    )
    torch.manual_seed(0)
    LlamaForCausalLM(config).save_pretrained(folder)


if __name__ == "__main__":
    main()
