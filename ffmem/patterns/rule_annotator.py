"""The annotator that needs nobody: shallow patterns by rule, semantic ones by nearness."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ffmem.address import Address
from ffmem.patterns.clusters import Cluster, Meanings
from ffmem.patterns.prefixes import Prefix
from ffmem.patterns.record import Pattern
from ffmem.patterns.surface_features import Feature, features
from ffmem.patterns.surface_rules import Background, shared_features

NAME = "rules"


@dataclass(frozen=True)
class Rule:
    """A pattern that can be asked of any prefix: it has the pattern where its score reaches 0."""

    pattern: Pattern
    feature: Feature | None
    cluster: Cluster | None


@dataclass(frozen=True)
class RuleAnnotator:
    """Finds the patterns of a key among its triggers; without `meanings` only shallow ones."""

    background: Background
    meanings: Meanings | None = None

    def rules(self, key: Address, prefixes: Sequence[Prefix]) -> list[Rule]:
        """The key's patterns, shallow ones first, each as a rule for further prefixes."""
        shared = shared_features(prefixes, self.background)
        found = [
            Rule(Pattern(key, s.feature.description, "shallow", s.ranks, NAME), s.feature, None)
            for s in shared
        ]
        if self.meanings is None:
            return found
        removed = self.removed(prefixes, [s.feature for s in shared])
        return found + [
            Rule(Pattern(key, c.description, "semantic", c.ranks, NAME), None, c)
            for c in self.meanings.clusters(prefixes, removed)
        ]

    def patterns(self, key: Address, prefixes: Sequence[Prefix]) -> tuple[Pattern, ...]:
        """The key's patterns."""
        return tuple(rule.pattern for rule in self.rules(key, prefixes))

    def scores(self, rules: Sequence[Rule], prefixes: Sequence[Prefix]) -> list[list[float]]:
        """For every rule, how far each prefix is beyond the point where it has the pattern."""
        if not prefixes:
            return [[] for _ in rules]
        shallow = [rule.feature for rule in rules if rule.feature is not None]
        having = [features(prefix).keys() for prefix in prefixes]
        vectors = None
        if self.meanings is not None and any(rule.cluster for rule in rules):
            vectors = self.meanings.vectors(prefixes, self.removed(prefixes, shallow))
        found = []
        for rule in rules:
            if rule.cluster is not None and vectors is not None:
                near = vectors @ rule.cluster.centre - rule.cluster.nearness
                found.append([float(value) for value in near])
            else:
                found.append([0.0 if rule.feature in has else -1.0 for has in having])
        return found

    def removed(
        self, prefixes: Sequence[Prefix], shared: Sequence[Feature]
    ) -> list[frozenset[int]]:
        """The words of every prefix that make one of the shared features."""
        gone = []
        for prefix in prefixes:
            found = features(prefix)
            gone.append(frozenset[int]().union(*(found.get(f, frozenset()) for f in shared)))
        return gone
