"""Write the tables and pictures of the studies in docs/reference from their numbers, without a GPU.

    python -m tools.paper_study_page

The numbers of `paper-study.md`, `wiki-study.md`, `smollm2-study.md` and `demo-model.md` are those
that `tools.study_numbers` takes from a study and its untrained twin, without the texts; the first
has the curve of its training too. The pages of analyses have the verdicts on their claims in all
four. The words of a page are written by hand; each table stands between a pair of comments that
name it.
"""

from __future__ import annotations

import json
import lzma
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from ffmem.analyses.predictive_values import TABLE_2
from ffmem.report.paper_claims import CLAIMS
from ffmem.report.verdicts import Unit, Verdict, interval_text, judge_claims, tally
from ffmem.store.result_files import restore
from ffmem.studies.registry import ANALYSES

DOCS = Path(__file__).parent.parent / "docs"
REFERENCE = DOCS / "reference"
Numbers = dict[str, Any]
Tables = Mapping[str, Callable[[Numbers], str]]


def read_numbers(name: str) -> Numbers:
    """Every measurement of a page, by the page's name."""
    data = (REFERENCE / "data" / f"{name}.json.xz").read_bytes()
    found: Numbers = json.loads(lzma.decompress(data))
    return found


def table(heads: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    """A table in Markdown."""
    lines = [list(heads), *map(list, rows)]
    lines.insert(1, ["---"] * len(lines[0]))
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def restore_results(part: Numbers) -> dict[str, Any]:
    """Results by name of analysis, as the analyses returned them."""
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
    """One row per layer, over all its cells."""
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


def with_interval(one: Numbers, factor: float = 1, places: int = 1) -> str:
    """A number with its interval."""
    number, low, high = (f"{factor * one[name]:.{places}f}" for name in ("estimate", "low", "high"))
    return f"{number} ({low} .. {high})"


def shared_patterns(numbers: Numbers) -> str:
    """Figure 2 by layer, with the rule's patterns in the untrained twin."""
    parts = [numbers[part]["patterns"]["summary"] for part in ("results", "untrained twin")]
    mine, twin = ([*part["layers"], part["overall"]] for part in parts)
    kinds = ("shallow", "shallow + semantic", "semantic", "not covered")

    def row(one: Numbers, other: Numbers) -> list[str]:
        return [
            str(one["layer"] or "all"),
            str(one["keys"]),
            *(with_interval(one["shares"][kind], 100, 0) for kind in kinds),
            with_interval(one["patterns_per_key"]),
            percent(one["with_pattern"], 0),
            percent(other["shares"]["not covered"], 0),
            f"{other['patterns_per_key']['estimate']:.1f}",
        ]

    heads = ("layer", "live keys", *(f"{kind}, %" for kind in kinds), "patterns per key")
    more = ("keys with a pattern, %", "not covered, untrained, %", "patterns per key, untrained")
    return table((*heads, *more), map(row, mine, twin))


def value_ranks(numbers: Numbers) -> str:
    """Figure 5 by layer: the rank of the next token under the value."""
    mine, twin = (
        both_signs(numbers[part]["values"]["ranks"]) for part in ("results", "untrained twin")
    )

    def row(one: Numbers, other: Numbers) -> list[str]:
        quartiles = (one["quantiles"][1:4], [one["shuffled_quantiles"][2], other["quantiles"][2]])
        return [
            str(one["layer"]),
            *(f"{rank:,.0f}" for rank in quartiles[0]),
            *(percent(share) for share in one["under"]),
            *(f"{rank:,.0f}" for rank in quartiles[1]),
        ]

    heads = ("layer", "lower quartile", "median rank", "upper quartile", "below 10, %")
    more = ("below 100, %", "below 1,000, %", "median, keys shuffled", "median, untrained")
    return table((*heads, *more), map(row, mine, twin))


def value_probability(numbers: Numbers) -> str:
    """Figure 6: agreement by the value's top probability, in bins of equal width."""

    def row(one: Numbers) -> list[str]:
        found, shuffled = one["agreement"], one["shuffled"]
        place = f"{one['low'] * 1e5:.1f} to {one['high'] * 1e5:.1f}"
        if not found["n"]:
            return [place, "0", "–", "–"]
        return [place, f"{found['n']:,}", with_interval(found, 100), percent(shuffled)]

    heads = ("top probability, 1e-5", "values", "agreement, %", "keys shuffled, %")
    return table(heads, map(row, numbers["results"]["values"]["equal_width"]))


PRECISION = (68, 16, 4, 92, 84, 4)  # Table 2: triggers of 50, in %, that the value's word follows


def table_2(numbers: Numbers) -> str:
    """Table 2 beside as many values of highest top probability."""

    def row(place: int) -> list[str]:
        mine = numbers["results"]["values"]["predictive"]["rows"][place]
        layer, memory, word = TABLE_2[place]
        return [
            *(f"L{layer}.{memory}", f"`{word}`", str(PRECISION[place])),
            *(mine["address"], f"`{mine['prediction']}`", percent(mine["precision"], 0)),
        ]

    heads = ("value", "its top word", "followed by it, % of 50 triggers")
    return table(
        (*(f"the paper: {heads[0]}", *heads[1:]), *(f"here: {heads[0]}", *heads[1:])),
        map(row, range(len(TABLE_2))),
    )


def training(numbers: Numbers) -> str:
    """The training curve."""
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


STUDIES = {  # by the name of the page that has all of it
    "demo-model": "the demo",
    "wiki-study": "a ReLU model, Wikipedia",
    "smollm2-study": "SmolLM2",
    "paper-study": "the paper's shape",
}
CHAPTERS = {  # pages of analyses, and whose claims they have
    "patterns": ("patterns",),
    "removal": ("removal",),
    "values": ("values",),
    "composition": ("composition",),
    "refinement": ("refinement", "last-layer"),
    "causal": ("causal",),
}


@cache
def verdicts_of(study: str) -> tuple[Verdict, ...]:
    """The verdict on every claim, by the name of a study."""
    return tuple(judge(read_numbers(study)))


def chapter(analyses: Iterable[str]) -> str:
    """The verdict of each study on the claims that these analyses answer."""

    def cell(one: Verdict) -> str:
        number = None if one.finding is None else one.finding.number
        return f"{interval_text(number, one.unit, False)}, **{one.word}**"

    rows = [
        [same[0].says, same[0].paper, *map(cell, same)]
        for same in zip(*map(verdicts_of, STUDIES), strict=True)
        if same[0].analysis in analyses
    ]
    links = (f"[{title}](../reference/{name}.md)" for name, title in STUDIES.items())
    return table(("claim", "the paper", *links), rows)


def chapter_path(name: str) -> Path:
    """The page of an analysis."""
    return DOCS / "analyses" / f"{name}.md"


def fill_chapter(text: str, name: str) -> str:
    """The page of an analysis with verdicts generated from the numbers."""
    return fill(text, {}, {"verdicts": lambda _: chapter(CHAPTERS[name])})


STUDY: Tables = {"claims": claims, "layers": layers, "refinement": refinement}


@dataclass(frozen=True)
class Page:
    """A page: its name, its tables, and the analyses and names of its pictures."""

    name: str
    tables: Tables
    pictures: tuple[tuple[str, str], ...]

    @property
    def path(self) -> Path:
        """Its file."""
        return REFERENCE / f"{self.name}.md"

    def write(self) -> None:
        """Regenerate tables and pictures."""
        numbers, text = read_numbers(self.name), self.path.read_text("utf-8")
        self.path.write_text(fill(text, numbers, self.tables), "utf-8")
        draw(numbers, self)


PAGES = (
    Page(
        "paper-study",
        {
            **STUDY,
            "training": training,
            "times": times,
            "patterns": shared_patterns,
            "ranks": value_ranks,
            "probability": value_probability,
            "table 2": table_2,
        },
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
    Page("demo-model", {"claims": claims}, ()),
)


def fill(text: str, numbers: Numbers, tables: Tables) -> str:
    """A page with every table generated from the numbers."""
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
    for name in CHAPTERS:
        path = chapter_path(name)
        path.write_text(fill_chapter(path.read_text("utf-8"), name), "utf-8")


if __name__ == "__main__":
    main()
