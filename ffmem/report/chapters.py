"""The chapters of a report: their words, the claims that stand in them, and their figures."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from ffmem.analyses.analysis import Figure
from ffmem.analyses.catalogue import ANALYSES, applicable, claims_on
from ffmem.analyses.study import Study
from ffmem.analyses.verdicts import Verdict

DECIDED = ("holds", "does not hold")


@dataclass(frozen=True)
class DrawnFigure:
    """A chart without its heading, which the page sets in its own type."""

    name: str
    title: str
    caption: str
    read: str
    paper: str
    claims: tuple[str, ...]  # that it shows, by name
    spec: dict[str, Any]

    @property
    def is_empty(self) -> bool:
        """Whether no point has enough cases to be drawn; the caption says so."""
        from ffmem.figures.style import draws_nothing

        return draws_nothing(self.spec)


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
class SectionText:
    """One chapter of the story; the catalogue says which analyses belong to it."""

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


def sections_of(study: Study) -> list[SectionText]:
    """The chapters that a study can have."""
    mixtures = bool(study.store.manifest.mixtures)
    return [words for words in SECTIONS if applicable(words.analyses, mixtures)]


def section(words: SectionText, study: Study, verdicts: Sequence[Verdict]) -> Section:
    """A chapter with its claims and figures; those that show what is decided are open."""
    found = tuple(verdict for verdict in verdicts if verdict.analysis in words.analyses)
    drawn = _drawn_in(words, study)
    shown = (shown_by(verdict, drawn) for verdict in found if verdict.word in DECIDED)
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


def shown_by(verdict: Verdict, figures: Iterable[DrawnFigure]) -> str | None:
    """The figure that shows what a claim is about: its own, or the first of the same analysis."""
    own = [one.name for one in figures if verdict.name in one.claims]
    same = [one.name for one in figures if one.name.startswith(verdict.analysis)]
    return next(iter(own + same), None)


def drawn_figures(study: Study) -> tuple[DrawnFigure, ...]:
    """Every figure of a study, in the order of the chapters."""
    return tuple(one for words in sections_of(study) for one in _drawn_in(words, study))


def _drawn_in(words: SectionText, study: Study) -> tuple[DrawnFigure, ...]:
    """The figures of one chapter."""
    every = (figure for name in words.analyses for figure in ANALYSES[name].figures())
    return tuple(_drawn_figure(one, study) for one in every if one.name in study.charts)


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
