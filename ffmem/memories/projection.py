"""Projection to the vocabulary (logit lens): the tokens that a state or a piece promotes.

A *state* is a whole residual (r or o); a *piece* is something that is added to it (y or a value).
The paper's model has no final norm, so everything goes straight through the output embedding.
If there is one, a state passes through it as in the model, and a piece only through its linear
part, because a piece has no scale of its own. For the same reason the soft cap that some models put
on their logits is left out for a piece: far above the cap all logits would equal the cap.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Literal, get_args

import numpy as np
import torch
from torch import Tensor, nn

from ffmem.errors import ModelError, shorten, whole_number
from ffmem.models.device_placement import tensor_of
from ffmem.models.language_model import LanguageModel, check_model
from ffmem.models.unembedding import Embed, Head, TokenVectors
from ffmem.text import html_table, visible_token

VectorKind = Literal["residual", "direction"]
CHUNK_BYTES = 64 * 2**20  # logits held at a time; several such tensors live at once
GPU_CHUNKS = 3  # so many times that on a GPU, which small pieces do not keep busy
GROUP = 64  # tokens of consecutive ids whose largest score is looked at first
VECTORS_IN_REPR = 5  # vectors whose top tokens are listed for a person
WIDEST = 80.0  # a difference of scores whose exponential float32 still holds


@dataclass(frozen=True)
class Lens:
    """How vectors are read through the unembedding (logit lens); the defaults follow the paper.

    final_norm: `auto` applies it to residuals and folds it into directions; `none` leaves it out
    (the paper's literal formula); `apply`, `fold` force one way; `frozen` folds and divides by
    the size by which the norm divided the residual, which gives directions probabilities.
    head_bias: which vectors get the constant logits (head bias and norm shift): residuals only,
    `all`, or `none`.
    bands: how an adaptive head is read: `adaptive` as the model does (log-probabilities; the
    paper's numbers), or `linear`, by inner products with the tokens' vectors alone.
    """

    final_norm: Literal["auto", "none", "apply", "fold", "frozen"] = "auto"
    head_bias: Literal["r_o_only", "all", "none"] = "r_o_only"
    embed: Embed = "output"
    bands: Literal["adaptive", "linear"] = "adaptive"

    def is_adaptive(self, head: Head) -> bool:
        """Whether this lens reads log-probabilities by band, which are not linear in a piece."""
        return head.classes is not None and (self.embed, self.bands) == ("output", "adaptive")

    def norm_for(self, kind: VectorKind, head: Head) -> Literal["none", "apply", "fold", "frozen"]:
        """How this lens applies the final norm to one kind of vector."""
        if self.final_norm != "auto":
            return self.final_norm
        if not head.chain:
            return "none"
        return "apply" if kind == "residual" else "fold"


PAPER_LENS = Lens()


@dataclass(frozen=True)
class TopTokens:
    """The strongest tokens of each vector, best first: ids, logits, probabilities, all [vector, k].

    `texts` are the same tokens as text. A notebook shows them as a table.
    """

    tokens: Tensor
    logits: Tensor
    probabilities: Tensor
    decode: Callable[[int], str] = field(compare=False)  # a token as text

    @property
    def texts(self) -> list[list[str]]:
        """The tokens of each vector as text."""
        return [[self.decode(token) for token in row] for row in self.tokens.tolist()]

    def __repr__(self) -> str:
        vectors = len(self.tokens)
        lines = ["  ".join(f"{token} {logit}" for token, logit, _ in row) for row in self._rows()]
        more = [f"and {vectors - len(lines)} more vectors"] if vectors > len(lines) else []
        return f"<TopTokens with logits: {'; '.join([*lines, *more])}>"

    def _repr_html_(self) -> str:
        rows = ((str(vector), *cells) for vector, row in enumerate(self._rows()) for cells in row)
        return html_table(("vector", "token", "logit", "probability"), rows)

    def _rows(self) -> list[list[tuple[str, str, str]]]:
        """Token, logit and probability of the first vectors, as text."""
        return [
            [
                (visible_token(self.decode(token)), f"{logit:.3f}", f"{probability:.4f}")
                for token, logit, probability in zip(*lists, strict=True)
            ]
            for lists in zip(
                *(
                    one[:VECTORS_IN_REPR].tolist()
                    for one in (self.tokens, self.logits, self.probabilities)
                ),
                strict=True,
            )
        ]


@torch.no_grad()
def logits(
    model: LanguageModel,
    h: Tensor,
    kind: VectorKind,
    lens: Lens = PAPER_LENS,
    size: Tensor | None = None,
) -> Tensor:
    """Read vectors `h` [..., width] through the unembedding (logit lens): logits [..., token].

    `kind` says what the vectors are: "residual" for a whole residual stream, "direction" for
    something that is added to it, such as a value or a layer's output. The logits are float32, for
    the tokens that the tokenizer knows. `size` [..., 1] is what the final norm divided the residual
    of the same place by; only the `frozen` lens needs it. All logits are in memory at once: for
    many vectors use `top_tokens`, which works in chunks.
    """
    _check_vectors(model, h, kind)
    head = model.head
    h = h.to(head.device)
    how = lens.norm_for(kind, head)
    if how == "apply":
        embedded = _through(head.chain, h.to(model.dtype))
    else:
        embedded = _through_linear(head.rest, _fold(head, h, how, size))
    state = embedded.to(head.device) * head.before
    adaptive = lens.is_adaptive(head)  # then every token counts, for the sums over a band
    vectors = head.vectors(lens.embed)
    check_width(model, state, vectors)
    vectors = vectors if adaptive else vectors.first(model.vocab_size)
    scores = vectors.scores(state)
    already = how == "apply" and head.norm is not None  # the chain has added the norm's shift
    wanted = lens.head_bias == "all" or (lens.head_bias == "r_o_only" and kind == "residual")
    if head.norm is not None and wanted != already:
        shift = _shift(head) * (int(wanted) - int(already))
        state, scores = state + shift, scores + vectors.scores(shift)
    if head.bias is not None and wanted:
        scores = scores + head.bias[: len(vectors)].float()
    if adaptive:
        scores = head.log_probabilities(scores, state)[..., : model.vocab_size]
    of_its_size = how in ("apply", "frozen") or not head.chain
    return head.finish(scores) if kind == "residual" and of_its_size else head.rescale(scores)


def check_width(model: LanguageModel, state: Tensor, vectors: TokenVectors) -> None:
    """Refuse pieces that were not brought to the embedding's width."""
    if state.shape[-1] != vectors.width:
        raise ModelError(
            f"the way from the residual stream of {model.name} to its tokens is not linear and "
            "changes the width, so only whole states can be read through it"
        )


def _check_vectors(model: LanguageModel, h: Tensor, kind: VectorKind) -> None:
    """Refuse what the unembedding cannot read, and an unknown kind of vector."""
    check_model(model)
    if not isinstance(h, Tensor) or not h.is_floating_point() or not h.ndim:
        raise ModelError(
            f"{shorten(repr(h))} is not a tensor of vectors; give floats, [..., width]"
        )
    if h.shape[-1] != model.hidden_size:
        raise ModelError(
            f"the vectors are {h.shape[-1]} numbers wide; {model.name} reads {model.hidden_size}"
        )
    if not isinstance(kind, str) or kind not in get_args(VectorKind):
        raise ModelError(
            f"{shorten(repr(kind))} is not a kind of vector; choose residual or direction"
        )


def _fold(head: Head, h: Tensor, how: str, size: Tensor | None) -> Tensor:
    if head.norm is None or how == "none":
        return h.float()
    folded = head.norm.fold(h)
    if how == "fold":
        return folded
    if size is None:
        raise ModelError(
            "the frozen lens needs what the final norm divided the state of the same place by; "
            "pass it to `logits` as `size`, or choose another final_norm"
        )
    return folded / size.to(folded.device)


def _through_linear(modules: tuple[nn.Module, ...], h: Tensor) -> Tensor:
    """Apply modules in float32 if all are linear maps; otherwise return h."""
    if not all(isinstance(module, nn.Linear) for module in modules):
        return h
    for module in modules:
        weight, bias = tensor_of(module, "weight"), tensor_of(module, "bias")
        assert weight is not None
        h = nn.functional.linear(
            h.to(weight.device).float(), weight.float(), None if bias is None else bias.float()
        )
    return h


def _through(modules: tuple[nn.Module, ...], h: Tensor) -> Tensor:
    for module in modules:
        h = module(h)
    return h


def _shift(head: Head) -> Tensor:
    """[width]: the norm's shift at the embedding's input; part of every state."""
    assert head.norm is not None
    shift = _through_linear(head.rest, head.norm.shift.to(head.device))
    return shift.to(head.device) * head.before


def before_embedding(model: LanguageModel, pieces: Tensor, lens: Lens = PAPER_LENS) -> Tensor:
    """Pieces [vector, width] at the embedding's input, with every factor of the head."""
    head = model.head
    folded = _fold(head, pieces.to(head.device), lens.norm_for("direction", head), None)
    return head.rescale(_through_linear(head.rest, folded).to(head.device) * head.before)


def additive(lens: Lens) -> Lens:
    """The same lens made additive: the logits of a sum are the sum of logits, also by bands."""
    return replace(lens, bands="linear")


def is_odd(head: Head, lens: Lens = PAPER_LENS) -> bool:
    """Whether the logits of -v are those of a piece v with the other sign.

    Not by the bands of an adaptive head, nor where a norm or a constant comes in.
    """
    constant = lens.head_bias == "all" or any(
        tensor_of(module, "bias") is not None for module in head.rest
    )
    plain = lens.norm_for("direction", head) in ("none", "fold")
    return plain and not constant and not lens.is_adaptive(head)


def in_chunks(
    model: LanguageModel, h: Tensor, kind: VectorKind, lens: Lens = PAPER_LENS
) -> Iterator[tuple[slice, Tensor]]:
    """Yield logits of h [vector, width] for a bounded number of rows at a time, with the rows."""
    held = CHUNK_BYTES * (GPU_CHUNKS if h.device.type == "cuda" else 1)
    rows = max(1, held // (4 * model.vocab_size))
    model = model.on_device(lens.embed)
    for start in range(0, len(h), rows):
        part = slice(start, min(start + rows, len(h)))
        yield part, logits(model, h[part], kind, lens)


def best(scores: Tensor, sign: Literal[1, -1] = 1) -> Tensor:
    """The token with the largest of sign * scores in each row of [row, token].

    Ties go to the lowest id.
    """
    if scores.device.type == "cpu":  # numpy's search is ten times faster there
        found = scores.numpy()
        return torch.from_numpy((found.argmax if sign > 0 else found.argmin)(axis=1))
    return scores.argmax(dim=1) if sign > 0 else scores.argmin(dim=1)


def strongest(scores: Tensor, k: int, sign: Literal[1, -1] = 1) -> tuple[Tensor, Tensor]:
    """The k largest of each row of sign * scores [row, token], best first, and their tokens.

    Ties go to the lowest id. The k groups of neighbours with the largest maxima (the first among
    equals) contain all of them: any other score has k better ones. So the scores are read once, and
    only these groups are sorted.
    """
    k, count = min(k, scores.shape[1]), scores.shape[1]
    ids = torch.arange(count, device=scores.device)[None]
    if count > 2 * k * GROUP:
        _, groups = in_order(_group_maxima(scores, sign)).topk(k, dim=1)
        ids = (groups[:, :, None] * GROUP + ids[0, :GROUP]).flatten(1)
    outside = ids >= count  # the last group may be shorter
    ids = ids.clamp(max=count - 1).expand(len(scores), -1)
    found = (scores.gather(1, ids) * sign).masked_fill_(outside, -torch.inf)
    places = in_order(found, ids).topk(k, dim=1).indices
    return found.gather(1, places), ids.gather(1, places)


def _group_maxima(scores: Tensor, sign: Literal[1, -1] = 1) -> Tensor:
    """[row, group]: the largest of sign * scores in every group of neighbours."""
    whole = scores.shape[1] - scores.shape[1] % GROUP
    parts = [scores[:, :whole].view(len(scores), -1, GROUP)]
    if whole < scores.shape[1]:
        parts.append(scores[:, None, whole:])
    return torch.cat([part.amax(2) if sign > 0 else -part.amin(2) for part in parts], dim=1)


def in_order(scores: Tensor, ids: Tensor | None = None) -> Tensor:
    """Integers in the order of float32 scores; of equal scores the lower id is greater."""
    bits = (scores + 0.0).view(torch.int32)  # adding zero makes -0 the same as 0
    ordered = torch.where(bits < 0, bits ^ 0x7FFFFFFF, bits).long()
    if ids is None:
        ids = torch.arange(scores.shape[1], device=scores.device)
    return (ordered << 32) - ids


def sums_of_exponentials(scores: Tensor, high: Tensor, low: Tensor) -> tuple[Tensor, Tensor]:
    """For each row, the sums of exp(score - high) and of exp(low - score).

    `high` and `low` [row] are its largest and smallest score. The second sum uses the reciprocals
    of the first where these do not overflow, so each exponential is computed once.
    """
    top, bottom = high[:, None], low[:, None]
    powers = (scores - top).exp_()
    up = powers.sum(dim=1)
    if bool((high - low < WIDEST).all()):
        return up, powers.reciprocal_().sum(dim=1) * (low - high).exp()
    return up, torch.sub(bottom, scores, out=powers).exp_().sum(dim=1)


def ranks(scores: Tensor, tokens: Tensor) -> Tensor:
    """The rank of one token [row] in each row of scores [row, token], without a sort; 0 is best.

    Equal scores are ordered by id.
    """
    own = scores.gather(1, tokens[:, None])
    above = _count_true(scores > own)
    tied = (_count_true(scores >= own) - above > 1).nonzero().flatten()
    if len(tied):
        ids = torch.arange(scores.shape[1], device=scores.device)
        equal = scores[tied] == own[tied]
        above[tied] += (equal & (ids < tokens[tied, None])).sum(dim=1)
    return above


def _count_true(flags: Tensor) -> Tensor:
    """The number of true entries per row; on a CPU numpy counts twice as fast."""
    if flags.device.type == "cpu":
        return torch.from_numpy(np.count_nonzero(flags.numpy(), axis=1))
    return flags.sum(dim=1)


def top_tokens(
    model: LanguageModel, h: Tensor, kind: VectorKind, k: int = 10, lens: Lens = PAPER_LENS
) -> TopTokens:
    """The k tokens with the largest logits for every vector of h [vector, width] (logit lens).

    `kind` is "residual" or "direction", as for `logits`. Ties go to the lowest id.
    """
    _check_vectors(model, h, kind)
    if not len(h):
        raise ModelError("the tensor holds no vectors; give at least one")
    if whole_number(k, "k", ModelError) < 1:
        raise ModelError(f"k is {k}; give a whole number from 1")
    found = []
    for _, scores in in_chunks(model, h, kind, lens):
        values, tokens = strongest(scores, k)
        chances = (values - scores.logsumexp(dim=-1, keepdim=True)).exp()
        found.append((tokens, values, chances))
    tokens, values, chances = (torch.cat(parts) for parts in zip(*found, strict=True))
    return TopTokens(tokens, values, chances, model.token_text)
