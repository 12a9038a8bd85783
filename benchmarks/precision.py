"""How far a 16-bit scan finds the triggers of a 32-bit one, and why not further.

    python -m benchmarks.precision MODEL CORPUS [--sentences N] [--device cuda]
    python -m benchmarks.precision MODEL CORPUS --argmaxes 4000 [--device cuda]

Prints the mean overlap of the top 50 over all cells whose slots are filled, and the share of cells
with an overlap under 0.9. A trigger near the end of a list is lost when its lead over the best
sentence outside it is less than rounding changes a coefficient. So the overlap is also printed by
that lead, in units of the relative change that rounding makes (its median over triggers that both
scans found): of triggers with a clear lead nearly all must be found.

With --argmaxes, what section 5 of the paper costs in 32 bits: so many prefixes are read by the
model in 16 bits and by its copy in 32; printed are seconds and peak memory of both, and in how many
cases (prefix, layer) the top token of r, y and o is another.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from ffmem import demo
from ffmem.analyses.inputs.layer_readings import SampleRecord, record_sample
from ffmem.analyses.inputs.prefix_sample import PrefixSample, draw_sample
from ffmem.corpus.sentences import SentenceSettings, tokenise
from ffmem.corpus.shards import shards
from ffmem.corpus.sources import Source, documents
from ffmem.execution.run import ScanPlan, run_scan, sentence_settings
from ffmem.models.language_model import LanguageModel
from ffmem.models.loading import load
from ffmem.models.wrapping import float32_copy
from ffmem.scan.settings import ScanSettings
from ffmem.store.scan_store import ScanStore

TOP = 50
SHARDS = 16  # of the corpus that prefixes are drawn from
LEADS = (0, 1, 2, 4, 8, 16)  # times what rounding changes


def main() -> None:
    """Scan twice and compare."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model")
    parser.add_argument("corpus")
    parser.add_argument("--sentences", type=int, default=20000)
    parser.add_argument("--device", default="auto")
    parser.add_argument("--argmaxes", type=int, metavar="PREFIXES")
    options = parser.parse_args()
    if options.argmaxes:
        argmaxes(options.model, demo.corpus(options.corpus), options.argmaxes, options.device)
        return
    overlap(options.model, demo.corpus(options.corpus), options.sentences, options.device)


def overlap(name: str, corpus: str, sentences: int, device: str) -> None:
    """Scan in both precisions and report; one slot more than the top, to know the runner-up."""
    with tempfile.TemporaryDirectory() as folder:
        stores = []
        for dtype in ("float32", "bfloat16"):
            model = load(name, device=device, dtype=dtype)
            plan = ScanPlan(
                Source(corpus),
                ScanSettings(top=TOP + 1, sample=0, signed=model.gated),
                SentenceSettings(),
                max_sentences=sentences,
            )
            stores.append(run_scan(model, plan, Path(folder) / dtype))
        report(*stores)


def report(exact: ScanStore, rounded: ScanStore) -> None:
    """Overlap of sentences, cell by cell and by how clear a trigger's lead is."""
    ours, theirs = (np.asarray(store.array("trigger_sentences")) for store in (exact, rounded))
    filled = [
        exact.slots(slice(None)).mask,
        rounded.slots(slice(None), top=TOP).mask,
    ]
    full = filled[0].all(axis=1) & filled[1].all(axis=1)
    found = np.zeros((len(ours), TOP), dtype=bool)
    slots = np.full((len(ours), TOP), -1)
    for row in np.flatnonzero(full):
        same = ours[row, :TOP, None] == theirs[row, None, :TOP]
        found[row], slots[row] = same.any(axis=1), same.argmax(axis=1)
    shared = found[full].mean(axis=1)
    print(
        f"top-{TOP} overlap of bfloat16 with float32: mean {shared.mean():.4f}, "
        f"{np.mean(shared < 0.9):.2%} of cells under 0.9 "
        f"({full.sum():,} filled cells, {exact.manifest.counts['sentences']:,} sentences)"
    )
    means = []
    for layer in exact.memories:
        rows = exact.cells.rows_of(layer)
        some = full[rows]
        means.append(found[rows][some].mean() if some.any() else float("nan"))
    print("  by layer: " + ", ".join(f"{mean:.3f}" for mean in means))
    by_lead(exact, rounded, full, (found, slots))


def by_lead(
    exact: ScanStore,
    rounded: ScanStore,
    full: NDArray[np.bool_],
    matched: tuple[NDArray[np.bool_], NDArray[Any]],
) -> None:
    """How many triggers are found, by their lead over the first sentence left out."""
    found, slots = (part[full] for part in matched)
    m = exact.array("trigger_coefficients")[full]
    again = np.take_along_axis(rounded.array("trigger_coefficients")[full], slots, axis=1)
    change = float(np.median((np.abs(again - m[:, :TOP]) / m[:, :TOP])[found]))
    lead = (m[:, :TOP] - m[:, TOP:]) / m[:, :TOP]
    print(
        f"  rounding changes a coefficient by {change:.2%} (median); the 50th leads the 51st by "
        f"{np.median(lead[:, -1]):.2%} (median), by less than that change in "
        f"{np.mean(lead[:, -1] < change):.0%} of cells"
    )
    for low, high in zip(LEADS, (*LEADS[1:], np.inf), strict=True):
        inside = (lead >= low * change) & (lead < high * change)
        if inside.any():
            print(
                f"  lead {low} to {high} times the change: {np.mean(inside):6.1%} of triggers, "
                f"{found[inside].mean():.4f} of them found"
            )


def argmaxes(name: str, corpus: str, count: int, device: str) -> None:
    """Read the same prefixes in 16 and in 32 bits; say what it costs and what it changes."""
    model = load(name, device=device, dtype="bfloat16")
    cut = sentence_settings(model, ScanPlan(Source(corpus), ScanSettings(), SentenceSettings()))
    parts = (tokenise(part, model.tokenizer, cut) for part in shards(documents(Source(corpus))))
    sample = draw_sample(islice(parts, SHARDS), count)
    record_sample(model, sample.rows(torch.arange(min(64, count))))  # what is set up once
    began = time.perf_counter()
    exact = float32_copy(model)
    print(f"{len(sample):,} prefixes; the copy took {time.perf_counter() - began:.1f} s")
    records = [timed_record(one, sample) for one in (model, exact)]
    for field in ("residual", "feedforward", "output"):
        one, other = (getattr(record.predictions[0], field) for record in records)
        print(f"  top token of {field} differs in {(one != other).double().mean():.2%} of cases")
    print(f"  the model's output differs in {changed_share(*records):.2%} of prefixes")


def changed_share(one: SampleRecord, other: SampleRecord) -> float:
    """The share of prefixes after which the model says another token."""
    return float((one.output != other.output).double().mean())


def timed_record(model: LanguageModel, sample: PrefixSample) -> SampleRecord:
    """Section 5's reading with its seconds and, on a GPU, its peak of memory."""
    on_gpu = model.device.type == "cuda"
    if on_gpu:
        torch.cuda.reset_peak_memory_stats()
    began = time.perf_counter()
    found = record_sample(model, sample)
    took = time.perf_counter() - began
    peak = f", peak {torch.cuda.max_memory_allocated() / 2**30:.2f} GiB" if on_gpu else ""
    print(f"  {str(model.dtype).removeprefix('torch.')}: {took:.1f} s{peak}")
    return found


if __name__ == "__main__":
    main()
