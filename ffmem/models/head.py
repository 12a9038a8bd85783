"""The way from the residual stream to the vocabulary: final norm, embedding, bias, scaling."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from transformers import PretrainedConfig

from ffmem.errors import ModelError
from ffmem.models.trace import Trace, relative_error


@dataclass(frozen=True)
class LinearNorm:
    """The linear part of a norm N(h) = gain * (h - mean(h)) / size(h) + shift.

    RMS norms do not subtract the mean. `gain` and `shift` are [width], in float32.
    """

    gain: Tensor
    shift: Tensor
    centred: bool

    def fold(self, h: Tensor) -> Tensor:
        """Give gain * (h - mean(h)): what the norm does to a direction, whatever the scale."""
        h = h.float()
        return self.gain * (h - h.mean(dim=-1, keepdim=True) if self.centred else h)

    def size(self, h: Tensor) -> Tensor:
        """What the norm divides a state by: [..., 1]."""
        h = h.float()
        centred = h - h.mean(dim=-1, keepdim=True) if self.centred else h
        return centred.pow(2).mean(dim=-1, keepdim=True).sqrt()


@dataclass(frozen=True)
class Head:
    """Turns a state of the residual stream into logits, exactly as the model does.

    `chain` holds the modules between the last block and the embedding, in order: usually one
    norm, or none. `norm` is its linear part where the chain begins with a norm.
    """

    chain: tuple[nn.Module, ...]
    norm: LinearNorm | None
    embedding: Tensor  # [token, width of the embedding]: the output embedding, a view
    input_embedding: Tensor
    bias: Tensor | None  # [token]
    before: float = 1.0  # what the state is multiplied by between chain and embedding
    scale: float = 1.0
    softcap: float | None = None

    @property
    def rest(self) -> tuple[nn.Module, ...]:
        """The chain behind its norm."""
        return self.chain[1:] if self.norm is not None else self.chain

    @property
    def vocabulary(self) -> int:
        """Rows of the output embedding, unused ones included."""
        return self.embedding.shape[0]

    def finish(self, logits: Tensor) -> Tensor:
        """The model's own monotone last steps: scale, soft cap."""
        logits = logits * self.scale
        return logits if self.softcap is None else self.softcap * (logits / self.softcap).tanh()


def head_of(model: nn.Module, config: PretrainedConfig, run: Trace, last_output: Tensor) -> Head:
    """Find the modules that lead from the last block's output to the logits."""
    embedding = model.get_output_embeddings()  # type: ignore[operator]
    name = next((n for n, module in model.named_modules() if module is embedding), None)
    if name is None or name not in run.inputs:
        raise ModelError("the model has no output embedding that a state can be projected through")
    chain, before = chain_to(run, last_output, run.inputs[name], until=name)
    modules = tuple(model.get_submodule(step) for step in chain)
    return Head(
        chain=modules,
        norm=linear_norm(modules[0], run.inputs[chain[0]]) if modules else None,
        embedding=embedding.weight,
        input_embedding=model.get_input_embeddings().weight,  # type: ignore[operator]
        bias=getattr(embedding, "bias", None),
        before=before,
        scale=logit_scale(config),
        softcap=getattr(config, "final_logit_softcapping", None) or None,
    )


def chain_to(run: Trace, state: Tensor, goal: Tensor, until: str) -> tuple[list[str], float]:
    """Names of the modules that turn `state` into `goal`, and a number left over between them."""
    chain: list[str] = []
    for _ in range(4):
        factor = constant_factor(state, goal)
        if factor is not None:
            return chain, factor
        step = next_step(run, state, until, chain)
        if step is None:
            break
        chain.append(step)
        state = run.outputs[step]
    raise ModelError("no chain of modules leads from the last block to the output embedding")


def next_step(run: Trace, state: Tensor, until: str, taken: Sequence[str]) -> str | None:
    """The largest module outside the blocks that reads `state` and gives something else."""
    readers = [
        name
        for name, seen in run.inputs.items()
        if name != until
        and name not in taken
        and name in run.outputs
        and seen.shape == state.shape
        and seen.equal(state)
        and run.outputs[name].shape[:-1] == state.shape[:-1]
        and not until.startswith(name + ".")
        and not run.outputs[name].equal(state)
    ]
    return min(readers, key=lambda name: name.count("."), default=None)


def constant_factor(state: Tensor, goal: Tensor) -> float | None:
    """The number c with goal = c * state, or None where there is none."""
    if state.shape != goal.shape:
        return None
    if state.equal(goal):
        return 1.0
    one, other = state.double().flatten(), goal.double().flatten()
    factor = (one @ other / (one @ one)).item()
    return factor if relative_error(factor * one, other) < 1e-5 else None


def logit_scale(config: PretrainedConfig) -> float:
    """The number a family multiplies its logits by (Cohere), or divides them by (Granite)."""
    multiplied = getattr(config, "logit_scale", None)
    divided = getattr(config, "logits_scaling", None)
    return float(multiplied or 1.0) / float(divided or 1.0)


@torch.no_grad()
def linear_norm(module: nn.Module, state: Tensor) -> LinearNorm | None:
    """The linear part of `module`, measured by probing it; None if it is no norm.

    A constant vector shows whether the mean is subtracted, a balanced one shows the gain; the
    result counts only if it repeats what the module did to a real state of the traced run.
    """
    width = state.shape[-1]
    large = torch.full((width,), 1024.0, dtype=state.dtype, device=state.device)
    balanced = large.clone()
    balanced[1::2] *= -1
    zero, flat, wave = module(torch.stack([large * 0, large, balanced])[None])[0].float()
    if zero.shape != (width,):
        return None
    constant = (flat - zero).abs().max() < 1e-3 * (wave - zero).abs().max()
    norm = LinearNorm((wave - zero) * balanced.float().sign(), zero, bool(constant))
    expected = module(state).float()
    found = norm.fold(state) / norm.size(state) + norm.shift
    tolerance = 1e-2 if state.dtype in (torch.bfloat16, torch.float16) else 1e-3
    return norm if relative_error(found, expected) < tolerance else None
