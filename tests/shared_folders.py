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
    root = (own.parent if "PYTEST_XDIST_WORKER" in os.environ else own) / "shared"
    root.mkdir(exist_ok=True)
    whole, done = root / name, root / f"{name}.done"
    with FileLock(root / f"{name}.lock"):
        if not done.exists():
            shutil.rmtree(whole, ignore_errors=True)
            whole.mkdir()
            make(whole)
            done.touch()
    return Path(shutil.copytree(whole, files.mktemp(name) / name))
