"""A scan of a toy model over a few lines of text, small enough to check by hand."""

from __future__ import annotations

from pathlib import Path

import pytest

from ffmem.corpus.sentences import SentenceSettings
from ffmem.corpus.sources import Source
from ffmem.models.language_model import LanguageModel
from ffmem.pipeline import ScanPlan, scan
from ffmem.scan.settings import ScanSettings
from ffmem.store.scan_store import ScanStore

LINES = [
    "the river runs to the sea",
    "a fox sat near the stone",
    "rain came over the hill",
    "we saw a boat at noon",
    "no one came",
    "the bell rang in the old town",
    "ships pass by night",
    "x",
]


def scanned(model: LanguageModel, out: Path, lines: list[str], **settings: int) -> ScanStore:
    """Scan a model over lines, one sentence each."""
    corpus = out.with_suffix(".txt")
    corpus.write_text("\n".join(lines) + "\n")
    choices = ScanSettings(**{"top": 6, "sample": 4, **settings}, signed=model.gated)
    plan = ScanPlan(Source(str(corpus)), choices, SentenceSettings(splitter="line", max_tokens=60))
    return scan(model, plan, out)


@pytest.fixture(scope="session")
def relu_store(relu: LanguageModel, tmp_path_factory: pytest.TempPathFactory) -> ScanStore:
    return scanned(relu, tmp_path_factory.mktemp("relu") / "scan", LINES)


@pytest.fixture(scope="session")
def gated_store(gated: LanguageModel, tmp_path_factory: pytest.TempPathFactory) -> ScanStore:
    return scanned(gated, tmp_path_factory.mktemp("gated") / "scan", LINES)
