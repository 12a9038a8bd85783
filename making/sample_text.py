"""Sample texts from SmolLM2-135M-Instruct, thousands at a time.

    python -m making.sample_text out/smollm2 --into out/samples --seconds 360

Prompts of equal length in tokens run together, so that a step needs no padding and no mask. Every
batch leaves one whole file `batch-00000.npz` with `prompts` (ids, int32) and `tokens` (uint16, what
was written after the prompt, without the opening); `making.clean_text` turns them into text. No
batch is started that would end after the time limit.
"""

import argparse
import io
import random
import time
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from making.files import write_whole
from making.llama_decode import LlamaDecoder
from making.prompts import prompts
from making.sampler import Choice, Sampler
from making.word_lists import listed

# Words that any text repeats: to use them again costs nothing.
FREE_WORDS = listed(
    """the, of, and, to, in, a, is, was, that, for, on, as, with, by, at, from, it, his, her, he,
    she, they, their, its, be, were, are, had, has, have, an, or, not, this, which, who, but,
    been, also, one, two, first, when, into, all, after, would, more, other, than, up, no,
    out, so, if, there, can, over, about, most, during, between, where, while, many, only,
    some, time, years, new, such, these, before, both, well, them, then, him, made, may,
    being, through, each, under, will, could, until, however, later, became, several, since,
    against, city, town, year"""
)


def batches(lengths: dict[int, list[int]], size: int, seed: int) -> Iterator[list[int]]:
    """Batches of `size` prompts of equal length, in random order, without end.

    A group's last batch is filled up from the same group if it is at least half full, and left out
    otherwise, so that hardly any step works for nothing.
    """
    for turn in range(10**6):
        source = random.Random(f"{seed}/{turn}")
        made: list[list[int]] = []
        for group in lengths.values():
            order = source.sample(group, len(group))
            made += [order[start : start + size] for start in range(0, len(order), size)]
        full = [batch for batch in made if len(batch) * 2 >= size]
        full = full or [max(made, key=len)]
        for batch in source.sample(full, len(full)):
            yield batch + source.choices(batch, k=size - len(batch))


def reuse_costs(tokenizer: Any, vocabulary: int, cost: float) -> torch.Tensor:
    """What each token pays for every earlier use: nothing for free words, digits and marks."""
    free = set(FREE_WORDS) | {word.capitalize() for word in FREE_WORDS}
    costs = torch.full((vocabulary,), cost)
    for token, index in tokenizer.get_vocab().items():
        word = token.removeprefix("Ġ")
        if index < vocabulary and (word in free or len(word) < 2 or not word.isalpha()):
            costs[index] = 0.0
    return costs


def sample(sampler: Sampler, texts: list[list[int]], given: argparse.Namespace) -> None:
    """Run batch after batch until the time is up, one file each."""
    lengths: dict[int, list[int]] = defaultdict(list)
    for prompt, tokens in enumerate(texts):
        lengths[len(tokens)].append(prompt)
    begin, longest, written = time.monotonic(), 0.0, 0
    for number, batch in enumerate(batches(lengths, sampler.batch, given.seed)):
        before = time.monotonic()
        if number >= given.batches or before - begin + 1.05 * longest > given.seconds:
            return
        inputs = torch.tensor([texts[prompt] for prompt in batch], device=sampler.history.device)
        found = sampler.run(inputs, given.new).cpu().numpy().astype(np.uint16)
        file = io.BytesIO()
        np.savez(file, prompts=np.array(batch, np.int32), tokens=found)
        write_whole(given.into / f"batch-{number:05d}.npz", file.getvalue())
        written += found.size
        now = time.monotonic()
        longest = now - before if number < 3 else max(longest * 0.9, now - before)
        rate = found.size / (now - before)
        print(
            f"batch {number}: prompts of {inputs.shape[1]} tokens, {found.shape[1]} new, "
            f"{rate:,.0f} tokens/s, {written:,} in {now - begin:.0f} s",
            flush=True,
        )


def parse() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("model", type=Path, help="a Hugging Face folder of a Llama model")
    parser.add_argument("--into", type=Path, required=True)
    parser.add_argument("--seconds", type=float, default=360, help="time limit for the sampling")
    parser.add_argument("--batches", type=int, default=10**6, help="stop after so many")
    parser.add_argument("--prompts", type=int, default=250_000)
    parser.add_argument("--batch", type=int, default=4096, help="sequences at a time")
    parser.add_argument("--new", type=int, default=224, help="most tokens per text")
    parser.add_argument("--temperature", type=float, default=1.0)
    parser.add_argument("--least", type=float, default=0.1, help="min-p")
    parser.add_argument("--ngram", type=int, default=4, help="runs that are not written twice")
    parser.add_argument("--reuse", type=float, default=0.2, help="cost of using a word again")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    return parser.parse_args()


def main() -> None:
    """Read the command line, load the model and sample."""
    given = parse()
    torch.manual_seed(given.seed)
    torch.set_num_threads(given.threads)
    dtype = torch.bfloat16 if given.device == "cuda" else torch.float32
    tokenizer = AutoTokenizer.from_pretrained(given.model)
    model = AutoModelForCausalLM.from_pretrained(given.model, dtype=dtype).to(given.device)
    texts = tokenizer([prompt.chat for prompt in prompts(given.prompts, given.seed)])["input_ids"]
    longest = max(len(tokens) for tokens in texts)
    print(f"{len(texts):,} prompts of at most {longest} tokens", flush=True)
    vocabulary = model.config.vocab_size
    sampler = Sampler(
        LlamaDecoder(model, given.batch, longest + given.new),
        Choice(given.temperature, given.least, given.ngram),
        reuse_costs(tokenizer, vocabulary, given.reuse).to(given.device),
        torch.tensor(tokenizer.all_special_ids, device=given.device),
    )
    sample(sampler, texts, given)


if __name__ == "__main__":
    main()
