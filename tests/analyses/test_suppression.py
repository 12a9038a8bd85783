from __future__ import annotations

from dataclasses import replace

import torch

from ffmem.analyses.inputs.layer_readings import SampleRecord, foreign_gold, record_sample, tops
from ffmem.analyses.suppression.charts import suppression_chart
from ffmem.analyses.suppression.measure import measure
from ffmem.memories.recording import record
from ffmem.memories.value_vectors import value_vectors
from ffmem.models.language_model import LanguageModel
from ffmem.store.scan_store import ScanStore
from tests.analyses.test_prefix_sample import sample_for

Scanned = tuple[LanguageModel, ScanStore]


def test_a_memory_is_right_that_is_active_and_says_what_follows(
    scanned_toy: Scanned,
) -> None:
    model, _ = scanned_toy
    reading = record_sample(model, sample_for(model, 40))
    sample, found = reading.sample, reading.coefficients
    foreign = foreign_gold(sample)
    for row in range(0, len(sample), 5):
        lead = [] if model.bos is None else [model.bos]
        tokens = torch.tensor([[*lead, *sample.prefix_tokens(row).tolist()]])
        for place, one in enumerate(record(model, tokens, "am")):
            if one.layer.gated or (one.a[0, -1].abs() < 1e-4).any():
                continue  # a sign, or rounding, has a say in what a memory says
            m = one.m[0, -1]
            on = m > 0
            says = tops(model, value_vectors(one.layer))
            for token, is_right in ((sample.gold[row], found.right), (foreign[row], found.foreign)):
                assert is_right[row, place] == (on & (says == token)).any()


def with_memories(reading: SampleRecord, own: torch.Tensor, foreign: torch.Tensor) -> SampleRecord:
    changed = replace(reading.coefficients, right=own, foreign=foreign)
    return replace(reading, coefficients=changed)


def test_planted_right_memories_are_counted_against_those_of_other_prefixes(
    relu: LanguageModel,
) -> None:
    reading = record_sample(relu, sample_for(relu, 40))
    nowhere = torch.zeros_like(reading.coefficients.right)
    found = measure(with_memories(reading, ~nowhere, nowhere))
    known = (reading.sample.gold >= 0) & (foreign_gold(reading.sample) >= 0)
    said = reading.predictions[0].feedforward[known]
    for place, layer in enumerate(found.layers):
        expected = (said[:, place] != reading.sample.gold[known]).double().mean()
        assert layer.fired.estimate == 1.0
        assert layer.overruled.estimate == float(expected)
        assert layer.by_chance.estimate == 0.0
        assert layer.overruled.low > 0
    assert found.lost.estimate > found.lost_by_chance.estimate


def test_memories_that_say_every_token_alike_show_no_difference(relu: LanguageModel) -> None:
    reading = record_sample(relu, sample_for(relu, 40))
    some = torch.rand(reading.coefficients.right.shape) < 0.5
    found = measure(with_memories(reading, some, some))
    for layer in found.layers:
        assert layer.overruled.low <= layer.by_chance.high
    none = torch.zeros_like(some)
    assert measure(with_memories(reading, none, none)).lost.estimate == 0


def test_the_figure_has_both_lines_for_every_layer(relu: LanguageModel) -> None:
    found = measure(record_sample(relu, sample_for(relu, 40)))
    rows = suppression_chart(found).to_dict()["data"]["values"]
    assert len(rows) == 2 * len(found.layers)
