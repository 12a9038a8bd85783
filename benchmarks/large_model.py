"""Whole `ffmem scan` and `ffmem analyse` commands on a large model with random weights.

    python -m benchmarks.large_model TEXT --tokenizer FOLDER                  # 8B, on a GPU
    python -m benchmarks.large_model demo --tokenizer FOLDER --layers 2 --width 64 --memories 512

The model (a Llama: gated, so two cells per memory) is written to a temporary folder, scanned, and
analysed at the paper's sample sizes, each by the command that a user types. Printed: seconds of the
commands, of each analysis by its own clock, and of what is around them: starting, loading, drawing.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import torch
from transformers import AutoTokenizer

from benchmarks.weights import random_model
from ffmem.analyses.result_files import read_result
from ffmem.store.folder import StudyFolder

ANALYSES = ("values", "composition", "refinement")


def main() -> None:
    """Measure once."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("text", help="a file, folder or glob of text, or demo")
    parser.add_argument("--tokenizer", required=True, help="folder whose tokenizer is taken")
    parser.add_argument("--layers", type=int, default=32)
    parser.add_argument("--width", type=int, default=4096)
    parser.add_argument("--memories", type=int, default=14_336, help="per layer")
    parser.add_argument("--sentences", type=int, default=6000)
    parser.add_argument("--size", default="paper", choices=("paper", "small"), help="of samples")
    parser.add_argument("--no-figures", action="store_true", help="where Altair is missing")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    options = parser.parse_args()
    options.dtype = "bfloat16" if options.device.startswith("cuda") else "float32"
    with tempfile.TemporaryDirectory() as folder:
        model, study = Path(folder) / "model", Path(folder) / "study"
        write_model(options, model)
        limits = ["--max-sentences", options.sentences, "--device", options.device]
        scan = run("scan", model, options.text, "-o", study, *limits)
        print(f"scan of {options.sentences:,} sentences: {scan:.1f} s", flush=True)
        choices = ["--only", ",".join(ANALYSES), "--size", options.size, "--device", options.device]
        choices += ["--no-figures"] * options.no_figures
        whole = run("analyse", study, *choices)
        own = {name: read_result(StudyFolder(study).result(name)).seconds for name in ANALYSES}
    for name, seconds in own.items():
        print(f"{name}: {seconds:.1f} s")
    inside = sum(own.values())
    print(f"analyse: {whole:.1f} s, analyses {inside:.1f} s, around them {whole - inside:.1f} s")


def write_model(options: argparse.Namespace, folder: Path) -> None:
    """The random model and the tokenizer in one folder; nothing of it stays in memory."""
    tokenizer = AutoTokenizer.from_pretrained(options.tokenizer)
    options.words = len(tokenizer)
    model = random_model(options)
    print(f"{sum(one.numel() for one in model.parameters()) / 1e9:.2f} billion parameters")
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    del model
    if torch.cuda.is_available():
        torch.cuda.empty_cache()


def run(*words: object) -> float:
    """Seconds that an ffmem command takes, from start to end."""
    began = time.perf_counter()
    subprocess.run([sys.executable, "-m", "ffmem", *map(str, words)], check=True)
    return time.perf_counter() - began


if __name__ == "__main__":
    main()
