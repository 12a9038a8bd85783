"""Work on parts of an array in threads that do not wait for each other."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TypeVar

import torch

Part = TypeVar("Part")
Found = TypeVar("Found")


def map_in_threads(work: Callable[[Part], Found], parts: Sequence[Part]) -> Iterator[Found]:
    """work(part) of all parts, in their order, as many at once as torch has threads.

    torch itself uses one thread in each. Where it shares out one product after the other, its
    threads wait in a loop for the next, on the cores that other work could have.
    """
    threads = torch.get_num_threads()
    if threads == 1:
        yield from map(work, parts)
        return
    with ThreadPoolExecutor(threads, initializer=partial(torch.set_num_threads, 1)) as pool:
        try:
            for first in range(0, len(parts), threads):
                yield from pool.map(work, parts[first : first + threads])
        finally:
            torch.set_num_threads(threads)  # the last call counts for threads that start later
