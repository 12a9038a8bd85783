"""Numbers that others have published of public models' neurons, beside those of a copy of one.

    python -m benchmarks.published MODEL [--dtype float32] [--device cpu]

Prints counts of neuron classes, entropy neurons, and norms and cosines of universal neurons, for
every published model of the same shape, with their source. published_neurons.json has the numbers
of some thirty models.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch

from ffmem.address import Address
from ffmem.analyses.weights.measure import entropy_score
from ffmem.cli.output import print_hanging, terminal
from ffmem.errors import ModelError
from ffmem.memories.folded_weights import FoldedWeights, folded_weights, paired_cosines
from ffmem.memories.weight_statistics import (
    class_names,
    classify,
    unembedding,
    vocabulary_moments,
)
from ffmem.models.language_model import LanguageModel
from ffmem.models.loading import load

DATA = Path(__file__).with_name("published_neurons.json")
TOLERANCE = 2e-3  # relative difference up to which two numbers count as the same
FIRST = 0.01  # share of a layer among which entropy neurons should stand


@dataclass(frozen=True)
class PublishedModel:
    """What was published of one model, and where; `classes` are in the order of `class_names`."""

    name: str
    type: str
    layers: int
    memories: int
    width: int
    source: str
    classes: tuple[int, ...] = ()
    entropy: tuple[str, ...] = ()
    entropy_source: str = ""
    memories_by_address: dict[str, dict[str, float]] = field(default_factory=dict)

    def has_shape_of(self, model: LanguageModel) -> bool:
        """Whether it can be this model."""
        sizes = {layer.memories for layer in model.layers}
        return (self.type, self.layers, {self.memories}, self.width) == (
            model.architecture,
            len(model.layers),
            sizes,
            model.hidden_size,
        )


@dataclass(frozen=True)
class NumberComparison:
    """One published number beside the number here."""

    model: str
    what: str
    published: str
    here: str
    matches: bool
    source: str


def main() -> None:
    """Print every published number beside the model's own."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model")
    parser.add_argument("--dtype", default="auto")
    parser.add_argument("--device", default="auto")
    options = parser.parse_args()
    model = load(options.model, dtype=options.dtype, device=options.device)
    print_table(compare_numbers(model, published_models()))


def print_table(found: Sequence[NumberComparison]) -> None:
    """Print a line for each number, then how many match for each published model."""
    console = terminal()
    for one in found:
        word = "equal" if one.matches else "DIFFERS"
        says = f"{one.model}: {one.what}: published {one.published}, here {one.here}"
        print_hanging(console, f"{word:8} ", says)
    for name in dict.fromkeys(one.model for one in found):
        own = [one for one in found if one.model == name]
        sources = "; ".join(dict.fromkeys(one.source for one in own))
        match = f"{sum(one.matches for one in own)} of {len(own)} match ({sources})"
        print_hanging(console, f"{name}: ", match)


def published_models() -> tuple[PublishedModel, ...]:
    """The published numbers."""
    return tuple(
        PublishedModel(**_with_tuples(one)) for one in json.loads(DATA.read_text(encoding="utf-8"))
    )


def _with_tuples(data: dict[str, Any]) -> dict[str, Any]:
    return {name: tuple(one) if isinstance(one, list) else one for name, one in data.items()}


@torch.no_grad()
def compare_numbers(
    model: LanguageModel, published: Sequence[PublishedModel]
) -> list[NumberComparison]:
    """Every published number of models of this shape against the model; refuses other shapes."""
    able = [one for one in published if one.has_shape_of(model)]
    if not able:
        known = ", ".join(one.name for one in published)
        raise ModelError(
            f"nothing is published here of a model of type {model.architecture} with "
            f"{len(model.layers)} layers of {model.layers[0].memories:,} memories; there are "
            f"numbers of {known}"
        )
    found: list[NumberComparison] = []
    classes = [str(count) for count in class_counts(model)]
    for one in able:
        for name, count, here in zip(
            class_names(model.gated), map(str, one.classes), classes, strict=False
        ):
            found.append(
                NumberComparison(one.name, f"class {name}", count, here, count == here, one.source)
            )
        found += entropy_ranks(model, one)
        found += memory_numbers(model, one)
    return found


def published_weights(model: LanguageModel, number: int) -> FoldedWeights:
    """A layer as the publications read it: a norm behind the layer is left out."""
    return folded_weights(model, replace(model.layer(number), after=None, scale=1.0))


def class_counts(model: LanguageModel) -> list[int]:
    """How many memories of all layers are of each class."""
    names = class_names(model.gated)
    total = torch.zeros(len(names), dtype=torch.long)
    for layer in model.layers:
        weights = published_weights(model, layer.number)
        gates = () if weights.gates is None else (
            paired_cosines(weights.gates, weights.values),
            paired_cosines(weights.gates, weights.keys),
        )  # fmt: skip
        found = classify(paired_cosines(weights.keys, weights.values), *gates)
        total += torch.bincount(found.cpu(), minlength=len(names))
    return total.tolist()


def entropy_ranks(model: LanguageModel, one: PublishedModel) -> list[NumberComparison]:
    """Where published entropy neurons stand among their layer's by the weights alone."""
    if not one.entropy:
        return []
    addresses = [Address.parse(text) for text in one.entropy]
    layer = addresses[0].layer
    values = published_weights(model, layer).values
    moments = vocabulary_moments(values, unembedding(model))
    score = entropy_score(values.norm(dim=1).cpu(), moments["cosine_variance"].cpu())
    ranks = score.argsort(descending=True).argsort() + 1
    most = max(len(addresses), round(FIRST * len(score)))
    return [
        NumberComparison(
            one.name,
            f"{address} is an entropy neuron",
            f"among the first {most}",
            f"rank {int(ranks[address.index])} of {len(score):,}",
            int(ranks[address.index]) <= most,
            one.entropy_source,
        )
        for address in addresses
    ]


def memory_numbers(model: LanguageModel, one: PublishedModel) -> list[NumberComparison]:
    """Published numbers of single memories."""
    found = []
    head = unembedding(model) if one.memories_by_address else None
    for text, numbers in one.memories_by_address.items():
        address = Address.parse(text)
        weights = published_weights(model, address.layer)
        key, value = weights.keys[address.index], weights.values[address.index]
        assert head is not None
        here = {
            "key_norm": float(key.norm()),
            "key_bias": float(weights.key_bias[address.index]),
            "value_norm": float(value.norm()),
            "key_value": float(torch.cosine_similarity(key, value, dim=0)),
            "cosine_variance": float(vocabulary_moments(value[None], head)["cosine_variance"]),
        }
        for name, number in numbers.items():
            near = abs(here[name] - number) <= TOLERANCE * max(abs(number), 0.05)
            found.append(
                NumberComparison(
                    one.name,
                    f"{text} {name}",
                    f"{number:.5g}",
                    f"{here[name]:.5g}",
                    near,
                    one.source,
                )
            )
    return found


if __name__ == "__main__":
    main()
