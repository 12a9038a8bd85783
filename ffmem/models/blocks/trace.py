"""One short run of a model that records every module's input and output."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn


@dataclass(frozen=True)
class Trace:
    """The input and output of every module, by its name in the model.

    Names are in the order in which the modules finished. Only the first tensor on each side is
    kept, and a copy of it, because some models add to it in place afterwards.
    """

    logits: Tensor
    inputs: Mapping[str, Tensor]
    outputs: Mapping[str, Tensor]
    calls: Mapping[str, int]


@dataclass
class _Recorder:
    inputs: dict[str, Tensor] = field(default_factory=dict)
    outputs: dict[str, Tensor] = field(default_factory=dict)
    calls: Counter[str] = field(default_factory=Counter)

    def before(self, name: str) -> Callable[..., None]:
        def hook(_module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
            tensor = first_tensor(args or (kwargs.get("hidden_states"),))
            self.calls[name] += 1
            if tensor is not None:
                self.inputs[name] = tensor.detach().clone()

        return hook

    def after(self, name: str) -> Callable[..., None]:
        def hook(_module: nn.Module, _args: Any, output: Any) -> None:
            tensor = first_tensor(output)
            if tensor is not None:
                self.outputs[name] = tensor.detach().clone()

        return hook


def first_tensor(value: Any) -> Tensor | None:
    """The tensor itself, or the first one of a tuple, list or model output."""
    if isinstance(value, Tensor):
        return value
    if isinstance(value, Mapping):
        value = tuple(value.values())
    if isinstance(value, tuple | list) and value:
        return first_tensor(value[0])
    return None


@torch.no_grad()
def trace(model: nn.Module, tokens: Tensor) -> Trace:
    """Run `model` on `tokens` [batch, position] and record every module's input and output.

    Memory grows with batch x position x modules: meant for a dozen tokens.
    """
    recorder = _Recorder()
    with ExitStack() as hooks:
        for name, module in model.named_modules():
            if name:
                before = module.register_forward_pre_hook(recorder.before(name), with_kwargs=True)
                hooks.callback(before.remove)
                hooks.callback(module.register_forward_hook(recorder.after(name)).remove)
        logits = model(input_ids=tokens, use_cache=False).logits
    return _in_one_place(Trace(logits.detach(), recorder.inputs, recorder.outputs, recorder.calls))


def _in_one_place(run: Trace) -> Trace:
    """The same trace on one device; a model spread over several has tensors on all of them."""
    where = run.logits.device
    inputs = {name: tensor.to(where) for name, tensor in run.inputs.items()}
    outputs = {name: tensor.to(where) for name, tensor in run.outputs.items()}
    return Trace(run.logits, inputs, outputs, run.calls)


@contextmanager
def evaluation_mode(model: nn.Module) -> Iterator[None]:
    """Evaluation mode (no dropout) inside the `with`; training mode is restored on exit."""
    training = [module for module in model.modules() if module.training]  # an adapter may be alone
    for module in training:
        module.training = False
    try:
        yield
    finally:
        for module in training:
            module.training = True


_seeding = threading.Lock()


@contextmanager
def torch_seed(seed: int) -> Iterator[None]:
    """Seed torch's random numbers inside the `with`; the state outside is restored.

    torch has one random state for all threads, so only one thread at a time is inside.
    """
    with _seeding, torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        yield


def probe_tokens(vocabulary: int, device: torch.device) -> Tensor:
    """Two rows of token ids that differ in the last place only.

    Row 0 serves the identities; comparing both rows shows whether a model reads ahead.
    """
    ids = torch.arange(7, 16) * 7919 % vocabulary
    other = ids.clone()
    other[-1] = (ids[-1] + 1) % vocabulary
    return torch.stack([ids, other]).to(device)


def relative_error(found: Tensor, expected: Tensor, size: float | None = None) -> float:
    """|found - expected| / |expected| as vectors, in float64; infinite if not comparable.

    `size` is |expected| where it is known.
    """
    if found.shape != expected.shape:
        return float("inf")
    expected, found = expected.double(), found.to(expected.device)
    if size is None:
        size = torch.linalg.vector_norm(expected).item()
    error = torch.linalg.vector_norm(found.double() - expected).item()
    if size == 0:
        return 0.0 if error == 0 else float("inf")
    return error / size if error == error else float("inf")


def sum_error(r: Tensor, y: Tensor, o: Tensor) -> float:
    """The error of r + y against o, relative to o; infinite if y does not contribute.

    Without the second condition a y that is small, or made small by a wrong scale, would pass
    wherever r is nearly o. Medians, because a few large entries would hide all others.
    """
    total = r.double() + y.double()
    left = (total - o.double()).abs().median()
    if not left <= 0.5 * y.double().abs().median():
        return float("inf")
    return relative_error(total, o)


def rounding(dtype: torch.dtype) -> float:
    """The relative error that rounding may cause between two readings of one tensor."""
    return 1e-2 if dtype in (torch.bfloat16, torch.float16) else 1e-5
