"""How far a 16-bit scan finds the triggers of a 32-bit one, and why not further.

    python -m benchmarks.precision MODEL CORPUS [--sentences N] [--device cuda]

Prints the mean overlap of the top 50 over all cells whose slots are filled, and the share of cells
with an overlap under 0.9. A trigger near the end of a list is lost when its lead over the best
sentence outside it is less than rounding changes a coefficient. So the overlap is also printed by
that lead, in units of the relative change that rounding makes (its median over triggers that both
scans found): of triggers with a clear lead nearly all must be found.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ffmem import demo
from ffmem.corpus.sentences import SentenceSettings
from ffmem.corpus.sources import Source
from ffmem.execution.run import ScanPlan, run_scan
from ffmem.models.loading import load
from ffmem.scan.settings import ScanSettings
from ffmem.store.scan_store import ScanStore

TOP = 50
LEADS = (0, 1, 2, 4, 8, 16)  # times what rounding changes


def main() -> None:
    """Scan twice and compare."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model")
    parser.add_argument("corpus")
    parser.add_argument("--sentences", type=int, default=20000)
    parser.add_argument("--device", default="auto")
    options = parser.parse_args()
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
    ours, theirs = (store.array("trigger_sentences") for store in (exact, rounded))
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


if __name__ == "__main__":
    main()
