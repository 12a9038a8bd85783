"""Everything that a report says, as one value, and the files that templates make of it.

The files: two printed pages and a page for each chapter, which open offline; Markdown; and every
number as JSON.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ffmem.analyses.last_layer.record import BlindCases, Case
from ffmem.analyses.open_claims.need import ways_to_decide
from ffmem.analyses.study import Study
from ffmem.analyses.values.record import ValueRow
from ffmem.analyses.verdicts import Verdict, tally
from ffmem.files.whole_files import write_text
from ffmem.records import json_text, to_plain
from ffmem.report.about import (
    about,
    left_out,
    read_by_models,
    references,
    settings,
    what_was_read,
)
from ffmem.report.chapters import DrawnFigure, Section, section, sections_of, shown_by
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
    read_by_models: str  # what language models read, as a sentence; empty where none did
    keys_reader: str  # the language model that read keys blind; nothing where none did
    blind_cases: BlindCases | None  # what it said of cases of the last layer
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
        if shown := shown_by(verdict, self.figures.values()):
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
        read=what_was_read(study),
        rows=rows_of(study, verdicts),
        memory=example_memory(study, values, keys),
        verdicts=verdicts,
        sections=tuple(section(words, study, verdicts) for words in sections_of(study)),
        keys=keys,
        values=values,
        annotated=annotated_key(patterns, study.store) if patterns else None,
        cases=last.cases[:CASES] if last else (),
        read_by_models=read_by_models(study),
        keys_reader=patterns.readings.summary.annotator if patterns and patterns.readings else "",
        blind_cases=last.readings if last else None,
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


def _plain_row(row: Row) -> dict[str, Any]:
    """A question for the file of numbers, where the claim is named."""
    return {**to_plain(row), "verdict": row.verdict.name}


def _note(study: Study, name: str) -> AnalysisNote:
    record = study.record(name)
    made_from = {name: _short_digest(value) for name, value in record.made_from.items()}
    return AnalysisNote(name, record.seconds, made_from)


def _short_digest(value: Any) -> Any:
    """A digest by its first twelve digits, as of a scan; anything else as it is."""
    is_digest = isinstance(value, str) and re.fullmatch("[0-9a-f]{64}", value)
    return value[:12] if is_digest else value


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
