"""How long and in how much memory states merge: the end of a scan on many workers.

    python -m benchmarks.merging [--shards 1000] [--memories 458752] [--layers 32] [--rounds 3]

Two measurements. A tree over as many simulated states as asked for, of one layer out of
`--layers` (the layers are alike, so the whole takes that many times as long); and two whole
states, as files, merged into a third as a worker does it. Making the states is not timed.
"""

from __future__ import annotations

import argparse
import resource
import statistics
import tempfile
import time
from pathlib import Path

import torch

from ffmem.corpus.kept_sentences import KeptSentences
from ffmem.execution.worker import merge_parts
from ffmem.scan.layer_scan import LayerState
from ffmem.scan.tallies import Tallies
from ffmem.scan.triggers import Sample, Triggers
from ffmem.store.checkpoint import (
    Checkpoint,
    ScanProgress,
    ShardCounts,
    read_checkpoint,
    save_checkpoint,
)

TOP, SAMPLE = 50, 32


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--shards", type=int, default=1000)
    parser.add_argument("--memories", type=int, default=458_752)
    parser.add_argument("--layers", type=int, default=32)
    parser.add_argument("--rounds", type=int, default=3, help="merges of two whole states")
    parser.add_argument("--threads", type=int, default=1)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    cells = options.memories // options.layers
    tree(options.shards, cells, options.layers)
    whole(cells, options.layers, options.rounds)


def simulated(cells: int, shard: int) -> LayerState:
    """The state of one layer after one shard: full lists in order, places of that shard alone."""
    generator = torch.Generator().manual_seed(shard)
    strength = torch.rand(cells, TOP, generator=generator).sort(dim=1, descending=True).values
    priorities = torch.randint(0, 2**31 - 2, (cells, SAMPLE), generator=generator)
    first = shard * 2**32
    return LayerState(
        Triggers(strength, first + torch.randint(0, 2**30, (cells, TOP), generator=generator)),
        Tallies(
            torch.ones(cells, dtype=torch.int64),
            torch.ones(cells, dtype=torch.int64),
            strength[:, 0].clone(),
            1,
            1,
        ),
        Sample(
            torch.rand(cells, SAMPLE, generator=generator),
            first + torch.randint(0, 2**30, (cells, SAMPLE), generator=generator),
            priorities.sort(dim=1).values.int(),
        ),
    )


def tree(shards: int, cells: int, layers: int) -> None:
    """Merge as soon as two states of one height are there, so few are held at a time."""
    held: list[tuple[int, LayerState]] = []  # (height, state)
    seconds: list[float] = []

    def join() -> None:
        (height, right), (_, left) = held.pop(), held.pop()
        began = time.perf_counter()
        state = left.merge(right)
        seconds.append(time.perf_counter() - began)
        held.append((height + 1, state))

    for shard in range(shards):
        held.append((0, simulated(cells, shard)))
        while len(held) > 1 and held[-1][0] == held[-2][0]:
            join()
    while len(held) > 1:
        join()
    low, middle, high = statistics.quantiles(seconds, n=4)
    print(
        f"{shards:,} states of {cells:,} cells: {len(seconds)} merges in {sum(seconds):.1f} s, "
        f"median {middle * 1e3:.1f} ms (quartiles {low * 1e3:.1f} to {high * 1e3:.1f})"
    )
    print(
        f"all {layers} layers: {sum(seconds) * layers:.0f} s on one thread, "
        f"{middle * layers:.2f} s a merge; peak memory {peak():.2f} GB"
    )


def whole(cells: int, layers: int, rounds: int) -> None:
    """Two parts on disk into one, as a worker merges them."""
    with tempfile.TemporaryDirectory() as folder:
        paths = [Path(folder) / f"{name}.safetensors" for name in ("one", "other", "merged")]
        for number, path in enumerate(paths[:2]):
            state = {n + 1: simulated(cells, number * layers + n) for n in range(layers)}
            part = Checkpoint(
                "k", ScanProgress(), state, KeptSentences.empty(), {number: ShardCounts(1, 1, 0)}
            )
            save_checkpoint(path, part)
            del state, part
        size = paths[0].stat().st_size
        times = [merge_files(paths) for _ in range(rounds)]
    for name, column in zip(("read", "merge", "write"), zip(*times, strict=True), strict=True):
        print(f"two parts of {size / 1e6:.0f} MB, {name}: {statistics.median(column):.2f} s")
    print(f"peak memory {peak():.2f} GB")


def merge_files(paths: list[Path]) -> tuple[float, float, float]:
    """Seconds to read two parts, to merge them, and to write the third."""
    began = time.perf_counter()
    one, other = (read_checkpoint(path) for path in paths[:2])
    read = time.perf_counter()
    merged = merge_parts(one, other)
    done = time.perf_counter()
    save_checkpoint(paths[2], merged)
    return read - began, done - read, time.perf_counter() - done


def peak() -> float:
    """The most memory this process has had, in GB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6


if __name__ == "__main__":
    main()
