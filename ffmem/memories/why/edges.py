"""Which earlier memories wake the memories of a list: a small graph, predicted and measured."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn

from ffmem.memories.prompt_explanation import cell_address
from ffmem.memories.why.passes import (
    LayerSlopes,
    Prompt,
    gradients_of,
    gradients_of_states,
    last_logits,
    leaves_at_sums,
    slopes_of,
)
from ffmem.memories.why.proposal import Pair, propose
from ffmem.memories.why.record import Edge
from ffmem.memories.why.silencing import true_effects
from ffmem.models.language_model import LanguageModel
from ffmem.steps import steps

NODES, SOURCES = 10, 3  # memories of the list that are asked about; edges to each


@dataclass(frozen=True)
class KeyScore:
    """The score of one memory's key, in a gated layer of its gate, in one column of the input."""

    model: LanguageModel
    layer: int
    column: int
    memory: int

    @contextmanager
    def watch(self, rows: int, columns: int) -> Iterator[Callable[[Tensor], Tensor]]:
        """Read the score while a pass runs."""
        layer, found = self.model.layer(self.layer), dict[str, Tensor]()
        part = layer.gate_map or layer.key_map

        def note(_module: nn.Module, _args: Any, output: Tensor) -> None:
            scores = part.of(output, dim=-1)
            found["score"] = scores.reshape(rows, columns, -1)[:, self.column, self.memory]

        handle = part.module.register_forward_hook(note)
        try:
            yield lambda _logits: found["score"]
        finally:
            handle.remove()


def edge_copies(pairs: Sequence[Pair]) -> int:
    """At most so many copies of a prompt run for the edges, a backward pass counted as two."""
    return min(NODES, len(pairs)) * (SOURCES + 3)


def waking_edges(
    model: LanguageModel,
    prompt: Prompt,
    pairs: Sequence[Pair],
    instead: Sequence[Tensor] | None = None,
) -> tuple[Edge, ...]:
    """The strongest edges to the first pairs that have layers below them."""
    first = model.layers[0].number
    nodes = [pair for pair in pairs if pair.layer > first][:NODES]
    targets = [KeyScore(model, node.layer, node.column, node.memory) for node in nodes]
    edges: list[Edge] = []
    for node, target, slopes in zip(
        steps(nodes, "looking for who wakes them"),
        targets,
        _score_slopes(model, prompt, targets),
        strict=True,
    ):
        others = None if instead is None else list(instead[: len(slopes)])
        sources = propose(slopes, prompt.lead, others).strongest(SOURCES)
        true = true_effects(model, prompt, target, [[one.replacement] for one in sources])
        edges += [
            edge(model, prompt, source, node, effect)
            for source, effect in zip(sources, true, strict=True)
        ]
    return tuple(edges)


def edge(model: LanguageModel, prompt: Prompt, source: Pair, node: Pair, true: float) -> Edge:
    """An edge as plain values."""
    places = [pair.column - prompt.lead + 1 for pair in (source, node)]
    names = [
        cell_address(model.layer(pair.layer), pair.memory, pair.coefficient)
        for pair in (source, node)
    ]
    return Edge(names[0], places[0], names[1], places[1], source.predicted, true)


def _score_slopes(
    model: LanguageModel, prompt: Prompt, targets: Sequence[KeyScore]
) -> Iterator[tuple[LayerSlopes, ...]]:
    """For each target the slopes of all layers below it; one backward pass for each."""
    with ExitStack() as stack:
        stack.enter_context(gradients_of_states(model))
        m, zeros = stack.enter_context(leaves_at_sums(model.layers))
        watched = [stack.enter_context(one.watch(1, prompt.columns)) for one in targets]
        logits = last_logits(model, prompt.tokens)
        values = [score(logits)[0] for score in watched]
    for target, value in zip(targets, values, strict=True):
        below = [layer for layer in model.layers if layer.number < target.layer]
        leaves = [zeros[layer.number] for layer in below]
        gradients = gradients_of(model, value, leaves, keep_graph=True)
        yield slopes_of(below, m, gradients)
