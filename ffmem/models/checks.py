"""The equations that must hold before a model counts as understood."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass

import torch
from torch import Tensor

from ffmem.errors import ModelError
from ffmem.models.block_forms import LayerFit
from ffmem.models.trace import Trace, relative_error
from ffmem.models.unembedding import Head

EXACT, ROUNDED = 1e-4, 3e-2  # largest relative error allowed in float32, and in 16 bits


@dataclass(frozen=True)
class Identity:
    """Relative errors on a short input, each the worst over layers; small means understood."""

    memories: float  # sum of coefficient x value + bias = what the value map gives
    activation: float  # activation of the pre-activations = coefficients
    residual: float  # r + y = o
    head: float  # the last o through the head = the model's own logits
    causal: float  # a later token changes nothing at an earlier position

    def check(self, name: str, dtype: torch.dtype) -> None:
        """Refuse a model for which one of the equations does not hold."""
        worst, error = max(asdict(self).items(), key=lambda pair: pair[1])
        if not error <= largest_error(dtype):
            raise ModelError(f"{name}: {SENTENCES[worst]} (relative error {error:.1e}); {ADVICE}")


SENTENCES = {
    "memories": "coefficients times values do not add up to the feed-forward layer's output",
    "activation": "no known activation turns the keys' scores into coefficients",
    "residual": "residual plus feed-forward output is not the block's output",
    "head": "the last block's output does not lead to the model's logits",
    "causal": "it reads ahead (an encoder, or a masked language model), so prefixes mean nothing",
}
ADVICE = "use a causal language model, or add a row as docs/how-to/add-a-family.md says"


def largest_error(dtype: torch.dtype) -> float:
    """The relative error up to which an equation counts as holding in this precision."""
    return EXACT if dtype in (torch.float32, torch.float64) else ROUNDED


def refuse_non_causal(run: Trace, name: str) -> None:
    """Refuse an encoder before anything else, since nothing later can explain it better."""
    error = causal_error(run)
    if not error <= largest_error(run.logits.dtype):
        raise ModelError(f"{name}: {SENTENCES['causal']} (relative error {error:.1e}); {ADVICE}")


def causal_error(run: Trace) -> float:
    """How far the last token, the only one in which the two rows differ, changes what is before."""
    return relative_error(run.logits[1, :-1], run.logits[0, :-1])


def measure_identity(run: Trace, seen: Sequence[LayerFit], blocks: str, head: Head) -> Identity:
    """Measure all five equations on a traced run."""
    return Identity(
        memories=max(sighting.memory_error for sighting in seen),
        activation=max(sighting.activation_error for sighting in seen),
        residual=max(sighting.form_error for sighting in seen),
        head=relative_error(state_logits(head, last_state(run, blocks)), run.logits.float()),
        causal=causal_error(run),
    )


def last_state(run: Trace, blocks: str) -> Tensor:
    """What leaves the last of the blocks that ran."""
    ran = [name for name in run.outputs if name.rpartition(".")[0] == blocks]
    return run.outputs[max(ran, key=lambda name: int(name.rpartition(".")[2]))]


@torch.no_grad()
def state_logits(head: Head, state: Tensor) -> Tensor:
    """Logits of a state, step by step as the model makes them, in float32 at the end."""
    for module in head.chain:
        state = module(state)
    state = state.to(head.device) * head.before
    if head.classes is not None:
        return head.finish(head.log_probabilities(head.vectors().scores(state), state))
    logits = torch.nn.functional.linear(state, head.embedding, head.bias)
    return head.finish(logits.float())
