"""Replies kept on disk, so that the same question is never paid for twice."""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from ffmem.annotations.llm.endpoint import Endpoint
from ffmem.locations import cache_folder
from ffmem.models.generation import Chat, LocalChat, Message, Reply
from ffmem.store.folder import write_whole


@dataclass(frozen=True)
class Usage:
    """What was asked: replies that had to be made, those known before, and tokens of the first."""

    asked: int = 0
    known: int = 0
    read: int = 0
    written: int = 0


def open_chat(
    name: str, endpoint: str | None, key: str | None, most: int, rate: float | None, **options: Any
) -> CachedChat:
    """A model behind an endpoint, or one on this machine, loaded with `options`; replies are kept.

    At most so many tokens per reply, and so many requests per minute.
    """
    chat: Chat
    if endpoint:
        chat = Endpoint(endpoint, name, most, key, rate)
    else:
        chat = LocalChat.load(name, most, **options)
    who = f"{name} at {endpoint or 'this machine'}"
    return CachedChat(chat, cache_folder() / "replies", who, most)


class CachedChat:
    """A chat that keeps every reply in a folder, under a digest of all that makes the reply.

    `who` names the model and where it runs; keys and other secrets have no place in it.
    """

    def __init__(self, chat: Chat, folder: Path, who: str, most: int) -> None:
        self._chat, self._folder, self._who, self._most = chat, folder, who, most
        self._usage, self._lock = Usage(), threading.Lock()

    @property
    def usage(self) -> Usage:
        """What was asked so far."""
        return self._usage

    def knows(self, messages: Sequence[Message]) -> bool:
        """Whether the reply is there already."""
        return self._file(messages).exists()

    def __call__(self, messages: Sequence[Message]) -> Reply:
        """The kept reply, or a new one, kept from now on."""
        file = self._file(messages)
        if file.exists():
            self._count(known=1)
            return Reply(**json.loads(file.read_text(encoding="utf-8")))
        reply = self._chat(messages)
        text = json.dumps(asdict(reply), ensure_ascii=False)
        write_whole(file, lambda part: part.write_text(text, encoding="utf-8"))
        self._count(asked=1, read=reply.read, written=reply.written)
        return reply

    def _file(self, messages: Sequence[Message]) -> Path:
        question = json.dumps([self._who, self._most, list(messages)], sort_keys=True)
        return self._folder / f"{hashlib.sha256(question.encode()).hexdigest()}.json"

    def _count(self, asked: int = 0, known: int = 0, read: int = 0, written: int = 0) -> None:
        with self._lock:
            so_far = self._usage
            self._usage = Usage(
                so_far.asked + asked,
                so_far.known + known,
                so_far.read + read,
                so_far.written + written,
            )
