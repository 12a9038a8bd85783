"""Patterns that people, rules or models have found, by memory, and what they are worth."""

from __future__ import annotations

import asyncio
import json
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
import torch

from ffmem.address import Address
from ffmem.analyses.causal import next_log_probabilities, trigger_places
from ffmem.annotations.llm_annotator import WatchedChat, ask_about_sheet, share_right
from ffmem.annotations.sheets import SheetAnswer, sheet_of_key
from ffmem.errors import AnnotatorError
from ffmem.explorer.live_model import Work
from ffmem.memories.edits import Edit
from ffmem.models.language_model import LanguageModel
from ffmem.patterns.findings import (
    RESULT,
    ChatUsage,
    KeyFinding,
    OutputScore,
    PatternFinder,
    read_findings,
)
from ffmem.steps import tell
from ffmem.store.digests import check_note
from ffmem.store.folder import StudyFolder
from ffmem.store.lookup import MemoryIndex
from ffmem.store.scan_store import ScanStore
from ffmem.store.slots import TRIGGERS_SHOWN

if TYPE_CHECKING:
    from ffmem.explorer.context import StudyContext

Answer = TypeVar("Answer")
OTHERS = 3  # matched memories that a description is tested against
QUESTIONS = 1 + 4 * OTHERS  # for an explanation: its patterns, then two lists in both orders, twice
TOKENS_PER_LIST = 10  # tokens of each list
ABLATION_TRIGGERS = 4  # at which a memory is silenced


@dataclass(frozen=True)
class PatternView:
    """What triggers have in common: which of them (ranks from 1), and the share that is."""

    description: str
    kind: str
    ranks: tuple[int, ...]
    annotator: str
    covered: float


@dataclass(frozen=True, eq=False)
class StudyPatterns:
    """Every pattern of a study, by address."""

    by_address: dict[str, tuple[PatternView, ...]]

    def of(self, address: str) -> tuple[PatternView, ...]:
        """The patterns of one memory."""
        return self.by_address.get(address, ())


def answer_patterns(answer: SheetAnswer) -> list[PatternView]:
    """An annotator's answer to a sheet, in the same form."""
    return [
        PatternView(
            one.description,
            one.kind,
            one.ranks,
            answer.annotator,
            len(one.ranks) / TRIGGERS_SHOWN,
        )
        for one in answer.answers
    ]


def pattern_results(folder: StudyFolder) -> StudyPatterns:
    """All patterns of a study, read again only when a file has changed."""
    paths = folder.matching(folder.result("patterns*"))
    return _read(tuple((path, path.stat().st_mtime_ns) for path in paths))


@lru_cache(maxsize=4)
def _read(files: tuple[tuple[Path, int], ...]) -> StudyPatterns:
    found: dict[str, list[PatternView]] = defaultdict(list)
    for path, _ in files:
        check_note(path)
        data = json.loads(path.read_text(encoding="utf-8"))
        for record in data.get("result", data).get("records", []):
            found[_address(record["key"])].append(
                PatternView(
                    description=record["description"],
                    kind=record["kind"],
                    ranks=tuple(record["ranks"]),
                    annotator=record["annotator"],
                    covered=len(record["ranks"]) / TRIGGERS_SHOWN,
                )
            )
    ordered = {
        address: tuple(sorted(patterns, key=lambda pattern: -pattern.covered))
        for address, patterns in found.items()
    }
    return StudyPatterns(ordered)


def _address(key: dict[str, Any] | str) -> str:
    return key if isinstance(key, str) else str(Address(**key))


@dataclass(frozen=True)
class FindingView:
    """What patterns found on request are worth; a number is None where it could not be measured.

    `auc_random` and `auc_weak`: held-out triggers against random and weaker prefixes, chance 0.5.
    `by_value` and `by_change`: how often a language model knows the memory's tokens from a matched
    memory's by the description, chance 0.5, of `questions`.
    """

    annotator: str
    triggers: int
    patterns: int
    auc_random: float | None
    auc_weak: float | None
    controls: int
    false_patterns: int
    questions: int = 0
    by_value: float | None = None
    by_change: float | None = None
    usage: ChatUsage | None = None  # of the language model that was asked


def finding_views(store: ScanStore, address: str) -> tuple[FindingView, ...]:
    """The patterns found on request for one memory."""
    path = store.folder.result(RESULT)
    try:
        changed = path.stat().st_mtime_ns
    except OSError:
        return ()
    return _views(path, changed, store.manifest.key.digest).get(address, ())


@lru_cache(maxsize=2)
def _views(path: Path, _changed: int, scan: str) -> dict[str, tuple[FindingView, ...]]:
    found: dict[str, tuple[FindingView, ...]] = {}
    for one in read_findings(StudyFolder(path.parent.parent), scan):
        found[str(one.key)] = (*found.get(str(one.key), ()), finding_view(one))
    return found


def finding_view(one: KeyFinding) -> FindingView:
    """One finding in plain numbers."""
    auc = {score.against: score.auc.estimate for score in one.held_out}
    output = one.output
    return FindingView(
        annotator=one.annotator,
        triggers=one.triggers,
        patterns=len(one.patterns),
        auc_random=auc.get("random"),
        auc_weak=auc.get("weak"),
        controls=one.controls,
        false_patterns=one.false_patterns,
        questions=0 if output is None else output.questions,
        by_value=None if output is None else output.by_value,
        by_change=None if output is None else output.by_change,
        usage=one.usage,
    )


def explanation_by_llm(context: StudyContext, loop: asyncio.AbstractEventLoop) -> Work:
    """The work of one explanation: ask, score against held-out triggers, then by what it writes.

    It runs in a thread of its own; questions to the live model go through the server's `loop`.
    """
    explainer = context.explainer
    if explainer is None:
        raise AnnotatorError(
            "no language model is there to explain; start the explorer with --llm NAME, and with "
            "--endpoint URL where it is a server's"
        )

    def ask_model(question: Callable[[LanguageModel], Answer]) -> Answer:
        return asyncio.run_coroutine_threadsafe(context.live.ask(question), loop).result()

    def work(finder: PatternFinder, key: Address) -> KeyFinding:
        chat = WatchedChat(explainer.chat, tell_question)
        sheet = sheet_of_key(context.store, key)
        answer = ask_about_sheet(chat, sheet)
        if answer.answers is None:
            raise AnnotatorError(
                f"{explainer.name} gave no answer of the right form in {answer.replies} tries: "
                f"{'; '.join(answer.dropped)}; start the explorer with a larger model"
            )
        patterns = SheetAnswer(sheet, explainer.annotator, answer.answers).patterns()
        found = finder.by_other(key, patterns, explainer.annotator)
        if not patterns:
            return replace(found, usage=ChatUsage(chat.asked, chat.read, chat.written))
        others = matched_memories(context.store, key, OTHERS)
        described = [pattern.description for pattern in patterns]
        values = [value_list(context.lookup, cell) for cell in (key, *others)]
        changes = ask_model(
            lambda model: [change_list(model, context.store, cell) for cell in (key, *others)]
        )
        output = OutputScore(
            questions=2 * len(others),
            by_value=share_right(chat, described, values[0], values[1:]),
            by_change=share_right(chat, described, changes[0], changes[1:]),
        )
        usage = ChatUsage(chat.asked, chat.read, chat.written)
        return replace(found, output=output, usage=usage)

    return work


def tell_question(asked: int, seconds: float) -> None:
    """Say which question a language model is at, for how long."""
    every = max(QUESTIONS, asked + 1)  # a reply that breaks the rules is asked for again
    tell(f"question {asked + 1} of about {every}, {seconds:.0f} s", asked / every)


def matched_memories(store: ScanStore, key: Address, count: int) -> list[Address]:
    """Other memories of the layer that fire most nearly as often."""
    rows, own = store.cells.rows_of(key.layer), store.cells.row(key)
    fires = np.log1p(np.asarray(store.array("fires")[rows], dtype=np.float64))
    apart = np.abs(fires - fires[own - rows.start])
    order = rows.start + np.argsort(apart, kind="stable")
    alive = [int(row) for row in order if row != own and store.array("fires")[row] > 0]
    return store.cells.addresses(alive[:count]) if alive else []


def value_list(lookup: MemoryIndex, cell: Address) -> list[str]:
    """The tokens that a memory's value promotes most."""
    return [push.text for push in lookup.value_tokens(cell, count=TOKENS_PER_LIST)]


@torch.no_grad()
def change_list(model: LanguageModel, store: ScanStore, cell: Address) -> list[str]:
    """The tokens whose probability falls most when a memory is silenced at its triggers."""
    places = trigger_places(store, [cell], ABLATION_TRIGGERS)
    if not places.prefixes:
        return []
    silence = [Edit(cell, "set", 0.0)] * len(places.prefixes)
    before = next_log_probabilities(model, places.prefixes).exp()
    after = next_log_probabilities(model, places.prefixes, silence).exp()
    falls = (before - after).mean(dim=0).topk(TOKENS_PER_LIST).indices
    return [model.token_text(token) for token in falls.tolist()]


def first_cells_of(store: ScanStore, rows: Sequence[int], most: int) -> list[Address]:
    """Some cells by their rows, those that nothing fires left out."""
    fires = store.array("fires")
    return store.cells.addresses([int(row) for row in rows if fires[row] > 0][:most])
