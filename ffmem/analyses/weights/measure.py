"""Statistics of every memory from weights alone: norms, angles, logits, duplicates; no text.

Beside each number stands the same number for mismatched pairs: the key of one memory with the value
of another of its layer, so that what all keys and values of a layer share does not count.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain

import numpy as np
import torch
from torch import Tensor

from ffmem import demo
from ffmem.address import Parts
from ffmem.analyses.statistics import quantiles
from ffmem.analyses.weights.record import Candidate, LayerWeights, PairCosines, Weights
from ffmem.corpus.sentences import SentenceSettings, tokenise
from ffmem.corpus.shards import shards
from ffmem.corpus.sources import Source, documents
from ffmem.memories.folded_weights import FoldedWeights, paired_cosines
from ffmem.memories.weight_statistics import (
    Unembedding,
    class_names,
    classify,
    layer_statistics,
    unembedding,
    vocabulary_moments,
)
from ffmem.models.language_model import LanguageModel

PEAK_KURTOSIS = 10.0  # kurtosis of the logits from which a value is about few tokens
DUPLICATE_COSINE = 0.9  # cosine of keys and of values from which two memories are duplicates
OUTLIER_DEVIATIONS = 5.0  # robust standard deviations from which a memory stands out of its layer
SHIFTS = 8  # mismatched pairings of each layer
RANDOM_DIRECTIONS = 256  # whose logits are the control of peaked ones
CANDIDATES_PER_KIND = 20  # candidates of each kind
WEIGHT_PAIRS = ("key_value", "gate_value", "gate_key")
ROLES = ("", "prediction", "suppression")


@dataclass(frozen=True)
class LayerTable:
    """The numbers of every memory of one layer [memory], and those of mismatched pairs."""

    layer: int
    parts: Parts
    columns: dict[str, Tensor]
    mismatched: dict[str, Tensor]  # cosines [pairing x memory] by pair
    mismatched_classes: Tensor  # [pairing x memory]


@dataclass(frozen=True)
class WeightSummary:
    """All layers. `frequency_from` says what the frequency of tokens was taken from."""

    layers: tuple[LayerTable, ...]
    gated: bool
    frequency_from: str
    random_peaked: float  # share of random directions whose logits are as peaked as PEAK_KURTOSIS

    def column(self, name: str) -> Tensor:
        """One column over all layers."""
        return torch.cat([layer.columns[name] for layer in self.layers])

    @property
    def names(self) -> tuple[str, ...]:
        """The columns that there are."""
        return tuple(self.layers[0].columns)


@torch.no_grad()
def weight_table(
    model: LanguageModel,
    generator: torch.Generator,
    counts: Tensor | None = None,
    counts_from: str = "the text",
    layers: Sequence[int] | None = None,
) -> WeightSummary:
    """Read every memory's weights, one layer in memory at a time.

    `counts` [token] are those of tokens in `counts_from`; without them the order of token ids
    stands for their frequency.
    """
    head = unembedding(model, counts)
    numbers = [layer.number for layer in model.layers] if layers is None else layers
    return WeightSummary(
        layers=tuple(layer_table(model, number, head, generator) for number in numbers),
        gated=model.layer(numbers[0]).gated,
        frequency_from="the order of token ids" if counts is None else counts_from,
        random_peaked=_peaked_share(head, generator),
    )


def layer_table(
    model: LanguageModel, number: int, head: Unembedding, generator: torch.Generator
) -> LayerTable:
    """One layer's columns with the control of its cosines."""
    columns, weights = layer_statistics(model, model.layer(number), head)
    columns["entropy_score"] = entropy_score(columns["value_norm"], columns["cosine_variance"])
    columns["role"] = roles(columns["logit_kurtosis"], columns["logit_skew"])
    mismatched: dict[str, list[Tensor]] = {}
    classes = []
    for cosines in _mismatched_cosines(weights, generator):
        for name, found in cosines.items():
            mismatched.setdefault(name, []).append(found)
        classes.append(
            classify(cosines["key_value"], cosines.get("gate_value"), columns.get("gate_key"))
        )
    return LayerTable(
        number,
        model.layer(number).parts,
        columns,
        {name: torch.cat(found) for name, found in mismatched.items()},
        torch.cat(classes),
    )


def _mismatched_cosines(
    weights: FoldedWeights, generator: torch.Generator
) -> Iterator[dict[str, Tensor]]:
    """Cosines of the same layer's weights when each memory has another's value (or key)."""
    memories = len(weights.values)
    if memories < 2:
        raise ValueError("a layer of one memory has no mismatched pairs")
    for shift in (torch.randperm(memories - 1, generator=generator)[:SHIFTS] + 1).tolist():
        other = weights.values.roll(shift, dims=0)
        found = {"key_value": paired_cosines(weights.keys, other).cpu()}
        if weights.gates is not None:
            found["gate_value"] = paired_cosines(weights.gates, other).cpu()
            keys = weights.keys.roll(shift, dims=0)
            found["gate_key"] = paired_cosines(weights.gates, keys).cpu()
        yield found


def entropy_score(value_norm: Tensor, cosine_variance: Tensor) -> Tensor:
    """How long a value is for how little it tells tokens apart, against the layer's medians.

    ln(|v| / median) - ln(sd / median), with sd that of cos(v, E_token) over tokens: an entropy
    neuron has a long value that moves all logits nearly alike, so that it acts on the final norm.
    """
    spread = cosine_variance.clamp(min=1e-30).sqrt()
    length = value_norm.clamp(min=1e-30)
    return (length / length.median()).log() - (spread / spread.median()).log()


def roles(kurtosis: Tensor, skew: Tensor) -> Tensor:
    """As places in ROLES: 1 for a prediction memory, 2 for a suppression memory."""
    return (kurtosis > PEAK_KURTOSIS) * torch.where(skew > 0, 1, 2)


def robust_scores(numbers: Tensor) -> Tensor:
    """How many robust standard deviations each number lies above the median."""
    middle = numbers.median()
    spread = 1.4826 * (numbers - middle).abs().median()
    return (numbers - middle) / spread.clamp(min=1e-12)


def _peaked_share(head: Unembedding, generator: torch.Generator) -> float:
    """The share of random directions whose logits are peaked: a control without any training."""
    drawn = torch.randn(RANDOM_DIRECTIONS, len(head.mean), generator=generator)
    found = vocabulary_moments(drawn, head)["logit_kurtosis"]
    return float((found > PEAK_KURTOSIS).double().mean())


def weights_alone(model: LanguageModel, text: str | None) -> tuple[WeightSummary, Weights]:
    """The table and the numbers of a model; `text` says how frequent tokens are."""
    generator = torch.Generator().manual_seed(0)  # of the mismatched pairs
    counts = None if text is None else _token_counts(model, text)
    table = weight_table(model, generator, counts, text or "")
    return table, summarise_weights(table, generator)


def _token_counts(model: LanguageModel, text: str) -> Tensor:
    counts = torch.zeros(model.vocab_size, dtype=torch.long)
    for shard in shards(documents(Source(demo.corpus(text)))):
        tokens = tokenise(shard, model.tokenizer, SentenceSettings()).tokens
        counts += torch.bincount(torch.as_tensor(tokens).long(), minlength=len(counts))
    return counts


def summarise_weights(table: WeightSummary, generator: torch.Generator) -> Weights:
    """The numbers of every layer, and the candidates of all."""
    layers = tuple(_layer_summary(part, table.gated, generator) for part in table.layers)
    return Weights(
        layers=layers,
        frequency_from=table.frequency_from,
        random_peaked=table.random_peaked,
        entropy=candidates(
            table, lambda part: robust_scores(part.columns["entropy_score"]), OUTLIER_DEVIATIONS
        ),
        frequency=candidates(table, _frequency_scores, OUTLIER_DEVIATIONS),
        duplicates=candidates(table, lambda part: part.columns["twin_cosine"], DUPLICATE_COSINE),
    )


def _frequency_scores(part: LayerTable) -> Tensor:
    """How far each memory's correlation with token frequency stands out of its layer."""
    return robust_scores(part.columns["frequency"]).abs()


def _layer_summary(part: LayerTable, gated: bool, generator: torch.Generator) -> LayerWeights:
    columns, names = part.columns, class_names(gated)
    memories = len(columns["class"])
    count = torch.bincount(columns["class"], minlength=len(names)).tolist()
    chance = torch.bincount(part.mismatched_classes, minlength=len(names)).double()
    chance = chance * memories / len(part.mismatched_classes)
    shuffled = columns["cosine_variance"][torch.randperm(memories, generator=generator)]
    control = robust_scores(entropy_score(columns["value_norm"], shuffled))
    return LayerWeights(
        layer=part.layer,
        memories=memories,
        classes=dict(zip(names, count, strict=True)),
        mismatched_classes=dict(zip(names, chance.tolist(), strict=True)),
        cosines={
            pair: _pair_summary(columns[pair], part.mismatched[pair])
            for pair in WEIGHT_PAIRS
            if pair in columns
        },
        key_norm=quantiles(columns["key_norm"]),
        value_norm=quantiles(columns["value_norm"]),
        prediction=int((columns["role"] == 1).sum()),
        suppression=int((columns["role"] == 2).sum()),
        entropy=int((robust_scores(columns["entropy_score"]) > OUTLIER_DEVIATIONS).sum()),
        control_entropy=int((control > OUTLIER_DEVIATIONS).sum()),
        frequency=int((_frequency_scores(part) > OUTLIER_DEVIATIONS).sum()),
        duplicates=int((columns["twin_cosine"] > DUPLICATE_COSINE).sum()),
    )


def _pair_summary(own: Tensor, mismatched: Tensor) -> PairCosines:
    """Cosines beside those of mismatched pairs."""
    low, high = np.quantile(mismatched.numpy(), (0.025, 0.975)).tolist()
    outside = ((own < low) | (own > high)).double().mean()
    return PairCosines(quantiles(own), low, high, float(outside))


def candidates(
    table: WeightSummary, score: Callable[[LayerTable], Tensor], least: float
) -> tuple[Candidate, ...]:
    """The memories of all layers with the highest scores above a bar."""
    found = chain.from_iterable(
        (
            Candidate(part.parts.address(part.layer, int(index)), float(scores[index]))
            for index in (scores > least).nonzero().flatten()
        )
        for part in table.layers
        for scores in [score(part)]
    )
    return tuple(sorted(found, key=lambda one: (-one.score, one.address))[:CANDIDATES_PER_KIND])


def table_columns(table: WeightSummary) -> dict[str, np.ndarray]:
    """The whole table in plain columns: names instead of numbers where a number is a name.

    In a model with experts, `expert` names each memory's and `memory` is its index there, as in the
    address; `index` counts through the layer, as `twin` does.
    """
    names = np.array(class_names(table.gated))
    layer = np.concatenate(
        [np.full(len(part.columns["class"]), part.layer, np.int32) for part in table.layers]
    )
    index = np.concatenate(
        [np.arange(len(part.columns["class"]), dtype=np.int32) for part in table.layers]
    )
    words = {"class": names, "role": np.array(ROLES)}
    return {
        "layer": layer,
        "index": index,
        **_expert_columns([part.parts for part in table.layers]),
        **{
            name: words[name][table.column(name).numpy()]
            if name in words
            else table.column(name).numpy()
            for name in table.names
        },
    }


def _expert_columns(layers: Sequence[Parts]) -> dict[str, np.ndarray]:
    """Expert and index there of every memory, of layers one behind the other; none if all dense."""
    if not any(parts.experts for parts in layers):
        return {}
    names = [name for parts in layers for name in parts.sizes]
    sizes = [size for parts in layers for size in parts.sizes.values()]
    inside = np.concatenate([np.arange(size, dtype=np.int32) for size in sizes])
    return {"expert": np.repeat(names, sizes), "memory": inside}
