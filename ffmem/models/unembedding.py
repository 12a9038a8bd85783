"""The way from the residual stream to the vocabulary: final norm, embedding, bias, scaling."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import TYPE_CHECKING, Literal, cast

import torch
from torch import Tensor, nn

from ffmem.errors import ModelError
from ffmem.models.blocks.forms import NAMES, stock_activation
from ffmem.models.blocks.trace import Trace, relative_error, rounding
from ffmem.models.device_placement import device_of, on_device, shape_of, tensor_of
from ffmem.models.effective_weights import (
    has_plain_weight,
    has_quantised_weight,
    is_linear,
    plain_input,
    plain_output,
)

if TYPE_CHECKING:
    from transformers import PretrainedConfig, PreTrainedModel

LOGIT_CAP = re.compile(r"^(?!attn|attention).*logits?_soft_?cap")
LONGEST_CHAIN = 6  # steps between the last block and the output embedding
MANY = 1 << 15  # inner products, from which on oneDNN was as quick as MKL or quicker
CAST_ROWS = 16_384  # rows of an embedding in 16 bits that are made float32 at a time

Embed = Literal["output", "input"]


@dataclass(frozen=True)
class LinearNorm:
    """The linear part of a norm N(h) = gain * (h - mean(h)) / size(h) + shift.

    RMS norms do not subtract the mean. `gain` and `shift` are [width], in float32; vectors may lie
    on another device, and what is made of them stays there.
    """

    gain: Tensor
    shift: Tensor
    centred: bool

    def fold(self, h: Tensor) -> Tensor:
        """Give gain * (h - mean(h)): what the norm does to a direction, whatever the scale."""
        h = h.float()
        return self.gain.to(h.device) * (h - h.mean(dim=-1, keepdim=True) if self.centred else h)

    def size(self, h: Tensor) -> Tensor:
        """The divisor of the norm for a state: [..., 1]."""
        h = h.float()
        centred = h - h.mean(dim=-1, keepdim=True) if self.centred else h
        return centred.pow(2).mean(dim=-1, keepdim=True).sqrt()


@dataclass(frozen=True)
class VocabularyBand:
    """Tokens of consecutive ids: a row for each, and the map to the states' width, if there is one.

    A token's vector is its row, or `projection` times its row where rows are narrower than states.
    """

    rows: Tensor  # [token, width of the row]
    projection: Tensor | None = None  # [width, width of the row]

    def vectors(self, which: slice | Tensor) -> Tensor:
        """Some of its vectors: [token, width]."""
        rows = self.rows[which]
        return rows if self.projection is None else rows.float() @ self.projection.float().T

    def scores(self, h: Tensor) -> Tensor:
        """Inner products of states [..., width] with every vector, in float32.

        Neither a second embedding nor the vectors of a narrow band are ever built.
        """
        if self.projection is not None:
            h = h @ self.projection.float()
        if self.rows.dtype == torch.float32:
            return inner_products(h, self.rows)
        parts = [inner_products(h, rows.float()) for rows in self.rows.split(CAST_ROWS)]
        return torch.cat(parts, dim=-1)


def inner_products(h: Tensor, rows: Tensor) -> Tensor:
    """The product h @ rows.T of float32 tensors: [..., row].

    On a CPU with AVX-512 a large product is oneDNN's, which is as exact as torch's own (MKL's) and
    took half of its time on AMD cores. It knows no gradients.
    """
    large = h.device.type == "cpu" and h.numel() // h.shape[-1] * len(rows) >= MANY
    if large and has_fast_product() and not torch.is_grad_enabled():
        return cast(Tensor, torch.ops.mkldnn._linear_pointwise(h, rows, None, "none", [], ""))
    return h @ rows.T


@cache
def has_fast_product() -> bool:
    """Whether this machine and this torch have it."""
    wide = torch.backends.cpu.get_cpu_capability() == "AVX512"
    return wide and hasattr(torch.ops.mkldnn, "_linear_pointwise")


@dataclass(frozen=True)
class TokenVectors:
    """A vector for every token, in bands; an embedding matrix is one band without a projection."""

    bands: tuple[VocabularyBand, ...]

    def __len__(self) -> int:
        """How many tokens there are."""
        return sum(len(band.rows) for band in self.bands)

    @property
    def width(self) -> int:
        """Numbers in one vector."""
        first = self.bands[0]
        return (first.rows if first.projection is None else first.projection.T).shape[1]

    @property
    def device(self) -> torch.device:
        """Where they are."""
        return self.bands[0].rows.device

    @property
    def spans(self) -> list[slice]:
        """The ids of each band."""
        ends = torch.tensor([0, *(len(band.rows) for band in self.bands)]).cumsum(0).tolist()
        return [slice(start, end) for start, end in zip(ends, ends[1:], strict=False)]

    def first(self, count: int) -> TokenVectors:
        """Those of the first tokens only."""
        return TokenVectors(
            tuple(
                replace(band, rows=band.rows[: max(0, count - span.start)])
                for band, span in zip(self.bands, self.spans, strict=True)
            )
        )

    def scores(self, h: Tensor) -> Tensor:
        """Inner products [..., token] with states or pieces [..., width], in float32."""
        h = h.float()
        parts = [band.scores(h) for band in self.bands]
        return parts[0] if len(parts) == 1 else torch.cat(parts, dim=-1)

    def score_blocks(self, h: Tensor, size: int) -> Iterator[Tensor]:
        """The same for all tokens in order, at most `size` at a time."""
        h = h.float()
        for band in self.bands:
            mapped = h if band.projection is None else h @ band.projection.float()
            for rows in band.rows.split(size):
                yield inner_products(mapped, rows.float())

    def of(self, tokens: Tensor) -> Tensor:
        """The vectors of some tokens: [token, width]."""
        tokens = tokens.to(self.device)
        if len(self.bands) == 1:
            return self.bands[0].vectors(tokens)
        found = torch.empty(len(tokens), self.width, device=self.device)
        for band, span in zip(self.bands, self.spans, strict=True):
            mine = (tokens >= span.start) & (tokens < span.stop)
            found[mine] = band.vectors(tokens[mine] - span.start).float()
        return found

    def chunks(self, size: int) -> Iterator[tuple[slice, Tensor]]:
        """All vectors in order, at most `size` at a time, with their ids."""
        for band, span in zip(self.bands, self.spans, strict=True):
            for start in range(span.start, span.stop, size):
                ids = slice(start, min(start + size, span.stop))
                yield ids, band.vectors(slice(start - span.start, ids.stop - span.start))

    def same_rows(self, other: TokenVectors) -> bool:
        """Whether both have the same rows, whatever maps are behind them."""
        pairs = [
            (band.rows, mine.rows) for band, mine in zip(self.bands, other.bands, strict=False)
        ]
        return len(self.bands) == len(other.bands) and all(_same(*pair) for pair in pairs)

    def equals(self, other: TokenVectors) -> bool:
        """Whether every token has the same vector in both."""
        maps = zip(self.bands, other.bands, strict=False)
        return self.same_rows(other) and all(
            _same(band.projection, mine.projection) for band, mine in maps
        )


def _same(one: Tensor | None, other: Tensor | None) -> bool:
    if one is None or other is None:
        return one is other
    return one is other or (one.shape == other.shape and torch.equal(one, other))


def _token_vectors(module: nn.Module) -> TokenVectors:
    """The vectors that a module holds: its `weight`, or `rows_0`, `projection_0`, `rows_1` ..."""
    names = [name for name, _ in module.named_parameters(recurse=False)]
    count = sum(name.startswith("rows_") for name in names)
    if not count:
        return TokenVectors((VocabularyBand(_tensor(module, "weight")),))
    return TokenVectors(
        tuple(
            VocabularyBand(
                _tensor(module, f"rows_{number}"), tensor_of(module, f"projection_{number}")
            )
            for number in range(count)
        )
    )


def token_count(module: nn.Module) -> int:
    """How many tokens a module has vectors for; needs no numbers."""
    rows = [p for name, p in module.named_parameters(recurse=False) if name.startswith("rows_")]
    own = getattr(module, "num_embeddings", 0) if has_quantised_weight(module) else 0
    return sum(len(each) for each in rows) or own or shape_of(module)[0]


@dataclass(frozen=True)
class Head:
    """Turns a state of the residual stream into logits, exactly as the model does.

    `chain` holds the modules between the last block and the embedding, in order: usually one
    norm, or none. `norm` is its linear part where the chain begins with a norm. An adaptive head
    has `classes` too: its logits are log-probabilities, of the band and of the token inside it.
    """

    chain: tuple[nn.Module, ...]
    norm: LinearNorm | None
    output: nn.Module  # holds the output embedding
    input: nn.Module  # holds the input embedding
    before: float = 1.0  # what the state is multiplied by between chain and embedding
    scale: float = 1.0
    softcap: float | None = None

    @property
    def device(self) -> torch.device:
        """The device on which states are projected to the vocabulary."""
        return device_of(self.output)

    def vectors(self, embed: Embed = "output") -> TokenVectors:
        """The vector of every token, by which scores are inner products; where the head is."""
        if embed == "output":
            return _token_vectors(self.output)
        bands = _token_vectors(self.input).bands
        maps = [band.projection for band in bands]
        return TokenVectors(
            tuple(
                VocabularyBand(
                    band.rows.to(self.device), None if each is None else each.to(self.device)
                )
                for band, each in zip(bands, maps, strict=True)
            )
        )

    @property
    def embedding(self) -> Tensor:
        """[token, width of the embedding]: the output embedding; a view unless it is offloaded."""
        return _tensor(self.output, "weight")

    @property
    def bias(self) -> Tensor | None:
        """[token], or None where the head has none."""
        return tensor_of(self.output, "bias")

    @property
    def classes(self) -> Tensor | None:
        """[band after the first, width]: the bands' own vectors in an adaptive head, else None."""
        return tensor_of(self.output, "classes")

    @property
    def tied(self) -> bool:
        """Whether input and output embedding are one matrix (or rows), or two equal ones."""
        mine = getattr(self.output, "weight", None)
        if mine is not None and mine is getattr(self.input, "weight", None):
            return True
        return self.vectors().same_rows(self.vectors("input"))

    @property
    def rest(self) -> tuple[nn.Module, ...]:
        """The chain behind its norm."""
        return self.chain[1:] if self.norm is not None else self.chain

    @property
    def vocabulary(self) -> int:
        """Rows of the output embedding, unused ones included."""
        return token_count(self.output)

    @property
    def read(self) -> int:
        """Rows of the input embedding, unused ones included."""
        return token_count(self.input)

    def on_device(self, embed: Embed = "output") -> Head:
        """The same head with one embedding fetched to its device, for many projections."""
        if embed == "input":
            return replace(self, input=on_device(self.input, self.device))
        return replace(self, output=on_device(self.output, self.device))

    def band_offsets(self, scores: Tensor, h: Tensor) -> Tensor:
        """[..., band]: what makes the scores of an adaptive head log-probabilities.

        `scores` [..., token] are those of `h` [..., width]. A band's share is one choice among the
        first band's tokens and the other bands, a token's share of its band one among its tokens.
        """
        assert self.classes is not None
        first, *others = self.vectors().spans
        chosen = h.float() @ self.classes.float().T
        every = torch.cat([scores[..., first], chosen], dim=-1).logsumexp(dim=-1, keepdim=True)
        within = [scores[..., span].logsumexp(dim=-1, keepdim=True) for span in others]
        return torch.cat([-every, chosen - every - torch.cat(within, dim=-1)], dim=-1)

    def log_probabilities(self, scores: Tensor, h: Tensor) -> Tensor:
        """Scores [..., token] of an adaptive head turned, in place, into log-probabilities."""
        offsets = self.band_offsets(scores, h)
        for number, span in enumerate(self.vectors().spans):
            scores[..., span] += offsets[..., number, None]
        return scores

    def finish(self, logits: Tensor) -> Tensor:
        """The model's own monotone last steps: scale, soft cap."""
        return apply_softcap(self.rescale(logits), self.softcap)

    def rescale(self, logits: Tensor) -> Tensor:
        """The last steps without the cap, which is only for logits of the model's own size."""
        return logits if self.scale == 1.0 else logits * self.scale


def _tensor(module: nn.Module, name: str) -> Tensor:
    tensor = tensor_of(module, name)
    assert tensor is not None
    return tensor


def apply_softcap(logits: Tensor, cap: float | None) -> Tensor:
    """Logits pressed softly into -cap to cap, or as they are where there is no cap."""
    return logits if cap is None else cap * (logits / cap).tanh()


def head_of(model: PreTrainedModel, name: str, run: Trace, last_output: Tensor) -> Head:
    """Find the modules that lead from the last block's output to the logits."""
    embedding = model.get_output_embeddings()
    path = next((n for n, module in model.named_modules() if module is embedding), None)
    if path is None or path not in run.inputs:
        raise ModelError(
            f"{name}: it has no output embedding that a state can be projected through; "
            "use a causal language model"
        )
    found = _chain_to(model, run, last_output, path)
    if found is None:
        raise ModelError(
            f"{name}: no chain of modules leads from the last block to the output embedding; "
            "use a model whose blocks pass on one state for each token"
        )
    chain, before = found
    if any(is_linear(module) and not has_plain_weight(module) for module in chain):
        raise ModelError(
            f"{name}: a map between the last block and the output embedding is quantised or has an "
            "adapter, so it cannot be read; leave it as it was when you quantise or adapt the model"
        )
    read = model.get_input_embeddings()
    scale, softcap = _last_steps(model.config.get_text_config(), run.outputs[path], run.logits)
    return Head(
        chain=chain,
        norm=linear_norm(chain[0], last_output.to(device_of(embedding))) if chain else None,
        output=plain_output(embedding, run.inputs[path]),
        input=plain_input(read, token_count(read)),
        before=before,
        scale=scale,
        softcap=softcap,
    )


def _chain_to(
    model: nn.Module, run: Trace, state: Tensor, until: str
) -> tuple[tuple[nn.Module, ...], float] | None:
    """The modules that turn `state` into the input of `until`, and a number left over."""
    chain: list[str] = []
    modules: list[nn.Module] = []
    for _ in range(LONGEST_CHAIN):
        factor = constant_factor(state, run.inputs[until])
        if factor is not None:
            return tuple(modules), factor
        step = _next_step(run, state, until, chain)
        if step is not None:
            chain.append(step)
            modules.append(model.get_submodule(step))
            state = run.outputs[step]
            continue
        bare = _bare_activation(run, state, until)
        if bare is None:
            return None
        modules.append(bare)
        state = bare(state)
    return None


def _next_step(run: Trace, state: Tensor, until: str, taken: Sequence[str]) -> str | None:
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


def _bare_activation(run: Trace, state: Tensor, until: str) -> nn.Module | None:
    """An activation outside the model's modules, if a later module reads `state` through it."""
    after = list(run.inputs)
    readers = [run.inputs[name] for name in after[: after.index(until) + 1]]
    readers = [seen for seen in readers if seen.shape == state.shape]
    for name in NAMES:
        if name == "linear":
            continue
        activation = stock_activation(name)
        if any(_nearly_equal(activation(state), seen) for seen in readers):
            return activation
    return None


def _last_steps(
    config: PretrainedConfig, embedded: Tensor, logits: Tensor
) -> tuple[float, float | None]:
    """(scale, softcap) that turn what the embedding gives into the logits, measured.

    Only caps that the config names are tried. What fits best is taken, and the identity check
    says whether that is good enough.
    """
    named = {k: v for k, v in config.to_dict().items() if LOGIT_CAP.search(k) and v}
    found: list[tuple[float, float, float | None]] = []
    for cap in [*named.values(), None]:
        goal = logits.double()
        if cap is not None:
            goal = cap * (goal / cap).clamp(-1 + 1e-9, 1 - 1e-9).atanh()
        scale = _config_number(config, _least_squares(embedded.double(), goal), embedded.dtype)
        error = relative_error(apply_softcap(embedded.double() * scale, cap), logits)
        found.append((error, scale, cap))
    _, scale, cap = min(found, key=lambda candidate: candidate[0])
    return scale, cap


def _config_number(config: PretrainedConfig, found: float, dtype: torch.dtype) -> float:
    """The config's number (or one over it) that a measured factor stands for, if there is one."""
    numbers = [v for v in config.to_dict().values() if isinstance(v, int | float) and v]
    known = [1.0, *numbers, *(1 / number for number in numbers)]
    best = min(known, key=lambda number: abs(number - found))
    return float(best) if abs(best - found) <= 10 * rounding(dtype) * abs(found) else found


def _nearly_equal(one: Tensor, other: Tensor) -> bool:
    """Whether two tensors of a run are the same but for rounding."""
    return one.equal(other) or relative_error(one, other) < rounding(one.dtype)


def constant_factor(state: Tensor, goal: Tensor) -> float | None:
    """The number c with goal = c * state, or None where there is none."""
    if state.shape != goal.shape:
        return None
    if state.equal(goal):
        return 1.0
    factor = _least_squares(state, goal)
    return factor if relative_error(factor * state.double(), goal) < rounding(state.dtype) else None


def _least_squares(one: Tensor, other: Tensor) -> float:
    """The number c for which c * one comes nearest to `other`."""
    one, other = one.double().flatten(), other.double().flatten()
    return (one @ other / (one @ one)).item()


@torch.no_grad()
def linear_norm(module: nn.Module, state: Tensor) -> LinearNorm | None:
    """The linear part of `module`, measured by probing it; None if it is not a norm.

    A constant vector shows whether the mean is subtracted, a balanced one shows the gain; the
    result counts only if it repeats what the module did to a real state of the traced run.
    """
    width = state.shape[-1]
    large = torch.full((width,), 1024.0, dtype=state.dtype, device=state.device)
    balanced = large.clone()
    balanced[1::2] *= -1
    probed = module(torch.stack([large * 0, large, balanced])[None])
    zero, flat, wave = probed[0].float().to(state.device)
    if zero.shape != (width,):
        return None
    constant = (flat - zero).abs().max() < 1e-3 * (wave - zero).abs().max()
    norm = LinearNorm((wave - zero) * balanced.float().sign(), zero, bool(constant))
    expected = module(state).float().to(state.device)
    found = norm.fold(state) / norm.size(state) + norm.shift
    tolerance = 1e-2 if state.dtype in (torch.bfloat16, torch.float16) else 1e-3
    return norm if relative_error(found, expected) < tolerance else None
