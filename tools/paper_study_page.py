"""Write the tables and pictures of the studies in docs/reference from their numbers, without a GPU.

    python -m tools.paper_study_page

The numbers of `paper-study.md`, `wiki-study.md` and `smollm2-study.md` are those that
`tools.study_numbers` takes from a study and its untrained twin, without the texts; the first has
the curve of its training too. The words of a page are written by hand; each table stands between a
pair of comments that name it.
"""

from __future__ import annotations

import json
import lzma
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ffmem.report.paper_claims import CLAIMS
from ffmem.report.verdicts import Unit, Verdict, interval_text, judge_claims, tally
from ffmem.store.result_files import restore
from ffmem.studies.registry import ANALYSES

DOCS = Path(__file__).parent.parent / "docs"
REFERENCE = DOCS / "reference"
Numbers = dict[str, Any]
Tables = Mapping[str, Callable[[Numbers], str]]


def read_numbers(name: str) -> Numbers:
    """All that was measured for a page, by its name."""
    data = (REFERENCE / "data" / f"{name}.json.xz").read_bytes()
    found: Numbers = json.loads(lzma.decompress(data))
    return found


def table(heads: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    """A table in Markdown."""
    lines = [list(heads), *map(list, rows)]
    lines.insert(1, ["---"] * len(lines[0]))
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def restore_results(part: Numbers) -> dict[str, Any]:
    """Results by name of analysis, as they were made."""
    return {name: restore(ANALYSES[name].result, found) for name, found in part.items()}


def judge(numbers: Numbers) -> list[Verdict]:
    """The verdict on every claim, from a study's numbers and those of its twin."""
    parts = (restore_results(numbers[part]) for part in ("results", "untrained twin"))
    return judge_claims(CLAIMS, *parts)


def claims(numbers: Numbers) -> str:
    """Every claim with the paper's number, ours, that of the untrained twin, and the verdict.

    The twin's number is of the same effect as the one in the column before it.
    """
    verdicts = judge(numbers)

    def row(one: Verdict) -> list[str]:
        if one.finding is None:
            return [one.says, one.paper, "–", "–", "–", one.word]
        first = one.finding.effects[0]
        unit: Unit = "number" if one.unit == "rank" else one.unit
        return [
            one.says,
            one.paper,
            interval_text(one.finding.number, one.unit),
            f"{first.name}: {interval_text(first.found, unit, False)}",
            interval_text(one.twin, unit, False),
            f"**{one.word}**" + (f" ({one.reason})" if one.reason else ""),
        ]

    heads = ("claim", "the paper", "here", "judged by", "untrained", "verdict")
    return f"**{tally(verdicts).text}.**\n\n{table(heads, map(row, verdicts))}"


def percent(one: Numbers | float, places: int = 1) -> str:
    """A share without its interval."""
    value = one["estimate"] if isinstance(one, dict) else one
    return f"{100 * value:.{places}f}"


def both_signs(rows: list[Numbers]) -> list[Numbers]:
    """One row per layer: of all its cells."""
    return [row for row in rows if row["cells"] in ("", "both")]


def layers(numbers: Numbers) -> str:
    """Figures 3 to 5, 7 and 8 by layer, with those of the untrained twin."""
    mine, twin = numbers["results"], numbers["untrained twin"]
    agree, other_agree = (both_signs(part["values"]["agreement"]) for part in (mine, twin))
    ranks = both_signs(mine["values"]["ranks"])

    def row(at: int) -> list[str]:
        removed = mine["removal"]["layers"][at]
        agreement, other = agree[at], other_agree[at]
        activity, still = (part["composition"]["activity"][at] for part in (mine, twin))
        zero, less = (part["composition"]["zero_agreement"][at] for part in (mine, twin))
        return [
            str(at + 1),
            *(f"{removed[kind]['mean']['estimate']:.0f}" for kind in ("first", "random", "last")),
            f"{percent(agreement['filled'])} of {agreement['filled']['n']:,}",
            percent(agreement["shuffled"], 2),
            percent(other["filled"], 2),
            f"{ranks[at]['quantiles'][2]:,.0f}",
            *(f"{100 * one['mean_active'] / one['memories']:.1f}" for one in (activity, still)),
            *(percent(one["all"]) for one in (zero, less)),
            percent(zero["active"]),
        ]

    heads = (
        "layer",
        "first",
        "random",
        "last token removed, %",
        "agreement, % of live keys",
        "shuffled",
        "untrained",
        "median rank",
        "active, %",
        "untrained",
        "zero agreement, %",
        "untrained",
        "among active memories",
    )
    return table(heads, map(row, range(len(agree))))


def refinement(numbers: Numbers) -> str:
    """Figures 9 to 11 by layer, with those of the untrained twin."""
    mine, twin = (
        part["refinement"]["conventions"][0]["steps"]
        for part in (numbers["results"], numbers["untrained twin"])
    )
    kinds = ("residual", "agreement", "composition", "ffn")

    def row(one: Numbers, other: Numbers) -> list[str]:
        return [
            str(one["layer"]),
            *(percent(part["settled"]) for part in (one, other)),
            *(percent(part["mean_probability"]) for part in (one, other)),
            *(percent(one[kind]) for kind in kinds),
            percent(other["residual"]),
        ]

    heads = ("layer", "settled, %", "untrained", "probability, %", "untrained", *kinds, "untrained")
    return table((*heads[:-1], "residual, untrained"), map(row, mine, twin))


def training(numbers: Numbers) -> str:
    """The curve."""
    rows = (
        [
            f"{one['tokens'] / 1e6:.0f}",
            f"{one['seconds']:.0f}",
            f"{one['training loss']:.2f}",
            f"{one['validation perplexity']:.1f}",
        ]
        for one in numbers["training"]["curve"]
    )
    return table(("million words", "seconds", "training loss", "held-out perplexity"), rows)


def times(numbers: Numbers) -> str:
    """Seconds of each step, for the model and for its twin."""
    mine, twin = numbers["seconds"], numbers["seconds of the twin"]
    scans = (f"{numbers[name]['seconds']:.0f}" for name in ("scan", "scan of the twin"))
    rows = [[name, f"{seconds:.1f}", f"{twin[name]:.1f}" if name in twin else "–"]
            for name, seconds in mine.items()]  # fmt: skip
    return table(("step", "seconds", "untrained twin"), [["scan", *scans], *rows])


STUDY: Tables = {"claims": claims, "layers": layers, "refinement": refinement}


@dataclass(frozen=True)
class Page:
    """A page: its name, its tables, and the analyses and names of its pictures."""

    name: str
    tables: Tables
    pictures: tuple[tuple[str, str], ...]

    @property
    def path(self) -> Path:
        """Where it lies."""
        return REFERENCE / f"{self.name}.md"

    def write(self) -> None:
        """Make the tables and pictures again."""
        numbers, text = read_numbers(self.name), self.path.read_text("utf-8")
        self.path.write_text(fill(text, numbers, self.tables), "utf-8")
        draw(numbers, self)


PAGES = (
    Page(
        "paper-study",
        {**STUDY, "training": training, "times": times},
        (
            ("patterns", "patterns"),
            ("removal", "removal"),
            ("values", "values-agreement"),
            ("values", "values-ranks"),
            ("values", "values-probability"),
            ("composition", "composition-active"),
            ("composition", "composition-zero-agreement"),
            ("refinement", "refinement-settled"),
            ("refinement", "refinement-probability"),
            ("refinement", "refinement-winners"),
        ),
    ),
    Page(
        "wiki-study",
        STUDY,
        (
            ("patterns", "patterns"),
            ("removal", "removal"),
            ("values", "values-agreement"),
            ("refinement", "refinement-winners"),
        ),
    ),
    Page(
        "smollm2-study",
        STUDY,
        (
            ("values", "values-agreement"),
            ("refinement", "refinement-settled"),
            ("causal", "causal-value-tokens"),
        ),
    ),
)


def fill(text: str, numbers: Numbers, tables: Tables) -> str:
    """A page with every table as the numbers have it."""
    for name, make in tables.items():
        begin, end = f"<!-- {name} -->\n", f"<!-- end of {name} -->"
        before, found, rest = text.partition(begin)
        _, closed, after = rest.partition(end)
        if not (found and closed):
            raise SystemExit(f"the page has no place for the table {name}")
        text = f"{before}{begin}{make(numbers)}\n{end}{after}"
    return text


def draw(numbers: Numbers, page: Page) -> None:
    """Write the pictures."""
    from ffmem.figures.saving import save_picture
    from ffmem.studies.study import charts_of

    of = page.name.removesuffix("-study")
    for analysis, name in page.pictures:
        result = restore(ANALYSES[analysis].result, numbers["results"][analysis])
        save_picture(charts_of(analysis, result)[name], DOCS / "pictures" / f"{of}-{name}.svg")


def main() -> None:
    """Write pages and pictures."""
    for page in PAGES:
        page.write()


if __name__ == "__main__":
    main()
