"""A memory explained by a language model: what it says is scored by triggers and by tokens."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import torch

from ffmem.address import Address
from ffmem.analyses.causal.measure import trigger_places
from ffmem.analyses.inputs.next_tokens import next_log_probabilities
from ffmem.analyses.patterns.findings import ChatUsage, KeyFinding, OutputScore, PatternFinder
from ffmem.annotations.llm_annotator import Explainer, WatchedChat, ask_about_sheet, share_right
from ffmem.annotations.sheets import SheetAnswer, sheet_of_key
from ffmem.errors import AnnotatorError
from ffmem.memories.edits import Edit
from ffmem.models.language_model import LanguageModel
from ffmem.steps import tell
from ffmem.store.scan_store import ScanStore
from ffmem.store.search.lookup import MemoryIndex

OTHERS = 3  # matched memories that a description is tested against
Lists = list[list[str]]
AskModel = Callable[[Callable[[LanguageModel], Lists]], Lists]
QUESTIONS = 1 + 4 * OTHERS  # for an explanation: its patterns, then two lists in both orders, twice
TOKENS_PER_LIST = 10  # tokens of each list
ABLATION_TRIGGERS = 4  # at which a memory is silenced


def explanation(
    store: ScanStore, lookup: MemoryIndex, explainer: Explainer, ask_model: AskModel
) -> Callable[[PatternFinder, Address], KeyFinding]:
    """The work of one explanation: ask, score against held-out triggers, then by what it writes.

    `ask_model` answers a question to the scanned model.
    """

    def work(finder: PatternFinder, key: Address) -> KeyFinding:
        chat = WatchedChat(explainer.chat, _tell_question)
        sheet = sheet_of_key(store, key)
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
        others = matched_memories(store, key, OTHERS)
        described = [pattern.description for pattern in patterns]
        values = [_value_list(lookup, cell) for cell in (key, *others)]
        changes = ask_model(
            lambda model: [change_list(model, store, cell) for cell in (key, *others)]
        )
        output = OutputScore(
            questions=2 * len(others),
            by_value=share_right(chat, described, values[0], values[1:]),
            by_change=share_right(chat, described, changes[0], changes[1:]),
        )
        usage = ChatUsage(chat.asked, chat.read, chat.written)
        return replace(found, output=output, usage=usage)

    return work


def _tell_question(asked: int, seconds: float) -> None:
    """Say which question a language model is at, for how long."""
    every = max(QUESTIONS, asked + 1)  # a reply that breaks the rules is asked for again
    tell(f"question {asked + 1} of about {every}, {seconds:.0f} s", asked / every)


def matched_memories(store: ScanStore, key: Address, count: int) -> list[Address]:
    """Other memories of the layer that fire most nearly as often."""
    rows, own = store.cells.rows_of(key.layer), store.cells.row(key)
    fires = np.log1p(np.asarray(store.positive_counts[rows], dtype=np.float64))
    apart = np.abs(fires - fires[own - rows.start])
    order = rows.start + np.argsort(apart, kind="stable")
    alive = [int(row) for row in order if row != own and store.positive_counts[row] > 0]
    return store.cells.addresses(alive[:count]) if alive else []


def _value_list(lookup: MemoryIndex, cell: Address) -> list[str]:
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
