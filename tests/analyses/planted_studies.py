"""Numbers of prefixes and keys as a model has them that the paper is right about, and others.

A kind of numbers has three makers: `trained` as the paper says, `untrained` as random weights give
them, and `contrary` to the paper. Each gives tensors whose first axis are prefixes or keys, and
`results` makes of them what the analyses would. Everything between is the program's own.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from ffmem.address import Address
from ffmem.analyses.causal.record import NextTokenEffect
from ffmem.analyses.composition.measure import activity_effects, case_effects
from ffmem.analyses.inputs.effects import lowest_layer_effect
from ffmem.analyses.inputs.layer_readings import (
    DEFAULT_CONVENTION,
    NO_CHANGE,
    VETO,
    VOTE,
    Predictions,
)
from ffmem.analyses.last_layer.record import JudgedCases, JudgesCases
from ffmem.analyses.patterns.measure import ending_effects, summarise_patterns
from ffmem.analyses.patterns.record import (
    ControlRate,
    JudgedPatterns,
    JudgesPatterns,
    KeyPatterns,
    Pattern,
    PatternKind,
)
from ffmem.analyses.refinement.measure import decision_effects
from ffmem.analyses.removal.measure import removal_effects
from ffmem.analyses.statistics import bootstrap, wilson
from ffmem.analyses.study import Study
from ffmem.analyses.values.measure import (
    CellHits,
    agreement_effects,
    certainty_effects,
    rank_effects,
)
from ffmem.analyses.values.record import ValueEffects

LAYERS = 16
Numbers = dict[str, Tensor]  # [prefix or key, ...]
Results = Mapping[str, Any]
DIP = [42, 41, 40, 39, 38, 37, 36, 33, 26, 18, 26, 33, 35, 36, 37, 38]  # per cent active
FLAT = [50] * LAYERS
RISE = [60, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16]


def chance(draw: torch.Generator, *shape: int) -> Tensor:
    return torch.rand(*shape, generator=draw)


@dataclass(frozen=True)
class Planted:
    """One kind of numbers; each maker takes a generator."""

    trained: Callable[[torch.Generator], Numbers]
    untrained: Callable[[torch.Generator], Numbers]
    contrary: Callable[[torch.Generator], Numbers]
    results: Callable[[Numbers, Study], Results]

    by_cell: bool = False  # numbers are [key, layer], every one of a key of its own

    def study(self, maker: str, seed: int, toy: Study) -> Results:
        numbers = getattr(self, maker)(torch.Generator().manual_seed(seed))
        return self.results(numbers, toy)

    def mixture(self, seed: int, toy: Study) -> tuple[Results, Results]:
        """A study and a twin whose prefixes or keys are those of both, shuffled."""
        draw = torch.Generator().manual_seed(seed)
        one, other = self.trained(draw), self.untrained(draw)
        size = 2 * len(next(iter(one.values())))
        orders = [torch.randperm(size, generator=draw) for _ in range(LAYERS)]
        both = {name: torch.cat([one[name], other[name]]) for name in one}
        for name, numbers in both.items():
            if self.by_cell:
                columns = range(numbers.shape[1])
                both[name] = torch.stack([numbers[orders[at], at] for at in columns], dim=1)
            else:
                both[name] = numbers[orders[0]]
        study, twin = ({n: t.chunk(2)[part] for n, t in both.items()} for part in (0, 1))
        return self.results(study, toy), self.results(twin, toy)


# Composition


def each(numbers: Tensor) -> Tensor:
    """Every prefix is of a sentence of its own."""
    return torch.arange(len(numbers))


def active(curve: list[int], draw: torch.Generator) -> Numbers:
    noise = 0.04 * (chance(draw, 200, LAYERS) - 0.5)
    return {"active": torch.tensor(curve) / 100 + noise}


def of_activity(numbers: Numbers, toy: Study) -> Results:
    found = toy.result("composition")
    activity = activity_effects(numbers["active"], each(numbers["active"]))
    effects = replace(found.effects, activity=activity)
    return {"composition": replace(found, effects=effects)}


def zero_agreement(share: float, draw: torch.Generator) -> Numbers:
    return {"none": chance(draw, 400, LAYERS) < share}


def of_zero_agreement(numbers: Numbers, toy: Study) -> Results:
    found = toy.result("composition")
    effects = replace(found.effects, composed=lowest_layer_effect(numbers["none"].double()))
    return {"composition": replace(found, effects=effects)}


def cases(more: float, draw: torch.Generator) -> Numbers:
    """A memory agrees in 30 % of the cases; there the kind is by `more` more frequent than 20 %."""
    agree = chance(draw, 400, LAYERS) < 0.3
    kind = chance(draw, 400, LAYERS) < 0.2 + more * agree
    return {"agree": agree, "kind": kind}


def of_cases(numbers: Numbers, toy: Study) -> Results:
    found = toy.result("composition")
    kinds = (numbers["agree"], numbers["kind"], numbers["kind"])
    more = case_effects(*kinds, each(numbers["agree"]))
    effects = replace(found.effects, cases=more)
    return {"composition": replace(found, effects=effects)}


# Refinement


@dataclass(frozen=True)
class Course:
    """How predictions run through the layers: shares settled at the first, tenth and last layer.

    Before it is settled the top token changes with `restless` per layer; `own` of the changes are
    to the layer's own token, which is the residual's in `agree` of the cases where that stays.
    """

    settled: tuple[float, float, float]
    restless: float
    own: float
    agree: float
    confidence: float
    veto: float
    foreign: float


LEARNT = Course((0.35, 0.42, 0.8), 0.3, 0.05, 0.1, 0.4, 0.8, 0.3)
RANDOM = Course((0.01, 0.03, 0.08), 0.9, 0.02, 0.02, 0.001, 0.3, 0.3)
WRONG = Course((0.01, 0.3, 0.33), 0.95, 0.8, 0.9, 0.0, 0.1, 0.3)
PREFIXES, WORDS = 400, 1000


def decisions(course: Course, draw: torch.Generator) -> Numbers:
    first, tenth, last = course.settled
    knots = torch.tensor([first + (tenth - first) * layer / 9 for layer in range(10)])
    rest = torch.tensor([tenth + (last - tenth) * layer / 6 for layer in range(1, 7)])
    when = torch.searchsorted(torch.cat([knots, rest]), chance(draw, PREFIXES))
    final = torch.randint(WORDS, (PREFIXES,), generator=draw)
    residual = torch.randint(WORDS, (PREFIXES, LAYERS), generator=draw) + WORDS
    for layer in range(1, LAYERS):
        stays = chance(draw, PREFIXES) >= course.restless
        residual[:, layer] = torch.where(stays, residual[:, layer - 1], residual[:, layer])
    for layer in range(LAYERS):
        residual[:, layer] = torch.where(when <= layer, final, residual[:, layer])
    output = torch.cat([residual[:, 1:], final[:, None]], dim=1)
    changed = output != residual
    says = chance(draw, PREFIXES, LAYERS) < torch.where(changed, course.own, course.agree)
    alone = torch.randint(WORDS, (PREFIXES, LAYERS), generator=draw) + 2 * WORDS
    vetoes = (
        chance(draw, 2, PREFIXES, LAYERS)
        < torch.tensor([course.veto, course.foreign])[:, None, None]
    )
    kinds = torch.where(vetoes, VETO, VOTE)
    foreign = chance(draw, PREFIXES, LAYERS) < 0.3
    confidence = course.confidence * torch.arange(LAYERS) / (LAYERS - 1)
    return {
        "residual": residual,
        "output": output,
        "feedforward": torch.where(says, output, alone),
        "probability": (confidence * chance(draw, PREFIXES, 1) * 2).clamp(max=1),
        "change": kinds[0].masked_fill(~changed, NO_CHANGE),
        "foreign_change": kinds[1].masked_fill(~foreign, NO_CHANGE),
    }


def of_decisions(numbers: Numbers, toy: Study) -> Results:
    names = ("old_rank_in_layer", "new_rank_in_residual", "push_on_old", "old_change", "new_change")
    unused = {name: numbers["residual"] for name in names}
    found = Predictions(DEFAULT_CONVENTION, **numbers, **unused)
    effects = decision_effects(found, each(numbers["residual"]))
    return {"refinement": replace(toy.result("refinement"), effects=effects)}


# Values

MEMORIES, VOCABULARY = 600, 5_000


def cells(lower: float, upper: float, chance_hits: float, draw: torch.Generator) -> Numbers:
    """[memory, layer]: shares whose value's top token follows the strongest trigger.

    `chance_hits` is how often it is the token just read, or any frequent one.
    """
    share = torch.where(torch.arange(LAYERS) < 10, lower, upper)
    hit = chance(draw, MEMORIES, LAYERS) < share
    ranks = (chance(draw, MEMORIES, LAYERS) * VOCABULARY * (1 - 8 * share).clamp(min=0)).long()
    high, low = (0.95, 0.5) if upper > lower else (0.15, 0.03)
    return {
        "hit": hit,
        "rank": ranks.masked_fill(hit, 0),
        "other": (chance(draw, MEMORIES, LAYERS) * VOCABULARY).long(),
        "sure": torch.arange(LAYERS).expand(MEMORIES, -1) + chance(draw, MEMORIES, LAYERS),
        "last": chance(draw, MEMORIES, LAYERS) < chance_hits,
        "unigram": torch.full((MEMORIES, 1), chance_hits),
        "is_upper": chance(draw, MEMORIES, 1) < high,
        "agrees": chance(draw, MEMORIES, 1) < low,
    }


def of_cells(numbers: Numbers, toy: Study) -> Results:
    every = torch.ones(len(numbers["hit"]), dtype=torch.bool)
    layers = [
        CellHits(
            memory=torch.arange(len(every)),
            known=every[:, None],
            hit=numbers["hit"][:, layer, None],
            last=numbers["last"][:, layer, None],
            rank=numbers["rank"][:, layer, None],
            shuffled_rank=numbers["other"][:, layer],
            shuffled=1e-5,
            unigram=float(numbers["unigram"].mean()),
        )
        for layer in range(LAYERS)
    ]
    sure = numbers["sure"].flatten()
    place = (sure.argsort().argsort() * 20 // len(sure)).long()
    hit = numbers["hit"].flatten().double()
    effects = ValueEffects(
        agreement_effects(layers),
        rank_effects(layers),
        certainty_effects(place, 20, hit, torch.zeros_like(hit)),
    )
    found = toy.result("values")
    first = min(100, len(every))
    hundred = replace(
        found.predictive.largest,
        n=first,
        upper=int(numbers["is_upper"][:100].sum()),
        agreeing=int(numbers["agrees"][:100].sum()),
    )
    few = replace(found.predictive.random_same_layers, n=first, agreeing=min(3, first - 1))
    predictive = replace(found.predictive, largest=hundred, random_same_layers=few)
    values = replace(found, effects=effects, predictive=predictive, vocabulary=VOCABULARY)
    return {"values": values}


def of_parameters(numbers: Numbers, toy: Study) -> Results:
    share = float(numbers["share"][0])
    return {"values": replace(toy.result("values"), feed_forward_share=share)}


# Removal


def changes(means: tuple[int, int, int, int], draw: torch.Generator) -> Numbers:
    """[key, layer]: change without the first, a random, the last token below and above, in %."""
    first, random, lower, upper = means
    noise = torch.randint(-10, 11, (3, 20, LAYERS), generator=draw)
    last = torch.where(torch.arange(LAYERS) < 10, lower, upper)
    return {"first": first + noise[0], "random": random + noise[1], "last": last + noise[2]}


def of_changes(numbers: Numbers, toy: Study) -> Results:
    def tallies(layer: int) -> Tensor:
        one = torch.ones(len(numbers["first"]))
        columns = [numbers[name][:, layer] for name in ("first", "last", "random")]
        return torch.stack([c for column in columns for c in (column * 20, one * 20)], dim=1)

    effects = removal_effects([tallies(layer) for layer in range(LAYERS)])
    return {"removal": replace(toy.result("removal"), effects=effects)}


# Patterns


def labels(lower: float, upper: float, alike: float, draw: torch.Generator) -> Numbers:
    """Ten keys per layer: shares of them that are semantic below and above layer 10, not shallow.

    A key has four patterns of six triggers, all of one class; below `lower` 0 it has none.
    """
    layer = torch.arange(LAYERS).repeat_interleave(10)
    share = torch.where(layer < 9, lower, upper)
    kind = (chance(draw, len(layer)) < share).long()
    same = torch.where(layer < 9, alike, alike / 3) * (0.8 + 0.4 * chance(draw, len(layer)))
    return {"layer": layer, "kind": kind if lower >= 0 else kind - 1, "same": same}


def key_patterns(layer: int, kind: int, number: int) -> KeyPatterns:
    key = Address(layer + 1, number)
    name: PatternKind = "semantic" if kind else "shallow"
    patterns = [
        Pattern(key, f"pattern {part}", name, tuple(range(part * 6 + 1, part * 6 + 7)), "rules")
        for part in range(4)
    ]
    return KeyPatterns(key, 25, tuple(patterns) if kind >= 0 else ())


def of_labels(numbers: Numbers, toy: Study) -> Results:
    keys = [
        key_patterns(int(layer), int(kind), number)
        for number, (layer, kind) in enumerate(zip(numbers["layer"], numbers["kind"], strict=True))
    ]
    summary = summarise_patterns("rules", keys)
    controls = (ControlRate("random", wilson(2, 160), 0.02),)
    endings = ending_effects(numbers["same"].double(), numbers["layer"], LAYERS)
    found = toy.result("patterns")
    return {"patterns": replace(found, summary=summary, controls=controls, endings=endings)}


def of_people(numbers: Numbers, toy: Study) -> Results:
    """The same patterns by two people."""
    rule = of_labels(numbers, toy)["patterns"]
    people = tuple(
        JudgesPatterns(replace(rule.summary, annotator=name), rule.controls)
        for name in ("ann", "bo")
    )
    return {"patterns": JudgedPatterns(rule, people, 0.8)}


def dip_and_labels(curve: list[int], lower: float, upper: float, draw: torch.Generator) -> Numbers:
    """As many prefixes as keys."""
    keys = labels(lower, upper, 0.5, draw)
    return keys | {name: numbers[:160] for name, numbers in active(curve, draw).items()}


def of_both(numbers: Numbers, toy: Study) -> Results:
    return {**of_activity(numbers, toy), **of_people(numbers, toy)}


# Last layer and causes


def judgements(related: float, draw: torch.Generator) -> Numbers:
    return {"related": chance(draw, 100) < related}


def results_of_judgements(numbers: Numbers, toy: Study) -> Results:
    share = wilson(int(numbers["related"].sum()), len(numbers["related"]))
    person = JudgesCases("ann", share, wilson(2, 50))
    rule = replace(toy.result("last-layer"), related=share)
    return {"last-layer": JudgedCases(rule, (person,), 0.7)}


def losses(own: float, draw: torch.Generator) -> Numbers:
    """[memory, layer]: change of a memory's tokens when it, and when another one, is silenced."""
    noise = 0.1 * (chance(draw, 2, 10, LAYERS) - 0.5)
    return {"own": own + noise[0], "other": noise[1] - 0.01}


def of_losses(numbers: Numbers, toy: Study) -> Results:
    found = toy.result("causal")
    draw = torch.Generator().manual_seed(0)

    def effect(name: str, layer: int) -> NextTokenEffect:
        mean = bootstrap(numbers[name][:, layer].double(), draw)
        return NextTokenEffect(mean, mean, mean, mean)

    layers = tuple(
        replace(
            found.layers[0],
            layer=layer + 1,
            silenced=effect("own", layer),
            other_silenced=effect("other", layer),
            lost_more=bootstrap((numbers["other"] - numbers["own"])[:, layer].double(), draw),
        )
        for layer in range(LAYERS)
    )
    return {"causal": replace(found, layers=layers)}


ACTIVITY = Planted(
    lambda g: active(DIP, g), lambda g: active(FLAT, g), lambda g: active(RISE, g), of_activity
)
CASES = Planted(
    lambda g: cases(0.2, g), lambda g: cases(0.0, g), lambda g: cases(-0.1, g), of_cases
)
DECISIONS = Planted(
    lambda g: decisions(LEARNT, g),
    lambda g: decisions(RANDOM, g),
    lambda g: decisions(WRONG, g),
    of_decisions,
)
LAYERS_DECIDE = replace(  # in the twin the layer's own token wins, and it says what stays
    DECISIONS,
    untrained=lambda g: decisions(replace(RANDOM, own=0.8, agree=0.8), g),
)
CELLS = Planted(
    lambda g: cells(0.001, 0.12, 0.0001, g),
    lambda g: cells(0.0, 0.0, 0.0001, g),
    lambda g: cells(0.08, 0.0, 0.05, g),
    of_cells,
    by_cell=True,
)
CHANGES = Planted(
    lambda g: changes((-3, -20, -80, -50), g),
    lambda g: changes((-30, -30, -37, -37), g),
    lambda g: changes((-40, -10, -5, -20), g),
    of_changes,
    by_cell=True,
)
LABELS = Planted(
    lambda g: labels(0.2, 0.8, 0.5, g),
    lambda g: labels(-1, -1, 0.1, g),
    lambda g: labels(-1, -1, 0.05, g),
    of_labels,
)
PEOPLE = Planted(
    lambda g: labels(0.05, 0.95, 0.5, g),
    lambda g: labels(0.5, 0.5, 0.5, g),
    lambda g: labels(0.9, 0.2, 0.5, g),
    of_people,
)
PLANTED: dict[str, Planted] = {
    "layers-are-most-parameters": Planted(
        lambda _: {"share": torch.full((4,), 0.66)},
        lambda _: {"share": torch.full((4,), 0.2)},  # which no twin of the same shape has
        lambda _: {"share": torch.full((4,), 0.4)},
        of_parameters,
    ),
    "every-key-has-a-pattern": LABELS,
    "several-patterns-a-key": LABELS,
    "most-triggers-are-covered": LABELS,
    "semantic-takes-over": PEOPLE,
    "lower-triggers-end-alike": LABELS,
    "last-token-matters-most": CHANGES,
    "first-token-matters-least": CHANGES,
    "last-token-fades": CHANGES,
    "lower-values-do-not-agree": replace(CELLS, untrained=lambda g: cells(0.05, 0.05, 0.0, g)),
    "upper-values-agree": CELLS,
    "upper-values-beat-chance": CELLS,
    "values-know-more-than-frequency": CELLS,
    "values-follow-the-next-token": CELLS,
    "ranks-improve": CELLS,
    "sure-values-are-right": CELLS,
    "predictive-values-are-high-up": CELLS,
    "predictive-values-predict": CELLS,
    "many-memories-are-active": ACTIVITY,
    "activity-dips": ACTIVITY,
    "the-dip-is-where-semantic-takes-over": Planted(
        lambda g: dip_and_labels(DIP, 0.05, 0.95, g),
        lambda g: dip_and_labels(FLAT, 0.5, 0.5, g),
        lambda g: dip_and_labels(RISE, 0.2, 0.8, g),
        of_both,
    ),
    "layers-compose": Planted(
        lambda g: zero_agreement(0.9, g),
        lambda g: zero_agreement(0.4, g),
        lambda g: zero_agreement(0.4, g),
        of_zero_agreement,
    ),
    "agreement-is-on-stop-words": CASES,
    "agreement-is-on-short-prefixes": CASES,
    "a-third-is-settled-early": DECISIONS,
    "most-are-settled-before-the-last-layer": DECISIONS,
    "growth-is-late": DECISIONS,
    "confidence-rises": DECISIONS,
    "residual-decides": DECISIONS,
    "the-residual-wins-without-agreement": LAYERS_DECIDE,
    "changes-are-compositions": LAYERS_DECIDE,
    "layers-veto": DECISIONS,
    "last-changes-are-distant": Planted(
        lambda g: judgements(0.3, g),
        lambda g: judgements(0.75, g),
        lambda g: judgements(0.8, g),
        results_of_judgements,
    ),
    "silencing-matters": Planted(
        lambda g: losses(-0.5, g),
        lambda g: losses(-0.01, g),
        lambda g: losses(0.3, g),
        of_losses,
        by_cell=True,
    ),
}
