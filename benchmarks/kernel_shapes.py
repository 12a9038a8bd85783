"""How fast the GPU kernel reads coefficients, for several shapes of its programs.

    python -m benchmarks.kernel_shapes

Rows of like length, as in a scan of real text, of one layer of the paper's size, and thresholds
that nothing passes: what is timed is the one read of all coefficients. The time of a plain copy on
the same tensor stands beside it as the most that memory can do.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable
from itertools import product

import torch
from torch import Tensor

from ffmem.corpus.batches import Batch
from ffmem.scan import triton_pass
from ffmem.scan.batch_rows import BatchRows
from ffmem.scan.settings import ScanSettings
from ffmem.scan.triggers import Sample, Thresholds, Triggers
from ffmem.scan.triton_pass import CellLists, TritonPass

MEMORIES = 4096
BLOCKS, WARPS, ROWS = (128, 256, 512), (1, 2, 4), (2, 4, 8)
SENTENCES, WIDTH = 2600, 25


def main() -> None:
    """Print how fast all shapes are, the fastest last."""
    m = torch.randn(SENTENCES, WIDTH, MEMORIES, device="cuda").relu_().to(torch.bfloat16)
    size = m.numel() * m.element_size()
    copy = seconds(lambda: m.clone())
    print(f"a copy moves {2 * size / copy / 1e12:.2f} TB/s", flush=True)
    found = {}
    for shape in product(BLOCKS, WARPS, ROWS):
        triton_pass.BLOCK, triton_pass.WARPS, triton_pass.ROWS = shape
        found[shape] = seconds(launch_of(m))
    for shape in sorted(found, key=lambda shape: -found[shape]):
        print(f"  block, warps, rows {shape}: {size / found[shape] / 1e12:.2f} TB/s")


def launch_of(m: Tensor) -> Callable[[], object]:
    """The kernel over these coefficients, ready to be launched."""
    rows, width, memories = m.shape
    lengths = torch.full((rows,), width - 1)
    batch = Batch(torch.zeros(rows, width, dtype=torch.int64), lengths, torch.arange(rows), 1)
    settings = ScanSettings(include_final=True)
    kernel = TritonPass(memories, settings, CellLists(memories, m.device))
    ready = BatchRows.of(batch, settings).to(m.device)
    high = torch.full((memories,), 1e9, device=m.device)
    thresholds = Thresholds(
        high, high.long(), torch.full((memories,), -1, dtype=torch.int32, device=m.device)
    )
    tallies = (torch.zeros_like(high, dtype=torch.int64), torch.zeros_like(high, dtype=torch.int64))
    state = (
        Triggers.empty(memories, settings.top, device=m.device),
        Sample.empty(memories, settings.sample, m.device),
        thresholds,
    )
    return lambda: kernel.take_in(m, ready, state, tallies)


def seconds(work: Callable[[], object]) -> float:
    """The median time of some runs on the GPU."""
    work()
    taken = []
    for _ in range(15):
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        torch.cuda._sleep(10_000_000)  # so that the host is ahead, and its own time is not seen
        begin.record()
        work()
        end.record()
        end.synchronize()
        taken.append(begin.elapsed_time(end) / 1000)
    return statistics.median(taken)


if __name__ == "__main__":
    main()
