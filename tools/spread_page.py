"""Write the tables of docs/reference/spread.md: how much claims vary between seeds and texts.

    python -m tools.spread_page [FOLDER]

FOLDER is what `making.spread` has left; its numbers go to docs first, in six digits and without
what no claim looks at. Without it the page is made from the numbers in docs.
"""

from __future__ import annotations

import argparse
import itertools
import json
import lzma
import math
import statistics
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from ffmem.analyses.statistics import Interval
from ffmem.report.paper_claims import CLAIMS
from ffmem.report.verdicts import Verdict, interval_text, judge_claims, tally
from tools.paper_study_page import (
    REFERENCE,
    Numbers,
    Tables,
    fill,
    judge,
    read_numbers,
    restore_results,
    table,
)
from tools.study_numbers import write_numbers

NAME = "spread"
PAGE = REFERENCE / f"{NAME}.md"
LISTS = ("cases", "rows", "mass")  # which no claim looks at
DRAWN = {"drawn": {}}
CORPORA = {"wiki": "Wikipedia", "code": "Python source"}
OF_THE_SCAN = ("patterns", "removal", "values", "causal")  # the others read validation text
Group = tuple[str, int, str]  # corpus, sentences, dedupe
Rows = dict[Group, list[list[Verdict]]]  # the verdicts of a group's seeds


def gather(folder: Path) -> Numbers:
    """The results of `making.spread`, reduced to what the page needs."""
    files = sorted((folder / "numbers").glob("*.json.xz"))
    if not files:
        raise SystemExit(f"{folder} holds no numbers/*.json.xz; give the folder of making.spread")
    studies = {path.name.partition(".")[0]: json.loads(lzma.decompress(path.read_bytes()))
               for path in files}  # fmt: skip
    curves = sorted((folder / "curves").glob("*.json"))
    return {
        "models": {path.stem: json.loads(path.read_text("utf-8")) for path in curves},
        "studies": {name: shorten(found) for name, found in studies.items()},
    }


def shorten(value: Any) -> Any:
    """The same structure with six digits per number, without lists that no claim uses."""
    if isinstance(value, dict):
        empty = {name: [] for name in LISTS} | DRAWN
        return {name: empty[name] if name in empty else shorten(one) for name, one in value.items()}
    if isinstance(value, list):
        return [shorten(one) for one in value]
    return float(f"{value:.6g}") if isinstance(value, float) else value


def group_of(name: str) -> Group:
    """The group of a study such as `wiki-0-2500-none`: all but its seed."""
    corpus, _, sentences, dedupe = name.split("-")
    return corpus, int(sentences), dedupe


def judge_all(numbers: Numbers) -> Rows:
    """The verdicts of every study, by group and seed."""
    found: Rows = {}
    for name in sorted(numbers["studies"]):
        found.setdefault(group_of(name), []).append(judge(numbers["studies"][name]))
    return found


def largest(rows: Rows, corpus: str) -> list[list[Verdict]]:
    """The studies of a corpus with the most text, one per seed."""
    return rows[max(group for group in rows if is_plain(group, corpus))]


def is_plain(group: Group, corpus: str) -> bool:
    """Whether a group belongs to a corpus and has no deduplication."""
    return group[0] == corpus and group[2] == "none"


def outcome_text(verdicts: Iterable[Verdict]) -> str:
    """The verdict if all seeds agree, else the count of each."""
    counts = Counter(one.word for one in verdicts).most_common()
    if len(counts) == 1:
        return f"**{counts[0][0]}**"
    return ", ".join(f"{word} {count}" for word, count in counts)


def number_of(verdict: Verdict) -> Interval | None:
    """A claim's number in a study."""
    return None if verdict.finding is None else verdict.finding.number


def first_effect(verdict: Verdict) -> Interval | None:
    """The first effect that the rule uses."""
    if verdict.finding is None or not verdict.finding.effects:
        return None
    return verdict.finding.effects[0].found


def mean_text(verdicts: Sequence[Verdict]) -> str:
    """The mean of a claim's number over seeds, without an interval."""
    values = [one.estimate for verdict in verdicts if (one := number_of(verdict)) is not None]
    mean = statistics.fmean(values) if values else math.nan
    return interval_text(Interval(mean, math.nan, math.nan, 0), verdicts[0].unit, False)


def seeds_text(verdicts: Sequence[Verdict]) -> str:
    """A claim's number for each seed."""
    return "; ".join(interval_text(number_of(one), one.unit, False) for one in verdicts)


def ratio_text(verdicts: Sequence[Verdict]) -> str:
    """The standard deviation of the first effect between seeds, in standard errors of one study."""
    effects = [effect for one in verdicts if (effect := first_effect(one)) is not None]
    errors = [(effect.high - effect.low) / 3.92 for effect in effects]
    if len(effects) < 2 or any(not error > 0 for error in errors):
        return "–"
    between = statistics.stdev(effect.estimate for effect in effects)
    return f"{between / statistics.fmean(errors):.1f}"


def seeds(rows: Rows) -> str:
    """Every claim: its number and verdict for each seed, on both corpora."""
    sides = [largest(rows, corpus) for corpus in CORPORA]

    def row(place: int) -> list[str]:
        wiki, code = ([study[place] for study in side] for side in sides)
        return [
            wiki[0].says,
            wiki[0].paper,
            *(text for side in (wiki, code)
              for text in (seeds_text(side), ratio_text(side), outcome_text(side))),
        ]  # fmt: skip

    heads = ("claim", "the paper", "Wikipedia", "seeds / error", "verdict")
    count = len(sides[0][0])
    return table((*heads, "Python source", "seeds / error", "verdict"), map(row, range(count)))


def sizes(rows: Rows) -> str:
    """Claims on the scan, for models of Wikipedia: mean number and verdict by amount of text."""
    groups = sorted((group for group in rows if group[0] == "wiki"), key=lambda one: one[::-1])

    def row(place: int) -> list[str]:
        cells = ([study[place] for study in rows[group]] for group in groups)
        return [
            rows[groups[0]][0][place].says,
            *(f"{mean_text(cell)}, {outcome_text(cell)}" for cell in cells),
        ]

    first = rows[groups[0]][0]
    places = [place for place, one in enumerate(first) if one.analysis in OF_THE_SCAN]
    heads = [f"{group[1]:,}" + (", dedupe" if group[2] != "none" else "") for group in groups]
    return table(("claim", *heads), map(row, places))


def tallies(rows: Rows) -> str:
    """Number of claims per verdict, study by study."""

    def row(group: Group) -> list[str]:
        counts = [tally(study) for study in rows[group]]
        words = ("holds", "also without training", "does not hold", "undecided")
        return [
            CORPORA[group[0]],
            f"{group[1]:,}",
            group[2],
            *(", ".join(str(one.outcomes[word]) for one in counts) for word in words),
        ]

    heads = (
        "corpus",
        "sentences",
        "dedupe",
        "hold",
        "also without training",
        "do not",
        "undecided",
    )
    return table(heads, map(row, sorted(rows, key=lambda one: (one[0] != "wiki", one[2], one[1]))))


def stability(rows: Rows) -> str:
    """Verdicts that are the same everywhere, and what the others vary with."""
    sides = [largest(rows, corpus) for corpus in CORPORA]
    claims: dict[str, list[str]] = {kind: [] for kind in KINDS}
    for place, verdict in enumerate(sides[0][0]):
        words = [outcome_text(study[place] for study in side) for side in sides]
        text = words[0] if words[0] == words[1] else f"{words[0]}; Python source: {words[1]}"
        claims[why_it_flips(rows, place)].append(f"- {verdict.says} {text}")
    return "\n\n".join(
        f"{kind}, {len(says)} of {len(CLAIMS)}:\n\n" + "\n".join(says)
        for kind, says in claims.items()
        if says
    )


KINDS = (
    "The same verdict in every study",
    "Different between seeds, with the same corpus and amount of text",
    "Different between the two corpora",
    "Different between amounts of text",
    "Different with `--dedupe prefix`",
)


def why_it_flips(rows: Rows, place: int) -> str:
    """The first kind of variation that applies to a claim."""
    words = {group: {study[place].word for study in found} for group, found in rows.items()}
    plain = [words[group] for group in words if is_plain(group, "wiki")]
    wiki, code = ({study[place].word for study in largest(rows, name)} for name in CORPORA)
    checks = (
        len(set.union(*words.values())) == 1,
        len(wiki) > 1 or len(code) > 1,
        wiki != code,
        len(set.union(*plain)) > 1,
    )
    return KINDS[checks.index(True) if True in checks else len(checks)]


def twins(numbers: Numbers) -> str:
    """Every untrained twin judged against every other one: each *holds* is a false positive."""
    names = {corpus: max(group_of(name) for name in numbers["studies"]
                         if is_plain(group_of(name), corpus)) for corpus in CORPORA}  # fmt: skip

    def row(corpus: str) -> list[str]:
        parts = [
            restore_results(study["untrained twin"])
            for name, study in sorted(numbers["studies"].items())
            if group_of(name) == names[corpus]
        ]
        pairs = [judge_claims(CLAIMS, *pair) for pair in itertools.permutations(parts, 2)]
        wrong = [one.says for pair in pairs for one in pair if one.word == "holds"]
        return [
            CORPORA[corpus],
            str(len(pairs)),
            f"{len(pairs) * len(CLAIMS):,}",
            str(len(wrong)),
            "; ".join(sorted(set(wrong))) or "–",
        ]

    heads = ("corpus", "pairs of untrained models", "verdicts", "hold", "which")
    return table(heads, map(row, CORPORA))


def models(numbers: Numbers) -> str:
    """The models: training text and perplexity."""

    def row(name: str) -> list[str]:
        one, (corpus, _, seed) = numbers["models"][name], name.partition("-")
        last = one["curve"][-1]
        return [
            CORPORA[corpus],
            seed,
            f"{last['tokens'] / 1e6:.1f} M",
            f"{last['training loss']:.3f}",
            f"{last['validation loss']:.3f}",
            f"{math.exp(last['validation loss']):.1f}",
        ]

    heads = ("corpus", "seed", "tokens read", "training loss", "held-out loss", "perplexity")
    order = sorted(numbers["models"], key=lambda name: (name.startswith("code"), name))
    return table(heads, map(row, order))


def page(text: str, numbers: Numbers) -> str:
    """The page with every table generated from the numbers."""
    rows = judge_all(numbers)
    tables: Tables = {
        "models": models,
        "twins": twins,
        "tallies": lambda _: tallies(rows),
        "stability": lambda _: stability(rows),
        "seeds": lambda _: seeds(rows),
        "sizes": lambda _: sizes(rows),
    }
    return fill(text, numbers, tables)


def main() -> None:
    """Write the numbers if a folder is given, and the page."""
    parser = argparse.ArgumentParser(prog="python -m tools.spread_page", description=main.__doc__)
    parser.add_argument("folder", nargs="?", type=Path, help="of the studies")
    folder = parser.parse_args().folder
    if folder is not None:
        write_numbers(gather(folder), REFERENCE / "data" / f"{NAME}.json.xz")
    PAGE.write_text(page(PAGE.read_text("utf-8"), read_numbers(NAME)), "utf-8")


if __name__ == "__main__":
    main()
