"""Every analysis as one row: its result, what decides it, and how it is run."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from ffmem.analyses.causal import Causal, CausalSize, causal
from ffmem.analyses.composition import Composition, composition
from ffmem.analyses.last_layer import LastLayer, last_layer
from ffmem.analyses.lenses import Lenses, lenses
from ffmem.analyses.refinement import Refinement, refinement
from ffmem.analyses.removal import Removal, removal
from ffmem.analyses.values import Values, summarise
from ffmem.corpus.sources import digest
from ffmem.errors import FfmemError
from ffmem.patterns.analysis import PatternResults, patterns_by_rule
from ffmem.patterns.embeddings import WordStates
from ffmem.studies.inputs import StudyInputs
from ffmem.version import VERSION

LENS_PREFIXES = 4  # that a memory is forced on at


@dataclass(frozen=True)
class Analysis:
    """One analysis. `sizes` names the fields of `Sizes` that decide its result.

    `arrays` names the files of numbers that are written with it.
    """

    result: type
    run: Callable[[StudyInputs], Any]
    sizes: tuple[str, ...] = ()
    figures: bool = True
    arrays: tuple[str, ...] = ()

    @property
    def reads_text(self) -> bool:
        """Whether the validation text decides the result."""
        return "sample" in self.sizes


ANALYSES: dict[str, Analysis] = {
    "patterns": Analysis(
        PatternResults,
        lambda s: patterns_by_rule(
            s.store, lambda found: WordStates(s.model, found), s.sizes.pattern_keys, s.seed
        ),
        ("pattern_keys",),
    ),
    "removal": Analysis(
        Removal,
        lambda s: removal(s.model, s.store, s.sizes.removal_keys, s.sizes.removal_triggers, s.seed),
        ("removal_keys", "removal_triggers"),
    ),
    "values": Analysis(
        Values,
        lambda s: summarise(s.model, s.store, s.values, s.generator),
        arrays=("values",),
    ),
    "lenses": Analysis(
        Lenses,
        lambda s: lenses(
            s.model, s.store, s.sample, s.generator, (s.sizes.lens_memories, LENS_PREFIXES)
        ),
        ("sample", "lens_memories"),
    ),
    "composition": Analysis(
        Composition,
        lambda s: composition(s.model, s.reading, s.generator),
        ("sample",),
        arrays=("sample",),
    ),
    "refinement": Analysis(
        Refinement,
        lambda s: refinement(s.reading, s.model.vocab_size, s.generator),
        ("sample",),
        arrays=("sample",),
    ),
    "last-layer": Analysis(
        LastLayer,
        lambda s: last_layer(s.model, s.reading, s.generator),
        ("sample",),
        figures=False,
        arrays=("sample",),
    ),
    "causal": Analysis(
        Causal,
        lambda s: causal(
            s.model, s.store, s.sample, s.generator, CausalSize(memories=s.sizes.causal_memories)
        ),
        ("sample", "causal_memories"),
    ),
}


def parse_names(text: str | None) -> tuple[str, ...]:
    """Read `values,composition`; nothing means every stage."""
    names = tuple(ANALYSES) if text is None else tuple(part.strip() for part in text.split(","))
    unknown = [name for name in names if name not in ANALYSES]
    if unknown:
        raise FfmemError(f"there is no stage {unknown[0]!r}; choose among {', '.join(ANALYSES)}")
    return names


def result_key(name: str, subject: StudyInputs) -> dict[str, Any]:
    """All that decides the result of a stage: equal means the result need not be made again."""
    stage = ANALYSES[name]
    text = {}
    if stage.reads_text:
        named = subject.valid
        text = {"valid": "the scanned corpus" if named is None else digest(named)}
    return {
        "scan": subject.store.manifest.key.digest,
        "seed": subject.seed,
        **{size: getattr(subject.sizes, size) for size in stage.sizes},
        **text,
        "ffmem": VERSION,
    }
