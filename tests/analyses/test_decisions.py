"""A later look measures what would decide a claim, is kept, and changes nothing else."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from ffmem.analyses.catalogue import ANALYSES, CLAIMS, measurements
from ffmem.analyses.inputs.study_inputs import StudyInputs, scanned_model
from ffmem.analyses.open_claims.decisions import (
    Step,
    decide_claims,
    inputs_at_first,
    next_steps,
    take,
)
from ffmem.analyses.open_claims.looks import (
    RESULT,
    ClaimLook,
    first_looks,
    read_looks,
    write_looks,
)
from ffmem.analyses.open_claims.needs import need_of_units
from ffmem.analyses.patterns.record import JudgesPatterns
from ffmem.analyses.result_files import ResultFile, read_result, write_result
from ffmem.analyses.runner import run_analyses
from ffmem.analyses.study import Study, open_study
from ffmem.store.folder import StudyFolder
from tests.small_study import FEW

AGAIN = ("removal", "causal")  # what is measured again here; patterns would take longer
InputsOf = Callable[[str], StudyInputs | None]


def inputs_of(study: Study, names: tuple[str, ...] = AGAIN) -> InputsOf:
    """The inputs as they were at the first look."""
    model = scanned_model(study.store, "cpu")
    first = StudyInputs(model, study.store)
    return lambda name: inputs_at_first(study, name, model, first) if name in names else None


def copy(folder: Path, to: Path) -> Study:
    shutil.copytree(folder, to)
    return open_study(to)


def words(study: Study) -> dict[str, tuple[str, int]]:
    return {one.name: (one.word, one.look) for one in study.verdicts}


@pytest.fixture(scope="module")
def looks(
    toy_study: Study, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Study, list[str], Path]:
    """A study after its later looks, what was said, and how it was after the first of them."""
    root = tmp_path_factory.mktemp("decide")
    study, said = copy(toy_study.folder, root / "study"), list[str]()

    def say(text: str) -> None:
        if read_looks(study.store.folder) and not (root / "stopped").exists():
            shutil.copytree(study.folder, root / "stopped")
        said.append(text)

    return decide_claims(study, inputs_of(study), 1e6, say), said, root / "stopped"


def test_a_later_look_rests_on_more_and_leaves_every_other_number(
    toy_study: Study, looks: tuple[Study, list[str], Path]
) -> None:
    study, said, _ = looks
    before = {one.name: one for one in toy_study.verdicts}
    again = read_looks(study.store.folder)
    assert {ANALYSES[before[name].analysis].name for name in again} <= set(AGAIN)
    assert any(line.startswith("removal: ") for line in said)
    for verdict in study.verdicts:
        old = before[verdict.name]
        if verdict.name in again:
            assert old.word == "undecided"
            assert verdict.look == again[verdict.name].look > 1
            assert verdict.finding is not None
            assert old.finding is not None
            assert verdict.finding.effects[0].found.n > old.finding.effects[0].found.n
            assert f"looked at {verdict.look} times" in verdict.effect_text
        else:
            assert (verdict.word, verdict.look) == (old.word, 1)
    for folder in (toy_study.store.folder, *toy_study.store.folder.controls.values()):
        same = StudyFolder(study.folder / folder.root.relative_to(toy_study.folder))
        for path in folder.matching(folder.result("*")):
            assert path.read_bytes() == same.result(path.stem).read_bytes()
    assert not next_steps_of(study)  # all that more would decide is decided, or lies on its bar


def next_steps_of(study: Study) -> list[str]:
    return [one.analysis for one in next_steps(study) if one.analysis in AGAIN]


def test_a_later_look_is_a_measurement_of_that_size(looks: tuple[Study, list[str], Path]) -> None:
    study, _, _ = looks
    one = next(iter(read_looks(study.store.folder).values()))
    claim = next(claim for claim in CLAIMS if claim.name == one.claim)
    row = ANALYSES[claim.analysis]
    first = inputs_of(study)(claim.analysis)
    assert first is not None
    assert row.grows is not None
    sizes = replace(first.sizes, **{row.grows.size: one.amount})
    larger = StudyInputs(first.model, first.store, sizes, first.valid, first.seed)
    assert claim.find({claim.analysis: row.measure(larger)}) == one.finding


def test_looks_that_were_stopped_go_on_to_the_same_verdicts(
    looks: tuple[Study, list[str], Path],
) -> None:
    study, _, stopped = looks
    half = open_study(stopped)
    assert words(half) != words(study)
    assert words(decide_claims(half, inputs_of(half), 1e6)) == words(study)


@pytest.mark.parametrize(("amount", "ends"), [(40, False), (10_000, True)])
def test_a_look_that_read_all_of_the_text_wants_more_text(
    amount: int, ends: bool, toy_study: Study, tmp_path: Path
) -> None:
    study, name = copy(toy_study.folder, tmp_path / "study"), "confidence-rises"
    inputs = inputs_of(study, ("refinement",))("refinement")
    assert inputs is not None
    take(study, Step("refinement", (name,), amount, "sentences", 1.0), inputs)
    looks = read_looks(study.store.folder)
    there = looks[name].sentences
    assert there is not None
    assert (there < amount) == ends
    after = measurements(study, looks)[name]
    assert (after.amount, after.most) == (amount, there if ends else None)
    assert need_of_units(after, 2).kind == ("text" if ends else "more")


@pytest.mark.usefixtures("few_calibration_keys")
def test_what_a_later_look_measures_more_of_is_what_every_claims_intervals_are_over(
    toy_study: Study,
) -> None:
    growing = {name: row.grows for name, row in ANALYSES.items() if row.grows is not None}
    first = inputs_of(toy_study, tuple(growing))("composition")
    assert first is not None
    sizes = {size: 3 * getattr(FEW, size) for size in {one.size for one in growing.values()}}
    larger = StudyInputs(first.model, first.store, replace(FEW, **sizes), first.valid, first.seed)
    results = {name: ANALYSES[name].measure(larger) for name in growing}
    at_first = {one.name: one.finding for one in toy_study.verdicts}
    for claim in CLAIMS:
        after, before = claim.find(results), at_first[claim.name]
        if after is not None and before is not None and not after.whole:
            for one, other in zip(after.effects, before.effects, strict=True):
                assert one.found.n > other.found.n, (claim.name, one.name)


@pytest.mark.parametrize("faster", ["removal", "causal"])
def test_what_is_measured_first_does_not_depend_on_how_long_it_took(
    faster: str, toy_study: Study, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    study, taken = copy(toy_study.folder, tmp_path / "study"), list[str]()
    for name in AGAIN:
        path = study.store.folder.result(name)
        write_result(path, replace(read_result(path), seconds=1.0 if name == faster else 9.0))
    monkeypatch.setattr(
        "ffmem.analyses.open_claims.decisions.take",
        lambda _study, step, _inputs: taken.append(step.analysis),
    )
    decide_claims(study, inputs_of(study), 1e6)
    assert tuple(taken) == AGAIN


def test_a_look_ends_when_people_have_judged_or_a_control_is_new(
    toy_study: Study, tmp_path: Path
) -> None:
    study, name = copy(toy_study.folder, tmp_path / "study"), "every-key-has-a-pattern"
    folder, claim = study.store.folder, next(one for one in CLAIMS if one.name == name)
    finding = claim.find({"patterns": study.result("patterns")})
    assert finding is not None
    control = folder.control("permuted-weights").result("patterns")
    absent = control.rename(tmp_path / "patterns.json")
    first = first_looks(folder, claim.analyses)
    write_looks(folder, {name: ClaimLook(name, 2, 9, 1.0, finding, {}, first)}, 1.0)
    assert words(open_study(study.folder))[name][1] == 2
    absent.rename(control)
    assert words(open_study(study.folder))[name][1] == 1
    first = first_looks(folder, claim.analyses)
    write_looks(folder, {name: ClaimLook(name, 2, 9, 1.0, finding, {}, first)}, 1.0)
    assert words(open_study(study.folder))[name][1] == 2
    rule = study.result("patterns")
    person = JudgesPatterns(replace(rule.summary, annotator="ann"), rule.controls)
    write_result(folder.result("patterns-ann"), ResultFile("patterns-ann", {}, 0.0, person))
    assert words(open_study(study.folder))[name][1] == 1
    found = next(one for one in open_study(study.folder).verdicts if one.name == name).finding
    assert found is not None
    assert "by ann" in found.detail


def test_without_time_nothing_is_measured(toy_study: Study, tmp_path: Path) -> None:
    study, said = copy(toy_study.folder, tmp_path / "study"), list[str]()
    found = decide_claims(study, inputs_of(study), 0, said.append)
    assert (words(found), said) == (words(toy_study), [])
    assert not study.store.folder.result(RESULT).exists()


def test_a_verdict_stays_when_its_analysis_runs_again_and_goes_with_another_size(
    looks: tuple[Study, list[str], Path], tmp_path: Path
) -> None:
    study = copy(looks[0].folder, tmp_path / "study")
    inputs = inputs_of(study)("removal")
    assert inputs is not None
    run_analyses(inputs, ("removal",), study.folder, ("removal",))
    assert words(open_study(study.folder)) == words(study)
    inputs.sizes = replace(inputs.sizes, removal_keys=inputs.sizes.removal_keys + 1)
    run_analyses(inputs, ("removal",), study.folder, ("removal",))
    later = open_study(study.folder).verdicts
    assert {one.look for one in later if one.analysis == "removal"} == {1}
    study.store.folder.result(RESULT).write_text("{")  # damaged: the same command makes it again
    assert {one.look for one in open_study(study.folder).verdicts} == {1}
