"""The question that a language model gets about a sheet: the paper's instructions, in our words."""

from __future__ import annotations

from collections.abc import Sequence

from ffmem.annotations.sheets import Sheet
from ffmem.models.chat import Message
from ffmem.patterns.record import LEAST

INSTRUCTIONS = f"""\
You are given numbered beginnings of sentences. Find the patterns that repeat among them.

A pattern is something that at least {LEAST} of the beginnings have in common. Its class is
- "shallow" if it can be seen on the surface: the same last word, a recurring phrase;
- "semantic" if it is a shared meaning or topic.

For each pattern give a description in a few words, its class, and the numbers of all beginnings \
that have it. A beginning can have several patterns, or none. Some lists were put together at \
random: if nothing repeats, give an empty list of patterns.

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
