"""A language model as annotator: asked about every sheet, its replies checked and repaired.

A reply is read and checked before it may become an answer.
"""

from __future__ import annotations

import json
import re
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from typing import Any, cast

from ffmem.analyses.patterns.record import MIN_TRIGGERS, PatternKind
from ffmem.annotations.answer_rules import check, normalise
from ffmem.annotations.chat import CachedChat, Chat, Message, Reply, Usage
from ffmem.annotations.sheets import PatternAnswer, Sheet
from ffmem.store.people.annotators import LANGUAGE_MODEL

MOST_PATTERNS = 6  # that are asked for; the paper's people saw 3.6
REPAIRS = 2  # times a reply that breaks the rules is sent back
CHARACTERS = 4  # of English per token, about
LOOK_EVERY = 0.5  # seconds between two looks whether a reply is still wanted


@dataclass(frozen=True)
class ParsedReply:
    """The patterns of a reply that hold, and a sentence for each of those that do not.

    `readable` is False where the reply as a whole is not an answer: no JSON, or none of our form.
    """

    answers: tuple[PatternAnswer, ...]
    faults: tuple[str, ...]
    readable: bool = True


def parse_reply(text: str, sheet: Sheet) -> ParsedReply:
    """Read a reply about a sheet."""
    found = _object(text)
    if found is None:
        return ParsedReply((), ("there is no JSON object in it",), readable=False)
    patterns = found.get("patterns")
    if not isinstance(patterns, list):
        return ParsedReply((), ('the object has no list "patterns"',), readable=False)
    if len(patterns) > MOST_PATTERNS:
        many = f"there are {len(patterns)} patterns; give the {MOST_PATTERNS} clearest"
        return ParsedReply((), (many,), readable=False)
    read = {number: _pattern(each) for number, each in enumerate(patterns, 1)}
    answers = {number: each for number, each in read.items() if not isinstance(each, str)}
    faults = {number: [each] for number, each in read.items() if isinstance(each, str)}
    numbers = list(answers)
    for fault in check(list(answers.values()), sheet):
        faults.setdefault(numbers[fault.pattern - 1], []).append(fault.message)
    return ParsedReply(
        tuple(normalise(each) for number, each in answers.items() if number not in faults),
        tuple(f"pattern {number}: {'; '.join(faults[number])}" for number in sorted(faults)),
    )


def _object(text: str) -> dict[str, Any] | None:
    """The first JSON object that has our list, or else the first at all, whatever is around it."""
    decoder, found = json.JSONDecoder(), list[dict[str, Any]]()
    at = text.find("{")
    while at >= 0:
        try:
            value, end = decoder.raw_decode(text, at)
        except (ValueError, RecursionError):
            at = text.find("{", at + 1)
            continue
        found.append(value)
        at = text.find("{", end)
    return next((each for each in found if "patterns" in each), found[0] if found else None)


def _pattern(each: Any) -> PatternAnswer | str:
    """One pattern, not yet checked, or why it does not have the form of one."""
    if not isinstance(each, dict):
        return "it is not an object"
    description, kind = each.get("description", ""), each.get("class", "")
    if not isinstance(description, str) or not isinstance(kind, str):
        return '"description" and "class" must be texts'
    ranks = each.get("prefixes", [])
    if not isinstance(ranks, list) or any(type(rank) is not int for rank in ranks):
        return '"prefixes" must be a list of whole numbers'
    return PatternAnswer(description, cast(PatternKind, kind), tuple(ranks))


@dataclass(frozen=True)
class LlmAnswer:
    """What became of one sheet.

    `answers` is None where no reply was of the right form: the sheet stays unanswered. Where single
    patterns break the rules to the last, the others count and `dropped` says what was wrong.
    """

    sheet: Sheet
    answers: tuple[PatternAnswer, ...] | None
    dropped: tuple[str, ...]
    replies: int


@dataclass(frozen=True)
class Explainer:
    """A language model that can be asked, and its name."""

    name: str
    chat: Chat

    @property
    def annotator(self) -> str:
        """The name under which its answers stand."""
        return f"{LANGUAGE_MODEL}{self.name}"


class WatchedChat:
    """The same chat, whose replies are waited for beside it: `watch` is called again and again.

    `watch` hears how many questions were asked before and for how many seconds this one has been
    waited for. What it raises ends the waiting; the reply still comes, and may be kept, later.
    """

    def __init__(self, chat: Chat, watch: Callable[[int, float], None]) -> None:
        self._chat, self._watch = chat, watch
        self.asked = self.read = self.written = 0

    def __call__(self, messages: Sequence[Message]) -> Reply:
        """Ask in a thread of its own, and wait."""
        reply, began = Future[Reply](), time.monotonic()
        threading.Thread(target=self._ask, args=(messages, reply), daemon=True).start()
        while not reply.done():
            self._watch(self.asked, time.monotonic() - began)
            wait([reply], LOOK_EVERY)
        found = reply.result()
        self.asked += 1
        self.read += found.read
        self.written += found.written
        return found

    def _ask(self, messages: Sequence[Message], reply: Future[Reply]) -> None:
        try:
            reply.set_result(self._chat(messages))
        except BaseException as error:
            reply.set_exception(error)


def ask_about_sheet(chat: Chat, sheet: Sheet) -> LlmAnswer:
    """Ask about one sheet; a reply that breaks the rules goes back with what is wrong with it."""
    messages = question(sheet)
    best: tuple[tuple[PatternAnswer, ...] | None, tuple[str, ...]] = (None, ())
    for turn in range(1, REPAIRS + 2):
        reply = chat(messages)
        found = parse_reply(reply.text, sheet)
        if not found.faults:
            return LlmAnswer(sheet, found.answers, (), turn)
        if found.readable or best[0] is None:
            best = (found.answers if found.readable else None, found.faults)
        messages = [*messages, *complaint(reply.text, found.faults)]
    return LlmAnswer(sheet, *best, REPAIRS + 1)


def answers_by_llm(chat: Chat, sheets: Sequence[Sheet], at_once: int = 1) -> Iterator[LlmAnswer]:
    """Ask about all sheets, several at a time; answers come in the order of the sheets.

    Where asking fails, what was under way is dropped and nothing more is asked.
    """
    failed: list[BaseException] = []  # filled by the thread that fails, before it takes more

    def ask(sheet: Sheet) -> LlmAnswer:
        if failed:
            raise failed[0]
        try:
            return ask_about_sheet(chat, sheet)
        except BaseException as error:
            failed.append(error)
            raise

    with ThreadPoolExecutor(at_once) as threads:
        waiting = [threads.submit(ask, sheet) for sheet in sheets]
        try:
            for answer in waiting:
                yield answer.result()
        finally:
            for answer in waiting:
                answer.cancel()


def expected_usage(chat: CachedChat, sheets: Sequence[Sheet], most: int) -> Usage:
    """The cost if no reply must be repaired and every one has the maximum length."""
    questions = [question(sheet) for sheet in sheets]
    new = [messages for messages in questions if not chat.knows(messages)]
    letters = sum(len(turn["content"]) for messages in new for turn in messages)
    return Usage(len(new), len(questions) - len(new), letters // CHARACTERS, most * len(new))


INSTRUCTIONS = f"""\
You are given numbered beginnings of sentences. Read all of them, above all how each one ends, \
then name the patterns that repeat among them.

A pattern is something that at least {MIN_TRIGGERS} of the beginnings have in common and that \
beginnings drawn at random would not. Its class is
- "shallow" if it can be seen on the surface: the same last word or piece of a word, a recurring \
phrase;
- "semantic" if it is a shared meaning or topic, in different words or in the same.
Where one thing is seen in both ways, give two patterns, one of each class.

Know what is common anyway. Of 25 beginnings drawn at random, two or three end in the same \
frequent word ("the", "of", a comma), one in two names a person or place, one in three has a \
number, and a few share a wide topic such as history, sport or politics. That is a pattern only \
where clearly more of them have it. A rare word, a rare piece or a narrow topic that three share is.

The same beginning given several times counts once: copies alone are no pattern. A pattern that \
they have names all of them.

For each pattern give a description in a few words, its class, and the numbers of all beginnings \
that have it. A beginning can have several patterns, or none. Give at most {MOST_PATTERNS}, the \
clearest. Some lists were put together at random: if nothing repeats, give an empty list.

Answer with one JSON object and nothing else, in this form:
{{"patterns": [{{"description": "...", "class": "shallow", "prefixes": [2, 5, 11]}}]}}"""

LAST_LINE = "Now answer with the JSON object only."  # small models forget what stood at the top


def question(sheet: Sheet) -> list[Message]:
    """The conversation that asks for a sheet's patterns; nothing in it tells keys from controls."""
    lines = [
        f"{rank}. {' '.join((prefix.before + prefix.last).split())}"
        for rank, prefix in enumerate(sheet.prefixes, 1)
    ]
    return [
        {"role": "system", "content": INSTRUCTIONS},
        {"role": "user", "content": "\n".join([*lines, "", LAST_LINE])},
    ]


def complaint(reply: str, faults: Sequence[str]) -> list[Message]:
    """The two turns that ask for a refused reply once more."""
    wrong = "\n".join(f"- {fault}" for fault in faults)
    text = f"This answer cannot be used:\n{wrong}\nGive the whole JSON object again, corrected."
    return [{"role": "assistant", "content": reply}, {"role": "user", "content": text}]


# Does a description of what fires a memory also tell what the memory writes? The model that gave it
# reads it beside two lists of tokens, one of the memory and one of a matched other memory.

CHOICE = """\
A unit of a language model becomes active on the texts that are described below, and then makes \
some next words more likely. Two lists of words are given. One is what this unit makes more \
likely, the other is what another unit does. Say which list belongs to the described unit.

Answer with one JSON object and nothing else: {"list": "A"} or {"list": "B"}"""


def _output_question(
    descriptions: Sequence[str], first: Sequence[str], second: Sequence[str]
) -> list[Message]:
    """The conversation that asks which of two lists belongs to a described memory."""
    lines = [
        "Active on: " + "; ".join(descriptions),
        "A: " + json.dumps(list(first), ensure_ascii=False),
        "B: " + json.dumps(list(second), ensure_ascii=False),
        "",
        "Now answer with the JSON object only.",
    ]
    return [
        {"role": "system", "content": CHOICE},
        {"role": "user", "content": "\n".join(lines)},
    ]


def list_choice(reply: str) -> str | None:
    """A or B; None where the reply says neither."""
    match = re.search(r'"list"\s*:\s*"([AB])"', reply) or re.fullmatch(r"\W*([AB])\W*", reply)
    return match[1] if match else None


def share_right(
    chat: Chat, descriptions: Sequence[str], own: Sequence[str], others: Sequence[Sequence[str]]
) -> float:
    """How often the memory's own list is chosen; a reply that says neither counts one half."""
    right = 0.0
    for other in others:
        for letter, pair in (("A", (own, other)), ("B", (other, own))):
            choice = list_choice(chat(_output_question(descriptions, *pair)).text)
            right += 0.5 if choice is None else float(choice == letter)
    return right / (2 * len(others)) if others else float("nan")
