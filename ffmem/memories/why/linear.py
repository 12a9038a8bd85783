"""The linear reading: with norms, attention patterns and activations frozen a logit is a sum.

A norm divides by the number that it did divide by, attention has the pattern that it had, an
activation multiplies its input by the number that it did multiply by, and of a product each factor
gets half. Values of the forward pass stay the same to the last bit: only the backward pass follows
the rules. Everything that is then a constant, or comes from the embedding, adds up to the target;
where it does not, or a module has no rule, there is no answer but the reason.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any, cast

import torch
from torch import Tensor, nn

from ffmem.errors import FfmemError, ModelError
from ffmem.memories.attribution import direction
from ffmem.memories.recording import record_forward
from ffmem.memories.why.passes import (
    LogitTarget,
    Passes,
    Prompt,
    gradients_of,
    gradients_of_states,
    last_logits,
    leaves_at_sums,
    slopes_of,
)
from ffmem.memories.why.record import LinearReading
from ffmem.models.blocks.frozen_attention import frozen_attention
from ffmem.models.experts.mixture_reading import MapRole
from ffmem.models.experts.mixtures import Mixture
from ffmem.models.experts.routing import RoutedCoefficients, expert_rows, stock_sum
from ffmem.models.feedforward import FeedForward
from ffmem.models.language_model import LanguageModel
from ffmem.models.unembedding import LinearNorm, apply_softcap, linear_norm

LARGE = 100.0  # root mean square of states that norms are asked about
LISTED = 3  # modules without a rule that a refusal names


class _Detour(torch.autograd.Function):
    """A value whose gradient goes to another tensor."""

    @staticmethod
    def forward(_ctx: Any, value: Tensor, _linear: Tensor) -> Tensor:
        return value.clone()

    @staticmethod
    def backward(_ctx: Any, gradient: Tensor) -> tuple[None, Tensor]:
        return None, gradient


def _detour(value: Tensor, linear: Tensor) -> Tensor:
    """`value` bit for bit, with the gradient of `linear`."""
    return cast(Tensor, _Detour.apply(value.detach(), linear))


@dataclass
class _Rules:
    """The rules of one model, and what biases add while a backward pass follows them."""

    blocks: list[nn.Module]
    norms: dict[nn.Module, LinearNorm]
    biases: float = 0.0
    scores: dict[nn.Module, Tensor] = field(default_factory=dict)
    start: Tensor | None = None  # what enters the first block
    end: Tensor | None = None  # what leaves the last

    def attach(self, layers: Sequence[FeedForward], hooks: ExitStack) -> None:
        """Put all rules into force until `hooks` closes."""
        for norm in self.norms:
            hooks.callback(norm.register_forward_hook(self._norm).remove)
        for layer in layers:
            if layer.mixture is not None:
                self._attach_mixture(layer.mixture, hooks)
                continue
            gate = [] if layer.gate_map is None else [layer.gate_map]
            self._attach_activation([layer.key_map, *gate], layer.value_map.module, hooks)
        for block in self.blocks:
            for module in block.modules():
                if _bias(module) is not None and module not in self.norms:
                    hooks.callback(module.register_forward_hook(self._bias).remove)
        first = self.blocks[0].register_forward_pre_hook(self._begin, with_kwargs=True)
        hooks.callback(first.remove)
        hooks.callback(self.blocks[-1].register_forward_hook(self._finish).remove)

    def _attach_activation(self, maps: Sequence[Any], values: nn.Module, hooks: ExitStack) -> None:
        for module in {part.module for part in maps}:
            hooks.callback(module.register_forward_hook(self._scores).remove)
        hooks.callback(values.register_forward_pre_hook(self._activation(maps)).remove)

    def _attach_mixture(self, mixture: Mixture, hooks: ExitStack) -> None:
        """Routed experts with constant router weights, and the shared ones beside them."""
        for one in mixture.shared:
            gate = [] if one.gate_map is None else [one.gate_map]
            self._attach_activation([one.key_map, *gate], one.value_map.module, hooks)
            if one.weigher is not None:
                hooks.callback(one.weigher.register_forward_hook(_constant).remove)
        routed: list[RoutedCoefficients] = []
        hooks.callback(mixture.listen_to_experts(routed.append))

        def rule(experts: nn.Module, args: Any, options: dict[str, Any], output: Tensor) -> Tensor:
            lines = routed.pop()
            linear = _linear_experts(mixture, lines, output)
            with torch.no_grad():  # its own function, whose last digits may be others
                value = stock_sum(experts, *args, **options)
            found = _detour(value, linear)
            if mixture.experts.has_bias:
                self._count_expert_biases(mixture.experts, lines, found)
            return found

        handle = mixture.experts.register_forward_hook(rule, with_kwargs=True)
        hooks.callback(handle.remove)

    def _count_expert_biases(self, experts: Any, lines: RoutedCoefficients, output: Tensor) -> None:
        """Add up what the biases of experts' keys and values give to the target."""
        keys = experts.gate_up_proj_bias if experts.has_gate else experts.up_proj_bias
        values = lines.weights.detach()[:, None] * experts.down_proj_bias[lines.experts]

        def note_keys(gradient: Tensor) -> None:
            self.biases += float((gradient * keys[lines.experts]).double().sum())

        def note_values(gradient: Tensor) -> None:
            along = gradient.flatten(0, -2)[lines.places]
            self.biases += float((along * values).double().sum())

        lines.scores.register_hook(note_keys)
        output.register_hook(note_values)

    def _begin(self, _block: nn.Module, args: Any, options: dict[str, Any]) -> Any:
        if args:
            self.start = args[0].detach().requires_grad_()
            return (self.start, *args[1:]), options
        self.start = options["hidden_states"].detach().requires_grad_()
        return args, options | {"hidden_states": self.start}

    def _finish(self, _block: nn.Module, _args: Any, output: Any) -> None:
        self.end = output if isinstance(output, Tensor) else output[0]

    def _norm(self, module: nn.Module, args: tuple[Any, ...], output: Tensor) -> Tensor:
        norm = self.norms[module]
        folded, shift = norm.fold(args[0]), norm.shift.to(output.device)
        size = (folded * folded).sum(-1, keepdim=True) / (folded * (output.float() - shift)).sum(
            -1, keepdim=True
        )
        found = _detour(output, folded / size.detach().nan_to_num(1.0))
        return self._count(found, shift)

    def _bias(self, module: nn.Module, _args: Any, output: Any) -> None:
        bias = _bias(module)
        if bias is not None and isinstance(output, Tensor):  # a router gives several
            self._count(output, bias)

    def _count(self, output: Tensor, constant: Tensor) -> Tensor:
        """Add up what a constant in an output gives to the target."""

        def note(gradient: Tensor) -> None:
            along = gradient.flatten(0, -2).double().sum(dim=0)
            self.biases += float(along.flatten() @ constant.double().flatten().to(along.device))

        if output.requires_grad and output.shape[-1] == constant.numel():
            output.register_hook(note)
        return output

    def _scores(self, module: nn.Module, _args: Any, output: Tensor) -> None:
        self.scores[module] = output

    def _activation(self, parts: Sequence[Any]) -> Callable[..., Any]:
        def rule(_module: nn.Module, args: tuple[Any, ...]) -> tuple[Any, ...]:
            m, linear = args[0], torch.zeros((), device=args[0].device)
            for part in parts:
                a = part.of(self.scores[part.module], dim=-1).float()
                factor = torch.where(a == 0, 0.0, m.detach().float() / a.detach())
                linear = linear + factor * a / len(parts)
            return (_detour(m, linear), *args[1:])

        return rule


def _constant(_module: nn.Module, _args: Any, output: Tensor) -> Tensor:
    """A factor of which no gradient comes, as of an attention pattern."""
    return output.detach()


def _linear_experts(mixture: Mixture, lines: RoutedCoefficients, output: Tensor) -> Tensor:
    """The experts' sum, but for their biases, as a linear function of the scores of their keys."""
    experts = mixture.experts
    halves: tuple[MapRole, ...] = ("gate", "keys") if experts.has_gate else ("keys",)
    c = lines.coefficients.detach().float()
    linear = torch.zeros_like(c)
    for role in halves:
        a = mixture.half(lines.scores, role).float()
        linear = linear + torch.where(a == 0, 0.0, c / a.detach()) * a / len(halves)
    down = expert_rows(experts, "down_proj").float()
    total = torch.zeros(output.numel() // output.shape[-1], output.shape[-1], device=output.device)
    for expert in lines.experts.unique().tolist():
        mine = lines.experts == expert
        total = total.index_add(0, lines.places[mine], linear[mine] @ down[expert].T)
    return total.view_as(output)


def _bias(module: nn.Module) -> Tensor | None:
    """The vector that a map of the model adds to what it gives."""
    weight, bias = getattr(module, "weight", None), getattr(module, "bias", None)
    is_map = isinstance(weight, Tensor) and weight.ndim == 2
    return bias if is_map and isinstance(bias, Tensor) and bias.ndim == 1 else None


def linear_passes(
    model: LanguageModel, prompt: Prompt, choose: Callable[[Tensor], LogitTarget]
) -> tuple[Passes, LinearReading]:
    """The forward pass, and a backward pass that follows the rules; refuses by name and reason."""
    if any(
        one.mixture is not None and not one.mixture.runs_through_function for one in model.layers
    ):
        raise _no_reading(model, "its experts do not run through transformers' interface")
    blocks = _blocks_of(model)
    with ExitStack() as stack:
        stack.enter_context(gradients_of_states(model))
        with torch.no_grad():
            norms = _norms_in(model, prompt, blocks)
        rules = _Rules(blocks, norms)
        begin = time.perf_counter()
        plain = last_logits(model, prompt.tokens)
        seconds = time.perf_counter() - begin
        attending = stack.enter_context(frozen_attention(model.model))
        rules.attach(model.layers, stack)
        m, zeros = stack.enter_context(leaves_at_sums(model.layers))
        readings = stack.enter_context(record_forward(model.layers, "hrmyo", prompt.at_end))
        logits = last_logits(model, prompt.tokens)
        _refuse_without_rule(model, blocks, attending)
        target = choose(logits.detach())
        assert rules.start is not None
        assert rules.end is not None
        along, constant = _target_direction(model, rules.end[0, -1].detach(), target)
        value = rules.end[0, -1].double() @ along.to(rules.end.device)
        leaves = [rules.start, *(zeros[one.number] for one in model.layers)]
        first, *gradients = gradients_of(model, value, leaves)
    found = float(target.of(logits.detach())[0])
    reading = LinearReading(
        is_identical=torch.equal(plain, logits),
        embedding=float((first.double() * rules.start.detach().double()).sum()),
        biases=rules.biases,
        constant=constant,
        covered={
            "norms": len(norms) + (model.head.norm is not None),
            "attentions": len(attending),
            "activations": len(model.layers),
        },
    )
    _check_identities(model, reading, found)
    layers = slopes_of(model.layers, m, gradients)
    return Passes(found, logits.detach()[0], layers, readings, seconds), reading


def _blocks_of(model: LanguageModel) -> list[nn.Module]:
    """All blocks of the stack, those without memories too."""
    block = model.layers[0].block
    holder = next(one for one in model.block_stack.children() if block in set(one.children()))
    return list(holder.children())


def _norms_in(
    model: LanguageModel, prompt: Prompt, blocks: Sequence[nn.Module]
) -> dict[nn.Module, LinearNorm]:
    """Every module in the blocks that does to this text what a norm does."""
    found: dict[nn.Module, LinearNorm] = {}
    for module, state in _shape_keepers(model, prompt, blocks).items():
        norm = _as_norm(module, state)
        if norm is not None:
            found[module] = norm
        elif "norm" in type(module).__name__.lower():
            raise _no_reading(model, f"{type(module).__name__} is not a norm that can be frozen")
    inner = {one for norm in found for one in norm.modules() if one is not norm}
    return {module: norm for module, norm in found.items() if module not in inner}


def _shape_keepers(
    model: LanguageModel, prompt: Prompt, blocks: Sequence[nn.Module]
) -> dict[nn.Module, Tensor]:
    """Modules without a matrix that give what they take in size, with some of what they take."""
    states: dict[nn.Module, Tensor] = {}

    def note(module: nn.Module, args: tuple[Any, ...], output: Any) -> None:
        given = args[0] if args else None
        if isinstance(given, Tensor) and given.shape == getattr(output, "shape", None):
            states[module] = given.detach().flatten(0, -2)[-4:]

    with ExitStack() as hooks:
        for module in (inner for block in blocks for inner in block.modules()):
            if all(one.ndim < 2 for one in module.parameters()):
                hooks.callback(module.register_forward_hook(note).remove)
        last_logits(model, prompt.tokens)
    return states


def _as_norm(module: nn.Module, state: Tensor) -> LinearNorm | None:
    """The linear part of a module, if it is a norm.

    It is asked about states of a fair size, beside which the small number that it adds against
    division by zero does not count.
    """
    large = state * (LARGE / state.float().pow(2).mean().sqrt().clamp(min=1e-6)).to(state)
    try:
        return linear_norm(module, large[None])
    except (AttributeError, RuntimeError, TypeError, ValueError, IndexError):  # it takes more
        return None


def _target_direction(
    model: LanguageModel, state: Tensor, target: LogitTarget
) -> tuple[Tensor, float]:
    """(d, c) with target = d . state + c at this state, a soft cap frozen too."""
    try:
        found = [direction(model, state, target.token)]
        if target.against is not None:
            found.append(direction(model, state, target.against))
    except FfmemError as error:
        raise _no_reading(model, str(error)) from None
    capped = []
    for towards, constant in found:
        uncapped = state.cpu().double() @ towards + constant
        factor = float(apply_softcap(uncapped, model.head.softcap) / uncapped)
        capped.append((factor * towards, factor * constant))
    (one, c), *others = capped
    for other, less in others:
        one, c = one - other, c - less
    return one, c


def _refuse_without_rule(
    model: LanguageModel, blocks: Sequence[nn.Module], attending: set[nn.Module]
) -> None:
    """Every block must have an attention whose pattern is frozen."""
    without = [
        f"{type(block).__name__} {number}"
        for number, block in enumerate(blocks)
        if not attending & set(block.modules())
    ]
    if without:
        more = f" and {len(without) - LISTED} more" if len(without) > LISTED else ""
        raise _no_reading(
            model,
            f"{len(without)} of {len(blocks)} blocks have no attention that goes through "
            f"transformers' interface ({', '.join(without[:LISTED])}{more})",
        )


def _check_identities(model: LanguageModel, reading: LinearReading, target: float) -> None:
    """Refuse a reading that changes the forward pass, or whose parts do not add up."""
    if not reading.is_identical:
        raise _no_reading(model, "the forward pass is not the same with the rules on")
    parts = abs(reading.embedding) + abs(reading.biases) + abs(reading.constant)
    tolerance = 1e-3 if model.dtype in (torch.float32, torch.float64) else 3e-2
    if not abs(reading.total - target) <= tolerance * max(parts, 1.0):
        raise _no_reading(
            model,
            f"its parts add up to {reading.total:.4f} and the target is {target:.4f}, so "
            "something in its blocks is neither a norm, an attention, an activation nor linear",
        )


def _no_reading(model: LanguageModel, reason: str) -> ModelError:
    """The refusal, with its reason."""
    return ModelError(
        f"{model.name} has no linear reading: {reason}; leave --method linear out, the gradient "
        "needs no rules"
    )
