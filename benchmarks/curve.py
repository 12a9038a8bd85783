"""Two sides timed in turn on the same batches, and their ratio as the scan goes on."""

from __future__ import annotations

import statistics
from dataclasses import dataclass, field

EDGES = (0, 1_000, 3_000, 10_000, 30_000, 100_000, 200_000, 400_000, 800_000, 1_600_000, 10**12)


@dataclass
class Curve:
    """Seconds of the bare side and of the scan, and the sentences read, group by group."""

    bare: list[float] = field(default_factory=list)
    scan: list[float] = field(default_factory=list)
    sentences: list[int] = field(default_factory=list)
    tokens: list[int] = field(default_factory=list)

    def ratio(self, first: int = 0, last: int | None = None) -> float:
        """Scan over bare, of the groups from `first` to `last`."""
        return sum(self.scan[first:last]) / sum(self.bare[first:last])

    def group_at(self, sentence: int) -> int:
        """The group that reads the sentence of that number, counted from 0."""
        read = 0
        for group, count in enumerate(self.sentences):
            read += count
            if read > sentence:
                return group
        return len(self.sentences)

    def show(self) -> None:
        """One line a stretch of the scan, and the second half of it with its spread."""
        for start, stop in zip(EDGES, EDGES[1:], strict=False):
            first, last = self.group_at(start), self.group_at(stop)
            if first < last:
                end = min(stop, sum(self.sentences))
                print(f"  sentences {start:>9,} to {end:>9,}: {self.ratio(first, last):.3f}")
        half = len(self.bare) // 2
        pairs = zip(self.scan[half:], self.bare[half:], strict=True)
        low, middle, high = quartiles([scan / bare for scan, bare in pairs])
        print(f"  from the first sentence on: {self.ratio():.3f}")
        print(
            f"  second half: {self.ratio(half):.3f} (groups: median {middle:.3f}, "
            f"quartiles {low:.3f} to {high:.3f})"
        )


def quartiles(numbers: list[float]) -> tuple[float, float, float]:
    """Lower quartile, median, upper quartile."""
    if len(numbers) < 2:
        return numbers[0], numbers[0], numbers[0]
    low, middle, high = statistics.quantiles(numbers, n=4, method="inclusive")
    return low, middle, high
