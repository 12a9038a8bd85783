"""Perplexity of a causal language model on pieces of text, each read alone after a mark.

    python -m making.evaluate out/model out/text/valid.txt

Prints the perplexity over paragraphs and over single sentences. All tokens after the mark are
predicted; the mark itself is not.
"""

import argparse
import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer
from torch import Tensor
from torch.nn import functional
from transformers import AutoModelForCausalLM

from making.files import lines_of
from making.token_data import encode, paragraphs, single_sentences

IGNORED = -100


def padded_batches(pieces: list[Tensor], batch_tokens: int) -> Iterator[tuple[Tensor, Tensor]]:
    """(inputs, targets) of pieces of like length; padding is on the right and not predicted."""
    order = sorted((piece for piece in pieces if len(piece) > 1), key=len)
    start = 0
    while start < len(order):
        end = start + 1
        while end < len(order) and (end + 1 - start) * len(order[end]) <= batch_tokens:
            end += 1
        rows = torch.nn.utils.rnn.pad_sequence(
            [piece.long() for piece in order[start:end]], batch_first=True, padding_value=IGNORED
        )
        yield rows[:, :-1].clamp_min(0), rows[:, 1:]
        start = end


@torch.no_grad()
def perplexity(model: Any, pieces: list[Tensor], batch_tokens: int = 65_536) -> float:
    """Exp of the mean loss per predicted token."""
    device = next(model.parameters()).device
    loss, count = 0.0, 0
    for inputs, targets in padded_batches(pieces, batch_tokens):
        with torch.autocast(device.type, torch.bfloat16, enabled=device.type == "cuda"):
            logits = model(inputs.to(device)).logits.float()
        wanted = targets.to(device)
        total = functional.cross_entropy(
            logits.flatten(0, 1), wanted.flatten(), ignore_index=IGNORED, reduction="sum"
        )
        loss += float(total)
        count += int((wanted != IGNORED).sum())
    return math.exp(loss / count)


def main() -> None:
    """Read the command line and print both perplexities."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("model", type=Path)
    parser.add_argument("text", type=Path)
    parser.add_argument("--pieces", type=int, default=10**9, help="at most so many of each kind")
    given = parser.parse_args()
    device = "cuda" if torch.cuda.is_available() else "cpu"
    model = AutoModelForCausalLM.from_pretrained(given.model, dtype=torch.float32).to(device)
    tokenizer = Tokenizer.from_file(str(given.model / "tokenizer.json"))
    tokens = encode(lines_of(given.text), tokenizer, model.config.bos_token_id)
    longest = model.config.max_position_embeddings
    found = {
        "paragraphs": perplexity(model, paragraphs(tokens, longest)[: given.pieces], 8192),
        "sentences": perplexity(model, single_sentences(tokens, longest)[: given.pieces], 8192),
    }
    print(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
