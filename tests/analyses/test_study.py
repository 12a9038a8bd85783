"""A study from a person's side: the command, the estimate, the notebook."""

from __future__ import annotations

import json
import os
import re
import shutil
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from fastapi.testclient import TestClient

from ffmem.address import Address
from ffmem.analyses.analysis import Sizes
from ffmem.analyses.catalogue import ANALYSES, CLAIMS, applicable, judge
from ffmem.analyses.controls import untrained_model
from ffmem.analyses.estimate import (
    FOR_VERDICTS,
    CorpusSize,
    costs,
    estimate,
    projections_of_a_place,
    results_there,
    workload,
)
from ffmem.analyses.inputs import layer_readings, normalised_layers
from ffmem.analyses.inputs.layer_readings import conventions_of
from ffmem.analyses.inputs.prefix_sample import draw_sample
from ffmem.analyses.inputs.study_inputs import StudyInputs, scanned_control_inputs, scanned_model
from ffmem.analyses.runner import run_analyses
from ffmem.analyses.study import Study, open_study
from ffmem.cli.main import main
from ffmem.corpus.sentences import SentenceSettings
from ffmem.corpus.sources import Source
from ffmem.errors import FfmemError, StoreError
from ffmem.execution.plan import ScanPlan
from ffmem.execution.run import run_scan
from ffmem.explorer.app import create_app
from ffmem.explorer.context import open_context
from ffmem.memories.projection import logits
from ffmem.models.language_model import LanguageModel
from ffmem.models.loading import load
from ffmem.models.tiny import tiny_model
from ffmem.models.wrapping import wrap
from ffmem.records import to_plain
from ffmem.scan.settings import ScanSettings
from ffmem.store.folder import SCANNED_CONTROLS
from ffmem.store.memory_page import MemoryPage
from ffmem.store.scan_store import ScanStore
from ffmem.workflows import JUDGED, StudyPlan, run_study_plan
from tests.analyses.conftest import lines, sentences_of
from tests.small_study import FEW, small_plan
from tests.waiting import time_limit

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
    path.write_text("\n".join(lines(60, 1)) + "\n")
    return path


@pytest.mark.usefixtures("few_figures")
def test_one_command_ends_with_claims_and_a_report_and_the_next_keeps_all(
    corpus: Path, tmp_path: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "study"
    words = ("study", "tiny:opt", str(corpus), "-o", str(out))
    words = (*words, "--only", "values,refinement,coefficients")
    code, said, _ = run(capsys, monkeypatch, *words)
    assert code == 0
    ends = re.findall(r"^([\w-]+) +\d+\.\d s", said, re.MULTILINE)
    assert ends[-4:] == ["controls", "report", "coefficients", "figures"]  # no claim rests on them
    assert said.count(f"{out}/report.html") == 3
    assert "memories in 3 layers" in said
    assert "needs about" in said
    assert "controls " in said
    assert "undecided" in said  # claims of analyses that were left out
    assert "claims of the paper hold" in said
    assert "report.html (" in said  # and the time that all took
    assert f"ffmem explore {out}" in said
    assert "triggers are weak" in said
    assert (out / "figures" / "values-agreement.svg").is_file()
    study = open_study(out)
    (scanned,) = study.scanned_controls
    assert scanned.names == ("values", "refinement")
    assert scanned.store.manifest.counts["tokens"] == study.store.manifest.counts["tokens"]
    assert {kind: [set(one) for one in found] for kind, found in study.controls.items()} == {
        "permuted weights": [{"values", "refinement"}, {"refinement"}, {"refinement"}],
        "random weights": [{"refinement"}] * 3,
    }
    before = (out / "report.html").stat().st_mtime_ns
    code, said, _ = run(capsys, monkeypatch, *words)
    assert code == 0
    assert said.count("kept") >= 3
    assert "already there: scan, ranking, values, refinement, coefficients, report" in " ".join(
        said.split()
    )
    assert (out / "report.html").stat().st_mtime_ns == before
    run(capsys, monkeypatch, *words, "--again", "report")
    assert (out / "report.html").stat().st_mtime_ns > before
    verdicts = [(one.word, one.chance) for one in judge(open_study(out))]
    damaged = study.store.folder.control("permuted-weights-2").result("refinement")
    whole = json.loads(damaged.read_text())
    damaged.write_text("{")
    code, said, _ = run(capsys, monkeypatch, *words)  # makes what is damaged, and no more
    assert code == 0
    assert json.loads(damaged.read_text())["result"] == whole["result"]
    assert [(one.word, one.chance) for one in judge(open_study(out))] == verdicts
    again = (out / "report.html").read_bytes()
    run(capsys, monkeypatch, "report", str(out))
    assert (out / "report.html").read_bytes() == again


@pytest.mark.usefixtures("few_figures")
def test_a_study_of_other_sizes_is_refused_until_asked_to_replace_the_results(
    tmp_path: Path, relu: LanguageModel, corpus: Path
) -> None:
    lines_of = SentenceSettings(splitter="line", max_tokens=60)
    scanning = ScanPlan(Source(str(corpus)), ScanSettings(top=5), lines_of)
    plan = StudyPlan(scanning, Sizes(sample=9), only=("refinement", "suppression"))
    out, other = tmp_path / "out", replace(plan, sizes=Sizes(sample=8))
    run_study_plan(relu, plan, out)
    first = {path: path.read_bytes() for path in out.rglob("*") if path.is_file()}
    with pytest.raises(StoreError, match=r"refinement \(sample 9\).* --again .*refinement.* to"):
        run_study_plan(relu, other, out)
    assert {path: path.read_bytes() for path in out.rglob("*") if path.is_file()} == first
    found, events = run_study_plan(relu, other, out, ["refinement", "suppression"])
    made = [event.analysis for event in events if event.state == "made"]
    assert {"refinement", "suppression"} <= set(made)  # the second after the first report
    beside = [one for seeds in found.controls.values() for one in seeds]
    assert found.result("refinement").prefixes == 8
    assert [one["refinement"].prefixes for one in beside] == [8] * 6


@pytest.mark.usefixtures("few_figures")
def test_without_a_control_of_the_same_size_nothing_that_is_learned_holds(
    tmp_path: Path, relu: LanguageModel, corpus: Path
) -> None:
    lines_of = SentenceSettings(splitter="line", max_tokens=60)
    scanning = ScanPlan(Source(str(corpus)), ScanSettings(top=5), lines_of)
    plan = StudyPlan(scanning, only=("values", "experts"), controls=False)  # it has no experts
    study, events = run_study_plan(relu, plan, tmp_path / "out")
    assert [event.analysis for event in events] == ["values", "report"]
    _, events = run_study_plan(relu, plan, tmp_path / "out")
    assert [event.state for event in events] == ["kept", "kept"]
    assert study.controls == {}
    holding = {one.name for one in judge(study) if one.word == "holds"}
    assert holding <= {"layers-are-most-parameters", "lower-values-do-not-agree"}
    inputs = StudyInputs(relu, study.store)
    smaller = replace(scanning, max_sentences=20)
    name = SCANNED_CONTROLS[0]
    folder = study.store.folder.control(name).root
    control = run_scan(untrained_model(relu), smaller, folder)
    run_analyses(StudyInputs(relu, control), ["values"], folder)
    assert open_study(tmp_path / "out").controls == {}
    with pytest.raises(StoreError, match="holds another scan"):
        scanned_control_inputs(inputs, name, folder)
    _, events = run_study_plan(relu, replace(plan, controls=True), tmp_path / "out")
    assert [event.state for event in events] == ["kept", "failed", "failed", "made"]


def test_the_same_again_by_more_threads_leaves_every_verdict(
    toy_study: Study, tmp_path: Path
) -> None:
    folder = Path(shutil.copytree(toy_study.folder, tmp_path / "study"))
    names, threads = sorted(JUDGED - {"patterns"}), torch.get_num_threads()
    inputs = StudyInputs(scanned_model(toy_study.store, "cpu"), open_study(folder).store, FEW)
    torch.set_num_threads(threads + 1)
    try:
        events = run_analyses(inputs, names, folder, names)
    finally:
        torch.set_num_threads(threads)
    assert {event.state for event in events} == {"made"}
    for one, other in zip(open_study(folder).verdicts, toy_study.verdicts, strict=True):
        assert (one.name, one.word, one.reason) == (other.name, other.word, other.reason)
        first, again = (
            [effect.found.estimate for effect in found.finding.effects] if found.finding else []
            for found in (one, other)
        )
        assert again == pytest.approx(first, abs=0.02, nan_ok=True)  # but for ties


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


def test_a_pipe_is_not_opened_for_an_estimate(relu: LanguageModel, tmp_path: Path) -> None:
    """What a probe had read of it would be lost to the scan."""
    os.mkfifo(tmp_path / "pipe")
    with time_limit(60):
        source = Source(str(tmp_path / "pipe"))
        found = estimate(relu, ScanPlan(source, ScanSettings(), SentenceSettings()), Sizes())
    assert found.text.tokens is None


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
    whole, one = (costs(workload(relu, each, sizes, text), names) for each in (plan, few))
    assert one["values"].projections == pytest.approx(whole["values"].projections / 3)
    assert one["removal"].tokens == pytest.approx(whole["removal"].tokens / 3)
    assert one["scan"].tokens == whole["scan"].tokens
    alone = costs(workload(relu, plan, sizes, text), ["refinement"])
    assert alone["refinement"].projections > whole["refinement"].projections  # it reads the sample
    reads = {"normalisation", "composition", "refinement", "last-layer", "suppression"}
    for name in ANALYSES:  # alone, and after one that has read the sample for it
        after = "refinement" if name != "refinement" else "composition"
        first, second = (
            costs(workload(relu, plan, sizes, text), each) for each in ([name], [after, name])
        )
        assert (first[name] != second[name]) == (name in reads)
    some = estimate(relu, plan, sizes, ["values", "removal"], there=["scan", "ranking", "values"])
    assert set(some.seconds) == {"removal", "report"}
    assert some.there == ("scan", "ranking", "values")
    first = estimate(relu, plan, sizes, ["values", "removal"])
    assert "upper-values-agree" in first.undecided
    assert some.undecided == first.undecided  # a study that was stopped leaves as much open
    assert not estimate(relu, plan, sizes, ["values"], there=["scan", "values"]).undecided


@pytest.mark.parametrize("for_verdicts", [False, True])
def test_a_plan_counts_every_projection_of_a_place(
    for_verdicts: bool, corpus: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Half as much again for reading the logits; a head with a norm is read with and without."""
    plan = ScanPlan(Source(str(corpus)), ScanSettings(top=5), SentenceSettings())
    model, read = load("tiny:llama"), list[int]()
    assert len(conventions_of(model)) == 2

    def count(model: LanguageModel, h: Any, *rest: Any) -> Any:
        read.append(len(h))
        return logits(model, h, *rest)

    for module in (layer_readings, normalised_layers):
        monkeypatch.setattr(module, "logits", count)
    sample = draw_sample([sentences_of(model, lines(20, 5))], 20)
    layer_readings.record_sample(model, sample, for_verdicts=for_verdicts)
    amounts = [Sizes(sample=number, places=1) for number in (len(sample), 2 * len(sample))]
    works = [workload(model, plan, sizes, CorpusSize(1000, 20.0)) for sizes in amounts]
    each = FOR_VERDICTS if for_verdicts else projections_of_a_place(model)
    one, two = (costs(work, ["refinement"], each)["refinement"] for work in works)
    assert two.projections - one.projections == pytest.approx(1.5 * sum(read), rel=0.15)


def test_a_plan_counts_no_sentence_that_the_text_lacks(relu: LanguageModel, corpus: Path) -> None:
    plan = ScanPlan(Source(str(corpus)), ScanSettings(top=5), SentenceSettings())
    names = ["lenses", "coefficients"]
    few, many, more, unknown = (
        costs(workload(relu, plan, Sizes(), CorpusSize(tokens, 20.0)), names)
        for tokens in (200, 10**6, 10**7, None)
    )
    assert few["coefficients"].tokens == 200 * len(relu.layers)  # every layer reads all of it once
    for name in names:
        assert few[name].tokens < many[name].tokens / 2
        assert many[name] == more[name] == unknown[name]


def test_a_plan_sees_results_that_are_there(toy_study, tmp_path: Path) -> None:  # noqa: ANN001
    model = load("tiny:opt")
    plan = small_plan(tmp_path / "plan", model)
    text = toy_study.store.manifest.key.source()  # the study is a copy of one made elsewhere
    plan = replace(plan, scan=replace(plan.scan, source=text))

    def inputs(store: ScanStore) -> StudyInputs:
        return StudyInputs(model, store, plan.sizes)

    there = results_there(model, plan.scan, toy_study.folder, inputs)
    assert there == ("scan", "ranking", *applicable(ANALYSES, has_experts=False), "report")
    assert results_there(model, plan.scan, tmp_path / "nowhere", inputs) == ()
    other = replace(plan.scan, max_sentences=3)
    assert results_there(model, other, toy_study.folder, inputs) == ()


def test_a_notebook_sees_frames_charts_and_memories(toy_study) -> None:  # noqa: ANN001
    study = open_study(toy_study.folder)
    frame = study.frame("values-agreement")
    assert set(frame["layer"]) == {1, 2, 3}
    assert "share" in frame.columns
    bundle = study.chart("values-agreement")._repr_mimebundle_(None, None)
    shown = bundle[0] if isinstance(bundle, tuple) else bundle
    assert shown["image/svg+xml"].startswith("<svg")
    assert "text/html" not in shown  # which would load a script
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
    for field in ("probability", "push_on_old"):
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


def test_triggers_of_layers_and_memories_as_a_data_frame(
    toy_study: Study, gated_study: Study, mixture_study: Study
) -> None:
    """The same as memory by memory, with ranks from 1."""
    pytest.importorskip("pandas", reason="`pip install pandas`")
    for study in (toy_study, gated_study, mixture_study):
        cells = study.store.cells
        layer = study.triggers(layer=2)
        inside = cells.addresses(range(cells.count)[cells.rows_of(2)])
        slow = [
            (str(cell), rank, one.coefficient, one.before + one.last, one.last, one.next)
            + (one.sentence, one.position)
            for cell in inside
            for rank, one in enumerate(study.store.triggers(cell), 1)
        ]
        assert list(layer.itertuples(index=False, name=None)) == slow
        assert len(study.triggers(layer=[2, 3])) == len(layer) + len(study.triggers(layer=3))
        first = study.triggers(memories=[inside[0].memory, str(inside[5])], top=3)
        both = {str(cell) for cell in (*cells.resolve(inside[0].memory), inside[5])}
        wanted = layer[layer["address"].isin(both) & (layer["rank"] <= 3)]
        assert sorted(first["prefix"]) == sorted(wanted["prefix"])
        page = study.memory(inside[5])
        one = layer[layer["address"] == str(inside[5])].reset_index(drop=True)
        assert page.frame().equals(one)
    for given in ({}, {"layer": 2, "memories": "L2.1"}):
        with pytest.raises(FfmemError, match="a layer or memories"):
            toy_study.triggers(**given)
    with pytest.raises(FfmemError, match="no layer 9"):
        toy_study.triggers(layer=9)


def test_a_label_from_python_is_shown_by_the_explorer_and_the_command(
    toy_study: Study, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    words, folder = "verbs of saying + that", toy_study.folder
    toy_study.label("L2.5", words, note="see L1.3")
    toy_study.label("L2.5", f" {words} ")  # the note stays
    assert toy_study.labels == open_study(folder).labels == {"L2.5": words}
    assert f"label: {words}" in run(capsys, monkeypatch, "show", str(folder), "L2.5")[1]
    context = open_context(folder)
    try:
        with TestClient(create_app(context), base_url="http://127.0.0.1:8600") as client:
            found = client.get("/api/memories/L2.5/label").json()
            assert (found["label"], found["note"]) == (words, "see L1.3")
    finally:
        context.annotations.close()
    for wrong in ("two\nlines", "x" * 201):
        with pytest.raises(FfmemError, match="one line of at most 200 characters"):
            toy_study.label("L2.5", wrong)
    toy_study.label("L2.5", "", note="")
    assert toy_study.labels == {}


def test_a_study_has_the_verdict_on_every_claim(toy_study: Study) -> None:
    assert [one.name for one in toy_study.verdicts] == [one.name for one in CLAIMS]
    assert to_plain(toy_study.verdicts) == to_plain(judge(open_study(toy_study.folder)))


def test_a_study_and_its_store_say_what_they_are(toy_study: Study) -> None:
    memories = f"{sum(toy_study.store.memories.values()):,} memories in"
    for one in (toy_study, toy_study.store):
        assert memories in repr(one)
        assert str(toy_study.folder) in repr(one)
        assert len(repr(one)) < 500
    assert "results: patterns, " in repr(toy_study)
