"""Measure what would decide the undecided claims of a study, and nothing else.

Of each analysis with such a claim a larger sample is measured, which has the first one in it. What
it says of those claims is kept beside the results; every other number of the study stays.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace

from ffmem.analyses.analysis import Sizes
from ffmem.analyses.catalogue import ANALYSES, CLAIMS, result_key, results_with_judgements
from ffmem.analyses.inputs.study_inputs import StudyInputs, VerdictInputs
from ffmem.analyses.open_claims.looks import ClaimLook, first_looks, read_looks, write_looks
from ffmem.analyses.study import Study, open_study
from ffmem.analyses.verdicts import Verdict, findings_beside
from ffmem.models.language_model import LanguageModel
from ffmem.records import to_plain

Say = Callable[[str], None]


@dataclass(frozen=True)
class Step:
    """An analysis that is measured again: claims that it would decide, of how much, how long."""

    analysis: str
    claims: tuple[str, ...]
    amount: int
    unit: str
    seconds: float

    @property
    def text(self) -> str:
        """What is measured, as a person reads it."""
        return f"{self.analysis}: {self.amount:,} {self.unit} for {', '.join(self.claims)}"


def decide_claims(
    study: Study,
    inputs_of: Callable[[str], StudyInputs | None],
    most_seconds: float,
    say: Say = lambda _: None,
) -> Study:
    """Look again at the undecided claims, those that read no text first, while the seconds last.

    `inputs_of` gives an analysis' inputs as they were at the first look; an analysis without is
    passed over. Every look is kept as soon as it is there, so the same call goes on where one was
    stopped. What is decided changes how much the next claim needs, so the order is not that of the
    seconds, which no two machines have in common. Returns the study as it then is.
    """
    began, tried = time.monotonic(), set[Step]()
    while True:
        left = most_seconds - (time.monotonic() - began)
        steps = [one for one in next_steps(study) if one.seconds <= left and one not in tried]
        if not steps:
            return study
        step = min(steps, key=lambda one: ANALYSES[one.analysis].reads_text)  # the first of those
        tried.add(step)
        if (inputs := inputs_of(step.analysis)) is None:
            say(f"{step.analysis} was made from another text or version: give its --valid")
            continue
        say(step.text)
        take(study, step, inputs)
        study = open_study(study.folder)


def next_steps(study: Study) -> list[Step]:
    """What would be measured next: one step for every analysis with a claim that more decides."""
    found: dict[str, list[Verdict]] = {}
    for verdict in study.verdicts:
        if verdict.need is not None and verdict.need.kind == "more":
            found.setdefault(verdict.analysis, []).append(verdict)
    return [_step_of(study, name, verdicts) for name, verdicts in found.items()]


def _step_of(study: Study, name: str, verdicts: Sequence[Verdict]) -> Step:
    """The step that decides the claims of one analysis: as much as the one that needs most."""
    grows, looks = ANALYSES[name].grows, read_looks(study.store.folder)
    assert grows is not None  # noqa: S101 - or no claim of it would need more
    base = int(study.record(name).made_from[grows.size])
    needs = [(one, one.need) for one in verdicts if one.need is not None]
    amounts = [
        (looks[one.name].amount if one.name in looks else base) + round(need.amount or 0)
        for one, need in needs
    ]
    seconds = max(need.seconds or 0.0 for _, need in needs)
    return Step(name, tuple(one.name for one in verdicts), max(amounts), grows.unit, seconds)


def take(study: Study, step: Step, inputs: StudyInputs) -> None:
    """Measure a step and keep what it says of its claims."""
    began, grows = time.monotonic(), ANALYSES[step.analysis].grows
    assert grows is not None  # noqa: S101 - as above
    larger = VerdictInputs(
        inputs.model,
        inputs.store,
        replace(inputs.sizes, **{grows.size: step.amount}),
        inputs.valid,
        inputs.seed,
    )
    folder, results = study.store.folder, results_with_judgements(study)
    measured = ANALYSES[step.analysis].measure(larger)
    results[step.analysis] = ANALYSES[step.analysis].with_judgements(measured, folder)
    looks, seconds = read_looks(folder), time.monotonic() - began
    for claim in CLAIMS:
        finding = claim.find(results) if claim.name in step.claims else None
        if finding is None:
            continue
        beside = findings_beside(claim, finding, study.controls)
        looks[claim.name] = ClaimLook(
            claim=claim.name,
            look=looks[claim.name].look + 1 if claim.name in looks else 2,
            amount=step.amount,
            seconds=round(seconds, 2),
            finding=finding,
            controls={kind: tuple(found) for kind, found in beside.items()},
            first=first_looks(folder, claim.analyses),
            sentences=getattr(measured, "sentences", None),
        )
    write_looks(folder, looks, seconds)


def inputs_at_first(
    study: Study, name: str, model: LanguageModel, inputs: StudyInputs
) -> StudyInputs | None:
    """An analysis' inputs as they were; None where its result has another text or version."""
    made_from = study.record(name).made_from
    known = {one.name for one in fields(Sizes)} & made_from.keys()
    sizes = replace(inputs.sizes, **{size: made_from[size] for size in known})
    found = StudyInputs(model, study.store, sizes, inputs.valid, int(made_from["seed"]))
    return found if to_plain(result_key(name, found)) == to_plain(made_from) else None
