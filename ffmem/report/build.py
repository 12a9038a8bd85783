"""Everything that a report says, as one value, and the files that templates make of it.

The files: one page that opens offline, Markdown, and every number as JSON.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ffmem.analyses.last_layer import Case
from ffmem.analyses.predictive_values import ValueRow
from ffmem.figures.saving import picture, spec_of
from ffmem.figures.style import FigureText
from ffmem.report.comparison import Figure, StudySummary, source_digests
from ffmem.report.examples import (
    FIGURES,
    AnnotatedKey,
    KeyRow,
    MemoryExample,
    Sentence,
    annotated_key,
    example_memory,
    key_rows,
    sentences,
    value_rows,
)
from ffmem.report.paper_claims import judge
from ffmem.report.rendering import page_script, render, write_text
from ffmem.report.verdicts import Verdict, tally
from ffmem.store.result_files import to_plain
from ffmem.studies.registry import ANALYSES, applicable
from ffmem.studies.study import Study

CASES = 12  # of the last layer that are printed


@dataclass(frozen=True)
class Section:
    """One chapter."""

    name: str
    title: str
    short: str  # for the navigation
    intro: str
    missing: tuple[str, ...]  # analyses without a result
    verdicts: tuple[Verdict, ...]
    figures: tuple[Figure, ...]


@dataclass(frozen=True)
class AnalysisNote:
    """The sources of an analysis, for the appendix."""

    name: str
    seconds: float
    made_from: dict[str, Any]


@dataclass(frozen=True)
class Report:
    """A whole report."""

    model: str
    about: dict[str, str]
    memory: MemoryExample | None
    verdicts: tuple[Verdict, ...]
    sections: tuple[Section, ...]
    keys: tuple[KeyRow, ...]
    values: tuple[ValueRow, ...]
    annotated: AnnotatedKey | None
    cases: tuple[Case, ...]
    settings: dict[str, str]
    left_out: dict[str, int]
    analyses: tuple[AnalysisNote, ...]
    failed: tuple[str, ...]

    @property
    def headline(self) -> str:
        """How many of the paper's claims have each outcome."""
        return tally(self.verdicts).text

    @property
    def finding(self) -> tuple[Sentence, ...]:
        """The findings, one sentence per chapter of the paper."""
        return sentences(self.verdicts)

    @property
    def figures(self) -> dict[str, Figure]:
        """Every figure by name, in the order of the page."""
        return {figure.name: figure for section in self.sections for figure in section.figures}

    @property
    def first_figures(self) -> tuple[Figure, ...]:
        """The few that stand before all claims."""
        named = (figure for figure in self.figures.values() if figure.name in FIGURES)
        return tuple(figure for figure in named if not figure.is_empty)

    def evidence(self, verdict: Verdict) -> str:
        """The id of the figure, table or chapter that shows what a claim is about."""
        every = self.figures.values()
        own = [one.name for one in every if verdict.name in one.claims]
        same = [one.name for one in every if one.name.startswith(verdict.analysis)]
        if own or same:
            return f"figure-{(own or same)[0]}"
        if verdict.analysis == "last-layer" and self.cases:
            return "last-layer"
        return next(part.name for part in self.sections if verdict in part.verdicts)


def build(study: Study) -> Report:
    """Gather the report of a study; analyses that have no result are named as missing."""
    results = {name: study.result(name) for name in study.names}
    verdicts = judge(study)
    last = results.get("last-layer")
    keys = key_rows(results["patterns"], study.store) if "patterns" in results else ()
    values = value_rows(results["values"]) if "values" in results else ()
    return Report(
        model=Path(study.model_name).name,
        about=about(study),
        memory=example_memory(study, values, keys),
        verdicts=tuple(verdicts),
        sections=tuple(_section(words, study, verdicts) for words in sections_of(study)),
        keys=keys,
        values=values,
        annotated=(
            annotated_key(results["patterns"], study.store) if "patterns" in results else None
        ),
        cases=last.cases[:CASES] if last else (),
        settings=settings(study),
        left_out=exclusions(study, results),
        analyses=tuple(_note(study, name) for name in study.names),
        failed=study.failures,
    )


def numbers(report: Report, study: Study) -> dict[str, Any]:
    """Every number of the report, and every result in full, in plain values."""
    return {
        "model": report.model,
        "about": report.about,
        "settings": report.settings,
        "left_out": report.left_out,
        "claims": _plain_claims(report.verdicts),
        "table_1": to_plain(report.keys),
        "table_2": to_plain(report.values),
        "table_3": to_plain(report.annotated),
        "results": {name: study.record(name).result for name in study.names},
        "figures": to_plain(tuple(report.figures.values())),
        "made_from": source_digests(study.store.folder),
    }


def summarise(study: Study, figures: bool = True) -> StudySummary:
    """The part of a study that a comparison needs: claims, and figures if requested."""
    drawn = (
        figure_of(words, study)
        for section in (sections_of(study) if figures else ())
        for words in figure_texts(section)
        if words.figure in study.charts
    )
    name, folder = study.model_name, study.folder
    return StudySummary(name, folder, about(study), tuple(judge(study)), tuple(drawn))


def about(study: Study) -> dict[str, str]:
    """Model and corpus of the study, for display."""
    manifest = study.store.manifest
    counts, model = manifest.counts, manifest.key.model
    revision = f", revision {model['revision']}" if model["revision"] else ""
    sizes = " or ".join(f"{size:,}" for size in sorted(set(study.store.memories.values())))
    return {
        "Model": f"{model['name']}{revision} ({model['type']}, {model['dtype']})",
        "Layers": f"{len(manifest.layers)} of {sizes} memories",
        "Memories": f"{sum(study.store.memories.values()):,}"
        + (", each with two signs" if study.store.cells.signed else ""),
        "Text": f"{counts['sentences']:,} sentences, {counts['tokens']:,} tokens",
        "Triggers kept": f"{manifest.key.settings['top']} per memory",
        "Scan": f"{manifest.seconds:,.0f} s, scan {manifest.key.digest}",
        "ffmem": ", ".join(f"{name} {version}" for name, version in manifest.versions.items()),
    }


def settings(study: Study) -> dict[str, str]:
    """Every choice that decided the scan."""
    key = to_plain(study.store.manifest.key)
    return {
        f"{part}.{name}": str(value)
        for part in ("model", "corpus", "settings")
        for name, value in key[part].items()
    }


def exclusions(study: Study, results: dict[str, Any]) -> dict[str, int]:
    """Counts of dead, empty or skipped items, under readable names."""
    counts = study.store.manifest.counts
    found = {
        "memories that nothing in the text fires": counts["dead"],
        "memories with fewer triggers than asked for": counts["unfilled"],
        "sentences that were cut to the longest length": counts["sentences_cut"],
    }
    if "removal" in results:
        layers = results["removal"].layers
        found["triggers of one token (figure 3)"] = sum(layer.short for layer in layers)
        found["dead keys drawn (figure 3)"] = sum(layer.dead for layer in layers)
    if "patterns" in results:
        found["dead keys drawn (figure 2)"] = results["patterns"].dead
    if "values" in results:
        found |= {f"values: {name}": count for name, count in results["values"].counts.items()}
    return found


def sections_of(study: Study) -> list[SectionText]:
    """The chapters that a study can have."""
    mixtures = bool(study.store.manifest.mixtures)
    return [words for words in SECTIONS if applicable(words.analyses, mixtures)]


def _section(words: SectionText, study: Study, verdicts: list[Verdict]) -> Section:
    return Section(
        words.name,
        words.title,
        words.short,
        words.intro,
        tuple(name for name in words.analyses if name not in study.names),
        tuple(verdict for verdict in verdicts if verdict.analysis in words.analyses),
        tuple(figure_of(one, study) for one in figure_texts(words) if one.figure in study.charts),
    )


def figure_texts(section: SectionText) -> list[FigureText]:
    """The texts of a chapter's figures, in order."""
    drawn = [figures() for name in section.analyses if (figures := ANALYSES[name].figures)]
    return [text for figures in drawn for text in figures.texts]


def _plain_claims(verdicts: Sequence[Verdict]) -> dict[str, Any]:
    """The claims for the file of numbers, by name."""
    return {one.name: {**_plain_verdict(one), "verdict": one.word} for one in verdicts}


def _plain_verdict(verdict: Verdict) -> dict[str, Any]:
    """A verdict for the file of numbers, where the analysis is called the stage."""
    found = to_plain(verdict)
    return {"stage" if name == "analysis" else name: value for name, value in found.items()}


def figure_of(words: FigureText, study: Study) -> Figure:
    """One figure with its words; the heading leaves the chart for the page."""
    spec = spec_of(study.chart(words.figure))
    heading = spec.pop("title")
    return Figure(
        words.figure,
        heading["text"],
        " ".join(heading["subtitle"]),
        words.read,
        words.paper,
        words.claims,
        spec,
    )


def _note(study: Study, name: str) -> AnalysisNote:
    record = study.record(name)
    made_from = {name: short_digest(value) for name, value in record.made_from.items()}
    return AnalysisNote(name, record.seconds, made_from)


def short_digest(value: Any) -> Any:
    """A digest by its first twelve digits, as of a scan; anything else as it is."""
    is_digest = isinstance(value, str) and re.fullmatch("[0-9a-f]{64}", value)
    return value[:12] if is_digest else value


@dataclass(frozen=True)
class SectionText:
    """One chapter of the story; the registry says which analyses belong to it."""

    name: str
    title: str
    short: str
    intro: str

    @property
    def analyses(self) -> tuple[str, ...]:
        """The analyses that it rests on."""
        return tuple(name for name, row in ANALYSES.items() if row.section == self.name)


SECTIONS = (
    SectionText(
        "keys",
        "Keys detect patterns",
        "Keys",
        "A key fires on prefixes. Its strongest triggers show what it looks for: the same last "
        "word (shallow), the same subject (semantic), or both.",
    ),
    SectionText(
        "values",
        "Values promote tokens",
        "Values",
        "A value, multiplied with the output embedding, is a ranking of the vocabulary. If "
        "memories predict, the token on top should be the one that follows the key's triggers.",
    ),
    SectionText(
        "weights",
        "What the weights alone say",
        "Weights",
        "Keys, gates and values are directions of one space, so they can be compared before any "
        "text is read: does a memory strengthen what it detects or erase it, does its value speak "
        "of few tokens or of none?",
    ),
    SectionText(
        "composition",
        "Memories compose",
        "Composition",
        "A layer's output is a sum over its memories. Either one memory decides, or many together "
        "say what none of them says alone.",
    ),
    SectionText(
        "refinement",
        "Layers refine the prediction",
        "Refinement",
        "The residual carries a prediction from layer to layer. Each layer may leave it, replace "
        "it by its own, or turn it into a third.",
    ),
    SectionText(
        "causal",
        "Are memories causes?",
        "Causes",
        "Correlation with triggers is not yet cause. Here random memories are silenced on their "
        "own triggers, and forced on elsewhere.",
    ),
    SectionText(
        "experts",
        "Experts divide the work",
        "Experts",
        "In a mixture of experts a router chooses a few experts per place. How evenly are they "
        "used, are they for parts of the text, and what do routed and shared ones add?",
    ),
)


def write_report(study: Study) -> Path:
    """Write page, Markdown and numbers into the study's folder; the page's path."""
    report, folder = build(study), study.store.folder
    write_text(folder.report_page, html(report))
    write_text(folder.report_text, render("report.md.j2", report=report))
    text = json.dumps(numbers(report, study), indent=1, ensure_ascii=False) + "\n"
    write_text(folder.report_numbers, text)
    if study.twin is not None:
        write_claims(study.twin)
    return folder.report_page


def write_claims(study: Study) -> None:
    """Leave the claims of an untrained twin, which has no report, to be compared at once."""
    found, folder = summarise(study, figures=False), study.store.folder
    data = {
        "model": found.model_name,
        "about": found.about,
        "claims": _plain_claims(found.verdicts),
        "made_from": source_digests(folder),
    }
    write_text(folder.report_numbers, json.dumps(data, indent=1, ensure_ascii=False) + "\n")


def html(report: Report) -> str:
    """The page, with its charts as pictures that its own script makes interactive."""
    pictures = {
        name: picture(figure.spec) for name, figure in report.figures.items() if not figure.is_empty
    }
    return render("report.html.j2", report=report, pictures=pictures, script=page_script())
