"""Unigram and trigram perplexity: what a model without a network reaches on the same tokens.

    python -m making.baselines out/text/train.txt out/text/valid.txt --tokenizer out/tokenizer

The unigram is the training frequency with one added to every count. The trigram is interpolated
Kneser-Ney: absolute discounting with one discount per order, continuation counts in the lower
orders, and the uniform distribution below the unigram. Both are proper distributions over the
whole vocabulary. What is predicted is every token of a paragraph given those before it, with the
marks before it as context and not predicted.
"""

import argparse
import json
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer
from torch import Tensor

from making.files import lines_of
from making.token_data import Tokens, encode

MARK = "</s>"


@dataclass(frozen=True)
class Counts:
    """How often each key occurs; keys sorted."""

    keys: Tensor
    times: Tensor

    @classmethod
    def of(cls, keys: Tensor) -> "Counts":
        """Count keys."""
        unique, times = keys.unique(return_counts=True)
        return cls(unique, times)

    def at(self, keys: Tensor) -> Tensor:
        """The count of each key, 0 where it was never seen."""
        found = torch.searchsorted(self.keys, keys.contiguous()).clamp_max(len(self.keys) - 1)
        return torch.where(self.keys[found] == keys, self.times[found], 0).double()

    def sums(self, contexts: Tensor) -> "Counts":
        """Total count per context, where `contexts` belongs to the keys and is sorted."""
        unique, places = contexts.unique(return_inverse=True)
        totals = torch.zeros(len(unique), dtype=torch.long, device=contexts.device)
        return Counts(unique, totals.index_add(0, places, self.times))

    @property
    def discount(self) -> float:
        """The share of mass that is taken from every seen key: n1 / (n1 + 2 n2)."""
        once = int((self.times == 1).sum())
        twice = int((self.times == 2).sum())
        return once / (once + 2 * twice) if once and twice else 0.5


class Trigram:
    """An interpolated Kneser-Ney trigram model over token ids below `vocabulary`."""

    def __init__(self, grams: Tensor, vocabulary: int) -> None:
        """`grams` [count, 3]: two tokens of context and the token that followed."""
        self.vocabulary = vocabulary
        first, second, third = grams.long().unbind(1)
        size = vocabulary
        self.three = Counts.of((first * size + second) * size + third)
        # Lower orders count in how many different contexts a run occurs.
        self.two = Counts.of(self.three.keys % (size * size))
        self.one = Counts.of(self.two.keys % size)
        self.contexts_three = self._contexts(self.three)
        self.contexts_two = self._contexts(self.two)

    def _contexts(self, counts: Counts) -> tuple[Counts, Counts]:
        """Per context: the total count, and how many different tokens follow."""
        contexts = counts.keys // self.vocabulary
        return counts.sums(contexts), Counts.of(contexts)

    def probabilities(self, grams: Tensor) -> Tensor:
        """The probability of the third token of each gram, given the first two."""
        first, second, third = grams.long().unbind(1)
        size = self.vocabulary
        total = float(self.one.times.sum())
        discount = self.one.discount
        one = (self.one.at(third) - discount).clamp_min(0) / total
        one = one + discount * len(self.one.keys) / total / size
        two = self._interpolated(self.two, self.contexts_two, second * size + third, one)
        key = (first * size + second) * size + third
        return self._interpolated(self.three, self.contexts_three, key, two)

    def _interpolated(
        self, counts: Counts, contexts: tuple[Counts, Counts], keys: Tensor, lower: Tensor
    ) -> Tensor:
        context = keys // self.vocabulary
        total, kinds = contexts[0].at(context), contexts[1].at(context)
        seen = (counts.at(keys) - counts.discount).clamp_min(0) / total.clamp_min(1)
        left = torch.where(total > 0, counts.discount * kinds / total.clamp_min(1), 1.0)
        return seen + left * lower


def grams_of(tokens: Tokens, mark: int, by_sentence: bool) -> Tensor:
    """Every token with the two before it in its own paragraph (or sentence), marks before those."""
    kept = torch.ones(len(tokens.ids), dtype=torch.bool, device=tokens.ids.device)
    if not by_sentence:
        kept[tokens.starts[~tokens.opens]] = False
    ids = tokens.ids[kept]
    previous = torch.cat([ids.new_tensor([mark]), ids[:-1]])
    before = torch.cat([ids.new_tensor([mark, mark]), ids[:-2]])
    before = torch.where(previous == mark, mark, before)  # nothing is seen across a mark
    return torch.stack([before, previous, ids], dim=1)[ids != mark]


def unigram_perplexity(train: Tensor, valid: Tensor, vocabulary: int) -> float:
    """Of the third tokens of `valid`, by their add-one frequency in `train`."""
    counts = torch.bincount(train[:, 2].long(), minlength=vocabulary) + 1.0
    logs = (counts / counts.sum()).log()
    return math.exp(-float(logs[valid[:, 2].long()].double().mean()))


def trigram_perplexity(train: Tensor, valid: Tensor, vocabulary: int) -> float:
    """Of the third tokens of `valid`, by a model of `train`."""
    model = Trigram(train, vocabulary)
    return math.exp(-float(model.probabilities(valid).log().mean()))


def baselines(train: Tokens, valid: Tokens, mark: int, vocabulary: int) -> dict[str, float]:
    """Both perplexities, for paragraphs and for single sentences."""
    found = {}
    for unit, by_sentence in (("paragraphs", False), ("sentences", True)):
        grams = grams_of(train, mark, by_sentence), grams_of(valid, mark, by_sentence)
        found[f"unigram, {unit}"] = unigram_perplexity(*grams, vocabulary)
        found[f"trigram, {unit}"] = trigram_perplexity(*grams, vocabulary)
    return found


def main() -> None:
    """Read the command line and print the perplexities."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("train", type=Path)
    parser.add_argument("valid", type=Path)
    parser.add_argument("--tokenizer", type=Path, required=True)
    given = parser.parse_args()
    tokenizer: Any = Tokenizer.from_file(str(given.tokenizer / "tokenizer.json"))
    mark = tokenizer.token_to_id(MARK)
    train, valid = (encode(lines_of(path), tokenizer, mark) for path in (given.train, given.valid))
    print(json.dumps(baselines(train, valid, mark, tokenizer.get_vocab_size()), indent=1))


if __name__ == "__main__":
    main()
