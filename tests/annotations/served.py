"""A model whose replies are planted, and a real server (`transformers serve`) that runs it.

Every reply is one token. The chat template ends with a token that says which sheet is asked about
and whether it is asked again; the model, its attention silenced, goes from that token to the reply
and from the reply to the end.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import torch

from ffmem.models.tiny import tiny_model, tiny_tokenizer
from tests.waiting import wait_until


def reply(*patterns: tuple[str, str, list[int]]) -> str:
    """A reply in the form that is asked for."""
    names = ("description", "class", "prefixes")
    return json.dumps({"patterns": [dict(zip(names, each, strict=True)) for each in patterns]})


TWO = reply(("ends with thing", "shallow", [1, 2, 3]), ("land", "semantic", [4, 5, 6, 7]))
FEW = reply(("ends with thing", "shallow", [1, 2]))
MIXED = reply(("water", "semantic", [2, 6, 8]), ("beyond", "shallow", [1, 2, 30]))
REPLIES = {  # by a word of the sheet: the first reply, and the one after a complaint
    "good": (f"Here it is:\n```json\n{TWO}\n```", "never asked"),
    "repaired": (FEW, TWO),
    "rubbish": ("I like rivers.", "{not json"),
    "mixed": (MIXED, MIXED.replace("beyond", "further")),
    "nothing": (reply(), "never asked either"),
}
TEMPLATE = (
    "{% for m in messages %}{{ m.content }}{% endfor %}"
    "{% set again = messages | length > 2 %}"
    + "".join(
        f"{{% if '{word}' in messages[1].content %}}"
        f"{{{{ '<{word} again>' if again else '<{word} first>' }}}}{{% endif %}}"
        for word in REPLIES
    )
)


def save_scripted(folder: Path) -> None:
    """Save the model with its tokenizer and template."""
    tokenizer = tiny_tokenizer()
    pairs = {
        f"<{word} {turn}>": text
        for word, both in REPLIES.items()
        for turn, text in zip(("first", "again"), both, strict=True)
    }
    tokenizer.add_tokens([*pairs, *pairs.values()])
    tokenizer.chat_template = TEMPLATE
    model = tiny_model(
        "llama", vocab_size=len(tokenizer), hidden_size=64, max_position_embeddings=16_384
    )
    number = tokenizer.convert_tokens_to_ids
    steps = {number(cue): number(text) for cue, text in pairs.items()}
    steps |= dict.fromkeys(steps.values(), tokenizer.eos_token_id)
    with torch.no_grad():
        for block in model.model.layers:
            block.self_attn.o_proj.weight.zero_()
            block.mlp.down_proj.weight.zero_()
        model.model.embed_tokens.weight.zero_()
        for direction, token in enumerate(steps):  # none of them looks like another
            model.model.embed_tokens.weight[token, direction] = 1
        model.lm_head.weight.zero_()
        for last, following in steps.items():
            model.lm_head.weight[following] += model.model.embed_tokens.weight[last]
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextmanager
def served(folder: Path) -> Iterator[str]:
    """The URL of `transformers serve` over a folder, up and running."""
    port = free_port()
    command = [sys.executable, "-m", "transformers.cli.transformers", "serve", str(folder)]
    options = ["--host", "127.0.0.1", "--port", str(port), "--device", "cpu"]
    quiet = {**os.environ, "HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1"}
    log = (folder / "server.log").open("w")
    server = subprocess.Popen([*command, *options], stdout=log, stderr=log, env=quiet)
    try:
        health = f"http://127.0.0.1:{port}/health"
        wait_until(lambda: server.poll() is not None or healthy(health), "the server of a model")
        assert server.poll() is None, (folder / "server.log").read_text()
        yield f"http://127.0.0.1:{port}/v1"
    finally:
        server.kill()
        server.wait()
        log.close()


def healthy(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=5) as answer:
            return bool(answer.status == 200)
    except (urllib.error.URLError, OSError):
        return False
