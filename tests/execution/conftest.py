"""A small corpus."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.execution.small_scans import sentences


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    path = tmp_path / "corpus.txt"
    path.write_text("\n".join(sentences(150)) + "\n", encoding="utf-8")
    return path
