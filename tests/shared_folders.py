"""Folders that take long to make: once per run of the tests, whatever the number of processes."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from filelock import FileLock


def folder_once(files: pytest.TempPathFactory, name: str, make: Callable[[Path], object]) -> Path:
    """A copy, for this process alone, of the folder that `make` fills in one process of the run."""
    own = files.getbasetemp()
    root = own.parent if "PYTEST_XDIST_WORKER" in os.environ else own
    whole = root / "shared" / name
    whole.parent.mkdir(exist_ok=True)
    with FileLock(root / "shared" / f"{name}.lock"):
        if not whole.exists():
            part = Path(f"{whole}.part")
            shutil.rmtree(part, ignore_errors=True)
            part.mkdir()
            make(part)
            part.rename(whole)
    return Path(shutil.copytree(whole, files.mktemp(name, numbered=True) / name))
