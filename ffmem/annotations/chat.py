"""A language model that answers questions: one on this machine, or behind a server.

Any server that speaks OpenAI's chat protocol will do; it is asked patiently.
Replies are kept on disk, so that the same question is never paid for twice.
"""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypedDict
from urllib.parse import urlsplit

import torch

from ffmem.corpus.conversations import template_text
from ffmem.errors import AnnotatorError, ModelError, shorten
from ffmem.files.whole_files import write_text
from ffmem.locations import cache_folder
from ffmem.models.device_placement import device_of
from ffmem.models.language_model import continuation
from ffmem.models.loading import checkpoint

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

RETRIES = 8  # with growing pauses, about 40 s together, or as long as the server asks for
REPLY_SECONDS = 600  # seconds for one reply: a large model on a small machine is slow


class Message(TypedDict):
    """One turn of a conversation."""

    role: Literal["system", "user", "assistant"]
    content: str


@dataclass(frozen=True)
class Reply:
    """A model's reply, and the tokens it read and wrote."""

    text: str
    read: int
    written: int


Chat = Callable[[Sequence[Message]], Reply]


class LocalChat:
    """A causal language model on this machine that answers without chance, at most so much."""

    def __init__(
        self, model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, most: int
    ) -> None:
        self.model, self.tokenizer, self.most = model, tokenizer, most

    @classmethod
    def load(cls, name: str, most: int, **options: Any) -> LocalChat:
        """Load any causal model, named as for `ffmem.load`."""
        model, tokenizer, _ = checkpoint(name, **options)
        if tokenizer is None:
            raise ModelError(
                f"{name} comes without a tokenizer, so it cannot be asked; "
                "put the tokenizer's files into its folder"
            )
        return cls(model, tokenizer, most)

    @torch.no_grad()
    def __call__(self, messages: Sequence[Message]) -> Reply:
        """Read the conversation and write the next turn."""
        ids = self._ids(messages)
        limit = getattr(self.model.config.get_text_config(), "max_position_embeddings", None)
        if limit is not None and len(ids) + self.most > limit:
            raise ModelError(
                f"the question has {len(ids):,} tokens and the model has room for {limit:,}, "
                f"{self.most:,} of them for its answer; take a model that reads more"
            )
        tokens = torch.tensor([ids], device=device_of(self.model.get_input_embeddings()))
        written = continuation(self.model, tokens, self.most, self.tokenizer.eos_token_id or 0)
        text = self.tokenizer.decode(written, skip_special_tokens=True)
        return Reply(text, len(ids), len(written))

    def _ids(self, messages: Sequence[Message]) -> list[int]:
        """By the model's own template; a model without one reads the turns as plain text."""
        if self.tokenizer.chat_template is not None:
            (text,) = template_text([messages], self.tokenizer, answer=True)
            return list(self.tokenizer.encode(text, add_special_tokens=False))
        text = "\n\n".join(message["content"] for message in messages) + "\n\n"
        return list(self.tokenizer.encode(text))


class Endpoint:
    """One model behind a URL such as http://localhost:8000/v1; safe to call from several threads.

    The client library retries what may pass (no connection, too many requests, server errors),
    with growing pauses or those that the server asks for. The key is held in memory only.
    """

    def __init__(self, url: str, model: str, most: int, key: str | None = None) -> None:
        try:
            import openai  # here: the extra is needed for endpoints only
        except ImportError:
            raise AnnotatorError(
                "endpoints need the openai package; run `pip install 'ffmem[llm]'`, or leave out "
                "--endpoint to run a model on this machine"
            ) from None
        self.url, self.model = url, model
        self._errors = openai
        if not _is_endpoint(url):
            raise AnnotatorError(
                f"{shorten(url)!r} is not the URL of a server; write it as in "
                "http://localhost:8000/v1"
            )
        self._client = openai.OpenAI(
            base_url=url, api_key=key or "none", max_retries=RETRIES, timeout=REPLY_SECONDS
        )
        self._settings: dict[str, Any] = {"temperature": 0, "max_tokens": most}

    def __call__(self, messages: Sequence[Message]) -> Reply:
        """Ask, and wait for the reply."""
        settings = dict(self._settings)
        while True:
            try:
                done = self._client.chat.completions.create(
                    model=self.model, messages=list(messages), **settings
                )
            except self._errors.BadRequestError as error:
                bent = adapt_settings(settings, str(error))
                if bent is None:
                    raise AnnotatorError(self._why(error)) from None
                settings = self._settings = bent
                continue
            except self._errors.OpenAIError as error:
                raise AnnotatorError(self._why(error)) from None
            if not done.choices:
                raise AnnotatorError(f"{self.url} sent a reply without any text; check the server")
            usage = done.usage
            return Reply(
                done.choices[0].message.content or "",
                usage.prompt_tokens if usage else 0,
                usage.completion_tokens if usage else 0,
            )

    def _why(self, error: Exception) -> str:
        reason = " ".join(str(error).split())[:200]
        match error:
            case self._errors.AuthenticationError() | self._errors.PermissionDeniedError():
                advice = "put the right key into the environment variable (see --key-from)"
            case self._errors.NotFoundError():
                advice = f"check the URL and the model's name {self.model!r}"
            case self._errors.BadRequestError() if "context" in reason:
                advice = "take a model that reads more"
            case self._errors.APIConnectionError():
                advice = "check that the server runs and the URL ends as it should, often in /v1"
            case _:
                advice = "replies so far are kept, so asking again goes on from here"
        return f"{self.url} gave no answer ({reason}); {advice}"


def _is_endpoint(url: str) -> bool:
    """Whether a text is a URL of a server that speaks HTTP."""
    try:
        parts = urlsplit(url)
        return parts.scheme in ("http", "https") and bool(parts.hostname) and url.isprintable()
    except ValueError:
        return False


def adapt_settings(settings: dict[str, Any], complaint: str) -> dict[str, Any] | None:
    """The settings as a pickier server wants them; None where the complaint is about other things.

    Newer models call the limit max_completion_tokens and choose their temperature themselves.
    """
    if "max_tokens" in settings and "max_completion_tokens" in complaint:
        rest = {name: value for name, value in settings.items() if name != "max_tokens"}
        return {**rest, "max_completion_tokens": settings["max_tokens"]}
    if "temperature" in settings and "temperature" in complaint:
        return {name: value for name, value in settings.items() if name != "temperature"}
    return None


@dataclass(frozen=True)
class Usage:
    """Usage: new replies, replies from the cache, and the tokens of the new ones."""

    asked: int = 0
    known: int = 0
    read: int = 0
    written: int = 0


def open_chat(
    name: str, endpoint: str | None, key: str | None, most: int, **options: Any
) -> CachedChat:
    """A model behind an endpoint, or one on this machine, loaded with `options`; replies are kept.

    `most` is the limit of tokens per reply.
    """
    chat: Chat
    if endpoint:
        chat = Endpoint(endpoint, name, most, key)
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
        """The usage so far."""
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
        write_text(file, text)
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
