"""The automatic annotator: shallow patterns by rule, semantic ones by the words of the text."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from ffmem.address import Address
from ffmem.analyses.patterns.prefixes import Prefix
from ffmem.analyses.patterns.record import MIN_TRIGGERS, Pattern
from ffmem.analyses.patterns.semantic_patterns import (
    Topic,
    TopicFinder,
    WordClass,
    WordClasses,
)
from ffmem.analyses.patterns.surface_patterns import (
    SPECIFIC,
    Background,
    Feature,
    features,
    shared_features,
)
from ffmem.store.people.annotators import RULES


@dataclass(frozen=True)
class Rule:
    """A pattern that can be asked of any prefix: it has the pattern where its score reaches 0."""

    pattern: Pattern
    feature: Feature | None
    topic: Topic | None
    words: WordClass | None = None


@dataclass(frozen=True)
class RuleAnnotator:
    """Finds the patterns of a key among its triggers; without `meanings` only shallow ones."""

    background: Background
    meanings: TopicFinder | None = None
    classes: WordClasses | None = None

    def rules(self, key: Address | None, prefixes: Sequence[Prefix]) -> list[Rule]:
        """The key's patterns, shallow ones first, each as a rule for further prefixes.

        The key is None for a control key.
        """
        shared = shared_features(prefixes, self.background)
        found = [
            Rule(
                Pattern(key, s.feature.description, "shallow", s.ranks, RULES),
                s.feature,
                None,
            )
            for s in shared
        ]
        if self.meanings is not None:
            removed = self._feature_words(prefixes, [s.feature for s in shared])
            for topic in self.meanings.topics(prefixes, removed):
                pattern = Pattern(key, topic.description, "semantic", topic.ranks, RULES)
                found.append(Rule(pattern, None, topic))
        if self.classes is not None:
            for one in self.classes.shared(prefixes):
                pattern = Pattern(key, one.description, "semantic", one.ranks, RULES)
                found.append(Rule(pattern, None, None, one))
        return found

    def patterns(self, key: Address | None, prefixes: Sequence[Prefix]) -> tuple[Pattern, ...]:
        """The key's patterns."""
        return tuple(rule.pattern for rule in self.rules(key, prefixes))

    def scores(self, rules: Sequence[Rule], prefixes: Sequence[Prefix]) -> list[list[float]]:
        """For every rule, how far each prefix is beyond the point where it has the pattern."""
        if not prefixes:
            return [[] for _ in rules]
        having = [features(prefix).keys() for prefix in prefixes]
        vectors = None
        if self.meanings is not None and any(rule.topic for rule in rules):
            vectors = self.meanings.vectors(prefixes)
        found = []
        for rule in rules:
            if rule.topic is not None and vectors is not None:
                near = vectors @ rule.topic.centre - rule.topic.nearness
                found.append([float(value) for value in near])
            elif rule.words is not None:
                found.append([0.0 if rule.words.has(prefix) else -1.0 for prefix in prefixes])
            else:
                found.append([0.0 if rule.feature in has else -1.0 for has in having])
        return found

    def _feature_words(
        self, prefixes: Sequence[Prefix], shared: Sequence[Feature]
    ) -> list[frozenset[int]]:
        """The words of every prefix that make one of the shared features."""
        words = []
        for prefix in prefixes:
            found = features(prefix)
            words.append(frozenset[int]().union(*(found.get(f, frozenset()) for f in shared)))
        return words


def rules_from_examples(
    annotator: RuleAnnotator,
    patterns: Sequence[Pattern],
    shown: Sequence[Prefix],
    others: Sequence[Prefix],
) -> list[Rule]:
    """One rule a pattern, in order; `shown` are the prefixes that it ticks by rank.

    A shallow pattern becomes the surface feature that tells the ticked prefixes best from those not
    ticked and from the corpus; one without such a feature, and a semantic one, the nearness to the
    middle of the ticked prefixes. What counts as near is set where it parts the ticked prefixes,
    each left out in turn, best from `others`, random prefixes of the corpus. A pattern whose
    prefixes share neither has neither.
    """
    surface = [
        _feature(pattern, shown, annotator.background) if pattern.kind == "shallow" else None
        for pattern in patterns
    ]
    topics = _Topics(annotator.meanings, shown, others)
    return [
        Rule(pattern, feature, topics.of(pattern) if feature is None else None)
        for pattern, feature in zip(patterns, surface, strict=True)
    ]


def _feature(pattern: Pattern, shown: Sequence[Prefix], background: Background) -> Feature | None:
    """The feature with the best harmonic mean of precision and recall, if three ticked share one.

    Precision counts against it the prefixes not ticked and as many again from the corpus.
    """
    having: dict[Feature, set[int]] = {}
    for rank, prefix in enumerate(shown, 1):
        for feature in features(prefix):
            having.setdefault(feature, set()).add(rank)
    ticked = set(pattern.ranks)

    def separation(feature: Feature) -> tuple[float, int, tuple[str, ...]]:
        hits = len(having[feature] & ticked)
        false = len(having[feature] - ticked) + len(shown) * background.share(feature)
        score = 2 * hits / (hits + len(ticked) + false)
        return score, SPECIFIC[feature.kind], feature.value

    shared = [feature for feature, ranks in having.items() if len(ranks & ticked) >= MIN_TRIGGERS]
    return max(shared, key=separation, default=None)


class _Topics:
    """Nearness to ticked prefixes; vectors are worked out when first needed."""

    def __init__(
        self, meanings: TopicFinder | None, shown: Sequence[Prefix], others: Sequence[Prefix]
    ) -> None:
        self._meanings, self._shown, self._others = meanings, shown, others
        self._vectors: tuple[Tensor, Tensor] | None = None

    def of(self, pattern: Pattern) -> Topic | None:
        """The middle of the ticked prefixes; None where fewer than two of them have a meaning."""
        if self._meanings is None:
            return None
        if self._vectors is None:
            own, random = map(self._meanings.vectors, (self._shown, self._others))
            self._vectors = own, random
        shown, others = self._vectors
        ticked = shown[[rank - 1 for rank in pattern.ranks]]
        ticked = ticked[ticked.norm(dim=1) > 0]
        if len(ticked) < 2:
            return None
        rest = torch.nn.functional.normalize(ticked.sum(dim=0) - ticked, dim=1)
        centre = torch.nn.functional.normalize(ticked.sum(dim=0), dim=0)
        near = _parting((ticked * rest).sum(dim=1), others @ centre)
        return Topic(centre, near, pattern.ranks, pattern.description, chance=0.0)


def _parting(yes: Tensor, no: Tensor) -> float:
    """The value of `yes` at which the shares of either side that reach it differ most."""
    cuts = yes.sort(descending=True).values
    gains = [float((yes >= cut).float().mean() - (no >= cut).float().mean()) for cut in cuts]
    return float(cuts[max(range(len(cuts)), key=gains.__getitem__)])
