"""What values predict: Figures 4, 5 and 6 and Table 2 as numbers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from ffmem.address import Address
from ffmem.analyses.statistics import Interval

Group = Literal["", "+", "-", "both"]  # which cells of a layer a number is about


@dataclass(frozen=True)
class LayerAgreement:
    """Figure 4 for one layer: the share of cells whose value's top token is the next token.

    `all` has every cell as denominator, `filled` only cells with a trigger that is followed by a
    token. `released` compares with the last token read, as the authors' script does. Chance:
    `shuffled` gives each key the value of another of its layer, `unigram` a random token of the
    stored text.
    """

    layer: int
    cells: Group
    all: Interval
    filled: Interval
    released: Interval
    shuffled: Interval
    unigram: float


@dataclass(frozen=True)
class LayerRanks:
    """Figure 5 for one layer: the rank of the top trigger's next token under the value, from 0.

    `quantiles` are at 5, 25, 50, 75 and 95 %; `under` counts ranks below 10, 100 and 1,000 as
    shares; `mrr` is the mean of 1 / (rank + 1). `shuffled_*` are over other keys' next tokens.
    """

    layer: int
    cells: Group
    n: int
    quantiles: tuple[float, ...]
    median_share: float  # median rank / vocabulary
    under: tuple[float, float, float]
    mrr: float
    shuffled_quantiles: tuple[float, ...]
    shuffled_mrr: float


@dataclass(frozen=True)
class LayerMass:
    """Is a value a distribution of what follows its pattern? One layer, over keys with triggers.

    `own` is the mean probability that a value gives to the next tokens of all stored triggers of
    its key together, `shuffled` to those of another key of the layer, `difference` of the two, pair
    by pair; intervals resample keys. `greater` is the share of keys for which its own get more,
    half by chance.
    """

    layer: int
    cells: Group
    own: Interval
    shuffled: Interval
    difference: Interval
    greater: Interval


@dataclass(frozen=True)
class Bin:
    """Figure 6: cells whose value's maximal probability lies in a range; the last is closed."""

    low: float
    high: float
    agreement: Interval
    shuffled: Interval


@dataclass(frozen=True)
class AgreementEffects:
    """Figure 4 in the numbers that claims rest on; whole memories are resampled.

    `strongest_upper` and `strongest_lower` are the paper's shares, of each key's strongest trigger.
    All others rest on its five strongest, or as many as are tested: `upper` and `lower` are shares
    of the upper and of the lower layers, `rise` is their difference, and the rest say how far the
    upper layers lie above what chance gives there.
    """

    strongest_upper: Interval
    strongest_lower: Interval
    upper: Interval
    lower: Interval
    rise: Interval
    above_shuffled: Interval
    above_unigram: Interval
    above_last_token: Interval


@dataclass(frozen=True)
class RankEffects:
    """Figure 5: how much better the rank is than below, and than by chance, in powers of two."""

    rise: Interval
    above_shuffled: Interval


@dataclass(frozen=True)
class CertaintyEffects:
    """Figure 6: how much more the surest values agree than the least sure, and than by chance."""

    rise: Interval
    above_shuffled: Interval


@dataclass(frozen=True)
class ValueEffects:
    """Differences by memory, for each of the three figures."""

    agreement: AgreementEffects
    ranks: RankEffects
    certainty: CertaintyEffects


@dataclass(frozen=True)
class Values:
    """Section 4 of the paper on one scan; `counts` are what each figure leaves out.

    `effects` are what its claims rest on, by memory. `feed_forward_share` is the layers' share of
    the parameters in feed-forward layers and attention, the model's matrices but for embeddings.
    """

    agreement: tuple[LayerAgreement, ...]
    ranks: tuple[LayerRanks, ...]
    equal_width: tuple[Bin, ...]
    quantile_bins: tuple[Bin, ...]
    predictive: Predictive
    vocabulary: int
    counts: dict[str, int]
    mass: tuple[LayerMass, ...]
    effects: ValueEffects
    feed_forward_share: float

    def left_out(self) -> dict[str, int]:
        """What figures 4 to 6 leave out, under readable names."""
        return {f"values: {name}": count for name, count in self.counts.items()}


@dataclass(frozen=True)
class ValueGroup:
    """Some values: how many are in the upper layers, and how many have an agreeing trigger."""

    name: str
    n: int
    upper: int
    agreeing: int  # with at least one agreeing trigger
    precision: Interval  # mean share of agreeing triggers


@dataclass(frozen=True)
class ValueRow:
    """Table 2: one value, and one trigger that is followed by what it promotes, if any is."""

    address: Address
    prediction: str
    probability: float
    precision: float
    triggers: int
    before: str
    next: str


@dataclass(frozen=True)
class Predictive:
    """The values with the largest maximal probability against random ones.

    `first_upper_layer` is the lowest layer that counts as upper.
    """

    largest: ValueGroup
    random: ValueGroup
    random_same_layers: ValueGroup
    rows: tuple[ValueRow, ...]  # of the largest, highest probability first
    first_upper_layer: int


@dataclass(frozen=True)
class PaperValue:
    """One thing that the paper says of its values, and what is so here."""

    says: str
    expected: str
    found: str

    @property
    def matches(self) -> bool:
        """Whether both are the same."""
        return self.found == self.expected
