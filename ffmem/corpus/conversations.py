"""Conversations: messages in their roles, and the text that a chat template makes of them.

A conversation travels as one line of JSON, a list of {"role", "content"}, until a tokenizer's chat
template writes the text that the model reads. What the template adds (role markers, a system
message of its own) is read too, but it is not content: no trigger ends there.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ffmem.corpus.chat_templates import fill_template
from ffmem.errors import CorpusError, shorten
from ffmem.locations import first_line

MESSAGES, CONVERSATIONS = "messages", "conversations"  # columns that hold them, by custom
NAMES = (("role", "content"), ("from", "value"))  # of a message's two parts, by custom
ROLES = {"human": "user", "gpt": "assistant", "chatgpt": "assistant", "bot": "assistant"}
_MARK = re.compile("\ue000([0-9]+)\ue001")  # in private characters, which no template knows

Message = dict[str, str]
Span = tuple[int, int]


def column_of(names: Collection[str], column: str) -> str:
    """The column of messages: the one that was asked for, or the other customary one."""
    other = column == MESSAGES and MESSAGES not in names and CONVERSATIONS in names
    return CONVERSATIONS if other else column


def conversation_line(value: Any, where: str) -> str:
    """A row's messages as one line of JSON, whatever their parts are called; empty without any."""
    if isinstance(value, dict):
        value = value.get(column_of(value, MESSAGES))
    if value is None:
        return ""
    if not isinstance(value, list):
        raise CorpusError(
            f"{where} holds {type(value).__name__}, not a list of messages; write "
            '[{"role": "user", "content": "..."}, ...], or leave --chat out'
        )
    messages = [_message(one, where) for one in value]
    return json.dumps(messages, ensure_ascii=False) if messages else ""


def _message(value: Any, where: str) -> Message:
    for role, content in NAMES if isinstance(value, dict) else ():
        if role in value and content in value:
            name = str(value[role])
            return {"role": ROLES.get(name, name), "content": _content(value[content], where)}
    raise CorpusError(
        f"{where} holds a message without a role and a content; write each as "
        '{"role": "user", "content": "..."}'
    )


def _content(value: Any, where: str) -> str:
    """The text of a message; for a message in parts, the parts that are text."""
    if value is None:
        return ""
    if isinstance(value, list):
        return "".join(str(part.get("text", "")) for part in value if isinstance(part, dict))
    if not isinstance(value, str):
        raise CorpusError(f"{where} holds a message that is {type(value).__name__}, not text")
    return value


@dataclass(frozen=True)
class ChatText:
    """The text of a conversation as a model reads it, and which characters are content."""

    text: str
    spans: tuple[Span, ...]


def template_digest(tokenizer: Any, name: str) -> str:
    """Twelve hex digits that stand for a chat template; refuses a model without one."""
    template = getattr(tokenizer, "chat_template", None)
    if not template:
        raise CorpusError(f"the tokenizer of {name} has no chat template; leave chat out")
    return hashlib.sha256(json.dumps(template, sort_keys=True).encode()).hexdigest()[:12]


def chat_text(messages: list[Message], tokenizer: Any, answer: bool = False) -> ChatText:
    """The text that a tokenizer's template makes of messages, without the leading BOS.

    With `answer` it ends where the model's answer begins.
    """
    marks = [one | {"content": f"\ue000{number}\ue001"} for number, one in enumerate(messages)]
    text, frame = template_text([messages, marks], tokenizer, answer)
    pieces = _MARK.split(frame)  # the template's own, and between them the messages' numbers
    contents = [messages[int(number)]["content"] for number in pieces[1::2]]
    spans = _content_spans(text, pieces[::2], contents)
    if spans is None:
        begin = shorten(messages[0]["content"])
        raise CorpusError(
            f"the chat template writes the conversation that begins {begin!r} so that its "
            "messages cannot be separated from the template; leave it out"
        )
    lead = getattr(tokenizer, "bos_token", None) or getattr(tokenizer, "eos_token", None) or ""
    cut = len(lead) if text.startswith(lead) else 0
    return ChatText(text[cut:], tuple((start - cut, end - cut) for start, end in spans))


def question_text(text: str, tokenizer: Any, name: str) -> str:
    """The prompt for an answer to this user message, without the leading BOS."""
    template_digest(tokenizer, name)  # refuses one without a template
    return chat_text([{"role": "user", "content": text}], tokenizer, answer=True).text


def template_text(
    conversations: Sequence[Sequence[Mapping[str, object]]], tokenizer: Any, answer: bool = False
) -> list[str]:
    """What a tokenizer's chat template makes of conversations, or one sentence why it does not."""
    try:
        return fill_template(conversations, tokenizer, answer)
    except Exception as error:  # a tokenizer without a template raises what its author does
        begin = shorten(str(conversations[0][0]["content"]))
        raise CorpusError(
            f"the chat template refuses the conversation that begins {begin!r} "
            f"({shorten(first_line(error))}); leave it out"
        ) from error


def _content_spans(text: str, pieces: list[str], contents: list[str]) -> list[Span] | None:
    """Where the contents stand between a template's pieces; None where the pieces do not fit.

    A template may trim a message, or leave something out of it (an earlier answer's thoughts).
    """
    if not text.startswith(pieces[0]):
        return None
    start, spans = len(pieces[0]), []
    for number, (content, piece) in enumerate(zip(contents, pieces[1:], strict=True), 1):
        is_last = number == len(contents)
        end = _content_end(text, start, (content, piece), is_last)
        if end is None:
            return None
        spans.append((start, end))
        start = end + len(piece)
    return spans if start == len(text) else None


def _content_end(text: str, start: int, expected: tuple[str, str], is_last: bool) -> int | None:
    content, piece = expected
    for form in (content, content.rstrip(), content.lstrip(), content.strip()):
        end = start + len(form)
        whole = not is_last or end + len(piece) == len(text)
        if whole and text.startswith(form + piece, start):
            return end
    end = len(text) - len(piece) if is_last else text.find(piece, start)
    return end if end >= start and text.startswith(piece, end) else None


def read_conversation(document: str) -> list[Message]:
    """The messages of a document; a document that was cut is not whole JSON any more."""
    try:
        messages: list[Message] = json.loads(document)
    except ValueError:
        raise CorpusError(
            f"the conversation that begins {shorten(document)!r} is larger than 2 MiB; leave it out"
        ) from None
    return messages


def is_content(spans: tuple[Span, ...], ends: NDArray[np.int32]) -> NDArray[np.bool_]:
    """Whether each token of a text, by the character where it ends, lies wholly in a message."""
    first, last = np.array(spans or [(0, 0)], dtype=np.int64).T
    begins = np.concatenate([[0], ends[:-1]])
    span = np.searchsorted(first, begins, side="right") - 1
    inside: NDArray[np.bool_] = (span >= 0) & (begins < last[span]) & (ends <= last[span])
    return inside
