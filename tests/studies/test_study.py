"""A study from a person's side: the command, the estimate, the notebook."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from ffmem.address import Address
from ffmem.analyses.controls import untrained_model
from ffmem.cli.main import main
from ffmem.corpus.sentences import SentenceSettings
from ffmem.corpus.sources import Source
from ffmem.errors import FfmemError, StoreError
from ffmem.execution.run import ScanPlan, run_scan
from ffmem.models.language_model import LanguageModel
from ffmem.models.loading import load
from ffmem.models.tiny import tiny_model
from ffmem.models.wrapping import wrap
from ffmem.report.build import judge
from ffmem.scan.settings import ScanSettings
from ffmem.store.memory_page import MemoryPage
from ffmem.store.scan_store import ScanStore
from ffmem.studies.estimates import CorpusSize, costs, estimate, results_there
from ffmem.studies.inputs import Sizes, StudyInputs, scanned_model, untrained_inputs
from ffmem.studies.registry import ANALYSES, applicable
from ffmem.studies.study import Study, open_study
from ffmem.workflows import StudyPlan, run_study_plan
from tests.analyses.conftest import lines
from tests.small_study import FEW, small_plan

Capture = pytest.CaptureFixture[str]


def run(capsys: Capture, monkeypatch: pytest.MonkeyPatch, *words: str) -> tuple[int, str, str]:
    monkeypatch.setattr(sys, "argv", ["ffmem", *words])
    with pytest.raises(SystemExit) as stop:
        main()
    out, err = capsys.readouterr()
    return int(stop.value.code or 0), out, err


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    path = tmp_path / "corpus.txt"
    path.write_text("\n".join(lines(160, 1)) + "\n")
    return path


def test_one_command_ends_with_claims_and_a_report_and_the_next_keeps_all(
    corpus: Path, tmp_path: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "study"
    words = ("study", "tiny:opt", str(corpus), "-o", str(out), "--only", "values,refinement")
    code, said, _ = run(capsys, monkeypatch, *words)
    assert code == 0
    assert "memories in 3 layers" in said
    assert "needs about" in said
    assert "untrained twin " in said
    assert "undecided" in said  # claims of analyses that were left out
    assert "claims of the paper hold" in said
    assert "report.html (" in said  # and the time that all took
    assert f"ffmem explore {out}" in said
    assert "triggers are weak" in said
    study = open_study(out)
    assert study.twin is not None
    assert study.twin.names == ("values", "refinement")
    assert study.twin.store.manifest.counts["tokens"] == study.store.manifest.counts["tokens"]
    before = (out / "report.html").stat().st_mtime_ns
    code, said, _ = run(capsys, monkeypatch, *words)
    assert code == 0
    assert said.count("kept") >= 3
    assert "already there: scan, values, refinement, report" in " ".join(said.split())
    assert (out / "report.html").stat().st_mtime_ns == before
    run(capsys, monkeypatch, *words, "--again", "report")
    assert (out / "report.html").stat().st_mtime_ns > before
    again = (out / "report.html").read_bytes()
    run(capsys, monkeypatch, "report", str(out))
    assert (out / "report.html").read_bytes() == again


def test_a_study_of_other_sizes_takes_over_and_the_earlier_results_stay_beside(
    tmp_path: Path, relu: LanguageModel, corpus: Path
) -> None:
    lines_of = SentenceSettings(splitter="line", max_tokens=60)
    scanning = ScanPlan(Source(str(corpus)), ScanSettings(top=5), lines_of)
    plan = StudyPlan(scanning, Sizes(sample=9), only=("refinement",))
    run_study_plan(relu, plan, tmp_path / "out")
    first = (tmp_path / "out/analyses/refinement.json").read_bytes()
    found, events = run_study_plan(relu, replace(plan, sizes=Sizes(sample=8)), tmp_path / "out")
    assert found.result("refinement").prefixes == 8
    earlier = events[0].earlier
    assert earlier is not None
    assert (earlier / "analyses/refinement.json").read_bytes() == first


def test_without_a_twin_of_the_same_size_nothing_holds(
    tmp_path: Path, relu: LanguageModel, corpus: Path
) -> None:
    lines_of = SentenceSettings(splitter="line", max_tokens=60)
    scanning = ScanPlan(Source(str(corpus)), ScanSettings(top=5), lines_of)
    plan = StudyPlan(scanning, only=("values",), twin=False)
    study, events = run_study_plan(relu, plan, tmp_path / "out")
    assert [event.analysis for event in events] == ["values", "report"]
    assert study.twin is None
    assert "holds" not in {verdict.word for verdict in judge(study)}
    inputs = StudyInputs(relu, study.store)
    smaller = replace(scanning, max_sentences=20)
    run_scan(untrained_model(relu), smaller, study.store.folder.control.root)
    assert open_study(tmp_path / "out").twin is None
    with pytest.raises(StoreError, match="holds another scan"):
        untrained_inputs(inputs, study.store.folder.control.root)
    _, events = run_study_plan(relu, replace(plan, twin=True), tmp_path / "out")
    assert [event.state for event in events] == ["kept", "failed", "made"]


def test_a_study_without_text_is_one_sentence(
    capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    code, _, err = run(capsys, monkeypatch, "study", "tiny:opt")
    assert code == 2
    assert "CORPUS" in err


def test_one_study_is_no_comparison(
    tmp_path: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    code, _, err = run(capsys, monkeypatch, "compare", str(tmp_path / "nothing"))
    assert code == 2
    assert "nothing" in err


def test_estimates_grow_with_what_is_asked_for(relu: LanguageModel, corpus: Path) -> None:
    lines_of = SentenceSettings(splitter="line", max_tokens=60)
    plan = ScanPlan(Source(str(corpus)), ScanSettings(top=5), lines_of)
    small = estimate(relu, plan, Sizes(sample=10))
    large = estimate(relu, plan, Sizes(sample=100_000))
    assert small.text.tokens == sum(
        len(relu.encode(line)[0]) - (relu.bos is not None)
        for line in corpus.read_text().splitlines()
    )
    assert large.seconds["composition"] > small.seconds["composition"]
    few = estimate(relu, replace(plan, max_sentences=10), Sizes(sample=10))
    assert few.text.tokens < small.text.tokens
    assert (
        few.memory < estimate(relu, replace(plan, settings=ScanSettings(top=500)), Sizes()).memory
    )


def test_a_plan_counts_chosen_layers_and_what_is_there(relu: LanguageModel, corpus: Path) -> None:
    lines_of = SentenceSettings(splitter="line", max_tokens=60)
    plan = ScanPlan(Source(str(corpus)), ScanSettings(top=5), lines_of)
    few = replace(plan, layers=[2])
    text, sizes = CorpusSize(1000, 20.0), Sizes(sample=10)
    names = ["scan", "removal", "values", "composition", "refinement"]
    whole, one = (costs(relu, each, sizes, text, names) for each in (plan, few))
    assert one["values"].projections == pytest.approx(whole["values"].projections / 3)
    assert one["removal"].tokens == pytest.approx(whole["removal"].tokens / 3)
    assert one["scan"].tokens == whole["scan"].tokens
    alone = costs(relu, plan, sizes, text, ["refinement"])
    assert alone["refinement"].projections > whole["refinement"].projections  # it reads the sample
    some = estimate(relu, plan, sizes, ["values", "removal"], there=["scan", "values"])
    assert set(some.seconds) == {"removal", "report"}
    assert some.there == ("scan", "values")


def test_a_plan_sees_results_that_are_there(toy_study, tmp_path: Path) -> None:  # noqa: ANN001
    model = load("tiny:opt")
    plan = small_plan(tmp_path / "plan", model)
    text = toy_study.store.manifest.key.source()  # the study is a copy of one made elsewhere
    plan = replace(plan, scan=replace(plan.scan, source=text))

    def inputs(store: ScanStore) -> StudyInputs:
        return StudyInputs(model, store, plan.sizes)

    there = results_there(model, plan.scan, toy_study.folder, inputs)
    assert there == ("scan", *applicable(ANALYSES, has_experts=False), "report")
    assert results_there(model, plan.scan, tmp_path / "nowhere", inputs) == ()
    other = replace(plan.scan, max_sentences=3)
    assert results_there(model, other, toy_study.folder, inputs) == ()


def test_a_notebook_sees_frames_charts_and_memories(toy_study) -> None:  # noqa: ANN001
    study = open_study(toy_study.folder)
    frame = study.frame("values-agreement")
    assert set(frame["layer"]) == {1, 2, 3}
    assert "share" in frame.columns
    memory = study.memory("L2.5")
    assert memory.address == Address(2, 5)
    assert "L2.5" in repr(memory)
    assert "L2.5" in memory._repr_html_()
    assert "tiny:opt" in study._repr_html_()
    with pytest.raises(FfmemError, match="values-agreement"):
        study.chart("nothing")
    (study.folder / "analyses" / "causal.json").rename(study.folder / "causal.json")
    try:
        with pytest.raises(StoreError, match="--only causal"):
            open_study(study.folder).result("causal")
    finally:
        (study.folder / "causal.json").rename(study.folder / "analyses" / "causal.json")


def test_a_model_scanned_in_16_bits_is_opened_in_32_on_a_cpu(tmp_path: Path, corpus: Path) -> None:
    model = load("tiny:opt", dtype="bfloat16")
    plan = ScanPlan(
        Source(str(corpus)), ScanSettings(top=2), SentenceSettings(splitter="line", max_tokens=60)
    )
    store = run_scan(model, plan, tmp_path / "scan")
    again = scanned_model(store)
    assert again.dtype == torch.float32
    for expected, found in zip(model.model.parameters(), again.model.parameters(), strict=True):
        assert torch.equal(expected.float(), found.bfloat16().float())


def test_section_5_reads_a_16_bit_model_in_32_bits(tmp_path: Path, corpus: Path) -> None:
    plan = ScanPlan(
        Source(str(corpus)), ScanSettings(top=2), SentenceSettings(splitter="line", max_tokens=60)
    )
    rounded = load("tiny:opt", dtype="bfloat16")
    exact = wrap(tiny_model("opt").bfloat16().float(), rounded.tokenizer)
    store = run_scan(rounded, plan, tmp_path / "scan")
    found, expected = (StudyInputs(one, store, FEW).reading for one in (rounded, exact))
    for field in ("probability", "push_on_new"):
        one, other = (getattr(record.predictions[0], field) for record in (found, expected))
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-6)


def test_all_memories_as_a_data_frame(toy_study: Study, gated_study: Study) -> None:
    pytest.importorskip("pandas", reason="`pip install pandas`")
    for study in (toy_study, gated_study):
        frame = study.memories(tokens=3)
        assert len(frame) == study.store.cells.count
        for row in frame.iloc[[0, 7, len(frame) // 2, len(frame) - 1]].to_dict("records"):
            page = study.memory(row["address"])
            assert isinstance(page, MemoryPage)
            cell = page.address
            assert (row["layer"], row["index"], row["sign"]) == (cell.layer, cell.index, cell.sign)
            assert row["fires"] == page.counts.fires
            assert row["mean"] == pytest.approx(page.counts.mean)
            assert row["largest"] == pytest.approx(page.counts.largest)
            assert row["top_tokens"] == [push.text for push in page.promoted[:3]]


def test_a_study_and_its_store_say_what_they_are(toy_study: Study) -> None:
    memories = f"{sum(toy_study.store.memories.values()):,} memories in"
    for one in (toy_study, toy_study.store):
        assert memories in repr(one)
        assert str(toy_study.folder) in repr(one)
        assert len(repr(one)) < 500
    assert "results: patterns, " in repr(toy_study)
