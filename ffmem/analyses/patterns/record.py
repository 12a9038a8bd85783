"""Which patterns do a key's triggers share? Patterns of any annotator, and Figure 2 from them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from ffmem.address import Address
from ffmem.analyses.statistics import Interval, cohen_kappa
from ffmem.store.people.annotators import is_language_model

PatternKind = Literal["shallow", "semantic"]
PATTERN_KINDS: tuple[PatternKind, ...] = ("shallow", "semantic")
Label = Literal["shallow", "shallow + semantic", "semantic", "not covered"]
LABELS: tuple[Label, ...] = ("shallow", "shallow + semantic", "semantic", "not covered")
MIN_TRIGGERS = 3  # triggers that make a pattern
BAR = 0.1  # most control keys of the hardest kind that may have a pattern
Against = Literal["random", "weak"]


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

    @property
    def text(self) -> str:
        """The description and, if a language model gave it, that one did."""
        return self.description + " (language model)" * is_language_model(self.annotator)


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
    def with_meaning(self) -> float:
        """The share of triggers that have a semantic pattern."""
        return self.shares["semantic"].estimate + self.shares["shallow + semantic"].estimate

    @property
    def semantic_leads(self) -> bool:
        """Whether more triggers have a semantic pattern than have shallow ones alone."""
        return self.with_meaning > self.shares["shallow"].estimate


@dataclass(frozen=True)
class TakeoverEffects:
    """Figure 2 by key, in shares of a key's triggers; one with both kinds has a meaning.

    `meaning_rises` and `shallow_falls` are what triggers with a meaning gain, and what those that
    are shallow only lose, from the lowest to the highest layer on the line through all keys. The
    others split the layers where the paper's takeover lies: the lead of triggers that are shallow
    only over those that are semantic only, below; triggers with a meaning, below and above; and
    their lead over those that are shallow only, above.
    """

    meaning_rises: Interval
    shallow_falls: Interval
    shallow_leads_below: Interval
    semantic_leads_above: Interval
    meaning_below: Interval
    meaning_above: Interval


@dataclass(frozen=True)
class EndingEffects:
    """The share of a key's triggers that end in its commonest last token: below, and less above."""

    same_ending_lower: Interval
    same_ending_fades: Interval


@dataclass(frozen=True)
class Summary:
    """Fig 2 and its numbers for one annotator; `effects` resample keys."""

    annotator: str
    layers: tuple[LayerPatterns, ...]
    overall: LayerPatterns  # all layers as one, numbered 0
    crossover: int | None  # first layer from which on semantic leads in every layer
    effects: TakeoverEffects


@dataclass(frozen=True)
class ControlRate:
    """How often an annotator sees a pattern where there is none, and how much it then covers."""

    kind: str  # one of CONTROLS
    false_patterns: Interval  # share of control keys with a pattern
    covered: float  # share of their prefixes
    semantic: Interval | None = None  # share of control keys with a semantic pattern
    semantic_covered: float | None = None  # share of their prefixes


def hardest_control(controls: Sequence[ControlRate]) -> ControlRate | None:
    """The kind of control keys on which most patterns were seen."""
    return max(controls, key=lambda found: found.false_patterns.estimate, default=None)


@dataclass(frozen=True)
class HeldOutScore:
    """How well patterns of one class predict; each number counts patterns or keys alike.

    `on` says whose patterns they are: real keys' or control keys'. Precision and recall pool all
    predictions (equally many triggers and others per key); `auc` is the mean over patterns, 0.5 is
    chance, with its interval. The class "any" takes all patterns of a key as one.
    """

    on: str
    kind: str
    against: Against
    patterns: int
    precision: float
    recall: float
    auc: Interval


@dataclass(frozen=True)
class PairAgreement:
    """Two annotators on the keys that both did."""

    one: str
    other: str
    keys: int
    prefixes: int
    same: float  # share of prefixes with the same label
    kappa: float  # Cohen's: 1 is full agreement, 0 what chance gives

    @classmethod
    def of(
        cls, one: str, other: str, keys: int, first: Sequence[str], second: Sequence[str]
    ) -> PairAgreement:
        """Compare the labels that both gave the same prefixes."""
        same = sum(a == b for a, b in zip(first, second, strict=True)) / len(first)
        return cls(one, other, keys, len(first), same, cohen_kappa(first, second))


@dataclass(frozen=True)
class BlindReadings:
    """Fig 2 by a language model that read this study's sheets blind; it is not a person.

    Of the `sheets` that it read, `found` have the prefixes of this scan; the others count nowhere.
    `permuted` are its patterns in keys of the model with permuted weights, which were among them,
    and `rule` is Fig 2 by rule for the same keys as `summary`.
    """

    summary: Summary
    controls: tuple[ControlRate, ...]
    permuted: Summary
    rule: Summary
    agreement: tuple[PairAgreement, ...]  # with a second reader, and with the rule
    sheets: int
    found: int
    records: tuple[Pattern, ...]


@dataclass(frozen=True)
class PatternResults:
    """Fig 2 by the rule annotator, with what its word is worth.

    `endings` are effects of the tokens that a key's triggers end in, which need no annotator.
    """

    summary: Summary
    controls: tuple[ControlRate, ...]
    held_out: tuple[HeldOutScore, ...]
    records: tuple[Pattern, ...]
    drawn: dict[int, tuple[str, ...]]
    dead: int  # drawn keys that nothing in the corpus fires
    semantic_keys: Interval | None  # share of live keys with a semantic pattern
    endings: EndingEffects
    readings: BlindReadings | None = None  # of the demo alone

    def left_out(self) -> dict[str, int]:
        """What figure 2 leaves out, under a readable name."""
        return {"dead keys drawn (figure 2)": self.dead}


@dataclass(frozen=True)
class JudgesPatterns:
    """Fig 2 by one person or language model."""

    summary: Summary
    controls: tuple[ControlRate, ...]
    permuted: Summary | None = None  # where it also read keys of the model with permuted weights

    @property
    def annotator(self) -> str:
        """Who it is, by name."""
        return self.summary.annotator


@dataclass(frozen=True)
class JudgedPatterns:
    """Fig 2 by people, or else by language models, and by the rule.

    `alpha` is the agreement of the people (Krippendorff's).
    """

    rule: PatternResults
    judges: tuple[JudgesPatterns, ...]
    alpha: float

    @property
    def endings(self) -> EndingEffects:
        """The rule's effects on shared last words, which need no annotator."""
        return self.rule.endings
