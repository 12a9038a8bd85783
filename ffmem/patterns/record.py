"""Which patterns do a key's triggers share? Records of any annotator, and Fig 2 from them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

import torch

from ffmem.address import Address
from ffmem.analyses.inputs.claim_effects import Effects, takeover_effects
from ffmem.analyses.statistics import Interval, bootstrap, pool_by_key, wilson

PatternKind = Literal["shallow", "semantic"]
PATTERN_KINDS: tuple[PatternKind, ...] = ("shallow", "semantic")
Label = Literal["shallow", "shallow + semantic", "semantic", "not covered"]
LABELS: tuple[Label, ...] = ("shallow", "shallow + semantic", "semantic", "not covered")
MIN_TRIGGERS = 3  # triggers that make a pattern


@dataclass(frozen=True)
class Pattern:
    """Something that at least three triggers of a key share; ranks count from 1."""

    key: Address | None  # None for a control key
    description: str
    kind: PatternKind
    ranks: tuple[int, ...]
    annotator: str

    def __post_init__(self) -> None:
        if self.kind not in PATTERN_KINDS:
            raise ValueError(f"the class {self.kind!r} is neither shallow nor semantic")
        if len(set(self.ranks)) < MIN_TRIGGERS or len(set(self.ranks)) != len(self.ranks):
            raise ValueError(
                f"a pattern needs {MIN_TRIGGERS} different triggers; this has {self.ranks}"
            )
        if not self.description.strip():
            raise ValueError("a pattern needs a description")


def trigger_labels(patterns: Sequence[Pattern], triggers: int) -> list[Label]:
    """The label of each of a key's triggers, by the classes of the patterns that cover it."""
    found: list[Label] = []
    for rank in range(1, triggers + 1):
        kinds = {pattern.kind for pattern in patterns if rank in pattern.ranks}
        match sorted(kinds):
            case []:
                found.append("not covered")
            case ["shallow"]:
                found.append("shallow")
            case ["semantic"]:
                found.append("semantic")
            case _:
                found.append("shallow + semantic")
    return found


@dataclass(frozen=True)
class KeyPatterns:
    """The patterns that one annotator found in one key, and the number of triggers shown."""

    key: Address
    triggers: int
    patterns: tuple[Pattern, ...]

    @property
    def labels(self) -> list[Label]:
        """The label of every trigger."""
        return trigger_labels(self.patterns, self.triggers)


@dataclass(frozen=True)
class LayerPatterns:
    """One layer of Fig 2: shares of triggers by label, with intervals over keys."""

    layer: int
    keys: int
    triggers: int
    shares: dict[str, Interval]  # by label
    covered: Interval
    patterns_per_key: Interval
    with_pattern: Interval  # share of keys that have at least one

    @property
    def semantic_leads(self) -> bool:
        """Whether more triggers are semantic only than shallow only."""
        return self.shares["semantic"].estimate > self.shares["shallow"].estimate


@dataclass(frozen=True)
class Summary:
    """Fig 2 and its numbers for one annotator; `effects` resample keys."""

    annotator: str
    layers: tuple[LayerPatterns, ...]
    overall: LayerPatterns  # all layers as one, numbered 0
    crossover: int | None  # first layer from which on semantic leads in every layer
    effects: Effects = field(default_factory=dict)


def summarise_patterns(annotator: str, keys: Sequence[KeyPatterns], seed: int = 0) -> Summary:
    """Fig 2 from annotated keys; keys without any trigger are left out."""
    alive = [key for key in keys if key.triggers]
    by_layer: dict[int, list[KeyPatterns]] = {}
    for key in sorted(alive, key=lambda key: key.key):
        by_layer.setdefault(key.key.layer, []).append(key)
    generator = torch.Generator().manual_seed(seed)
    layers = tuple(_layer(layer, found, generator) for layer, found in by_layer.items())
    overall = _layer(0, alive, generator)
    return Summary(annotator, layers, overall, crossover(layers), pattern_effects(alive))


def pattern_effects(keys: Sequence[KeyPatterns]) -> Effects:
    """Do shallow patterns lead in lower layers and semantic ones in upper layers?"""
    if not keys:
        return {}
    tally = [Counter(key.labels) for key in keys]
    shallow, semantic = (
        torch.tensor([count[kind] / key.triggers for count, key in zip(tally, keys, strict=True)])
        for kind in PATTERN_KINDS
    )
    return takeover_effects(shallow, semantic, *key_depths([key.key for key in keys]))


def key_depths(keys: Sequence[Address]) -> tuple[torch.Tensor, int]:
    """The layer of each key, numbered from 0 among layers with keys, and their count."""
    layers = sorted({key.layer for key in keys})
    return torch.tensor([layers.index(key.layer) for key in keys], dtype=torch.long), len(layers)


def crossover(layers: Sequence[LayerPatterns]) -> int | None:
    """The first layer from which semantic patterns lead in all later layers, or None."""
    found = None
    for layer in reversed(layers):
        if not layer.semantic_leads:
            break
        found = layer.layer
    return found


def _layer(layer: int, keys: Sequence[KeyPatterns], generator: torch.Generator) -> LayerPatterns:
    counts = torch.tensor([key.triggers for key in keys], dtype=torch.float64)
    tally = [Counter(key.labels) for key in keys]
    by_label: Mapping[str, torch.Tensor] = {
        label: torch.tensor([float(count[label]) for count in tally]) for label in LABELS
    }
    patterns = torch.tensor([float(len(key.patterns)) for key in keys])
    return LayerPatterns(
        layer=layer,
        keys=len(keys),
        triggers=int(counts.sum()),
        shares={label: pool_by_key(found, counts, generator) for label, found in by_label.items()},
        covered=pool_by_key(counts - by_label["not covered"], counts, generator),
        patterns_per_key=bootstrap(patterns, generator),
        with_pattern=wilson(int((patterns > 0).sum()), len(keys)),
    )
