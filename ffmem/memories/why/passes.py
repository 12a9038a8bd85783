"""The two passes: what every memory at every place is predicted to add to a target.

The forward pass goes through the unchanged model and keeps what each value map reads and a graph
behind what it gives. The backward pass tells how the target changes with that sum, and so with each
coefficient: the gradient at the sum along the memory's value. Mixtures of experts need nothing of
their own for this.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from inspect import signature
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from ffmem.errors import ModelError, shorten
from ffmem.locations import first_line
from ffmem.memories.prompt_explanation import prompt_place
from ffmem.memories.recording import LayerRecord, record_forward
from ffmem.models.blocks.trace import evaluation_mode
from ffmem.models.effective_weights import quantised_modules
from ffmem.models.feedforward import FeedForward
from ffmem.models.language_model import LanguageModel

VALUES_AT_A_TIME = 16_384  # of a mixture, whose values are copies


@dataclass(frozen=True)
class Prompt:
    """Token ids [1, column] up to the place that is explained; the first `lead` are not text."""

    tokens: Tensor
    lead: int

    @property
    def columns(self) -> int:
        """Columns of the input, the leading one included."""
        return int(self.tokens.shape[1])

    def at_end(self, tensor: Tensor) -> Tensor:
        """A copy of what a layer reads or gives at the last place."""
        return tensor.reshape(1, self.columns, -1)[:, -1].clone()


def read_prompt(model: LanguageModel, text: str, position: int | None) -> Prompt:
    """The first `position` tokens of a text; None is all of them, negative counts from the end."""
    tokens, lead, wanted = prompt_place(model, text, position)
    return Prompt(tokens[:, : lead + wanted], lead)


class Target(Protocol):
    """A number that a forward pass gives for every row of its input."""

    def watch(self, rows: int, columns: int) -> Any:
        """A context in which the pass runs; gives a function from the last logits to [row]."""


@dataclass(frozen=True)
class LogitTarget:
    """The logit of a token at the last place, or how far it is above that of another one."""

    token: int
    against: int | None = None

    @contextmanager
    def watch(self, _rows: int, _columns: int) -> Iterator[Callable[[Tensor], Tensor]]:
        """Nothing is watched: the logits have it."""
        yield self.of

    def of(self, logits: Tensor) -> Tensor:
        """[row], from the logits [row, token] of the last place."""
        found = logits[:, self.token]
        return found if self.against is None else found - logits[:, self.against]


def last_logits(model: LanguageModel, tokens: Tensor) -> Tensor:
    """The model's own logits [row, token] at the last place, in float32 at least."""
    known = signature(model.model.forward).parameters
    only_last = {"logits_to_keep": 1} if "logits_to_keep" in known else {}
    with evaluation_mode(model.model):
        logits = model.model(input_ids=tokens, use_cache=False, **only_last).logits[:, -1]
    return logits if logits.dtype == torch.float64 else logits.float()


@dataclass(frozen=True)
class LayerSlopes:
    """One layer: coefficients m [column, memory], and the gradient at the sum of their values.

    `gradient` [column, width] is that of the target with respect to what the value map gives.
    """

    layer: FeedForward
    m: Tensor
    gradient: Tensor

    @torch.no_grad()
    def effects(self, instead: Tensor | None = None) -> Tensor:
        """Predicted effects [column, memory] of replacing coefficients by 0, or by others."""
        change = self.m if instead is None else self.m - instead
        change = change.to(self.gradient.dtype)
        if self.layer.mixture is None:
            return change * (self.gradient @ self.layer.values.to(self.gradient).T)
        found = torch.zeros_like(change)
        for some in change.any(dim=0).nonzero()[:, 0].split(VALUES_AT_A_TIME):
            values = self.layer.mixture.values_at(some).to(self.gradient)
            found[:, some] = change[:, some] * (self.gradient @ values.T)
        return found


@dataclass(frozen=True)
class Passes:
    """What the forward and the backward pass over a prompt have shown."""

    target: float
    logits: Tensor  # [token], at the last place
    layers: tuple[LayerSlopes, ...]
    readings: tuple[LayerRecord, ...] = field(repr=False)  # at the last place, for direct terms
    seconds: float  # of the forward pass


@contextmanager
def gradients_of_states(model: LanguageModel) -> Iterator[None]:
    """Gradients flow inside the `with`, but to no parameter; the model is as before afterwards.

    They also flow where the caller has turned them off, by `torch.no_grad` or `inference_mode`.
    Quantised maps that let none through are refused: gradients would flow past them alone.
    """
    probed: set[type[nn.Module]] = set()

    def probe(module: nn.Module, args: tuple[Any, ...], _output: Any) -> None:
        is_new = type(module) not in probed and torch.is_grad_enabled()
        if is_new and len(args) == 1 and args[0].is_floating_point():
            probed.add(type(module))
            row = args[0].detach().flatten(0, -2)[-1:].requires_grad_()
            gradients_of(model, module.forward(row).sum(), [row])

    learning = [one for one in model.model.parameters() if one.requires_grad]
    with torch.inference_mode(False), evaluation_mode(model.model), ExitStack() as hooks:
        for module in quantised_modules(model.model).values():
            hooks.callback(module.register_forward_hook(probe).remove)
        try:
            for one in learning:
                one.requires_grad_(False)
            yield
        finally:
            for one in learning:
                one.requires_grad_(True)


@contextmanager
def leaves_at_sums(
    layers: Sequence[FeedForward],
) -> Iterator[tuple[dict[int, Any], dict[int, Any]]]:
    """Add zeros that a gradient can be asked for to what each value map gives.

    Yields two dictionaries by layer number that the forward pass fills: coefficients, zeros.
    """
    m: dict[int, Tensor] = {}
    zeros: dict[int, Tensor] = {}

    def add(number: int) -> Callable[..., Tensor]:
        def hook(_module: nn.Module, args: tuple[Any, ...], output: Tensor) -> Tensor:
            m[number] = args[0].detach().flatten(0, -2)
            if number not in zeros:
                zeros[number] = torch.zeros_like(output, requires_grad=True)
            return output + zeros[number]

        return hook

    with ExitStack() as hooks:
        for layer in layers:
            handle = layer.value_map.module.register_forward_hook(add(layer.number))
            hooks.callback(handle.remove)
        yield m, zeros


def forward_and_backward(
    model: LanguageModel, prompt: Prompt, choose: Callable[[Tensor], Target]
) -> Passes:
    """Run both passes; `choose` gets the logits [1, token] and names the target."""
    with ExitStack() as stack:
        stack.enter_context(gradients_of_states(model))
        m, zeros = stack.enter_context(leaves_at_sums(model.layers))
        readings = stack.enter_context(record_forward(model.layers, "hrmyo", prompt.at_end))
        begin = time.perf_counter()
        logits = last_logits(model, prompt.tokens)
        seconds = time.perf_counter() - begin
        target: Any = choose(logits.detach())
        value = target.of(logits)[0]
        gradients = gradients_of(model, value, [zeros[one.number] for one in model.layers])
    layers = slopes_of(model.layers, m, gradients)
    return Passes(float(value.detach()), logits.detach()[0], layers, readings, seconds)


def pass_bytes(model: LanguageModel, columns: int) -> int:
    """Memory that the two passes take beside the model, about: what the graph holds."""
    numbers = sum(8 * one.memories_per_place + 20 * one.width for one in model.layers)
    return 4 * columns * (numbers + 2 * sum(one.memories for one in model.layers))


def slopes_of(
    layers: Sequence[FeedForward], m: Mapping[int, Tensor], gradients: Sequence[Tensor]
) -> tuple[LayerSlopes, ...]:
    """The slopes of some layers, from what `leaves_at_sums` keeps and the gradients there."""
    return tuple(
        LayerSlopes(layer, m[layer.number], _whole(gradient))
        for layer, gradient in zip(layers, gradients, strict=True)
    )


def _whole(gradient: Tensor) -> Tensor:
    """A gradient [column, width] in float32, or float64 where the model has that."""
    flat = gradient.flatten(0, -2)
    return flat if flat.dtype == torch.float64 else flat.float()


def gradients_of(
    model: LanguageModel, value: Tensor, leaves: Sequence[Tensor], keep_graph: bool = False
) -> list[Tensor]:
    """The gradient at every leaf; refuses a model through which none flows."""
    reason = "no gradient comes through it"
    try:
        with warnings.catch_warnings():
            # Where torch sets up CUDA in a thread of its own, it warns; that is as it should be.
            warnings.filterwarnings("ignore", message=r".*no current CUDA context", append=False)
            found = torch.autograd.grad(value, leaves, retain_graph=keep_graph, allow_unused=True)
        if all(one is not None for one in found):
            return list(found)
    except torch.OutOfMemoryError:
        raise
    except (RuntimeError, NotImplementedError) as error:
        reason = shorten(first_line(error))
    raise ModelError(
        f"{model.name} has no backward pass ({reason}), so effects cannot be predicted; load it "
        "without quantisation, or see direct effects with `ffmem prompt`"
    )
