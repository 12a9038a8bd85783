"""Measure which causal language models of transformers ffmem can read as memories (MLP neurons).

`python -m tools.families` builds a toy of every type that the installed transformers knows, wraps
it, and writes docs/reference/families.md. Name types to try only those and print the result.
Each toy runs in its own process with a limit on time and memory.
"""

from __future__ import annotations

import argparse
import multiprocessing
import re
import resource
import sys
import warnings
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from multiprocessing.queues import SimpleQueue
from pathlib import Path
from typing import get_args

import torch
import transformers
from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES

from ffmem.errors import ModelError
from ffmem.memories.why.answer import Method, why
from ffmem.models.fairseq import KIND
from ffmem.models.language_model import LanguageModel
from ffmem.models.tiny import tiny_model, tiny_tokenizer
from ffmem.models.wrapping import wrap

PAGE = Path("docs/reference/families.md")
SECONDS = 180
BYTES = 6 << 30

BY_ROW, BY_STRUCTURE = "passes by row", "passes by structure"
REFUSED, NOT_BUILT = "refused", "cannot be built small"
VERDICTS = (BY_ROW, BY_STRUCTURE, REFUSED, NOT_BUILT)

# Why a model is refused, as one phrase: the first whose words are found in the message.
REASONS = {
    "mixtures of experts": "experts that cannot be read",
    "not the sum of its experts": "a mixture that adds more than its experts' sums",
    "reads ahead": "reads ahead",
    "token ids alone": "needs more than token ids",
    "exactly once": "passes its blocks more than once",
    "none of its maps reads": "no feed-forward layer recognised",
    "follows no known form": "the block adds its feed-forward layer in no known form",
    "no chain of modules": "no single state leads from the last block to the vocabulary",
    "no output embedding": "no output embedding",
    "more than one form": "blocks of more than one form",
    "is not the block's output": "residual plus feed-forward output is not the block's output",
    "no known activation": "coefficients are not an activation of the keys' scores",
}


@dataclass(frozen=True)
class Result:
    """The verdict on one model type."""

    kind: str
    verdict: str
    note: str  # form, activation and gate where it passes; else the reason
    error: float | None = None  # worst relative error of the identities
    why: str = ""  # the methods with which `ffmem why` explains a token


def measure(kind: str) -> Result:
    """Build a toy of this type and wrap it, in this process."""
    try:
        model = tiny_model(kind)
    except Exception as error:  # a config may fail in any way on sizes it does not expect
        return Result(kind, NOT_BUILT, plain(error))
    try:
        seen = wrap(model, tiny_tokenizer())
    except ModelError as error:
        return Result(kind, REFUSED, reason(str(error)))
    except Exception as error:
        return Result(kind, NOT_BUILT, f"the toy does not run: {plain(error)}")
    layer = seen.layers[0]
    note = f"{layer.form}, {layer.activation}{', gated' if layer.gated else ''}"
    verdict = BY_ROW if seen.known_by == "row" else BY_STRUCTURE
    return Result(kind, verdict, note, max(asdict(seen.identity).values()), methods(seen))


def methods(model: LanguageModel) -> str:
    """The methods with which `ffmem why` explains what the toy predicts after a few tokens."""
    found: list[str] = []
    for method in get_args(Method):
        try:
            why(model, "the river", top=4, method=method)
        except ModelError:
            continue
        found.append(method)
    return ", ".join(found)


def reason(message: str) -> str:
    """The phrase for a refusal, or the message itself if no phrase matches."""
    return next((phrase for words, phrase in REASONS.items() if words in message), message)


def plain(error: Exception) -> str:
    """An error in one short line that fits into a table."""
    line = " ".join(str(error).split()).replace("|", "/")
    line = re.sub(r"^Class validation error .*?Error: ", "", line)
    return f"{type(error).__name__}: {line[:90]}"


def guarded(kind: str) -> Result:
    """`measure` in a process of its own, with a limit on time and memory."""
    context = multiprocessing.get_context("fork")
    answers: SimpleQueue[Result] = context.SimpleQueue()
    child = context.Process(target=answer, args=(kind, answers))
    child.start()
    child.join(SECONDS)
    if child.is_alive():
        child.kill()
        child.join()
        return Result(kind, NOT_BUILT, f"takes longer than {SECONDS} seconds")
    if answers.empty():
        return Result(kind, NOT_BUILT, f"ended with code {child.exitcode}")
    return answers.get()


def answer(kind: str, answers: SimpleQueue[Result]) -> None:
    """The child process: measure one type and send the result."""
    warnings.simplefilter("ignore")
    resource.setrlimit(resource.RLIMIT_AS, (BYTES, BYTES))
    answers.put(measure(kind))


def page(results: Sequence[Result]) -> str:
    """docs/reference/families.md."""
    counts = Counter(result.verdict for result in results)
    errors = [one.error for one in results if one.verdict in (BY_ROW, BY_STRUCTURE)]
    return TEXT.format(
        version=transformers.__version__,
        types=len(results),
        passed=len(errors),
        largest=f"{max(error or 0 for error in errors):.0e}",
        by_row=counts[BY_ROW],
        by_structure=counts[BY_STRUCTURE],
        refused=counts[REFUSED],
        not_built=counts[NOT_BUILT],
        gradient=sum("gradient" in result.why for result in results),
        linear=sum("linear" in result.why for result in results),
        rows="\n".join(rows(results)),
    )


def rows(results: Sequence[Result]) -> Iterator[str]:
    """The lines of the table: types of the same verdict, form and reading are one."""
    groups: dict[tuple[str, str, str], list[str]] = {}
    for one in results:
        groups.setdefault((one.verdict, one.note, one.why), []).append(one.kind)

    def order(group: tuple[str, str, str]) -> tuple[int, int, str, str]:
        verdict, note, why = group
        return VERDICTS.index(verdict), -len(groups[group]), note, why

    for group in sorted(groups, key=order):
        kinds = ", ".join(f"`{kind}`" for kind in sorted(groups[group]))
        yield f"| {' | '.join(group)} | {kinds} |"


def row(result: Result) -> str:
    """One type, as it is measured."""
    error = "" if result.error is None else f"{result.error:.0e}" if result.error else "0"
    return f"{result.kind}: {result.verdict}, {result.note} {error} {result.why}"


TEXT = """# Model types

Written by `python -m tools.families`; do not edit by hand.

Of the {types} causal language model types that transformers {version} knows or ffmem adds
(`fairseq_lm`, see [Convert a fairseq model](../how-to/convert-from-fairseq.md)),
**{passed} pass**: a toy of random parameters fulfils the five
[identities](../concepts/memories.md#the-identities) on nine tokens, each with a relative error of
at most 1e-4 in float32; the largest error of all that pass is {largest}.
[`ffmem why`](../how-to/why.md) explains a token by the gradient in {gradient} types, by the linear
reading in {linear}. The identities are checked again when a checkpoint is loaded, which is refused
if one fails.

- *Passes by row* ({by_row}): `ffmem/models/families.py` lists where keys and values are.
- *Passes by structure* ({by_structure}): ffmem found keys and values by running the toy.
- *Refused* ({refused}): the toy runs, but ffmem cannot read its feed-forward layers and says so.
- *Cannot be built small* ({not_built}): the toy could not be built or run; the type is untested.

| verdict | form, activation; or why not | `ffmem why` by | types |
|---|---|---|---|
{rows}
"""


def main(kinds: Sequence[str]) -> None:
    """Measure the named types and print, or all types and write the page."""
    torch.set_num_threads(1)
    transformers.logging.set_verbosity_error()
    results = []
    for kind in kinds or sorted({KIND, *MODEL_FOR_CAUSAL_LM_MAPPING_NAMES}):
        results.append(guarded(kind))
        sys.stdout.write(row(results[-1]) + "\n")
        sys.stdout.flush()
    if not kinds:
        PAGE.parent.mkdir(parents=True, exist_ok=True)
        PAGE.write_text(page(results), encoding="utf-8")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("kinds", nargs="*", metavar="TYPE", help="only these types")
    main(parser.parse_args().kinds)
