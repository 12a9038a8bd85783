"""Prefixes of one sentence are alike: the sentence is the unit of every interval."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields, is_dataclass, replace
from typing import Any

import pytest
import torch
from torch import Tensor

from ffmem.analyses.composition.measure import measure as composition
from ffmem.analyses.inputs.layer_readings import SampleRecord, record_sample
from ffmem.analyses.normalisation.measure import measure as normalisation
from ffmem.analyses.refinement.measure import measure as refinement
from ffmem.analyses.statistics import Interval
from ffmem.analyses.suppression.measure import measure as suppression
from ffmem.models.language_model import LanguageModel
from tests.analyses.test_prefix_sample import sample_for

SENTENCES = 40
DRAWN = ("shuffled", "mean", "cosine", "random_values")  # by a generator


def rows_of(record: Any, rows: Tensor) -> Any:
    """A record with some rows of each of its tensors."""
    if isinstance(record, Tensor):
        return record[rows]
    if isinstance(record, tuple):
        return tuple(rows_of(one, rows) if is_dataclass(one) else one for one in record)
    if not is_dataclass(record):
        return record
    changed = {one.name: rows_of(getattr(record, one.name), rows) for one in fields(record)}
    return type(record)(**changed)


def repeated(reading: SampleRecord, alike: bool) -> SampleRecord:
    """Every place four times, as of the same sentence or as of four."""
    rows = torch.arange(SENTENCES).repeat(4)
    sample = reading.sample.rows(rows)
    if not alike:
        sample = replace(sample, numbers=torch.arange(len(rows)))
    return replace(rows_of(replace(reading, sample=()), rows), sample=sample)


def intervals(record: Any, name: str = "") -> Iterator[tuple[str, Interval]]:
    """All that rest on no draw, by where they stand."""
    if isinstance(record, Interval):
        yield name, record
    elif isinstance(record, tuple):
        for place, one in enumerate(record):
            yield from intervals(one, f"{name}[{place}]")
    elif is_dataclass(record):
        for one in fields(record):
            if not one.name.startswith(DRAWN):
                yield from intervals(getattr(record, one.name), f"{name}.{one.name}")


def measured(model: LanguageModel, reading: SampleRecord) -> dict[str, Interval]:
    def draw() -> torch.Generator:
        return torch.Generator().manual_seed(0)

    return {
        name: found
        for one in (
            composition(model, reading, draw()),
            refinement(reading, model.vocab_size, draw()),
            suppression(reading),
            normalisation(reading, draw()),
        )
        for name, found in intervals(one, type(one).__name__)
    }


def test_four_places_that_are_the_same_say_as_much_as_one(relu: LanguageModel) -> None:
    reading = record_sample(relu, sample_for(relu, SENTENCES))
    one = measured(relu, reading)
    same, apart = (measured(relu, repeated(reading, alike)) for alike in (True, False))
    effects = [name for name in one if ".effects" in name]
    assert len(effects) >= 15
    narrower = 0
    for name, found in one.items():
        assert found.n == same[name].n
        for mine, its in zip(
            (found.estimate, found.low, found.high),
            (same[name].estimate, same[name].low, same[name].high),
            strict=True,
        ):
            assert mine == pytest.approx(its, rel=1e-6, abs=1e-9, nan_ok=True), name
        narrower += apart[name].high - apart[name].low < found.high - found.low
    assert narrower > 0.6 * len(one)
