"""Experts: loads, parts of the text, sums and agreement, each against the slow, obvious way."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
import torch

from ffmem.address import Address
from ffmem.analyses.catalogue import ANALYSES, applicable
from ffmem.analyses.experts.charts import FIGURES
from ffmem.analyses.experts.measure import (
    PARTS,
    agreement,
    information,
    measure,
    output_shares,
    read_routing,
    specialisation,
    unevenness,
)
from ffmem.analyses.inputs.study_inputs import StudyInputs
from ffmem.analyses.inputs.value_rankings import rank_values
from ffmem.analyses.runner import names_for
from ffmem.errors import FfmemError
from ffmem.execution.run import run_scan
from ffmem.memories.recording import record
from ffmem.models.language_model import LanguageModel
from ffmem.models.tiny import tiny_model, tiny_tokenizer
from ffmem.models.wrapping import wrap
from ffmem.store.scan_store import ScanStore
from tests.analyses.conftest import draw_prefixes
from tests.execution.small_scans import plan_for, sentences


def drawing() -> torch.Generator:
    return torch.Generator().manual_seed(0)


@pytest.fixture(scope="module")
def model() -> LanguageModel:
    """A dense layer, then two of four experts, two of them chosen, with one that all share."""
    return wrap(tiny_model("deepseek_v3"), tiny_tokenizer())


@pytest.fixture(scope="module")
def store(model: LanguageModel, tmp_path_factory: pytest.TempPathFactory) -> ScanStore:
    corpus = tmp_path_factory.mktemp("text") / "corpus.txt"
    corpus.write_text("\n".join(sentences(60)) + "\n", encoding="utf-8")
    return run_scan(model, plan_for(model, corpus), tmp_path_factory.mktemp("scan") / "out")


def test_information_and_unevenness_of_planted_tables() -> None:
    alone = torch.eye(PARTS, dtype=torch.double) * 7
    assert information(alone) == pytest.approx(math.log2(PARTS))
    torch.testing.assert_close(unevenness(alone), torch.ones(PARTS, dtype=torch.double))
    even = torch.ones(PARTS, 3, dtype=torch.double) * torch.tensor([1.0, 2.0, 5.0]).double()
    assert information(even) == pytest.approx(0, abs=1e-12)
    torch.testing.assert_close(unevenness(even), torch.zeros(3, dtype=torch.double))
    never = torch.cat([even, torch.zeros(PARTS, 1, dtype=torch.double)], dim=1)
    assert unevenness(never)[3].isnan()


def test_planted_parts_are_told_from_chance() -> None:
    """Experts 0 and 1 share the text by halves; experts 2 and 3 are drawn for each sentence."""
    count = 160
    half = (torch.arange(count) >= count // 2).long()
    planted = torch.nn.functional.one_hot(half, 2) * 5
    drawn = torch.nn.functional.one_hot(torch.randint(2, (count,), generator=drawing()), 2) * 5
    found = specialisation(planted.double(), drawing())
    assert found.excess.low > 0.8  # one bit, less what chance leaves
    assert found.information == pytest.approx(1.0)
    assert found.by_expert.min() > 3 * found.by_expert_shuffled.max()
    assert found.busiest.tolist()[0] < PARTS // 2 <= found.busiest.tolist()[1]
    nothing = specialisation(drawn.double(), drawing())
    assert nothing.excess.low < 0 < nothing.shuffled.low
    assert nothing.information < 3 * nothing.shuffled.high


def test_places_are_counted_as_a_plain_loop_counts_them(model: LanguageModel) -> None:
    sample = draw_prefixes(model, sentences(12))
    layer = model.layer(3)
    (found,) = read_routing(model, [layer], sample)
    for row in range(len(sample)):
        tokens = sample.prefix_tokens(row)
        lead = torch.tensor([model.bos])
        weights = record(model, torch.cat([lead, tokens])[None], "w").layer(3).w[0, 1:, :4]
        assert found.counts[row].tolist() == (weights != 0).sum(dim=0).tolist()
    assert (found.counts.sum(dim=1) == 2 * sample.positions).all()


@pytest.mark.parametrize("kind", ["deepseek_v3", "gpt_oss", "axk1", "granitemoehybrid"])
def test_shares_of_the_parts_add_up_to_the_sum(kind: str) -> None:
    toy = wrap(tiny_model(kind), tiny_tokenizer())
    tokens = torch.arange(24).reshape(3, 8) * 13 % 250
    reading = record(toy, tokens, "mwy", at=-1).layer(3)
    shares = output_shares(reading.layer, reading)
    torch.testing.assert_close(shares.sum(dim=1), torch.ones(3).double(), rtol=1e-4, atol=1e-4)
    assert ((shares[:, :4] != 0).sum(dim=1) == 2).all()


def test_the_whole_analysis(model: LanguageModel, store: ScanStore) -> None:
    sample = draw_prefixes(model, sentences(40, seed=1))
    values = tuple(rank_values(model, store, drawing()))
    found = measure(model, store, sample, values, drawing())
    assert [one.layer for one in found.layers] == [2, 3]
    assert [(use.layer, use.expert) for use in found.experts] == [
        (layer, expert) for layer in (2, 3) for expert in range(4)
    ]
    for one in found.layers:
        assert one.per_place == pytest.approx(2.0)
        assert 1 <= one.effective <= 4
        assert one.shared is not None
        assert one.routed.estimate + one.shared.estimate == pytest.approx(1.0)
        uses = [use for use in found.experts if use.layer == one.layer]
        assert sum(use.agreement.n for use in uses) == one.agreement.n
        output = sum(use.output for use in uses)
        assert output == pytest.approx(one.routed.estimate, abs=1e-3)
    drawn = {figure.name: figure.chart(found) for figure in FIGURES}
    loads = drawn["experts-load"].to_dict()["data"]["values"]
    assert len(loads) == 8 + 2
    assert all(chart.to_dict() for chart in drawn.values())


def test_agreement_of_an_expert_is_counted_over_its_cells(
    model: LanguageModel, store: ScanStore
) -> None:
    (ranking,) = (one for one in rank_values(model, store, drawing()) if one.layer == 3)
    agree = live = 0
    for index in range(16):
        for sign in ("+", "-"):
            cell = store.cells.resolve(Address.parse(f"L3.E2.{index}{sign}"))[0]
            row = store.cells.row(cell) - store.cells.rows_of(3).start
            follows = int(ranking.triggers.next[row, 0])
            live += follows >= 0
            agree += follows >= 0 and int(ranking.top[row]) == follows
    found = agreement(ranking, "E2")
    assert (found.n, round(found.estimate * found.n)) == (live, agree)


def test_the_row_is_absent_without_experts(
    relu: LanguageModel, store: ScanStore, model: LanguageModel, tmp_path: Path
) -> None:
    corpus = tmp_path / "corpus.txt"
    corpus.write_text("\n".join(sentences(5)), encoding="utf-8")
    dense = StudyInputs(relu, run_scan(relu, plan_for(relu, corpus), tmp_path / "dense"))
    assert "experts" not in names_for(dense, tuple(ANALYSES))
    with pytest.raises(FfmemError, match="has no experts in the scanned layers"):
        names_for(dense, ["experts"])
    assert "experts" in names_for(StudyInputs(model, store), tuple(ANALYSES))
    assert set(ANALYSES) - set(applicable(ANALYSES, has_experts=False)) == {"experts"}
