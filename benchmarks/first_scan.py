"""What a user waits for at a first and at a second scan, beside a bare pass over the same text.

    python -m benchmarks.first_scan MODEL CORPUS [--sentences 200] [--rounds 3]

In every round the loaded model reads the text bare; then it is scanned with an empty cache, until
the scan can be read and until its values are ranked, and scanned again with the cache that this
left. Wall clock, medians over rounds with the quartiles.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from benchmarks.scan import bare, quartiles, seconds
from ffmem import demo
from ffmem.corpus.sentences import SentenceSettings
from ffmem.corpus.sources import Source
from ffmem.execution.plan import ScanPlan, token_budget
from ffmem.execution.ready_shards import ready_shards
from ffmem.execution.run import run_scan
from ffmem.execution.single_process import start_progress
from ffmem.models.loading import load
from ffmem.scan.settings import ScanSettings


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model")
    parser.add_argument("corpus")
    parser.add_argument("--sentences", type=int, default=200)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    began = time.perf_counter()
    model = load(options.model)
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


if __name__ == "__main__":
    main()
