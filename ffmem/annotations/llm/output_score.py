"""Does a description of what fires a memory also tell what the memory writes?

The language model that gave the description reads it beside two lists of tokens, one of the
memory and one of a matched other memory, and says which is the memory's; each pair is asked in
both orders.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence

from ffmem.models.generation import Chat, Message

INSTRUCTIONS = """\
A unit of a language model becomes active on the texts that are described below, and then makes \
some next words more likely. Two lists of words are given. One is what this unit makes more \
likely, the other is what another unit does. Say which list belongs to the described unit.

Answer with one JSON object and nothing else: {"list": "A"} or {"list": "B"}"""


def output_question(
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
        {"role": "system", "content": INSTRUCTIONS},
        {"role": "user", "content": "\n".join(lines)},
    ]


def chosen_list(reply: str) -> str | None:
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
            said = chosen_list(chat(output_question(descriptions, *pair)).text)
            right += 0.5 if said is None else float(said == letter)
    return right / (2 * len(others)) if others else float("nan")
