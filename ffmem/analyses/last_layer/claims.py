"""What the paper says of the last layer, and what decides it."""

from __future__ import annotations

import math
from typing import Any

from ffmem.analyses.analysis import PaperQuestion
from ffmem.analyses.claim import BLIND, Effect, Finding, claim, share_text, up_to
from ffmem.analyses.last_layer.record import JudgedCases, JudgesCases, LastLayer
from ffmem.analyses.result_files import plain_result
from ffmem.analyses.statistics import difference
from ffmem.records import restore
from ffmem.store.folder import StudyFolder
from ffmem.store.people.annotators import is_person


@claim(
    "last-layer",
    "34 of 100 related, by people",
    "share",
    "every reader calls less than half of the changes related, and more of them than of the "
    "shuffled pairs among them; a rule cannot decide it",
)
def last_changes_are_distant(result: LastLayer | JudgedCases) -> Finding:
    """Most changes in the last layer go to an unrelated token."""
    if isinstance(result, LastLayer):
        reason = "nobody has judged the cases yet; the rule’s share is shown"
        effects = (Effect("more than half are distant", up_to(1, result.related), 0.5),)
        against = "shuffled pairs"
        return Finding(
            result.related, result.shuffled, against, effects, reason=reason, awaits="people"
        )
    most = max(result.judges, key=lambda one: one.related.estimate)
    effects = (Effect("more than half are distant", up_to(1, most.related), 0.5),)
    blind = [one for one in result.judges if not _tells_apart(one)]
    reason = f"{blind[0].annotator} did not tell the cases from the blind controls" if blind else ""
    agreement = "" if math.isnan(result.alpha) else f" (alpha {result.alpha:.2f})"
    rule = share_text(result.rule.related.estimate)
    detail = f"by {most.annotator}"
    if is_person(most.annotator):
        detail += f", who calls most related, of {len(result.judges)} people"
    detail += f"{agreement}; by rule {rule}"
    return Finding(
        most.related,
        most.controls,
        "blind controls",
        effects,
        detail,
        reason,
        alone=BLIND,
        awaits="people who tell the cases from the blind controls"
        if blind
        else "more cases, judged by the same",
    )


def _tells_apart(one: JudgesCases) -> bool:
    """Whether a person calls more of the cases related than of the shuffled pairs among them."""
    return difference(one.related, one.controls).low > 0


def with_judgements(result: LastLayer, folder: StudyFolder) -> LastLayer | JudgedCases:
    """The cases with what people said of them, or else a language model that read them blind."""
    found = plain_result(folder, "case-agreement")
    if people := _people_on_cases(found):
        return JudgedCases(result, people, restore(float, found.get("alpha")))
    if (read := result.readings) is not None:
        judge = JudgesCases(read.annotator, read.related, read.controls)
        return JudgedCases(result, (judge,), math.nan)
    return result


CLAIMS = (  # in the paper's order
    last_changes_are_distant,
)

QUESTIONS: tuple[PaperQuestion[LastLayer | JudgedCases], ...] = (
    PaperQuestion("Are the last layer’s changes to related tokens?", last_changes_are_distant),
)


def _people_on_cases(found: dict[str, Any]) -> tuple[JudgesCases, ...]:
    """Every person's judgements in what `ffmem annotate agreement` has left."""
    shares = restore(tuple[JudgesCases, ...], found.get("shares", []))
    return tuple(one for one in shares if is_person(one.annotator) and one.related.n)
