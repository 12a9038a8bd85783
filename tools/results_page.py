"""Write the tables of docs/results.md from the verdicts in docs/reference/data/results.jsonl.

    python -m tools.results_page                   # the tables again
    python -m tools.results_page demo out/demo     # after taking the verdicts of a study

A line of the file is a study: the commit that measured it and the verdict on each claim, with the
number, the effect that decided, and the same effect in the hardest control. A study that no column
is for counts in the last one, which says whether a verdict is the same everywhere.

The rules have changed since most were measured. A study of the present rules has all controls; the
others have one model with random weights, and are judged again as far as that and the first effect
allow: what holds then holds against random weights alone.
"""

from __future__ import annotations

import argparse
import json
import math
import subprocess
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from ffmem.analyses.catalogue import CLAIMS, judge
from ffmem.analyses.claim import Claim, Effect, Finding, Unit, interval_text
from ffmem.analyses.statistics import Interval
from ffmem.analyses.study import open_study
from ffmem.analyses.verdicts import Verdict, judge_claims

ROOT = Path(__file__).parent.parent
PAGE = ROOT / "docs" / "results.md"
NUMBERS = ROOT / "docs" / "reference" / "data" / "results.jsonl"
COLUMNS = {"demo": "demo", "wiki": "small ReLU", "smollm2": "SmolLM2", "paper": "paper’s shape"}
JUDGED = "paper"  # whose deciding effect and untrained twin are shown
WORDS = {"also without training": "also untrained"}
PRESENT = "demo"  # measured with all controls of the present rules; knows their bars
RANDOM = "random weights"  # the only control of the others
OF_PEOPLE = ("people", "nobody")  # in the reason of what a rule cannot decide
TALLY = ("holds", "also without training", "does not hold", "undecided")
Row = dict[str, Any]


def read_studies() -> dict[str, Row]:
    """Every study by its name."""
    lines = NUMBERS.read_text("utf-8").splitlines()
    return {row["study"]: row for row in map(json.loads, lines)}


def write_studies(studies: Iterable[Row]) -> None:
    """One line each."""
    lines = (json.dumps(row, ensure_ascii=False) + "\n" for row in studies)
    NUMBERS.write_text("".join(lines), "utf-8")


def numbers_of(one: Interval | None) -> list[float] | None:
    """Estimate, low, high and n in six digits."""
    if one is None:
        return None
    ends = (one.estimate, one.low, one.high)
    return [*(float(f"{end:.6g}") if math.isfinite(end) else None for end in ends), one.n]


def row_of(name: str, commit: str, verdicts: Iterable[Verdict]) -> Row:
    """A study as a line of the file: whole where it has a column, else only its verdicts."""
    cells = [
        cell_of(one) if name in COLUMNS else {"claim": one.name, "word": one.word}
        for one in verdicts
    ]
    return {"study": name, "commit": commit, "verdicts": cells}


def with_words_before(row: Row, before: Row | None) -> Row:
    """A study that was measured again, with what the rules of its first measurement said."""
    cells = before["verdicts"] if before is not None else []
    words = {one["claim"]: one.get("before", one["word"]) for one in cells}
    told = [one | {"before": words.get(one["claim"], one["word"])} for one in row["verdicts"]]
    return row | {"verdicts": told}


def judge_again(studies: dict[str, Row], name: str) -> dict[str, tuple[str, str]]:
    """The words and reasons of the present rules, by claim, as far as a study's numbers allow."""
    present = {one["claim"]: one for one in studies[PRESENT]["verdicts"]}
    cells = {one["claim"]: one for one in studies[name]["verdicts"]}
    if name == PRESENT:
        return {claim: (one["word"], one["reason"]) for claim, one in cells.items()}
    claims = [
        Claim(c.name, c.name, c.says, c.paper, c.unit, c.holds_if, c.source, lambda found: found)
        for c in CLAIMS
        if c.name in cells and is_judged_by_numbers(cells[c.name], present[c.name])
    ]
    own, control = (
        {one.name: finding_of(cells[one.name], present[one.name], which) for one in claims}
        for which in ("found", "untrained")
    )
    kept = {claim: (one["word"], one["reason"]) for claim, one in cells.items()}
    return kept | {
        one.name: (one.word, one.reason) for one in judge_claims(claims, own, {RANDOM: [control]})
    }


def is_judged_by_numbers(cell: Row, present: Row) -> bool:
    """Whether the first effect decided, or would have, and not another one that is not stored."""
    reason, bar_of = cell["reason"], present.get("bar")
    at_bar = cell["word"] == "does not hold" or "reaches the bar" in reason
    of_another = at_bar and cell["effect"] not in reason
    known = cell["found"] is not None and cell["found"][0] is not None and bar_of is not None
    known = known and cell["effect"] == present["effect"]
    return known and not of_another and not any(word in reason for word in OF_PEOPLE)


def finding_of(cell: Row, present: Row, which: str) -> Finding:
    """What was stored of the first effect, in a study or in its control, as a finding."""
    numbers = cell[which] or cell["found"]
    estimate, low, high, n = (math.nan if one is None else one for one in numbers)
    found = Interval(estimate, low, high, int(n))
    effects = (Effect(cell["effect"], found, present["bar"]),)
    return Finding(found, None, "", effects, alone=present["alone"])


def cell_of(one: Verdict) -> Row:
    """A verdict with the numbers that the page shows."""
    found = one.finding
    effect = found.effects[0] if found is not None and found.effects else None
    return {
        "claim": one.name,
        "analysis": one.analysis,
        "says": one.says,
        "paper": one.paper,
        "unit": one.unit,
        "source": one.source,
        "word": one.word,
        "reason": one.reason,
        "number": numbers_of(found.number if found is not None else None),
        "effect": effect.name if effect is not None else "",
        "found": numbers_of(effect.found if effect is not None else None),
        "bar": effect.bar if effect is not None else None,
        "alone": found.alone if found is not None else "",
        "untrained": numbers_of(one.controls[0].effect if one.controls else None),
    }


def tally_text(cells: Iterable[Row]) -> str:
    """How many of the paper's claims have each outcome."""
    counts = Counter(one["word"] for one in cells if one["source"] == "paper")
    return ", ".join(str(counts[word]) for word in TALLY)


def text_of(numbers: list[float] | None, unit: Unit) -> str:
    """An estimate as the report writes it."""
    if numbers is None or numbers[0] is None:
        return "–"
    return interval_text(Interval(numbers[0], math.nan, math.nan, 0), unit, interval=False)


def table(heads: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    """A table in Markdown."""
    lines = [list(heads), *map(list, rows)]
    lines.insert(1, ["---"] * len(lines[0]))
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def short(word: str) -> str:
    """A verdict as a cell has it."""
    return WORDS.get(word, word)


def words_elsewhere(studies: dict[str, Row], claim: str) -> str:
    """The verdict of all studies without a column, or how often each was given."""
    words = Counter(
        one["word"]
        for name, study in studies.items()
        if name not in COLUMNS
        for one in study["verdicts"]
        if one["claim"] == claim
    )
    if len(words) == 1:
        return f"always {short(next(iter(words)))}"
    return ", ".join(f"{short(word)} {count}" for word, count in words.most_common())


def verdict_text(before: str, now: str, has_all_controls: bool) -> str:
    """A verdict by the rules of its day, and by the present ones where they differ."""
    against = "" if has_all_controls or now != "holds" else " (random)"
    if has_all_controls or before == now:
        return f"**{short(now)}{against}**"
    return f"{short(before)} → **{short(now)}{against}**"


def changes_table(studies: dict[str, Row]) -> str:
    """Every verdict that the present rules change, by reason."""
    lines: dict[tuple[str, str, str], dict[str, list[str]]] = {}
    for name, title in COLUMNS.items():
        again = judge_again(studies, name)
        for one in studies[name]["verdicts"]:
            before, (now, reason) = one.get("before", one["word"]), again[one["claim"]]
            if before != now:
                if now == "holds":
                    reason = reason or "more than in the controls by a difference"
                claims = lines.setdefault((reason, before, now), {})
                claims.setdefault(one["says"], []).append(title)
    rows = (
        [reason, f"{short(before)} → {short(now)}", " ".join(map(with_models, claims.items()))]
        for (reason, before, now), claims in lines.items()
    )
    return table(("because", "verdict", "claims (models)"), rows)


def with_models(claim: tuple[str, list[str]]) -> str:
    """A claim's sentence with the models whose verdict changes."""
    says, titles = claim
    return f"{says.removesuffix('.')} ({', '.join(titles)})."


def claims_table(studies: dict[str, Row], analyses: tuple[str, ...]) -> str:
    """The claims that some analyses answer: number and verdict of every model."""
    again = {name: judge_again(studies, name) for name in COLUMNS if name in studies}
    cells = {
        name: {one["claim"]: one for one in studies[name]["verdicts"]}
        for name in COLUMNS
        if name in studies
    }

    def line(claim: str) -> list[str]:
        shown = cells[JUDGED][claim]
        unit = shown["unit"]
        effect_unit: Unit = "number" if unit == "rank" else unit
        judged = f"{shown['effect']}: {text_of(shown['found'], effect_unit)}"
        return [
            shown["says"],
            shown["paper"],
            *(
                f"{text_of(one[claim]['number'], unit)} "
                + verdict_text(
                    one[claim]["word"], again[name][claim][0], has_all_controls=name == PRESENT
                )
                if claim in one
                else "–"
                for name, one in cells.items()
            ),
            f"{judged} ({text_of(shown['untrained'], effect_unit)})",
            words_elsewhere(studies, claim),
        ]

    mine = [name for name, one in cells[JUDGED].items() if one["analysis"] in analyses]
    heads = (
        "claim",
        "the paper",
        *(COLUMNS[name] for name in cells),
        f"judged by, {COLUMNS[JUDGED]} (untrained)",
        f"{sum(name not in COLUMNS for name in studies)} studies",
    )
    return table(heads, map(line, mine))


def tallies_table(studies: dict[str, Row]) -> str:
    """How many of the paper's claims have each outcome, model by model, then and now."""
    rows = []
    for name, title in COLUMNS.items():
        cells, again = studies[name]["verdicts"], judge_again(studies, name)
        now = tally_text(one | {"word": again[one["claim"]][0]} for one in cells)
        then = tally_text(one | {"word": one.get("before", one["word"])} for one in cells)
        both = zip(then.split(", "), now.split(", "), strict=True)
        counts = [one if one == other else f"{one} → {other}" for one, other in both]
        rows.append([title, studies[name]["commit"], *counts])
    heads = ("model", "measured at", "hold", "also untrained", "do not hold", "undecided")
    return table(heads, rows)


def stable_claims(studies: dict[str, Row]) -> tuple[int, int, int]:
    """How many claims have one verdict in the studies without a column, of how many; studies."""
    claims = [one["claim"] for one in studies[JUDGED]["verdicts"]]
    same = sum(words_elsewhere(studies, claim).startswith("always ") for claim in claims)
    return same, len(claims), sum(name not in COLUMNS for name in studies)


CHAPTERS = {  # tables of the page, and whose claims they have
    "patterns": ("patterns",),
    "removal": ("removal",),
    "values": ("values",),
    "composition": ("composition",),
    "refinement": ("refinement", "last-layer"),
    "causal": ("causal",),
}


def page(text: str, studies: dict[str, Row]) -> str:
    """The page with every table written from the numbers."""
    tables = {name: claims_table(studies, analyses) for name, analyses in CHAPTERS.items()}
    tables |= {"tallies": tallies_table(studies), "changes": changes_table(studies)}
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
