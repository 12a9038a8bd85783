"""How a report opens: the finding in three sentences, one memory, and four small figures."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from ffmem.address import Address
from ffmem.analyses.predictive_values import ValueRow
from ffmem.report.examples import BEFORE, ExampleTrigger, KeyRow
from ffmem.report.verdicts import Verdict
from ffmem.store.memory_page import MemoryPage, cut
from ffmem.studies.study import Study

FIGURES = (  # one of each chapter of the paper
    "patterns",
    "values-agreement",
    "composition-zero-agreement",
    "refinement-winners",
)
SENTENCES = {  # by the claim whose numbers they say; they judge nothing
    "every-key-has-a-pattern": "Keys detect patterns: {number} of the keys that were drawn have a "
    "pattern that repeats in their triggers",
    "upper-values-agree": "Values promote tokens: {number} of the values in the upper layers put "
    "first the very token that follows their key's strongest trigger",
    "a-third-is-settled-early": "Layers refine: {number} of the predictions are on top of the "
    "residual at 5/16 of the depth",
}
SHOWN = 6  # triggers and tokens of the memory


@dataclass(frozen=True)
class Sentence:
    """One finding in words: `{number}` stands for that of the verdict."""

    text: str
    verdict: Verdict


@dataclass(frozen=True)
class Push:
    """A token that the value promotes, and its logit as a share of the largest one."""

    token: str
    share: float


@dataclass(frozen=True)
class MemoryExample:
    """One memory as it is drawn: what fires its key, and what its value promotes."""

    address: Address
    frequency: str
    triggers: tuple[ExampleTrigger, ...]
    promoted: tuple[Push, ...]


def sentences(verdicts: Sequence[Verdict]) -> tuple[Sentence, ...]:
    """The finding; claims that were not measured have no sentence."""
    by_name = {
        verdict.name: verdict
        for verdict in verdicts
        if verdict.finding is not None and not math.isnan(verdict.finding.number.estimate)
    }
    return tuple(
        Sentence(text, by_name[name]) for name, text in SENTENCES.items() if name in by_name
    )


def example_memory(
    study: Study, values: Sequence[ValueRow], keys: Sequence[KeyRow]
) -> MemoryExample | None:
    """The value of Table 2 that promotes a word, or any, or a key of Table 1, or none."""
    words = [
        row.address for row in values if len(word := row.prediction.strip()) > 2 and word.isalpha()
    ]
    addresses = words + [row.address for row in values] + [row.key for row in keys]
    if not addresses:
        return None
    page = study.memory(addresses[0])
    return draw_memory(page if isinstance(page, MemoryPage) else page[0])


def draw_memory(page: MemoryPage) -> MemoryExample:
    """A memory's strongest triggers, equal ones once, and the tokens that its value promotes."""
    shown = dict.fromkeys(
        ExampleTrigger(cut(one.before, BEFORE), one.last, one.next or "end")
        for one in page.triggers[: 4 * SHOWN]
    )
    first = page.promoted[:SHOWN]
    most = max((abs(one.logit) for one in first), default=0.0) or 1.0
    return MemoryExample(
        address=page.address,
        frequency=page.frequency,
        triggers=tuple(shown)[:SHOWN],
        promoted=tuple(Push(one.text, max(0.0, one.logit / most)) for one in first),
    )
