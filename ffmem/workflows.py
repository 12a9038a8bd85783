"""The tool on one page: scan a model, answer every question of the paper, draw and report.

`run_scan` and `run_study` are the calls for users; `run_study_plan` takes every setting.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from ffmem.address_space import FIGURES, check_address_space
from ffmem.analyses.analysis import PAPER_SIZES, SIZES, Sizes, sizes_of
from ffmem.analyses.catalogue import CLAIMS, PREFIX_ANALYSES, STANDARD, parse_names
from ffmem.analyses.inputs.study_inputs import (
    StudyInputs,
    prefix_control_inputs,
    scanned_control_inputs,
)
from ffmem.analyses.runner import (
    AnalysisEvent,
    AnalysisState,
    AnalysisWatch,
    is_current,
    refuse_to_replace,
    run_analyses,
)
from ffmem.analyses.study import Study, open_study
from ffmem.corpus.conversations import MESSAGES
from ffmem.corpus.sentences import SentenceSettings
from ffmem.corpus.sources import Source, TextsInMemory, is_stream, refuse_missing, source_of
from ffmem.corpus.splitters import DEFAULT, PARAGRAPH
from ffmem.errors import FfmemError, ScanError, shorten, whole_number
from ffmem.execution import run
from ffmem.execution.executor import Cluster
from ffmem.execution.plan import ScanPlan
from ffmem.execution.single_process import ScanWatch
from ffmem.files.disk_cache import address_of
from ffmem.locations import location
from ffmem.models.language_model import LanguageModel, check_model
from ffmem.models.loading import load
from ffmem.scan.settings import ScanSettings
from ffmem.store.folder import PREFIX_CONTROLS, SCANNED_CONTROLS, StudyFolder, writing

REPORT, CONTROLS, FIGURES_DRAWN = "report", "controls", "figures"
JUDGED = {name for claim in CLAIMS for name in claim.analyses}
STUDY = "a study (`ffmem scan` and `ffmem analyse --no-figures` need less)"
CorpusTexts = str | Path | Iterable[Any] | Source  # a str is a path, never the text itself


def run_scan(  # noqa: PLR0913 - a keyword for each setting
    model: str | Path | LanguageModel,
    texts: CorpusTexts,
    out: str | Path,
    *,
    top: int = 50,
    sample: int = 32,
    max_sentences: int | None = None,
    splitter: str = DEFAULT,
    layers: int | Sequence[int] | None = None,
    experts: int | Sequence[int] | None = None,
    column: str = "text",
    chat: bool = False,
    seed: int = 0,
    device: str = "auto",
    values: bool = True,
) -> Study:
    """Find the prefixes that activate every memory most (max-activating examples); write `out`.

    `model` is a name, as for `load`, or a LanguageModel. `texts` is a file, folder, glob, URL or
    dataset id; a list of strings, each a document; or a `datasets.Dataset`, of which `column` is
    read. `top` triggers are kept per memory, and a random `sample` of all that fire it. `splitter`
    is rule, line, none, or paragraph for text with hard line breaks. With `chat` a document is a
    conversation, a list of messages such as {"role": "user", "content": "..."}. `layers` count from
    1 and the `experts` of every mixture layer from 0; None means all, and shared experts are always
    among them.
    `device` is for a model given by its name. When the text is read the scan is whole; after that
    the tokens that every value promotes are ranked, unless `values` is false. The same call opens a
    finished scan and resumes one that was stopped. A list of strings is not stored, so analyses of
    such a scan need a validation text of their own.
    """
    subject = _model(model, device)
    plan = ScanPlan(
        source=_source(texts, column, splitter, chat),
        settings=ScanSettings(top=top, sample=sample, signed=subject.gated, seed=seed),
        sentences=SentenceSettings(splitter),
        layers=_numbers(layers, "layers"),
        experts=_numbers(experts, "experts"),
        max_sentences=_most(max_sentences),
        values=values,
    )
    return Study(run.run_scan(subject, plan, location(out)))


def _model(model: str | Path | LanguageModel, device: str) -> LanguageModel:
    if isinstance(model, str | Path):
        return load(model, device=device)
    check_model(model)
    return model


def _numbers(given: int | Sequence[int] | None, what: str) -> list[int] | None:
    if given is None:
        return None
    several = list(given) if isinstance(given, Iterable) else [given]
    if not several:
        raise ScanError(f"{what} is empty; name at least one, or leave it out for all")
    return [whole_number(number, f"one of {what}", ScanError) for number in several]


def _most(sentences: int | None) -> int | None:
    if sentences is None:
        return None
    if (most := whole_number(sentences, "max_sentences", ScanError)) < 1:
        raise ScanError(f"max_sentences is {most}; give a whole number from 1")
    return most


def _analyses(only: str | Sequence[str] | None) -> tuple[str, ...]:
    if only is None or isinstance(only, str):
        return parse_names(only)
    if not isinstance(only, Iterable) or not all(isinstance(one, str) for one in only):
        raise FfmemError(f"{shorten(repr(only))} names no analyses; give a list of their names")
    return parse_names(",".join(only))


def _source(
    texts: CorpusTexts, column: str = "text", splitter: str = DEFAULT, chat: bool = False
) -> Source:
    source = source_of(texts, MESSAGES if chat and column == "text" else column)
    paragraphs = source.paragraphs or splitter == PARAGRAPH
    return replace(source, paragraphs=paragraphs, chat=source.chat or chat)


def run_study(  # noqa: PLR0913 - a keyword for each setting
    model: str | Path | LanguageModel,
    texts: CorpusTexts,
    out: str | Path,
    *,
    size: Literal["small", "paper"] = "small",
    valid: CorpusTexts | None = None,
    only: str | Sequence[str] | None = None,
    controls: bool = True,
    **settings: Any,
) -> Study:
    """Scan, then run every analysis of the paper, draw the figures and write a report into `out`.

    `size` says how much is measured: as in the paper, or what two CPU cores can do in minutes.
    `valid` is validation text, given like `texts`; the default is the scanned text (for the
    embedded model, its own validation text). `only` is a list of analyses, as in `only=["values",
    "refinement"]`; all other settings are those of `run_scan`. Results that exist for the same
    settings are reused. An analysis that fails does not stop the others: a warning names it.
    `controls` also studies the model with permuted and with random weights, without which few
    claims can hold; it about doubles the time.
    """
    if not isinstance(size, str) or size not in SIZES:
        raise FfmemError(f"there is no size {shorten(repr(size))}; choose among {', '.join(SIZES)}")
    check_address_space(FIGURES, STUDY)
    names = _analyses(only)
    how = {name: settings[name] for name in ("column", "splitter", "chat") if name in settings}
    source = _source(texts, **how)
    text = None if valid is None else refuse_missing(_source(valid, chat=source.chat))
    if isinstance(source, TextsInMemory):
        text = text or source  # it cannot be read from the store
    device = settings.pop("device", "auto")
    subject = _model(model, device)
    again = source if controls and not is_stream(source) else None
    with writing(StudyFolder(location(out))):
        store = run_scan(subject, source, out, **settings).store
        inputs = StudyInputs(
            subject, store, sizes_of(size, len(store.memories)), text, settings.get("seed", 0)
        )
        study, _ = _analyse_and_report(inputs, names, location(out), controls=again)
    if study.failures:
        warnings.warn(f"these analyses failed: {', '.join(study.failures)}", stacklevel=2)
    return study


@dataclass(frozen=True)
class StudyPlan:
    """The plan of a study: the scan, sizes of analyses, and the validation text."""

    scan: ScanPlan
    sizes: Sizes = PAPER_SIZES
    valid: Source | None = None  # None: the demo's own, or the scanned text
    only: tuple[str, ...] = STANDARD
    seed: int = 0
    cluster: Cluster | None = None  # where the scan runs; None: in this process
    controls: bool = True  # study the model with permuted and with random weights too


@dataclass(frozen=True)
class Watches:
    """Functions that are called with every batch of the scan, and with every analysis."""

    scan: ScanWatch = lambda _progress, _share: None
    analyses: AnalysisWatch = lambda _event: None


def run_study_plan(
    model: LanguageModel,
    plan: StudyPlan,
    out: Path,
    again: Collection[str] = (),
    watches: Watches = Watches(),  # noqa: B008 - frozen
) -> tuple[Study, list[AnalysisEvent]]:
    """Scan, analyse, draw and report into the folder `out`; what is there already is kept.

    A result of other settings is refused, unless `again` names it: then it is replaced.
    Returns the study and how each analysis ended: an analysis that failed leaves the others.
    """
    check_address_space(FIGURES, STUDY)
    text = plan.scan.source
    controls = text if plan.controls and not is_stream(text) else None
    with writing(StudyFolder(out), address_of(model.name, plan, again)):
        store = run.run_scan(model, plan.scan, out, watches.scan, plan.cluster)
        inputs = StudyInputs(model, store, plan.sizes, plan.valid, plan.seed)
        return _analyse_and_report(inputs, plan.only, out, again, watches.analyses, controls)


def _analyse_and_report(
    inputs: StudyInputs,
    names: Sequence[str],
    out: Path,
    again: Collection[str] = (),
    watch: AnalysisWatch = lambda _event: None,
    controls: Source | None = None,
) -> tuple[Study, list[AnalysisEvent]]:
    """Everything after the scan; `controls` is the text that a control is to scan.

    A first report is written when all claims are decided. What no claim rests on is made after
    that, then the figures, and the report with all chapters.
    """
    once_more = [name for name in again if name != REPORT]
    able = refuse_to_replace(inputs, names, out, once_more)
    names = [name for name in names if name in able]  # a dense model has no experts to wait for
    (first, first_more), (later, later_more) = (
        [[name for name in some if (name in JUDGED) == judged] for some in (names, once_more)]
        for judged in (True, False)
    )
    events = run_analyses(inputs, first, out, first_more, watch)
    if controls is not None:
        events += _run_controls(inputs, names, StudyFolder(out), again, watch, controls)
    is_first = bool(later_more) or not all(is_current(out, name, inputs) for name in later)
    if is_first:
        events.append(_report(out, REPORT, watch, figures=False))
    events += run_analyses(inputs, later, out, later_more, watch)
    if REPORT not in again and all(one.state == "kept" for one in events) and _is_reported(out):
        events.append(AnalysisEvent(REPORT, "kept"))
        watch(events[-1])
    else:
        events.append(_report(out, FIGURES_DRAWN if is_first else REPORT, watch))
    return open_study(out), events


def _report(out: Path, name: str, watch: AnalysisWatch, figures: bool = True) -> AnalysisEvent:
    """Write the report, after the files of all figures if these are wanted."""
    from ffmem.report.build import write_report  # Altair is slow, and a scan needs none

    began, study = time.monotonic(), open_study(out)
    watch(AnalysisEvent(name, "begun"))
    if figures:
        study.draw()
    page = write_report(study)
    event = AnalysisEvent(name, "made", time.monotonic() - began, str(page))
    watch(event)
    return event


def _is_reported(out: Path) -> bool:
    """Whether the report was written after all results; its page is what is written last."""
    folder = StudyFolder(out)
    page, every = folder.report_page, (folder, *folder.controls.values())
    results = [path for one in every for path in one.matching(one.result("*"))]
    return page.exists() and all(
        path.stat().st_mtime_ns <= page.stat().st_mtime_ns for path in results
    )


def control_analyses(names: Collection[str]) -> tuple[str, ...]:
    """Those of the analyses that controls go through: all that a claim compares with them."""
    return tuple(name for name in names if name in JUDGED and name != "last-layer")


def _run_controls(  # noqa: PLR0913 - what a study takes, and its text
    inputs: StudyInputs,
    names: Sequence[str],
    folder: StudyFolder,
    again: Collection[str],
    watch: AnalysisWatch,
    text: Source,
) -> list[AnalysisEvent]:
    """Analyse the controls, as far as verdicts need them; one event, and failures.

    One is scanned, for claims about keys and values; the others read prefixes alone.
    """
    began = time.monotonic()
    watch(AnalysisEvent(CONTROLS, "begun"))
    ended: list[AnalysisEvent] = []
    events: list[AnalysisEvent] = []
    wanted, once_more = control_analyses(names), control_analyses(again)
    of_prefixes = tuple(name for name in wanted if name in PREFIX_ANALYSES)
    every = {SCANNED_CONTROLS[0]: wanted} if wanted else {}
    every |= dict.fromkeys(PREFIX_CONTROLS, of_prefixes) if of_prefixes else {}
    for place, (name, mine) in enumerate(every.items()):
        root = folder.control(name).root
        watch(AnalysisEvent(CONTROLS, "running", reason=name, share=place / len(every)))
        try:
            if name in PREFIX_CONTROLS:
                few = [one for one in once_more if one in mine]
                subject = prefix_control_inputs(inputs, name)
                found = run_analyses(subject, mine, root, few)
            else:
                subject = scanned_control_inputs(inputs, name, root, text)
                found = run_analyses(subject, mine, root, once_more)
        except FfmemError as error:
            reason = f"{error} (delete {root} if it holds an earlier control)"
            found = [AnalysisEvent(name, "failed", reason=reason)]
        ended += found
        events += [
            replace(one, analysis=f"{name}: {one.analysis}" if one.analysis != name else name)
            for one in found
            if one.state == "failed"
        ]
    state: AnalysisState = "made"
    if events:
        state = "failed"
    elif all(one.state == "kept" for one in ended):
        state = "kept"
    reason = f"of {len(ended)} results {len(events)}" if events else ""
    events.append(AnalysisEvent(CONTROLS, state, time.monotonic() - began, reason))
    for event in events:
        watch(event)
    return events
