"""The model's next-token distributions after many prefixes, each with its own memory edited."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext

import torch
from torch import Tensor, nn

from ffmem.address import Parts
from ffmem.analyses.inputs.layer_readings import logit_rows
from ffmem.analyses.inputs.prefix_sample import BATCH_TOKENS, prefix_batches
from ffmem.memories.edits import Edit
from ffmem.memories.projection import logits
from ffmem.memories.recording import record
from ffmem.models.feedforward import FeedForward
from ffmem.models.language_model import LanguageModel


@torch.no_grad()
def next_log_probabilities(
    model: LanguageModel,
    prefixes: Sequence[Tensor],
    edits: Sequence[Edit] | None = None,
    everywhere: bool = False,
) -> Tensor:
    """Log-probabilities [prefix, token] of the next token, on the CPU.

    With `edits`, one per prefix and all of one layer, each prefix is read with its own memory
    changed: at its last token, or at all of them.
    """
    found = torch.empty(len(prefixes), model.vocab_size)
    for batch in prefix_batches(prefixes, model.bos, logit_rows(model), BATCH_TOKENS):
        held: AbstractContextManager[None] = nullcontext()
        if edits is not None:
            own = [edits[row] for row in batch.rows.tolist()]
            columns = None if everywhere else batch.columns
            held = edit_each_row(model.layer(own[0].address.layer), own, columns)
        with held:
            last = record(model, batch.tokens, "o", at=batch.columns + 1).layers[-1].o
        found[batch.rows] = logits(model, last, "residual").log_softmax(dim=1).cpu()
    return found


def divergences(before: Tensor, after: Tensor) -> Tensor:
    """KL(before || after) in nats, of log-probabilities along the last dimension."""
    return (before.exp() * (before - after)).sum(dim=-1).clamp(min=0)


@contextmanager
def edit_each_row(
    layer: FeedForward, edits: Sequence[Edit], columns: Tensor | None
) -> Iterator[None]:
    """Change another memory of the layer in every row of a batch; all is restored on exit."""
    handle = layer.value_map.module.register_forward_pre_hook(
        _changing(edits, layer.parts, columns)
    )
    try:
        yield
    finally:
        handle.remove()


def _changing(
    edits: Sequence[Edit], parts: Parts, columns: Tensor | None
) -> Callable[[nn.Module, tuple[Tensor, ...]], tuple[Tensor, ...]]:
    def hook(_module: nn.Module, inputs: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        changed = inputs[0].clone()
        by_row = changed.view(len(edits), -1, changed.shape[-1])
        for row, edit in enumerate(edits):
            where = slice(None) if columns is None else int(columns[row])
            memory = parts.columns(edit.address)
            cell = by_row[row, where, memory]
            by_row[row, where, memory] = edit.apply(cell)
        return (changed, *inputs[1:])

    return hook
