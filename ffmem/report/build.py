"""Everything that a report says, as one value, and the files that templates make of it.

The files: two printed pages and a page for each chapter, which open offline; Markdown; and every
number as JSON.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any

from ffmem.analyses.analysis import Figure
from ffmem.analyses.catalogue import ANALYSES, applicable, claims_on
from ffmem.analyses.last_layer.record import Case
from ffmem.analyses.study import Study
from ffmem.analyses.values.record import ValueRow
from ffmem.analyses.verdicts import Verdict, tally, ways_to_decide
from ffmem.files.whole_files import write_text
from ffmem.records import json_text, to_plain
from ffmem.report.comparison import DrawnFigure, StudySummary
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
from ffmem.report.rendering import page_script, render
from ffmem.report.summary import Row, rows_of, undecided_claims

CASES = 12  # of the last layer that are printed
DETAILS = "details"  # the page of what was studied
DECIDED = ("holds", "does not hold")
PAPER = "geva2021"
BIBTEX = re.compile(r"^@\w+\{(\w+),\n.*?^\}$", re.MULTILINE | re.DOTALL)
STATISTICS = ("wilson1927", "efron1979", "holm1979")  # of every study's intervals and verdicts


@dataclass(frozen=True)
class Section:
    """One chapter."""

    name: str
    title: str
    short: str  # for the navigation
    intro: str
    missing: tuple[str, ...]  # analyses without a result
    verdicts: tuple[Verdict, ...]
    figures: tuple[DrawnFigure, ...]
    open_figures: tuple[str, ...]  # by name; the others are folded

    @property
    def open_claims(self) -> list[Verdict]:
        """The claims that hold and those that do not."""
        return [verdict for verdict in self.verdicts if verdict.word in DECIDED]

    @property
    def folded_claims(self) -> list[Verdict]:
        """The claims that stay undecided, or that say nothing of training."""
        return [verdict for verdict in self.verdicts if verdict.word not in DECIDED]


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
    read: dict[str, str]  # what was read, in short
    rows: tuple[Row, ...]
    memory: MemoryExample | None
    verdicts: tuple[Verdict, ...]
    sections: tuple[Section, ...]
    keys: tuple[KeyRow, ...]
    values: tuple[ValueRow, ...]
    annotated: AnnotatedKey | None
    cases: tuple[Case, ...]
    keys_reader: str  # the language model that read keys blind; nothing where none did
    cases_reader: str  # the same of cases of the last layer
    judged: tuple[str | None, ...]  # its answer to each case
    settings: dict[str, str]
    left_out: dict[str, int]
    analyses: tuple[AnalysisNote, ...]
    failed: tuple[str, ...]
    references: tuple[str, ...]  # BibTeX, the paper first

    @property
    def headline(self) -> str:
        """How many of the paper's claims have each outcome."""
        return tally(self.verdicts).text

    @property
    def what_was_read_blind(self) -> str:
        """What a language model read in the place of people."""
        read = {"the keys": self.keys_reader, "the last layer’s cases": self.cases_reader}
        return " and ".join(what for what, reader in read.items() if reader)

    @property
    def finding(self) -> tuple[Sentence, ...]:
        """The findings, one sentence per chapter of the paper."""
        return sentences(self.verdicts)

    @property
    def figures(self) -> dict[str, DrawnFigure]:
        """Every figure by name, in the order of the page."""
        return {figure.name: figure for section in self.sections for figure in section.figures}

    @property
    def first_figure(self) -> DrawnFigure | None:
        """The one on the first two pages: of one panel, which a small place has room for."""
        named = [self.figures[name] for name in FIGURES if name in self.figures]
        single = (one for one in named if "facet" not in one.spec and not one.is_empty)
        return next(single, None)

    @property
    def open(self) -> Mapping[str, list[Verdict]]:
        """What is undecided, by what would decide it."""
        return undecided_claims(self.verdicts)

    @property
    def ways(self) -> list[str]:
        """How what is undecided gets what it needs, by kind."""
        return ways_to_decide(self.verdicts)

    def chapter_of(self, verdict: Verdict) -> str:
        """The chapter that a claim stands in, by name."""
        return next(part.name for part in self.sections if verdict in part.verdicts)

    def evidence(self, verdict: Verdict) -> str:
        """The id of the figure, table or chapter that shows what a claim is about."""
        if shown := _shown_by(verdict, self.figures.values()):
            return f"figure-{shown}"
        if verdict.analysis == "last-layer" and self.cases:
            return "last-layer"
        return self.chapter_of(verdict)


def build(study: Study) -> Report:
    """Gather the report of a study; analyses that have no result are named as missing."""
    results = {name: study.result(name) for name in study.names}
    verdicts = study.verdicts
    patterns, last = results.get("patterns"), results.get("last-layer")
    keys = key_rows(patterns, study.store) if patterns else ()
    values = value_rows(results["values"]) if "values" in results else ()
    return Report(
        model=Path(study.model_name).name,
        about=about(study),
        read=_what_was_read(study),
        rows=rows_of(study, verdicts),
        memory=example_memory(study, values, keys),
        verdicts=verdicts,
        sections=tuple(_section(words, study, verdicts) for words in _sections_of(study)),
        keys=keys,
        values=values,
        annotated=annotated_key(patterns, study.store) if patterns else None,
        cases=last.cases[:CASES] if last else (),
        keys_reader=patterns.readings.summary.annotator if patterns and patterns.readings else "",
        cases_reader=last.readings.annotator if last and last.readings else "",
        judged=last.readings.judged[:CASES] if last and last.readings else (),
        settings=settings(study),
        left_out=left_out(study, results),
        analyses=tuple(_note(study, name) for name in study.names),
        failed=study.failures,
        references=references(study.names),
    )


def numbers(report: Report, study: Study) -> dict[str, Any]:
    """Every number of the report, and every result in full."""
    return {
        "model": report.model,
        "about": report.about,
        "settings": report.settings,
        "left_out": report.left_out,
        "claims": {verdict.name: verdict for verdict in report.verdicts},
        "questions": [_plain_row(row) for row in report.rows],
        "table_1": report.keys,
        "table_2": report.values,
        "table_3": report.annotated,
        "results": {name: study.record(name).result for name in study.names},
    }


def summarise(study: Study, figures: bool = True) -> StudySummary:
    """The part of a study that a comparison needs: claims, and figures if requested."""
    drawn = (
        _drawn_figure(figure, study)
        for section in (_sections_of(study) if figures else ())
        for figure in _figures_of(section)
        if figure.name in study.charts
    )
    name, folder = study.model_name, study.folder
    return StudySummary(name, folder, about(study), study.verdicts, tuple(drawn))


def _what_was_read(study: Study) -> dict[str, str]:
    """Model, text, memories, version and digest: the head of a report."""
    manifest, every = study.store.manifest, about(study)
    text = Path(str(manifest.key.corpus["path"])).name
    return {
        "Model": every["Model"],
        "Text": f"{text}: {every['Text']}",
        "Memories": f"{every['Memories']}, in {len(manifest.layers)} layers",
        "Made by": f"ffmem {manifest.versions['ffmem']}, scan {manifest.key.digest[:12]}",
    }


def references(names: Sequence[str]) -> tuple[str, ...]:
    """BibTeX of the paper and of the methods that some analyses used."""
    text = resources.files(__package__).joinpath("templates", "references.bib").read_text("utf-8")
    entries = {found[1]: found[0].strip() for found in re.finditer(BIBTEX, text)}
    used = [key for name in names for key in ANALYSES[name].cites]
    return tuple(entries[key] for key in dict.fromkeys((PAPER, *STATISTICS, *used)))


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


def left_out(study: Study, results: dict[str, Any]) -> dict[str, int]:
    """Counts of dead, empty or skipped items, under readable names."""
    counts = study.store.manifest.counts
    found = {
        "memories that nothing in the text fires": counts["dead"],
        "memories with fewer triggers than asked for": counts["unfilled"],
        "sentences that were cut to the longest length": counts["sentences_cut"],
    }
    for name, result in results.items():
        found |= ANALYSES[name].left_out(result)
    return found


def _sections_of(study: Study) -> list[SectionText]:
    """The chapters that a study can have."""
    mixtures = bool(study.store.manifest.mixtures)
    return [words for words in SECTIONS if applicable(words.analyses, mixtures)]


def _section(words: SectionText, study: Study, verdicts: Sequence[Verdict]) -> Section:
    found = tuple(verdict for verdict in verdicts if verdict.analysis in words.analyses)
    drawn = tuple(
        _drawn_figure(one, study) for one in _figures_of(words) if one.name in study.charts
    )
    shown = (_shown_by(verdict, drawn) for verdict in found if verdict.word in DECIDED)
    return Section(
        words.name,
        words.title,
        words.short,
        words.intro,
        tuple(name for name in words.analyses if name not in study.names),
        found,
        drawn,
        tuple(filter(None, shown)) or tuple(figure.name for figure in drawn[:1]),
    )


def _shown_by(verdict: Verdict, figures: Iterable[DrawnFigure]) -> str | None:
    """The figure that shows what a claim is about: its own, or the first of the same analysis."""
    own = [one.name for one in figures if verdict.name in one.claims]
    same = [one.name for one in figures if one.name.startswith(verdict.analysis)]
    return next(iter(own + same), None)


def _figures_of(section: SectionText) -> list[Figure[Any]]:
    """A chapter's figures, in order."""
    return [figure for name in section.analyses for figure in ANALYSES[name].figures()]


def _plain_row(row: Row) -> dict[str, Any]:
    """A question for the file of numbers, where the claim is named."""
    return {**to_plain(row), "verdict": row.verdict.name}


def _drawn_figure(figure: Figure[Any], study: Study) -> DrawnFigure:
    """One figure with its words; the heading leaves the chart for the page."""
    from ffmem.figures.saving import spec_of  # here: Altair is slow to import

    spec = spec_of(study.chart(figure.name))
    heading = spec.pop("title")
    return DrawnFigure(
        figure.name,
        heading["text"],
        " ".join(heading["subtitle"]),
        figure.read,
        figure.paper,
        claims_on(figure.name),
        spec,
    )


def _note(study: Study, name: str) -> AnalysisNote:
    record = study.record(name)
    made_from = {name: _short_digest(value) for name, value in record.made_from.items()}
    return AnalysisNote(name, record.seconds, made_from)


def _short_digest(value: Any) -> Any:
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
        return tuple(name for name, row in ANALYSES.items() if row.chapter == self.name)


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
    """Write Markdown and numbers into the study's folder, then the pages; the first page's path."""
    report, folder = build(study), study.store.folder
    write_text(folder.report_text, render("report.md.j2", report=report))
    write_text(folder.report_numbers, json_text(numbers(report, study)))
    for name, page in chapters(report).items():
        write_text(folder.report_chapter(name), page)
    write_text(folder.report_page, html(report))
    return folder.report_page


def html(report: Report) -> str:
    """The first two pages."""
    first = report.first_figure
    return _page("report.html.j2", report, "report", () if first is None else (first,))


def chapters(report: Report) -> dict[str, str]:
    """The pages behind the first two, by name."""
    pages = {
        part.name: _page("chapter.html.j2", report, part.name, part.figures, section=part)
        for part in report.sections
    }
    return pages | {DETAILS: _page("details.html.j2", report, DETAILS)}


def _page(
    template: str, report: Report, here: str, figures: Sequence[DrawnFigure] = (), **values: Any
) -> str:
    """A page, with its charts as pictures that its own script makes interactive."""
    from ffmem.figures.saving import picture  # here: Altair is slow to import

    return render(
        template,
        report=report,
        here=here,
        root="" if here == "report" else "../",
        pictures={one.name: picture(one.spec) for one in figures if not one.is_empty},
        script=page_script(),
        **values,
    )
