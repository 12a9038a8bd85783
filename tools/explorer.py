"""A running `ffmem explore`, for tools that look at its pages."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

ADDRESS = re.compile(r" at (http://\S+)")


@contextmanager
def serve(python: str, study: Path | str, folder: Path | None = None) -> Iterator[str]:
    """Start the explorer of a Python in a folder; gives its address, and stops it at the end."""
    words = ["-m", "ffmem", "explore", str(study), "--port", "0", "--no-browser"]
    pipe = subprocess.PIPE
    with subprocess.Popen(
        [python, *words], cwd=folder, stdout=pipe, stderr=subprocess.STDOUT, text=True
    ) as process:
        try:
            yield address(process)
        finally:
            process.terminate()


def address(process: subprocess.Popen[str]) -> str:
    """The address that the explorer prints when it listens."""
    lines = []
    for line in process.stdout or ():
        lines.append(line)
        found = ADDRESS.search(line)
        if found:
            return found[1]
    raise RuntimeError(f"the explorer did not start: {''.join(lines)}")
