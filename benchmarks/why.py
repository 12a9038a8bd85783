"""Cost of `ffmem why`: the two passes (forward with a graph, backward) over one forward pass.

    python -m benchmarks.why                       # the demo
    python -m benchmarks.why smollm2 --tokens 1000

Medians of several, on a text of so many tokens; and the memory that is planned for the two passes
beside what the process has taken for them. How well predictions agree with true silencing is
measured by `ffmem analyse DIR --only attribution`.
"""

from __future__ import annotations

import argparse
import resource
import statistics
import time
from collections.abc import Callable

import torch

from ffmem.memories.why.passes import (
    LogitTarget,
    Prompt,
    forward_and_backward,
    last_logits,
    pass_bytes,
)
from ffmem.models.language_model import LanguageModel
from ffmem.models.loading import load

REPEATS = 7


def likeliest(logits: torch.Tensor) -> LogitTarget:
    """The target of a benchmark: the logit of the likeliest token."""
    return LogitTarget(int(logits[0].argmax()))


def seconds(call: Callable[[], object]) -> float:
    """The median time of a call, after one that does not count."""
    call()
    found = []
    for _ in range(REPEATS):
        begin = time.perf_counter()
        call()
        found.append(time.perf_counter() - begin)
    return statistics.median(found)


def peak() -> float:
    """The most memory that the process has held, in GiB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20


def print_cost(model: LanguageModel, tokens: int) -> None:
    """Time of the two passes over that of a forward pass, and their memory."""
    ids = torch.arange(tokens, device=model.device)[None] * 7919 % (model.vocab_size - 10) + 5
    prompt = Prompt(ids, 0)

    @torch.no_grad()
    def forward() -> None:
        last_logits(model, ids)

    once, before = seconds(forward), peak()
    both = seconds(lambda: forward_and_backward(model, prompt, likeliest))
    print(
        f"{tokens} tokens: forward {once:.3f} s, two passes {both:.3f} s, {both / once:.1f} times; "
        f"planned {pass_bytes(model, tokens) / 2**30:.2f} GiB, taken {peak() - before:.2f} GiB "
        f"beside {before:.2f} GiB"
    )


def main() -> None:
    """Measure it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model", nargs="?", default="demo")
    parser.add_argument("--tokens", type=int, default=128)
    options = parser.parse_args()
    model = load(options.model)
    print_cost(model, min(options.tokens, model.context_length))


if __name__ == "__main__":
    main()
