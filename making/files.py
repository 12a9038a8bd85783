"""Files that are whole or absent, and text that may be compressed."""

import gzip
import lzma
from collections.abc import Iterator
from pathlib import Path
from typing import Any


def write_whole(path: Path, data: bytes) -> None:
    """Write all of a file or none of it, so that a killed run leaves no half file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(path.name + ".part")
    part.write_bytes(data)
    part.replace(path)


def lines_of(path: Path) -> Iterator[str]:
    """The lines of a text file, without their ends; `.xz` and `.gz` files are unpacked."""
    openers: dict[str, Any] = {".xz": lzma.open, ".gz": gzip.open}
    opener = openers.get(path.suffix, open)
    with opener(path, "rt", encoding="utf-8", newline="\n") as file:
        for line in file:
            yield line.rstrip("\n")
