"""True effects: copies of a prompt, each with its own coefficients replaced, run in batches.

Every batch has an unchanged copy in front, so that an effect is a difference within one batch.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from ffmem.memories.why.passes import Prompt, Target, last_logits, pass_bytes
from ffmem.models.feedforward import FeedForward
from ffmem.models.language_model import LanguageModel
from ffmem.steps import tell

BATCH_BYTES = 2**30  # of one batch, about
MOST_ROWS = 64


@dataclass(frozen=True)
class Replacement:
    """A coefficient of one memory in one column of the input, and what it becomes."""

    layer: int
    column: int
    memory: int  # its place in the layer's arrays
    amount: float = 0.0


Copy = Sequence[Replacement]  # what is replaced in one copy of the prompt


@dataclass(frozen=True)
class Plan:
    """What the measured part needs: passes over the prompt, their batches, bytes and seconds."""

    tokens: int
    copies: int
    batch: int
    bytes: int
    seconds: float


def plan_for(model: LanguageModel, prompt: Prompt, copies: int, seconds: float) -> Plan:
    """What it takes to run so many copies of a prompt, of which one took some seconds."""
    batch = _rows_at_a_time(model, prompt.columns)
    most = max(batch * _row_bytes(model, prompt.columns), pass_bytes(model, prompt.columns))
    return Plan(prompt.columns, copies, batch, most, copies * seconds)


def _row_bytes(model: LanguageModel, columns: int) -> int:
    """Memory that one copy of a prompt takes while it runs, about."""
    widest = max(layer.memories for layer in model.layers)
    heads = getattr(model.model.config.get_text_config(), "num_attention_heads", 1) or 1
    numbers = columns * (4 * widest + 16 * model.hidden_size + 2 * heads * columns)
    return int(4 * (numbers + 2 * model.vocab_size))


def _rows_at_a_time(model: LanguageModel, columns: int) -> int:
    """How many copies of a prompt run together."""
    return int(min(max(BATCH_BYTES // _row_bytes(model, columns), 2), MOST_ROWS))


@torch.no_grad()
def true_effects(
    model: LanguageModel,
    prompt: Prompt,
    target: Target,
    copies: Sequence[Copy],
    batch: int | None = None,
) -> list[float]:
    """How much less the target is in each copy than in the prompt as it is."""
    size = max((batch or _rows_at_a_time(model, prompt.columns)) - 1, 1)
    found: list[float] = []
    for start in range(0, len(copies), size):
        tell("silencing memories", start / len(copies))
        values = _run_copies(model, prompt, target, [(), *copies[start : start + size]])
        found += (values[0] - values[1:]).tolist()
    return found


def _run_copies(
    model: LanguageModel, prompt: Prompt, target: Target, copies: Sequence[Copy]
) -> Tensor:
    """The target [copy], in float64, of one pass over all copies."""
    by_layer: dict[int, list[tuple[int, Replacement]]] = defaultdict(list)
    for row, copy in enumerate(copies):
        for one in copy:
            by_layer[one.layer].append((row, one))
    tokens = prompt.tokens.expand(len(copies), -1)
    with ExitStack() as hooks:
        for number, those in by_layer.items():
            layer = model.layer(number)
            hook = _replacing(layer, those, len(copies))
            hooks.callback(layer.value_map.module.register_forward_pre_hook(hook).remove)
        value_of = hooks.enter_context(target.watch(len(copies), prompt.columns))
        logits = last_logits(model, tokens)
        return value_of(logits).double().cpu()


def _replacing(
    layer: FeedForward, those: Sequence[tuple[int, Replacement]], rows: int
) -> Callable[..., tuple[Any, ...]]:
    """A hook that writes replacements into what a value map reads."""
    where = torch.tensor([(row, one.column, one.memory) for row, one in those], device=layer.device)
    amounts = torch.tensor([one.amount for _, one in those], dtype=torch.float64)

    def hook(_module: nn.Module, args: tuple[Any, ...]) -> tuple[Any, ...]:
        changed = args[0].clone(memory_format=torch.contiguous_format)
        view = changed.view(rows, -1, changed.shape[-1])
        view[where[:, 0], where[:, 1], where[:, 2]] = amounts.to(view)
        return (changed, *args[1:])

    return hook
