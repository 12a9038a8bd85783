"""Cost of `ffmem why`, and how well each prediction agrees with true silencing.

    python -m benchmarks.why                          # the demo
    python -m benchmarks.why HuggingFaceTB/SmolLM2-135M --prompts 20 --tokens 128

Time: the two passes (forward with a graph, backward) over one forward pass, medians of several, on
a text of so many tokens. Agreement: for each prompt the strongest pairs by each prediction are
silenced, and as many random active ones, which `direct` and `gradient` predict too; printed are the
medians over prompts of the correlation with the true effect.
"""

from __future__ import annotations

import argparse
import resource
import statistics
import time
from collections.abc import Callable, Sequence
from itertools import islice

import torch

from ffmem import demo
from ffmem.corpus.sources import Source, documents
from ffmem.errors import ModelError
from ffmem.memories.why.answer import direct_terms
from ffmem.memories.why.linear import linear_passes
from ffmem.memories.why.passes import (
    LogitTarget,
    Passes,
    Prompt,
    forward_and_backward,
    last_logits,
    pass_bytes,
    read_prompt,
)
from ffmem.memories.why.proposal import Pair, Proposal, correlation, propose
from ffmem.memories.why.silencing import true_effects
from ffmem.models.language_model import LanguageModel
from ffmem.models.loading import load

REPEATS = 7


def texts(count: int, words: int) -> list[str]:
    """The beginnings of long lines of the demo's validation text."""
    lines = (line for line in documents(Source(str(demo.VALID))) if len(line.split()) > words)
    return [" ".join(line.split()[:words]) for line in islice(lines, count)]


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


def print_cost(model: LanguageModel, tokens: int) -> None:
    """Time of the two passes over that of a forward pass."""
    ids = torch.arange(tokens, device=model.device)[None] * 7919 % (model.vocab_size - 10) + 5
    prompt = Prompt(ids, 0)

    @torch.no_grad()
    def forward() -> None:
        last_logits(model, ids)

    once, both = seconds(forward), seconds(lambda: forward_and_backward(model, prompt, likeliest))
    planned = pass_bytes(model, tokens) / 2**30
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    print(
        f"{tokens} tokens: forward {once:.3f} s, two passes {both:.3f} s, {both / once:.1f} times; "
        f"planned {planned:.2f} GiB, peak of the process {peak:.2f} GiB"
    )


def direct_effects(model: LanguageModel, passes: Passes, prompt: Prompt) -> Proposal | None:
    """The direct terms in the place of predicted effects: 0 at all places but the last."""
    terms = direct_terms(model, passes, likeliest(passes.logits[None]), None)
    if terms is None:
        return None
    proposal = propose(passes.layers, prompt.lead)
    for layer in proposal.layers:
        layer.effects.zero_()
        layer.effects[-1] = terms[layer.number]
    return proposal


def proposals(model: LanguageModel, prompt: Prompt) -> dict[str, Proposal]:
    """Every way to predict effects that the model has."""
    passes = forward_and_backward(model, prompt, likeliest)
    found = {"gradient": propose(passes.layers, prompt.lead)}
    direct = direct_effects(model, passes, prompt)
    if direct is not None:
        found["direct"] = direct
    try:
        linear, _ = linear_passes(model, prompt, likeliest)
        found["linear"] = propose(linear.layers, prompt.lead)
    except ModelError:
        pass
    return found


def agreement(
    model: LanguageModel, prompt: Prompt, target: LogitTarget, pairs: Sequence[Pair]
) -> float:
    """The correlation of predicted and true effects."""
    true = true_effects(model, prompt, target, [[pair.replacement] for pair in pairs])
    return correlation([pair.predicted for pair in pairs], true)


def print_agreement(model: LanguageModel, prompts: Sequence[str], top: int) -> None:
    """Medians over prompts, for the strongest pairs and for random ones."""
    found: dict[str, list[float]] = {}
    for number, text in enumerate(prompts):
        prompt = read_prompt(model, text, None)
        with torch.no_grad():
            target = likeliest(last_logits(model, prompt.tokens))
        for name, proposal in proposals(model, prompt).items():
            groups = {name: proposal.strongest(top)}
            groups[f"{name}, random pairs"] = proposal.sample(top, (), number)
            for group, pairs in groups.items():
                found.setdefault(group, []).append(agreement(model, prompt, target, pairs))
    for name, correlations in sorted(found.items()):
        known = [one for one in correlations if one == one]
        median = statistics.median(known) if known else float("nan")
        print(f"{name:<24} {median:5.2f} (median of {len(known)} prompts, {top} pairs each)")


def main() -> None:
    """Measure both."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model", nargs="?", default="demo")
    parser.add_argument("--prompts", type=int, default=12)
    parser.add_argument("--words", type=int, default=12)
    parser.add_argument("--tokens", type=int, default=128)
    parser.add_argument("--top", type=int, default=40)
    options = parser.parse_args()
    model = load(options.model)
    print_cost(model, min(options.tokens, model.context_length))
    print_agreement(model, texts(options.prompts, options.words), options.top)


if __name__ == "__main__":
    main()
