"""Write the tables of docs/results.md from the numbers in docs/reference/data/results.jsonl.

    python -m tools.results_page                   # the tables again
    python -m tools.results_page demo out/demo     # after taking the verdicts of a study

A study that no column is for counts in the last one, which says whether a verdict is the same
everywhere.
"""

from __future__ import annotations

import argparse
import math
import subprocess
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from ffmem.analyses.catalogue import CLAIMS, judge
from ffmem.analyses.claim import AnyClaim, Unit, interval_text
from ffmem.analyses.statistics import Interval
from ffmem.analyses.study import open_study
from tools.stored_studies import (
    Row,
    Studies,
    Told,
    judge_again,
    read_studies,
    row_of,
    with_words_before,
    write_studies,
)

ROOT = Path(__file__).parent.parent
PAGE = ROOT / "docs" / "results.md"
COLUMNS = {"demo": "demo", "wiki": "small ReLU", "smollm2": "SmolLM2", "paper": "paper’s shape"}
PAPERS = {one.name for one in CLAIMS if one.source == "paper"}
TALLY = ("holds", "also without training", "does not hold", "undecided")
WORDS = {"also without training": "also untrained"}
FOOTNOTE = "¹"  # at what is judged by the strongest trigger alone


def tally(words: Mapping[str, str]) -> list[int]:
    """How many of the paper's claims have each outcome."""
    counts = Counter(word for claim, word in words.items() if claim in PAPERS)
    return [counts[word] for word in TALLY]


def text_of(numbers: Sequence[float | None] | None, unit: Unit) -> str:
    """An estimate as the report writes it."""
    if not numbers or numbers[0] is None:
        return "–"
    return interval_text(Interval(numbers[0], math.nan, math.nan, 0), unit, interval=False)


def table(heads: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    """A table in Markdown."""
    lines = [list(heads), *map(list, rows)]
    head, *body = ("| " + " | ".join(line) + " |" for line in lines)
    return "\n".join([head, "|" + "---|" * len(lines[0]), *body])


def short(word: str) -> str:
    """A verdict as a cell has it."""
    return WORDS.get(word, word)


def verdict_text(told: Told) -> str:
    """A verdict, and the earlier one of a study that has been judged again."""
    by_bar_alone = told.reason != ""  # of what holds
    is_partial = told.now == "holds" and not told.all_controls and not by_bar_alone
    against = " (random)" if is_partial else ""
    arrow = "" if told.all_controls or told.before == told.now else f"{short(told.before)} → "
    return f"{arrow}**{short(told.now)}{against}**{FOOTNOTE * told.strongest}"


class Results:
    """All studies with their verdicts, and the tables of the page."""

    def __init__(self, studies: Studies) -> None:
        self.studies = studies
        self.told = {name: judge_again(studies, name) for name in studies}
        measured = {claim for study in self.told.values() for claim in study}
        self.claims = [one for one in CLAIMS if one.name in measured]  # others came later
        self.columns = {name: title for name, title in COLUMNS.items() if name in studies}
        self.others = [name for name in studies if name not in COLUMNS]

    def words_elsewhere(self, claim: str) -> list[Told]:
        """The verdicts of all studies without a column."""
        return [self.told[name][claim] for name in self.others if claim in self.told[name]]

    def stable(self) -> list[str]:
        """The claims that have one verdict in all of them by the present rules."""
        return [
            one.name
            for one in self.claims
            if len({told.now for told in self.words_elsewhere(one.name)}) == 1
        ]

    def elsewhere_text(self, claim: str) -> str:
        """How often each verdict was given, then and now."""
        found = self.words_elsewhere(claim)
        if not found:
            return "–"
        before = count_text(told.before for told in found)
        now = count_text(told.now for told in found)
        arrow = "" if before == now else f"{before} → "
        return f"{arrow}**{now}**{FOOTNOTE * found[0].strongest}"

    def changes_table(self) -> str:
        """Every verdict that the present rules change, by reason."""
        reasons: dict[str, dict[str, dict[str, list[str]]]] = {}
        for name, study in self.told.items():
            for claim, told in study.items():
                if told.before != told.now:
                    reason = told.reason or "more than in the controls by a difference"
                    change = f"{short(told.before)} → {short(told.now)}"
                    claims = reasons.setdefault(reason, {}).setdefault(change, {})
                    claims.setdefault(claim, []).append(name)
        rows = (
            [reason, "; ".join(self.change_text(*change) for change in changes.items())]
            for reason, changes in sorted(reasons.items())
        )
        return table(("because", "verdict: claims (studies)"), rows)

    def change_text(self, change: str, claims: Mapping[str, Sequence[str]]) -> str:
        """The claims whose verdict changes so, by the studies in which it does."""
        groups: dict[str, list[str]] = {}
        for claim, names in claims.items():
            groups.setdefault(self.names_text(names), []).append(f"`{claim}`")
        return f"{change}: " + ", ".join(f"{', '.join(g)} ({where})" for where, g in groups.items())

    def names_text(self, names: Sequence[str]) -> str:
        """Studies by the titles of their columns, and how many there are of the others."""
        titles = [self.columns[name] for name in names if name in self.columns]
        others = sum(name not in self.columns for name in names)
        return ", ".join([*titles, *([f"{others} of {len(self.others)}"] if others else [])])

    def claims_table(self, analyses: tuple[str, ...]) -> str:
        """The claims that some analyses answer: number and verdict of every model."""
        mine = [one for one in self.claims if one.analysis in analyses]
        heads = (
            "claim",
            "the paper",
            *self.columns.values(),
            f"{len(self.others)} studies",
        )
        return table(heads, map(self.claim_line, mine))

    def claim_line(self, claim: AnyClaim) -> list[str]:
        """One of them."""
        cells = {
            name: {one["claim"]: one for one in self.studies[name]["verdicts"]}.get(claim.name)
            for name in self.columns
        }
        return [
            claim.says,
            claim.paper,
            *(self.cell_text(name, claim, one) for name, one in cells.items()),
            self.elsewhere_text(claim.name),
        ]

    def cell_text(self, name: str, claim: AnyClaim, cell: Row | None) -> str:
        """A claim's number in a study, with random weights where that is known, and the verdict."""
        if cell is None:
            return "–"
        numbers = text_of(cell.get("number"), claim.unit)
        if "control" in cell:
            numbers += f" ({text_of(cell['control'], claim.unit)})"
        return f"{numbers} {verdict_text(self.told[name][claim.name])}"

    def tallies_table(self) -> str:
        """How many of the paper's claims have each outcome, model by model, then and now."""
        rows = []
        for name, title in self.columns.items():
            then = tally({claim: told.before for claim, told in self.told[name].items()})
            now = tally({claim: told.now for claim, told in self.told[name].items()})
            counts = [
                str(one) if one == other else f"{one} → {other}"
                for one, other in zip(then, now, strict=True)
            ]
            rows.append([title, self.studies[name]["commit"], *counts])
        heads = ("model", "measured at", "hold", "also untrained", "do not hold", "undecided")
        return table(heads, rows)


def count_text(words: Iterable[str]) -> str:
    """The verdict that all give, or how often each is given."""
    counts = Counter(words).most_common()
    if len(counts) == 1:
        return short(counts[0][0])
    return ", ".join(f"{short(word)} {count}" for word, count in counts)


CHAPTERS = {  # tables of the page, and whose claims they have
    "patterns": ("patterns",),
    "removal": ("removal",),
    "values": ("values",),
    "composition": ("composition",),
    "refinement": ("refinement", "last-layer"),
    "causal": ("causal",),
}


def page(text: str, studies: Studies) -> str:
    """The page with every table written from the numbers."""
    results = Results(studies)
    tables = {name: results.claims_table(analyses) for name, analyses in CHAPTERS.items()}
    tables |= {"tallies": results.tallies_table(), "changes": results.changes_table()}
    for name, rows in tables.items():
        begin, end = f"<!-- {name} -->\n", f"<!-- end of {name} -->"
        before, found, rest = text.partition(begin)
        _, closed, after = rest.partition(end)
        if not (found and closed):
            raise SystemExit(f"the page has no place for the table {name}")
        text = f"{before}{begin}{rows}\n{end}{after}"
    return text


def present_commit() -> str:
    """The commit of this folder."""
    words = ["git", "rev-parse", "--short", "HEAD"]
    return subprocess.run(
        words, cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout.strip()


def main() -> None:
    """Take a study's verdicts if one is named, and write the page."""
    parser = argparse.ArgumentParser(prog="python -m tools.results_page", description=main.__doc__)
    parser.add_argument("name", nargs="?", help=f"of the study: {', '.join(COLUMNS)}, or another")
    parser.add_argument("study", nargs="?", type=Path, help="its folder")
    given = parser.parse_args()
    studies = read_studies()
    if given.study is not None:
        verdicts = judge(open_study(given.study))
        row = row_of(given.name, present_commit(), verdicts)
        if given.name in COLUMNS:
            row = with_words_before(row, studies.get(given.name))
        studies[given.name] = row
        write_studies(studies.values())
    PAGE.write_text(page(PAGE.read_text("utf-8"), studies), "utf-8")


if __name__ == "__main__":
    main()
