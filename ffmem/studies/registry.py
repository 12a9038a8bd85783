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
from ffmem.patterns.analysis import PatternStudy, pattern_study
from ffmem.patterns.embeddings import WordStates
from ffmem.studies.inputs import Subject
from ffmem.version import VERSION

LENS_PREFIXES = 4  # that a memory is forced on at


@dataclass(frozen=True)
class Stage:
    """One analysis. `sizes` names the fields of `Sizes` that decide its result.

    `arrays` names the files of numbers that are written with it.
    """

    result: type
    run: Callable[[Subject], Any]
    sizes: tuple[str, ...] = ()
    figures: bool = True
    arrays: tuple[str, ...] = ()

    @property
    def reads_text(self) -> bool:
        """Whether the validation text decides the result."""
        return "sample" in self.sizes


STAGES: dict[str, Stage] = {
    "patterns": Stage(
        PatternStudy,
        lambda s: pattern_study(
            s.store, lambda found: WordStates(s.model, found), s.sizes.pattern_keys, s.seed
        ),
        ("pattern_keys",),
    ),
    "removal": Stage(
        Removal,
        lambda s: removal(s.model, s.store, s.sizes.removal_keys, s.sizes.removal_triggers, s.seed),
        ("removal_keys", "removal_triggers"),
    ),
    "values": Stage(
        Values,
        lambda s: summarise(s.model, s.store, s.values, s.generator),
        arrays=("values.npz",),
    ),
    "lenses": Stage(
        Lenses,
        lambda s: lenses(
            s.model, s.store, s.sample, s.generator, (s.sizes.lens_memories, LENS_PREFIXES)
        ),
        ("sample", "lens_memories"),
    ),
    "composition": Stage(
        Composition,
        lambda s: composition(s.model, s.reading, s.generator),
        ("sample",),
        arrays=("sample.npz",),
    ),
    "refinement": Stage(
        Refinement,
        lambda s: refinement(s.reading, s.model.words, s.generator),
        ("sample",),
        arrays=("sample.npz",),
    ),
    "last-layer": Stage(
        LastLayer,
        lambda s: last_layer(s.model, s.reading, s.generator),
        ("sample",),
        figures=False,
        arrays=("sample.npz",),
    ),
    "causal": Stage(
        Causal,
        lambda s: causal(
            s.model, s.store, s.sample, s.generator, CausalSize(memories=s.sizes.causal_memories)
        ),
        ("sample", "causal_memories"),
    ),
}


def chosen(text: str | None) -> tuple[str, ...]:
    """Read `values,composition`; nothing means every stage."""
    names = tuple(STAGES) if text is None else tuple(part.strip() for part in text.split(","))
    unknown = [name for name in names if name not in STAGES]
    if unknown:
        raise FfmemError(f"there is no stage {unknown[0]!r}; choose among {', '.join(STAGES)}")
    return names


def made_from(name: str, subject: Subject) -> dict[str, Any]:
    """All that decides the result of a stage: equal means the result need not be made again."""
    stage = STAGES[name]
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
