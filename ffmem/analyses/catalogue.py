"""Every analysis and every claim, in the paper's order; what can run, and what a result depends on.

To add an analysis, make its folder here and put its row into the list below.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from ffmem.analyses import (
    attribution,
    causal,
    coefficients,
    composition,
    experts,
    last_layer,
    lenses,
    normalisation,
    patterns,
    refinement,
    removal,
    suppression,
    values,
    weights,
)
from ffmem.analyses.analysis import Analysis, Sizes
from ffmem.analyses.claim import AnyClaim
from ffmem.analyses.open_claims.looks import ClaimLook, read_looks
from ffmem.analyses.open_claims.needs import Measurement, with_needs
from ffmem.analyses.values.claims import layers_are_most_parameters
from ffmem.analyses.verdicts import Verdict, judge_claims
from ffmem.errors import FfmemError, shorten
from ffmem.version import VERSION

if TYPE_CHECKING:
    from ffmem.analyses.inputs.study_inputs import StudyInputs
    from ffmem.analyses.study import Study
    from ffmem.store.scan_store import ScanStore

_ROWS: tuple[Analysis[Any], ...] = (
    patterns.ANALYSIS,
    removal.ANALYSIS,
    values.ANALYSIS,
    lenses.ANALYSIS,
    weights.ANALYSIS,
    composition.ANALYSIS,
    normalisation.ANALYSIS,
    suppression.ANALYSIS,
    refinement.ANALYSIS,
    last_layer.ANALYSIS,
    causal.ANALYSIS,
    attribution.ANALYSIS,
    experts.ANALYSIS,
    coefficients.ANALYSIS,
)
ANALYSES: dict[str, Analysis[Any]] = {row.name: row for row in _ROWS}
STANDARD = tuple(row.name for row in _ROWS if not row.on_request)
_BY_ANALYSIS = [claim for row in _ROWS for claim in row.claims]
PREFIX_ANALYSES = ("composition", "refinement")  # whose claims rest on prefixes and no scan
CLAIMS: tuple[AnyClaim, ...] = tuple(  # the paper begins with what its layers are
    sorted(_BY_ANALYSIS, key=lambda claim: claim is not layers_are_most_parameters)
)


def applicable(names: Iterable[str], has_experts: bool) -> tuple[str, ...]:
    """Those of the analyses that a model's scan can have: some are of experts alone."""
    return tuple(name for name in names if has_experts or not ANALYSES[name].of_experts)


def parse_names(text: str | None) -> tuple[str, ...]:
    """Read `values,composition`; nothing means every analysis but those on request."""
    names = STANDARD if text is None else tuple(part.strip() for part in text.split(","))
    unknown = [name for name in names if name not in ANALYSES]
    if unknown:
        raise FfmemError(
            f"there is no analysis {shorten(unknown[0])!r}; choose among {', '.join(ANALYSES)}"
        )
    return names


def result_key(name: str, subject: StudyInputs) -> dict[str, Any]:
    """Everything that the result of an analysis depends on; if equal, it is not computed again."""
    text = {"valid": subject.text_digest} if ANALYSES[name].reads_text else {}
    return key_of_scan(name, subject.store, subject.sizes, subject.seed, **text)


def key_of_scan(
    name: str, store: ScanStore, sizes: Sizes, seed: int, **text: str
) -> dict[str, Any]:
    """The same where the model is not at hand; `text` is the digest of a text that is read."""
    return {
        "scan": store.manifest.key.digest,
        "seed": seed,
        **{size: getattr(sizes, size) for size in ANALYSES[name].sizes},
        **text,
        "ffmem": VERSION,
    }


def results_with_judgements(study: Study) -> dict[str, Any]:
    """The results of a study by name of analysis, those that people judged with what they said."""
    folder = study.store.folder
    return {
        name: ANALYSES[name].with_judgements(study.result(name), folder) for name in study.names
    }


def claims_on(figure: str) -> tuple[str, ...]:
    """The claims that a figure shows, by name; one of blind readings shows those of its kind."""
    own = figure.removesuffix("-read-blind")
    return tuple(one.name for one in CLAIMS if one.figure and one.figure == own)


def judge(study: Study) -> list[Verdict]:
    """Every claim's verdict, from the study, its controls and what people said.

    Those that are undecided say what would decide them.
    """
    looks = read_looks(study.store.folder)
    later = {name: one.later for name, one in looks.items()}
    results, layers = results_with_judgements(study), len(study.store.memories)
    verdicts = judge_claims(CLAIMS, results, study.controls, later, layers)
    return with_needs(verdicts, measurements(study, looks))


def measurements(study: Study, looks: Mapping[str, ClaimLook]) -> dict[str, Measurement]:
    """How much each claim rests on of what could be measured, and the time that it took."""
    found = {}
    for one in CLAIMS:
        if one.analysis in study.names:
            first = measurement(study, one.analysis)
            look = looks.get(one.name)
            found[one.name] = first if look is None else _after_look(first, look)
    return found


def _after_look(first: Measurement, look: ClaimLook) -> Measurement:
    """How much a later look measured, and whether that was all that the text has."""
    later = replace(first, amount=look.amount, seconds=look.seconds)
    if look.sentences is None or look.sentences >= look.amount:
        return later
    return replace(later, most=look.sentences)


def measurement(study: Study, name: str) -> Measurement:
    """How much an analysis measured.

    What several analyses read once, the validation prefixes, took the time of them all.
    """
    grows, file = ANALYSES[name].grows, study.record(name)
    if grows is None:
        return Measurement(0, "", file.seconds)
    amount = int(file.made_from.get(grows.size, 0))
    if grows.size != "sample":
        signs, memories = study.store.cells.signs, study.store.memories
        most = len(signs) * max(memories.values())
        return Measurement(amount, grows.unit, file.seconds, most)
    seconds = sum(study.record(one).seconds for one in PREFIX_ANALYSES if one in study.names)
    there = study.result(name).sentences
    return Measurement(amount, grows.unit, seconds, there if there < amount else None, True)
