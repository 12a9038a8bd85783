"""The bytes of a scan's files, by what they hold, for each cell.

    python -m benchmarks.store_size DIR

Sentences and vocabulary grow with the text and the tokenizer, not with the cells, and stand apart.
"""

from __future__ import annotations

import argparse
from collections import Counter
from pathlib import Path

from ffmem.store.scan_store import ScanStore

INDEX = ("triggers", "sample", "tallies", "histograms", "values")  # of each cell


def kind_of(name: str) -> str:
    """What a file of a scan holds, by its name."""
    for start, kind in (
        ("arrays/trigger_", "triggers"),
        ("arrays/sample_", "sample"),
        ("arrays/sentence_", "sentences"),
        ("arrays/histogram", "histograms"),
        ("arrays/", "tallies"),
    ):
        if name.startswith(start):
            return kind
    return Path(name).stem


def main() -> None:
    """Print a line for each kind of file, and their sum."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    store = ScanStore.open(parser.parse_args().folder)
    sizes: Counter[str] = Counter()
    for name, digest in store.manifest.files.items():
        sizes[kind_of(name)] += digest.bytes
    cells = store.cells.count
    print(f"{cells:,} cells, {store.manifest.counts['sentences']:,} sentences")
    sizes["index"] = sum(sizes[kind] for kind in INDEX)
    per_cell = (*INDEX, "index", "endings")
    for kind in per_cell:
        print(f"{kind:10} {sizes[kind]:14,} bytes {sizes[kind] / cells:8.1f} per cell")
    for kind in sorted(set(sizes) - set(per_cell)):
        print(f"{kind:10} {sizes[kind]:14,} bytes")


if __name__ == "__main__":
    main()
