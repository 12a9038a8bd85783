"""Keys drawn at random in every layer, the same for the same seed."""

from __future__ import annotations

import zlib

import numpy as np

from ffmem.address import Address
from ffmem.store.scan_store import ScanStore


def random_keys(
    store: ScanStore, per_layer: int, seed: int, purpose: str
) -> dict[int, list[Address]]:
    """So many cells of every layer, uniformly and without repeats; all where there are fewer.

    Draws for two purposes are independent of each other. Dead cells can be drawn like any other.
    """
    found: dict[int, list[Address]] = {}
    for layer in store.memories:
        rows = store.cells.rows_of(layer)
        generator = np.random.default_rng([seed, layer, zlib.crc32(purpose.encode())])
        drawn = generator.permutation(rows.stop - rows.start)[:per_layer]
        found[layer] = store.cells.in_layer(layer, drawn)
    return found
