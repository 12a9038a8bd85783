"""Every analysis as one row: what runs it, its result, figures, cost and chapter of the report.

To add one, write its module in `ffmem/analyses/`, its figures in `ffmem/figures/` and a row here.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from ffmem.analyses.causal import Causal, CausalSize, causal
from ffmem.analyses.composition import Composition, Suppression, composition, suppression
from ffmem.analyses.expert_use import Experts, experts
from ffmem.analyses.inputs.sentence_coefficients import CONFIDENT, StoredSizes
from ffmem.analyses.last_layer import LastLayer, last_layer
from ffmem.analyses.lenses import PLACES, Lenses, lenses
from ffmem.analyses.membership import PAIRS, Membership, membership
from ffmem.analyses.refinement import Refinement, refinement
from ffmem.analyses.removal import Removal, removal
from ffmem.analyses.values import Values, summarise
from ffmem.analyses.weights import Weights, summarise_weights, table_columns
from ffmem.errors import FfmemError, shorten
from ffmem.patterns.analysis import PatternResults, patterns_by_rule
from ffmem.patterns.embeddings import WordContexts
from ffmem.store.memory_page import BANDS, PER_BAND
from ffmem.store.slots import TRIGGERS_SHOWN
from ffmem.studies.inputs import Sizes, StudyInputs, sample_arrays, value_arrays
from ffmem.version import VERSION

LENS_PREFIXES = 4  # that a memory is forced on at
PAGE_SENTENCES = TRIGGERS_SHOWN + PER_BAND * (len(BANDS) - 1)  # on a memory's page, at most


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


def scan_cost(work: Workload) -> Cost:
    """The cost of the scan: all text, and every value through the vocabulary, from both ends."""
    return Cost(work.tokens, 2 * work.memories, 2)


def page_sentences(work: Workload) -> float:
    """Sentences on the pages of the first memories; a layer reads each of its own once."""
    memories = work.layers * work.sizes.pattern_keys + CONFIDENT
    return min(PAGE_SENTENCES * memories, work.layers * work.sentences(math.inf))


def sample_cost(work: Workload) -> Cost:
    """The cost of reading the validation prefixes in all layers of the model."""
    layers, memories = work.whole
    return Cost(
        work.sizes.sample * work.prefix, 6 * layers * work.sizes.sample + work.signs * memories
    )


@dataclass(frozen=True)
class Figures:
    """The figures of one analysis."""

    texts: tuple[Any, ...]  # of FigureText, one per figure, in order
    charts: Callable[[Any], dict[str, Any]]  # every figure of a result by its file name


@dataclass(frozen=True)
class Analysis:
    """One analysis. `sizes` names the fields of `Sizes` that decide its result.

    `arrays` are the files of numbers that are written with it, by name, and what is in them.
    `figures` imports the module that draws it: Altair is slow to import, and measuring does not
    need it.
    """

    result: type
    run: Callable[[StudyInputs], Any]
    section: str  # of the report; nothing for what only other pages show
    cost: Callable[[Workload], Cost]
    sizes: tuple[str, ...] = ()
    figures: Callable[[], Figures] | None = None
    arrays: Mapping[str, Callable[[StudyInputs], dict[str, Any]]] = field(default_factory=dict)
    of_experts: bool = False  # only where the scan has mixtures of experts

    @property
    def reads_text(self) -> bool:
        """Whether the validation text decides the result."""
        return "sample" in self.sizes


def _patterns_figures() -> Figures:
    from ffmem.figures.patterns import TEXTS, charts

    return Figures(TEXTS, charts)


def _removal_figures() -> Figures:
    from ffmem.figures.patterns import REMOVAL_TEXTS, removal_charts

    return Figures(REMOVAL_TEXTS, removal_charts)


def _values_figures() -> Figures:
    from ffmem.figures.values import TEXTS, charts

    return Figures(TEXTS, charts)


def _lenses_figures() -> Figures:
    from ffmem.figures.values import LENSES_TEXTS, lenses_charts

    return Figures(LENSES_TEXTS, lenses_charts)


def _weights_figures() -> Figures:
    from ffmem.figures.weights import TEXTS, charts

    return Figures(TEXTS, charts)


def _composition_figures() -> Figures:
    from ffmem.figures.composition import TEXTS, charts

    return Figures(TEXTS, charts)


def _suppression_figures() -> Figures:
    from ffmem.figures.composition import SUPPRESSION_TEXTS, suppression_charts

    return Figures(SUPPRESSION_TEXTS, suppression_charts)


def _refinement_figures() -> Figures:
    from ffmem.figures.refinement import TEXTS, charts

    return Figures(TEXTS, charts)


def _membership_figures() -> Figures:
    from ffmem.figures.membership import TEXTS, charts

    return Figures(TEXTS, charts)


def _experts_figures() -> Figures:
    from ffmem.figures.expert_use import TEXTS, charts

    return Figures(TEXTS, charts)


def _causal_figures() -> Figures:
    from ffmem.figures.causal import TEXTS, charts

    return Figures(TEXTS, charts)


ANALYSES: dict[str, Analysis] = {
    "patterns": Analysis(
        PatternResults,
        lambda s: patterns_by_rule(
            s.store,
            lambda found: WordContexts.of_scan(s.store, found),
            s.sizes.pattern_keys,
            s.seed,
        ),
        "keys",
        lambda w: Cost(0, 0, 10 + 0.05 * w.layers * w.sizes.pattern_keys),
        ("pattern_keys",),
        _patterns_figures,
    ),
    "removal": Analysis(
        Removal,
        lambda s: removal(s.model, s.store, s.sizes.removal_keys, s.sizes.removal_triggers, s.seed),
        "keys",
        lambda w: Cost(
            1.8 * w.layers * w.prefix * w.sizes.removal_keys * w.sizes.removal_triggers, 0, 2
        ),
        ("removal_keys", "removal_triggers"),
        _removal_figures,
    ),
    "values": Analysis(
        Values,
        lambda s: summarise(s.model, s.store, s.values, s.generator),
        "values",
        lambda w: Cost(0, 5 * w.memories * w.signs, 2),
        figures=_values_figures,
        arrays={"values": value_arrays},
    ),
    "lenses": Analysis(
        Lenses,
        lambda s: lenses(
            s.model, s.store, s.sample, s.generator, (s.sizes.lens_memories, LENS_PREFIXES)
        ),
        "values",
        lambda w: Cost(
            5 * w.layers * w.prefix * w.sizes.lens_memories + w.sentences(PLACES) * w.prefix,
            6 * w.memories * w.signs + 1000 * w.layers,
            2,
        ),
        ("sample", "lens_memories"),
        _lenses_figures,
    ),
    "weights": Analysis(
        Weights,
        lambda s: summarise_weights(s.weights, s.generator),
        "weights",
        lambda w: Cost(0, 2 * w.memories, 2),
        figures=_weights_figures,
        arrays={"weights": lambda s: table_columns(s.weights)},
    ),
    "composition": Analysis(
        Composition,
        lambda s: composition(s.model, s.reading, s.generator),
        "composition",
        lambda w: Cost(0, w.whole[1], 2),
        ("sample",),
        _composition_figures,
        {"sample": sample_arrays},
    ),
    "suppression": Analysis(
        Suppression,
        lambda s: suppression(s.model, s.reading, s.generator),
        "composition",
        lambda _: Cost(seconds=1),
        ("sample",),
        _suppression_figures,
        {"sample": sample_arrays},
    ),
    "refinement": Analysis(
        Refinement,
        lambda s: refinement(s.reading, s.model.vocab_size, s.generator),
        "refinement",
        lambda _: Cost(seconds=1),
        ("sample",),
        _refinement_figures,
        {"sample": sample_arrays},
    ),
    "last-layer": Analysis(
        LastLayer,
        lambda s: last_layer(s.model, s.reading, s.generator),
        "refinement",
        lambda _: Cost(seconds=1),
        ("sample",),
        arrays={"sample": sample_arrays},
    ),
    "membership": Analysis(
        Membership,
        lambda s: membership(s.model, s.store, s.sample, s.generator, s.valid is not None),
        "keys",
        lambda w: Cost(4 * w.sentences(2 * PAIRS) * w.prefix, 0, 2),
        ("sample",),
        _membership_figures,
    ),
    "causal": Analysis(
        Causal,
        lambda s: causal(
            s.model, s.store, s.sample, s.generator, CausalSize(memories=s.sizes.causal_memories)
        ),
        "causal",
        lambda w: Cost(100 * w.layers * w.prefix * w.sizes.causal_memories, 0, 5),
        ("sample", "causal_memories"),
        _causal_figures,
    ),
    "experts": Analysis(
        Experts,
        lambda s: experts(s.model, s.store, s.sample, s.values, s.generator),
        "experts",
        lambda w: Cost(2 * w.sizes.sample * w.prefix, 0, 5 + w.layers),
        ("sample",),
        _experts_figures,
        of_experts=True,
    ),
    "coefficients": Analysis(
        StoredSizes,
        lambda s: s.coefficients.sizes,
        "",
        lambda w: Cost(w.tokens_per_sentence * page_sentences(w)),
        ("pattern_keys",),
        arrays={"coefficients": lambda s: s.coefficients.arrays},
    ),
}


def applicable(names: Iterable[str], has_experts: bool) -> tuple[str, ...]:
    """Those of the analyses that a model's scan can have: some are of experts alone."""
    return tuple(name for name in names if has_experts or not ANALYSES[name].of_experts)


def parse_names(text: str | None) -> tuple[str, ...]:
    """Read `values,composition`; nothing means every analysis."""
    names = tuple(ANALYSES) if text is None else tuple(part.strip() for part in text.split(","))
    unknown = [name for name in names if name not in ANALYSES]
    if unknown:
        raise FfmemError(
            f"there is no analysis {shorten(unknown[0])!r}; choose among {', '.join(ANALYSES)}"
        )
    return names


def result_key(name: str, subject: StudyInputs) -> dict[str, Any]:
    """Everything that the result of an analysis depends on; if equal, it is not computed again."""
    row = ANALYSES[name]
    text = {"valid": subject.text_digest} if row.reads_text else {}
    return {
        "scan": subject.store.manifest.key.digest,
        "seed": subject.seed,
        **{size: getattr(subject.sizes, size) for size in row.sizes},
        **text,
        "ffmem": VERSION,
    }
