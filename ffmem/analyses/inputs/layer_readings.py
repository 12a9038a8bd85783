"""Read every layer at the places of a sample, once, and keep a few numbers of each place.

`Convention` says what counts as residual and output where blocks or final norms differ from the
paper's model.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from ffmem.analyses.inputs.normalised_layers import (
    NormalisedLayers,
    missing_fields,
    normalised_layer,
)
from ffmem.analyses.inputs.prefix_sample import (
    BATCH_TOKENS,
    NO_TOKEN,
    PlaceBatch,
    PrefixSample,
    other_rows,
    prefix_batches,
    sentence_batches,
)
from ffmem.memories.projection import (
    CHUNK_BYTES,
    PAPER_LENS,
    Lens,
    VectorKind,
    additive,
    best,
    in_chunks,
    is_odd,
    logits,
    ranks,
)
from ffmem.memories.recording import LayerRecord, record, record_forward
from ffmem.memories.value_vectors import value_vectors
from ffmem.models.feedforward import FeedForward
from ffmem.models.language_model import LanguageModel
from ffmem.steps import sized_steps, steps

PROBE = 64  # prefixes from which the size of a layer's large coefficients is estimated
NO_CHANGE, VOTE, VETO, UNKNOWN = 0, 1, 2, -1  # what a layer's output does to the top token


@dataclass(frozen=True)
class Convention:
    """One way to say what r and o are, and how they are projected.

    `parallel_r`: in a block with attention and layer side by side, `with_attn` takes
    r = h + attention and o = what leaves the block, `block_input` r = h and o = h + y.
    `postln_o`: in a post-norm block, o is the `normed` sum that the model passes on, or the `sum`.
    """

    name: str
    lens: Lens = PAPER_LENS
    parallel_r: Literal["with_attn", "block_input"] = "with_attn"
    postln_o: Literal["normed", "sum"] = "normed"

    def r(self, reading: LayerRecord) -> Tensor:
        """The residual of a layer."""
        if self.parallel_r == "block_input" and reading.layer.form == "parallel":
            return reading.h
        return reading.r

    def o(self, reading: LayerRecord) -> Tensor:
        """The output of a layer."""
        form = reading.layer.form
        if self.parallel_r == "block_input" and form == "parallel":
            return (reading.h + reading.y) * reading.layer.output_scale
        if self.postln_o == "sum" and form == "post-norm":
            return reading.r + reading.y
        return reading.o


DEFAULT_CONVENTION = Convention("default")


def conventions_of(model: LanguageModel) -> tuple[Convention, ...]:
    """The default, and every other convention that makes a difference in this model."""
    forms = {layer.form for layer in model.layers}
    found = [DEFAULT_CONVENTION]
    if "parallel" in forms:
        found.append(Convention("block_input", parallel_r="block_input"))
    if "post-norm" in forms:
        found.append(Convention("sum", postln_o="sum"))
    if model.head.chain:
        found.append(Convention("no final norm", Lens(final_norm="none")))
    return tuple(found)


@dataclass(frozen=True)
class Predictions:
    """Top tokens under one convention, each [prefix, layer].

    `probability` is that of this convention's last output token under each residual.
    The others describe a change: the old top token R under y, the new one O under r, and by how
    much the logit of each is another in o than in r. `change` says which of the two movements
    closes the gap (VOTE or VETO), and `foreign_change` what the same residual and
    another prefix's y would do.
    """

    convention: Convention
    residual: Tensor
    feedforward: Tensor
    output: Tensor
    probability: Tensor
    old_rank_in_layer: Tensor
    new_rank_in_residual: Tensor
    push_on_old: Tensor  # logit of R under y
    old_change: Tensor
    new_change: Tensor
    change: Tensor
    foreign_change: Tensor

    @property
    def last(self) -> Tensor:
        """[prefix]: the last layer's output token."""
        return self.output[:, -1]


@dataclass(frozen=True)
class CoefficientSummary:
    """What the coefficients of each layer look like at each place, each [prefix, layer].

    `active` counts coefficients above zero (in a gated layer: gates that are on), `active_eps`
    those larger than 1 % of the layer's 99.9th percentile. `for_90` memories make up 90 % of
    sum |m| ||v||, and `participation` is (sum c)^2 / sum c^2 of the same numbers c.
    `matches_*` count the memories whose own top token is top(y) or top(o): of all memories, or of
    the active ones. `right` says whether an active memory says the token
    that follows, `foreign` the token that follows the next prefix of the sample.
    """

    active: Tensor
    active_eps: Tensor
    for_90: Tensor
    participation: Tensor
    matches_y: Tensor
    matches_y_active: Tensor
    matches_o: Tensor
    right: Tensor
    foreign: Tensor


@dataclass(frozen=True)
class SampleRecord:
    """The readings of a sample that composition, normalisation and refinement need."""

    sample: PrefixSample
    layers: tuple[int, ...]
    memories: tuple[int, ...]
    predictions: tuple[Predictions, ...]  # the default convention first
    coefficients: CoefficientSummary
    normalised: NormalisedLayers
    output: Tensor  # [prefix], what the model says next
    entropy: Tensor  # [prefix], nats of the model's distribution


@torch.no_grad()
def record_sample(
    model: LanguageModel,
    sample: PrefixSample,
    budget: int = BATCH_TOKENS,
    for_verdicts: bool = False,
) -> SampleRecord:
    """Run the model over the sample's sentences once and project r, y and o of every layer.

    Memory is bounded by `budget` tokens a forward pass and the logits of one layer; the result
    has a few numbers for each prefix and layer. `for_verdicts` leaves out what no claim rests on,
    more than half of the projections: other conventions than the default, and layers with a
    softmax, which then count as not measured.
    """
    banks = [_bank(model, layer) for layer in steps(model.layers, "ranking values")]
    chosen = (DEFAULT_CONVENTION,) if for_verdicts else conventions_of(model)
    normalise = missing_fields if for_verdicts else normalised_layer
    prefixes = [sample.prefix_tokens(row) for row in range(len(sample))]
    limits = _small_coefficients(model, prefixes[:PROBE], budget)
    rows: list[Tensor] = []
    kept: dict[str, list[dict[str, Tensor]]] = {"model": [], "coefficients": [], "normalised": []}
    kept |= {convention.name: [] for convention in chosen}
    foreign = foreign_gold(sample)
    batches = sentence_batches(sample, model.bos, logit_rows(model), budget)
    for batch in sized_steps(batches, len(sample), "prefixes", lambda one: len(one.rows)):
        readings = _read_places(model, batch)
        rows.append(batch.rows)
        elsewhere = other_rows(sample.sentences[batch.rows], -1)
        kept["model"].append(_output_fields(model, readings[-1]))
        for convention in chosen:
            kept[convention.name].append(predictions_of(model, readings, convention, elsewhere))
        default = kept[chosen[0].name][-1]
        wanted = {
            "y": default["feedforward"],
            "o": default["output"],
            "gold": sample.gold[batch.rows, None].expand(-1, len(banks)),
            "foreign": foreign[batch.rows, None].expand(-1, len(banks)),
        }
        kept["coefficients"].append(_coefficient_statistics(readings, banks, limits, wanted))
        normalised = (
            normalise(model, one, bank.lengths, elsewhere)
            for one, bank in zip(readings, banks, strict=True)
        )
        kept["normalised"].append(_stack(normalised, len(banks)))
    order = torch.cat(rows).argsort()
    whole = {name: _join(parts, order) for name, parts in kept.items()}
    return SampleRecord(
        sample=sample,
        layers=tuple(layer.number for layer in model.layers),
        memories=tuple(layer.memories for layer in model.layers),
        predictions=tuple(
            Predictions(convention, **whole[convention.name]) for convention in chosen
        ),
        coefficients=CoefficientSummary(**whole["coefficients"]),
        normalised=NormalisedLayers(**whole["normalised"]),
        **whole["model"],
    )


def _read_places(model: LanguageModel, batch: PlaceBatch) -> tuple[LayerRecord, ...]:
    """All layers at the places of a batch, each [place, width]."""

    def keep(tensor: Tensor) -> Tensor:
        at = (one.to(tensor.device) for one in (batch.lines, batch.columns))
        return tensor.reshape(*batch.tokens.shape, -1)[*at]

    tokens = batch.tokens.to(model.device)
    model.check_tokens(tokens)
    with record_forward(model.layers, "hramyo", keep) as readings:
        model.run_blocks(tokens)
    return readings


def logit_rows(model: LanguageModel) -> int:
    """How many rows of logits may be held at once."""
    return max(1, CHUNK_BYTES // (4 * model.vocab_size))


def _join(parts: list[dict[str, Tensor]], order: Tensor) -> dict[str, Tensor]:
    return {name: torch.cat([part[name] for part in parts])[order] for name in parts[0]}


def _output_fields(model: LanguageModel, last: LayerRecord) -> dict[str, Tensor]:
    scores = logits(model, last.o, "residual").log_softmax(dim=1)
    entropy = -(scores.exp() * scores).sum(dim=1)
    return {"output": best(scores).cpu(), "entropy": entropy.cpu()}


@dataclass(frozen=True)
class _Bank:
    """What v and -v promote and how long v is, all [memory], on the layer's device.

    The sign of a coefficient counts in gated layers alone; in others v stands for both.
    """

    top: Tensor
    opposite_top: Tensor
    lengths: Tensor


def _bank(model: LanguageModel, layer: FeedForward) -> _Bank:
    values = value_vectors(layer)
    if layer.gated:
        top, opposite = (one.to(layer.device) for one in tops_of_both_signs(model, values))
    else:
        top = opposite = tops(model, values).to(layer.device)
    return _Bank(top, opposite, values.float().norm(dim=1))


def tops(model: LanguageModel, vectors: Tensor) -> Tensor:
    """The top token of every piece in [vector, width]; ties go to the lowest id."""
    return torch.cat([best(scores) for _, scores in in_chunks(model, vectors, "direction")])


def tops_of_both_signs(model: LanguageModel, vectors: Tensor) -> tuple[Tensor, Tensor]:
    """The top tokens of the pieces v in [vector, width], and those of -v."""
    if not is_odd(model.head):
        return tops(model, vectors), tops(model, -vectors)
    chunks = in_chunks(model, vectors, "direction")
    both = [(best(scores), best(scores, -1)) for _, scores in chunks]
    high, low = (torch.cat(parts) for parts in zip(*both, strict=True))
    return high, low


def _small_coefficients(
    model: LanguageModel, prefixes: Sequence[Tensor], budget: int
) -> list[float]:
    """For each layer 1 % of the 99.9th percentile of |m| over some prefixes."""
    seen: list[list[Tensor]] = [[] for _ in model.layers]
    for batch in prefix_batches(prefixes, model.bos, len(prefixes), budget):
        for place, reading in enumerate(record(model, batch.tokens, "m", at=batch.columns + 1)):
            seen[place].append(reading.m.float().abs().cpu().flatten())
    return [0.01 * float(np.quantile(torch.cat(parts).numpy(), 0.999)) for parts in seen]


def predictions_of(
    model: LanguageModel,
    readings: Sequence[LayerRecord],
    convention: Convention,
    elsewhere: Tensor,
) -> dict[str, Tensor]:
    """The fields of Predictions for the rows of one reading, each [row, layer].

    `elsewhere` [row] is a row of another sentence, the own one where there is none.
    """
    model = model.on_device()
    final = convention.o(readings[-1])
    last = best(logits(model, final, "residual", convention.lens))
    layers = (
        _layer_predictions(model, reading, convention, last, elsewhere) for reading in readings
    )
    return _stack(layers, len(readings))


def _layer_predictions(
    model: LanguageModel,
    reading: LayerRecord,
    convention: Convention,
    last: Tensor,
    elsewhere: Tensor,
) -> dict[str, Tensor]:
    lens = convention.lens
    after = logits(model, convention.o(reading), "residual", lens)
    scores = logits(model, convention.r(reading), "residual", lens)
    new, old = best(after), best(scores)
    found = {
        "residual": old,
        "output": new,
        "probability": (_of(scores, last) - scores.logsumexp(dim=1)).exp(),
        "new_rank_in_residual": ranks(scores, new),
        "change": kind_of_change(scores, after),
        "foreign_change": _foreign_change(model, reading, convention, scores, elsewhere),
    }
    after = _additive(model, after, convention.o(reading), "residual", lens)
    scores = _additive(model, scores, convention.r(reading), "residual", lens)
    found["old_change"] = _of(after, old) - _of(scores, old)
    found["new_change"] = _of(after, new) - _of(scores, new)
    del after
    scores = logits(model, reading.y, "direction", lens)
    added = _additive(model, scores, reading.y, "direction", lens)
    return found | {
        "feedforward": best(scores),
        "old_rank_in_layer": ranks(scores, old),
        "push_on_old": _of(added, old),
    }


def _additive(
    model: LanguageModel, scores: Tensor, h: Tensor, kind: VectorKind, lens: Lens
) -> Tensor:
    """Logits of h that add up: its `scores`, or those by the tokens' vectors alone.

    An adaptive head's log-probabilities do not, and those of a piece are all below zero.
    """
    return logits(model, h, kind, additive(lens)) if lens.is_adaptive(model.head) else scores


def kind_of_change(before: Tensor, after: Tensor) -> Tensor:
    """[row]: does the old top token fall more (a veto) or the new one rise more (a vote)?

    Both are measured from the mean logit, since a shift of all logits changes no probability.
    """
    old, new = best(before), best(after)
    shift = after.mean(dim=1) - before.mean(dim=1)
    fall = _of(before, old) - _of(after, old) + shift
    rise = _of(after, new) - _of(before, new) - shift
    kind = torch.where(fall > rise, VETO, VOTE)
    return kind.masked_fill(old == new, NO_CHANGE)


def _foreign_change(
    model: LanguageModel,
    reading: LayerRecord,
    convention: Convention,
    before: Tensor,
    elsewhere: Tensor,
) -> Tensor:
    """What y of another sentence would do to a residual; unknown where a norm follows the sum."""
    rows = torch.arange(len(before), device=before.device)
    own = elsewhere.to(before.device) == rows
    if reading.layer.form == "post-norm" or own.all() or convention.name != "default":
        return torch.full_like(rows, UNKNOWN)
    foreign = reading.y[elsewhere.to(reading.y.device)] - reading.y
    state = convention.o(reading) + foreign * reading.layer.output_scale
    changed = kind_of_change(before, logits(model, state, "residual", convention.lens))
    return changed.masked_fill(own, UNKNOWN)


def _of(scores: Tensor, tokens: Tensor) -> Tensor:
    return scores.gather(1, tokens[:, None]).squeeze(1)


def _stack(layers: Iterable[dict[str, Tensor]], count: int) -> dict[str, Tensor]:
    """Fields [row] of so many layers as [row, layer] on the CPU.

    Nothing of a layer stays where its logits were, or the next one's would need fresh memory.
    """
    whole: dict[str, Tensor] = {}
    for place, found in enumerate(layers):
        for name, field in found.items():
            if not place:
                whole[name] = torch.empty(len(field), count, dtype=field.dtype)
            whole[name][:, place] = field
    return whole


def _coefficient_statistics(
    readings: Sequence[LayerRecord],
    banks: Sequence[_Bank],
    limits: Sequence[float],
    wanted: dict[str, Tensor],
) -> dict[str, Tensor]:
    """The fields of CoefficientSummary for the rows of one reading, each [row, layer].

    `wanted` are the tokens [row, layer] that memories may say, by name.
    """

    def of_layer(place: int) -> dict[str, Tensor]:
        reading = readings[place]
        tokens = {
            name: those[:, place, None].to(reading.m.device) for name, those in wanted.items()
        }
        return _layer_statistics(reading, banks[place], limits[place], tokens)

    return _stack(map(of_layer, range(len(readings))), len(readings))


def _layer_statistics(
    reading: LayerRecord, bank: _Bank, limit: float, tokens: dict[str, Tensor]
) -> dict[str, Tensor]:
    m = reading.m.float()
    on = (reading.a if reading.layer.gated else m) > 0
    pushes = torch.where(m < 0, bank.opposite_top, bank.top)
    strength = m.abs() * bank.lengths
    total = strength.sum(dim=1, keepdim=True)
    reached = strength.sort(dim=1, descending=True).values.cumsum(dim=1) < 0.9 * total
    same = {name: pushes == token for name, token in tokens.items()}
    return {
        "active": on.sum(dim=1),
        "active_eps": (m.abs() > limit).sum(dim=1),
        "for_90": (reached.sum(dim=1) + 1).where(total[:, 0] > 0, 0),
        "participation": total[:, 0].square() / strength.square().sum(dim=1).clamp(min=1e-30),
        "matches_y": same["y"].sum(dim=1),
        "matches_y_active": (same["y"] & on).sum(dim=1),
        "matches_o": same["o"].sum(dim=1),
        "right": (same["gold"] & on).any(dim=1),
        "foreign": (same["foreign"] & on).any(dim=1),
    }


def foreign_gold(sample: PrefixSample) -> Tensor:
    """The token that follows the next sentence's prefix; NO_TOKEN where that is the own one."""
    other = sample.gold[other_rows(sample.sentences, 1)]
    return other.masked_fill(other == sample.gold, NO_TOKEN)
