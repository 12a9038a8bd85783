"""The answer to "why this token" as plain values; needs no torch.

An effect is what the target, a logit or the difference of two, has more of because of one memory
at one place. Three numbers say how large it is. *Direct*: coefficient x value, along the target.
*Predicted*: coefficient x gradient of the target. *True*: the target minus the target of a pass in
which this one coefficient is replaced, by 0 or by that of another text. An effect is NaN where it
is not known.
"""

from __future__ import annotations

from dataclasses import dataclass

from ffmem.address import Address


@dataclass(frozen=True)
class Effect:
    """One memory at one place: `place` tokens of the text have been read, `token` the last."""

    address: Address
    place: int
    token: str
    coefficient: float
    replaced_by: float  # 0 where the memory is silenced
    direct: float  # 0 at all places but the last: only there a memory adds to the logit itself
    predicted: float
    true: float
    promotes: tuple[str, ...]  # by its value, in the direction in which it is added


@dataclass(frozen=True)
class MemoryNotes:
    """What a study knows of a memory: a person's label, patterns, and its strongest triggers."""

    label: str
    patterns: tuple[str, ...]
    triggers: tuple[str, ...]

    @property
    def fires_after(self) -> str:
        """What it fires after, in a few words: its label, a pattern, or its strongest trigger."""
        return next(filter(None, (self.label, *self.patterns[:1], *self.triggers[:1])), "")


@dataclass(frozen=True)
class MemoryEffect:
    """A memory of the list over all places of the text, replaced at all of them together."""

    address: Address
    places: int  # where its coefficient is changed
    predicted: float
    true: float
    promotes: tuple[str, ...]
    notes: MemoryNotes | None = None  # where a study is at hand


@dataclass(frozen=True)
class LayerEffects:
    """Sums of the predicted effects of all memories of a layer, at every place of the text."""

    layer: int
    predicted: tuple[float, ...]


@dataclass(frozen=True)
class Missed:
    """What the list may lack, by a random sample of the pairs (memory, place) below it.

    `above` of them have a larger true effect than the smallest of the list; with 95 % confidence
    at most `bound` of all pairs below the list do.
    """

    pairs: int
    sampled: int
    above: int
    bound: float
    largest: Effect | None


@dataclass(frozen=True)
class Edge:
    """An earlier memory that wakes a memory of the list: its effect on the score of that one's key.

    In a gated layer the score is that of the gate.
    """

    source: Address
    source_place: int
    target: Address
    target_place: int
    predicted: float
    true: float


@dataclass(frozen=True)
class LinearReading:
    """The identities of the linear reading; without all of them there is no answer.

    With norms, attention patterns and activations frozen the target is a sum: of what the embedding
    of the text gives, of what biases give at all places, and of a constant. `covered` counts the
    modules of each kind, all of which have their rule.
    """

    is_identical: bool  # the forward pass with the rules on, bit for bit
    embedding: float
    biases: float
    constant: float
    covered: dict[str, int]

    @property
    def total(self) -> float:
        """The parts together; equal to the target but for rounding."""
        return self.embedding + self.biases + self.constant


@dataclass(frozen=True)
class Why:
    """Why a model predicts a token: the memories that do it, where, and how far to believe it.

    `effects` are the strongest pairs of memory and place by prediction, in the order of their true
    effects. The place of a leading token such as BOS is not among them; what is predicted there is
    `leading`. `agreement` is the correlation of predicted and true effects in the list.
    """

    model: str
    text: str  # what was read
    tokens: tuple[str, ...]  # of it, one for each place
    token: str
    token_id: int
    against: str  # the token that the logit is compared with, or nothing
    other_text: str  # where the coefficients come from that are put in, or nothing
    method: str  # gradient, or linear
    target: float
    effects: tuple[Effect, ...]
    memories: tuple[MemoryEffect, ...]
    layers: tuple[LayerEffects, ...]
    leading: float
    joint: float  # all pairs of the list replaced together
    agreement: float
    direct_agreement: float
    missed: Missed
    linear: LinearReading | None = None
    edges: tuple[Edge, ...] = ()

    @property
    def sum(self) -> float:
        """The single true effects of the list, added up."""
        return sum(one.true for one in self.effects)

    @property
    def position(self) -> int:
        """How many tokens of the text have been read."""
        return len(self.tokens)

    def __repr__(self) -> str:
        strongest = "  ".join(
            f"{one.address} at {one.place} {one.true:+.3f}" for one in self.effects[:3]
        )
        return f"<Why {self.token!r} after {self.position} tokens: {strongest}>"


@dataclass(frozen=True)
class FactMemory:
    """A memory that matters in several prompts, and one drawn at random that is as strong.

    Effects are true ones, the mean over all prompts, of silencing it at every place.
    """

    address: Address
    prompts: int  # in which it is among the strongest
    effect: float
    promotes: tuple[str, ...]
    control: Address
    control_effect: float


@dataclass(frozen=True)
class Facts:
    """The memories that matter in most of several prompts, with equally strong random ones.

    `joint` is the mean true effect of silencing all of them together, `control_joint` that of their
    controls.
    """

    model: str
    prompts: tuple[str, ...]
    tokens: tuple[str, ...]  # the target of each prompt
    needed: int  # prompts in which a memory must be among the strongest
    memories: tuple[FactMemory, ...]
    joint: float
    control_joint: float
