"""What an analysis is: one row with its record, what measures and draws it, claims and cost.

A row imports neither torch nor Altair, which are slow to import: functions in it import what
measures and what draws when they are called.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Generic, TypeVar

if TYPE_CHECKING:
    from ffmem.analyses.claim import AnyClaim
    from ffmem.analyses.inputs.study_inputs import StudyInputs
    from ffmem.store.folder import StudyFolder

R = TypeVar("R")  # the record of an analysis


@dataclass(frozen=True)
class Sizes:
    """How much each analysis measures. The defaults are the paper's, or ours where it has none."""

    sample: int = 4000  # validation sentences
    places: int = 1  # different prefixes of each of them
    pattern_keys: int = 10  # per layer
    removal_keys: int = 100  # per layer
    removal_triggers: int = 50  # per key
    lens_memories: int = 50  # per layer
    causal_memories: int = 8  # per layer
    tested_triggers: int = 5  # per key, the strongest, that tests of agreement rest on
    attribution_prompts: int = 50


PAPER_SIZES = Sizes()
SMALL_SIZES = Sizes(
    sample=1000,
    places=4,
    pattern_keys=5,
    removal_keys=15,
    removal_triggers=8,
    lens_memories=6,
    causal_memories=2,
)
SIZES = {"paper": PAPER_SIZES, "small": SMALL_SIZES}
OF_ALL_LAYERS = {"pattern_keys": 80, "removal_keys": 128, "causal_memories": 32}  # decide most


def sizes_of(size: str, layers: int) -> Sizes:
    """The sizes of that name; where layers are few, each has more of what decides together."""
    found = SIZES[size]
    if size != "small":
        return found
    shares = {name: -(-number // layers) for name, number in OF_ALL_LAYERS.items()}
    return replace(found, **{name: max(getattr(found, name), one) for name, one in shares.items()})


@dataclass(frozen=True)
class Workload:
    """The inputs of a time estimate: shape of model and text, sizes of analyses."""

    layers: int
    memories: int
    tokens: int  # of the whole text
    tokens_per_sentence: float
    sizes: Sizes
    whole: tuple[int, int]  # layers and memories of the model, where some layers are chosen
    signs: int = 1  # cells of a memory
    top: int = 50  # triggers of a cell

    @property
    def prefix(self) -> float:
        """Tokens of a mean prefix, the BOS among them."""
        return self.tokens_per_sentence / 2 + 1

    def sentences(self, most: float) -> float:
        """How many different sentences an analysis reads that reads up to `most`."""
        return min(most, self.tokens / self.tokens_per_sentence) if self.tokens else most


@dataclass(frozen=True)
class Cost:
    """Tokens read by the model, vectors projected to the vocabulary, and other seconds.

    Orders of magnitude from how the work is done; the other seconds are those of the embedded
    model on one CPU core.
    """

    tokens: float = 0.0
    projections: float = 0.0
    seconds: float = 0.0

    def __add__(self, other: Cost) -> Cost:
        return Cost(
            self.tokens + other.tokens,
            self.projections + other.projections,
            self.seconds + other.seconds,
        )


@dataclass(frozen=True)
class Figure(Generic[R]):
    """One figure of a record: its chart, how to read it, and what the paper says there.

    `beside` are the rows that the chart takes of each control, a model without what was learned.
    """

    name: str
    chart: Callable[..., Any]  # by Altair
    read: str
    paper: str
    drawn_if: Callable[[R], bool] = lambda _: True
    beside: Callable[[R], Sequence[Mapping[str, Any]]] | None = None  # None: it shows no control

    def draw(self, result: R, controls: Sequence[R] = ()) -> Any:
        """The chart, with the range of the controls where it has a place for them."""
        if self.beside is None:
            return self.chart(result)
        rows = [
            {**row, "control": number}
            for number, one in enumerate(controls, 1)
            for row in self.beside(one)
        ]
        return self.chart(result, rows)


@dataclass(frozen=True)
class PaperQuestion(Generic[R]):
    """A question of the paper: the claim whose numbers answer it, and its number by layer."""

    asks: str
    claim: AnyClaim
    by_layer: Callable[[R], Sequence[float]] | None = None


@dataclass(frozen=True)
class Growth:
    """What a later look measures more of: a field of `Sizes`, and its units in words.

    They are what the claims' intervals are over, so that these shrink with more of them.
    """

    size: str
    unit: str


@dataclass(frozen=True)
class Analysis(Generic[R]):
    """One analysis. `sizes` names the fields of `Sizes` that decide its result.

    `figures` imports the module that draws them. `arrays` are the files of numbers that are written
    with it, by name, and what is in them. `with_judgements` adds to a record what people said of
    it, which its claims then rest on. `left_out` counts what its figures leave out.
    """

    name: str
    record: type[R]
    measure: Callable[[StudyInputs], R]
    chapter: str  # of the report; nothing for what only other pages show
    cost: Callable[[Workload], Cost]
    sizes: tuple[str, ...] = ()
    figures: Callable[[], tuple[Figure[R], ...]] = tuple
    claims: tuple[AnyClaim, ...] = ()  # in the paper's order
    questions: tuple[PaperQuestion[Any], ...] = ()  # the rows of a report's first table
    cites: tuple[str, ...] = ()  # the methods that it uses, by their keys in references.bib
    with_judgements: Callable[[R, StudyFolder], Any] = lambda record, _: record
    left_out: Callable[[R], dict[str, int]] = lambda _: {}
    grows: Growth | None = None  # None: all there is is measured
    on_request: bool = False  # not part of a study unless it is named
    arrays: Mapping[str, Callable[[StudyInputs], dict[str, Any]]] = field(default_factory=dict)
    of_experts: bool = False  # only where the scan has mixtures of experts

    @property
    def reads_text(self) -> bool:
        """Whether the validation text decides the result."""
        return "sample" in self.sizes
