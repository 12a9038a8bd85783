"""Chat templates, filled in by a process with little memory and time.

A template is a program that comes with a model: `{{ 'a' * 10**9 }}` is one.
"""

from __future__ import annotations

import atexit
import os
import pickle
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import cache
from typing import Any

from ffmem.corpus.child_process import ChildProcess, answers, write
from ffmem.errors import CorpusError
from ffmem.locations import first_line

MEMORY = 1 << 30  # bytes of address space that the process has
SECONDS = 20  # of one core that conversations sent together take at most
LONGEST = 16 << 20  # characters of a conversation
_turn = threading.Lock()


class TemplateError(Exception):
    """A template refuses a conversation, or needs too much for it."""


def fill_template(
    conversations: Sequence[Sequence[Mapping[str, object]]], tokenizer: Any, answer: bool
) -> list[str]:
    """The text of each conversation; with `answer` it ends where the model's answer begins."""
    from transformers import PreTrainedTokenizerBase

    if type(tokenizer).apply_chat_template is not PreTrainedTokenizerBase.apply_chat_template:
        return [  # the tokenizer's own code, as Mistral's: it has no template
            str(tokenizer.apply_chat_template(one, tokenize=False, add_generation_prompt=answer))
            for one in conversations
        ]
    template = tokenizer.get_chat_template()
    with _turn:
        process = _process(os.getpid())
        process.send((conversations, template, answer, dict(tokenizer.special_tokens_map), SECONDS))
        try:
            found: list[str] | str = process.receive()
        except CorpusError:
            process.close()
            _process.cache_clear()
            found = f"it needs more than {SECONDS} s, or something ended it"
    if isinstance(found, str):
        raise TemplateError(found)
    return found


@cache
def _process(_owner: int) -> ChildProcess:
    """The process that fills in all templates; one that was forked from this needs its own."""
    process = ChildProcess(_serve_templates)
    atexit.register(process.close)
    return process


def _serve_templates() -> None:
    """Main loop of the process, until its input is closed."""
    with answers() as out:
        from transformers.utils.chat_template_utils import render_jinja_template

        limit("RLIMIT_AS", MEMORY)
        while True:
            try:
                conversations, template, answer, special, seconds = pickle.load(sys.stdin.buffer)
            except EOFError:
                return
            limit("RLIMIT_CPU", int(time.process_time()) + seconds)
            found: list[str] | str
            try:
                found, _ = render_jinja_template(
                    conversations, chat_template=template, add_generation_prompt=answer, **special
                )
            except MemoryError:
                found = f"it needs more than {MEMORY >> 30} GiB of memory"
            except Exception as error:  # a template raises what its author and its language raise
                found = first_line(error)[:1000]
            else:
                if max(map(len, found)) > LONGEST:
                    found = f"it makes more than {LONGEST >> 20} MiB of text"
            write(found, out)


def limit(name: str, most: int) -> None:
    """Limit what this process may take, on systems that can."""
    with suppress(ImportError, AttributeError, ValueError, OSError):
        import resource

        kind = getattr(resource, name)
        hard = resource.getrlimit(kind)[1]
        resource.setrlimit(kind, (most if hard < 0 else min(most, hard), hard))
