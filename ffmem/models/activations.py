"""Which activation turns pre-activations into coefficients, found by comparing numbers."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from torch import Tensor
from transformers.activations import ACT2FN

from ffmem.models.trace import Trace, relative_error

NAMES = (
    "relu",
    "relu2",
    "gelu",
    "gelu_new",
    "gelu_pytorch_tanh",
    "quick_gelu",
    "silu",
    "tanh",
    "gelu_10",
    "relu6",
    "sigmoid",
    "linear",
)


def candidate_activations(a: Tensor, trace: Trace, block: str) -> Iterator[tuple[str, Tensor]]:
    """Every reading of `a` through an activation: the usual ones, then the block's own modules."""
    for name in NAMES:
        yield name, ACT2FN[name](a)
    for name, seen in trace.inputs.items():
        if not name.startswith(block + ".") or name not in trace.outputs:
            continue
        given = trace.outputs[name]
        if given.shape == seen.shape == a.shape and seen.equal(a):
            yield name.removeprefix(block + "."), given


def activation_name(
    m: Tensor, a: Tensor, beside: Tensor | None, trace: Trace, block: str
) -> tuple[str, float]:
    """The activation for which act(a), times `beside` in a gated layer, comes nearest to m.

    Computed in the model's own precision, in which the right one leaves no error at all and the
    usual names win over the block's own. Returns its name and the relative error that is left, so
    that the caller can judge it.
    """
    if a.shape != m.shape or (beside is not None and beside.shape != m.shape):
        return "none", float("inf")
    combine: Callable[[Tensor], Tensor] = (
        (lambda act: act) if beside is None else (lambda act: act * beside)
    )
    errors = [
        (relative_error(combine(act), m), name)
        for name, act in candidate_activations(a, trace, block)
    ]
    error, name = min(errors, key=lambda pair: pair[0])
    return name, error
