"""Sections 4 and 5 of the paper at its size: seconds and peak memory of each analysis.

    python -m benchmarks.paper_size_analyses TEXT [--sentences 20000] [--sample 4000]

A random OPT (16 layers, d = 1024, 4,096 memories per layer) with the paper's 267,744 words reads
the text, word by word; what the analyses cost does not depend on what the weights say. Memory is
what the device allocated above the model's own; on a CPU, what the process holds at most.
"""

from __future__ import annotations

import argparse
import re
import resource
import tempfile
import time
from collections import Counter
from pathlib import Path

import torch
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import OPTForCausalLM, PreTrainedTokenizerFast

from benchmarks.paper_size import paper_shape
from ffmem.analyses.analysis import Sizes
from ffmem.analyses.inputs.study_inputs import StudyInputs
from ffmem.analyses.runner import make_result
from ffmem.corpus.sentences import SentenceSettings
from ffmem.corpus.sources import Source, documents
from ffmem.execution.plan import ScanPlan
from ffmem.execution.run import run_scan
from ffmem.models.language_model import LanguageModel
from ffmem.models.wrapping import wrap
from ffmem.scan.settings import ScanSettings

NAMES = ("values", "composition", "refinement", "last-layer")


def word_tokenizer(text: str, words: int) -> PreTrainedTokenizerFast:
    """One token per word: the text's most frequent ones, then made-up ones up to the number."""
    counts: Counter[str] = Counter()
    for number, document in enumerate(documents(Source(text))):
        counts.update(re.findall(r"\w+|[^\w\s]+", document))
        if number == 50_000:
            break
    known = ["</s>", "<unk>", *(word for word, _ in counts.most_common(words - 2))]
    vocabulary = {word: index for index, word in enumerate(known[:words])}
    vocabulary |= {f"@filler{index}": index for index in range(len(vocabulary), words)}
    inner = Tokenizer(models.WordLevel(vocabulary, unk_token="<unk>"))
    inner.pre_tokenizer = pre_tokenizers.Whitespace()
    return PreTrainedTokenizerFast(tokenizer_object=inner, bos_token="</s>", unk_token="<unk>")


def paper_model(text: str, words: int, small: bool, device: str) -> LanguageModel:
    """The paper's shape, random; bfloat16 on a GPU."""
    config = paper_shape(words, small, bos_token_id=0, pad_token_id=1, eos_token_id=0)
    torch.manual_seed(0)
    dtype = torch.bfloat16 if device == "cuda" else torch.float32
    with torch.device(device):
        model = OPTForCausalLM(config).to(dtype).eval()
    return wrap(model, word_tokenizer(text, words), "paper-size")


def peak(device: str) -> int:
    """Bytes at most since the last reset on a GPU, or of the whole process."""
    if device == "cuda":
        return torch.cuda.max_memory_allocated()
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def main() -> None:
    """Scan a little, then time each analysis."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("text")
    parser.add_argument("--sentences", type=int, default=20_000)
    parser.add_argument("--sample", type=int, default=4000)
    parser.add_argument("--small", action="store_true", help="a small model, to try the script")
    choice = parser.parse_args()
    device = "cuda" if torch.cuda.is_available() else "cpu"
    words = 20_000 if choice.small else 267_744
    model = paper_model(choice.text, words, choice.small, device)
    assert model.vocab_size == words
    with tempfile.TemporaryDirectory() as folder:
        plan = ScanPlan(
            Source(choice.text),
            ScanSettings(),
            SentenceSettings(),
            max_sentences=choice.sentences,
        )
        store = run_scan(model, plan, Path(folder))
        subject = StudyInputs(model, store, Sizes(sample=choice.sample))
        before = torch.cuda.memory_allocated() if device == "cuda" else 0
        total = 0.0
        print(f"{model.memories:,} values x {words:,} tokens, {choice.sample:,} prefixes, {device}")
        for name in NAMES:
            if device == "cuda":
                torch.cuda.reset_peak_memory_stats()
            began = time.perf_counter()
            make_result(subject, name, Path(folder))
            took = time.perf_counter() - began
            total += took
            print(
                f"{name:<12} {took:7.1f} s  peak {(peak(device) - before) / 2**30:.2f} GiB",
                flush=True,
            )
        print(f"together     {total:7.1f} s (target: 300 s, 2 GB)")


if __name__ == "__main__":
    main()
