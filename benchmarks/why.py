"""Cost of `ffmem why`: the two passes (forward with a graph, backward) over one forward pass.

    python -m benchmarks.why                       # the demo
    python -m benchmarks.why smollm2 --tokens 1000

Processor time of one thread, so that other work on the machine does not count; the fastest of
several. Then the memory that is planned for the two passes, beside what the process has taken for
them. How well predictions agree with true silencing is measured by
`ffmem analyse DIR --only attribution`.
"""

from __future__ import annotations

import argparse
import resource
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

REPEATS = 5


def likeliest(logits: torch.Tensor) -> LogitTarget:
    """The target of a benchmark: the logit of the likeliest token."""
    return LogitTarget(int(logits[0].argmax()))


def seconds(call: Callable[[], object]) -> float:
    """The processor time of a call."""
    begin = time.process_time()
    call()
    return time.process_time() - begin


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

    def both() -> None:
        forward_and_backward(model, prompt, likeliest)

    forward()
    before = peak()
    times = [(seconds(forward), seconds(both)) for _ in range(REPEATS)]
    once, twice = map(min, zip(*times, strict=True))
    planned, taken = pass_bytes(model, tokens) / 2**30, peak() - before
    print(
        f"{tokens} tokens: forward {once:.3f} s, two passes {twice:.3f} s, {twice / once:.1f} "
        f"times; planned {planned:.2f} GiB, taken {taken:.2f} GiB beside {before:.2f} GiB"
    )


def main() -> None:
    """Measure it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model", nargs="?", default="demo")
    parser.add_argument("--tokens", type=int, default=128)
    options = parser.parse_args()
    torch.set_num_threads(1)
    model = load(options.model)
    print_cost(model, min(options.tokens, model.context_length))


if __name__ == "__main__":
    main()
