"""Scans small enough to be checked the slow and obvious way."""

from __future__ import annotations

import json
import random
from dataclasses import replace
from pathlib import Path

from ffmem.corpus.sentences import SentenceSettings
from ffmem.corpus.sources import Source
from ffmem.execution.plan import ScanPlan
from ffmem.models.language_model import LanguageModel
from ffmem.scan.settings import ScanSettings

WORDS = ["river", "stone", "light", "winter", "market", "garden", "engine", "café", "naïve", "東京"]


def sentences(count: int, seed: int = 0) -> list[str]:
    """Lines of random words, some of them twice, so that ties happen."""
    draw = random.Random(seed)
    lines = [" ".join(draw.choices(WORDS, k=draw.randint(1, 6))) + "." for _ in range(count)]
    return lines + lines[: count // 10]


def plan_for(model: LanguageModel, corpus: Path, **changes: object) -> ScanPlan:
    plan = ScanPlan(
        source=Source(str(corpus)),
        settings=ScanSettings(top=6, sample=5, signed=model.gated),
        sentences=SentenceSettings(splitter="line", max_tokens=60),
        budget=400,
    )
    return replace(plan, **changes)  # type: ignore[arg-type]


def same_store(one: Path, other: Path) -> None:
    files = sorted(path.relative_to(one) for path in one.rglob("*") if path.is_file())
    assert files == sorted(path.relative_to(other) for path in other.rglob("*") if path.is_file())
    for file in files:
        if file.name == "manifest.json":
            left, right = (json.loads((side / file).read_text()) for side in (one, other))
            left |= {name: right[name] for name in ("seconds", "seal")}
            assert left == right
        else:
            assert (one / file).read_bytes() == (other / file).read_bytes(), file
