"""The rule annotator against what careful readers see in the demo's triggers.

    python -m benchmarks.readers out/demo [--half first|second]

Measured on a scan of the demo (`ffmem study demo`): on the keys, on keys of the model with permuted
weights and on control keys that a large language model read blind (`ffmem/assets/readings`). The
label of every prefix is compared by Cohen's kappa, and shares of the four labels are printed for
both. The rule was changed while the first half of the sheets was looked at; the second half was
not, and it is the one to quote.
"""

from __future__ import annotations

import argparse
import random
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from ffmem.address import Address
from ffmem.analyses.inputs.blind_readings import ReadSheet, read_sheets
from ffmem.analyses.patterns.measure import rule_annotator
from ffmem.analyses.patterns.prefixes import prefixes_of_texts
from ffmem.analyses.patterns.readings import sheet_patterns
from ffmem.analyses.patterns.record import LABELS, Label, Pattern, trigger_labels
from ffmem.analyses.statistics import cohen_kappa
from ffmem.store.scan_store import ScanStore

BANDS = ((1, 3), (4, 6), (7, 9), (10, 12), (13, 14), (15, 16))  # of the demo's layers


@dataclass(frozen=True)
class Reading:
    """A sheet with the patterns that the rule and the reader see in it."""

    sheet: ReadSheet
    rule: Sequence[Pattern]
    reader: Sequence[Pattern]

    def labels(self, patterns: Sequence[Pattern]) -> list[Label]:
        """The label of every prefix on the sheet."""
        return trigger_labels(patterns, len(self.sheet.prefixes))


def halves() -> dict[str, list[ReadSheet]]:
    """The sheets in two random halves, the same every time: the first one may be looked at."""
    sheets = sorted(
        read_sheets(),
        key=lambda one: (one.model, one.layer, str(one.key), str(one.control), one.prefixes),
    )
    order = list(range(len(sheets)))
    random.Random(33).shuffle(order)
    first, second = order[: len(order) // 2], order[len(order) // 2 :]
    return {
        "first": [sheets[at] for at in first],
        "second": [sheets[at] for at in second],
        "both": sheets,
    }


def read(store: ScanStore, sheets: Iterable[ReadSheet]) -> list[Reading]:
    """Annotate every sheet by rule; one with a text that the scan does not have is left out."""
    sheets = list(sheets)
    annotator, _ = rule_annotator(store)
    known = prefixes_of_texts(store, {text for sheet in sheets for text in sheet.prefixes})
    found = []
    for sheet in sheets:
        if known.keys() >= set(sheet.prefixes):
            key = None if sheet.key is None else Address.parse(sheet.key)
            by_rule = annotator.patterns(key, [known[text] for text in sheet.prefixes])
            found.append(Reading(sheet, by_rule, sheet_patterns(sheet)))
    return found


def line(name: str, readings: Sequence[Reading]) -> str:
    """One row: agreement, then what each side sees."""
    rule = [label for one in readings for label in one.labels(one.rule)]
    reader = [label for one in readings for label in one.labels(one.reader)]

    def kappa(says: Callable[[str], object]) -> float:
        return cohen_kappa([str(says(one)) for one in rule], [str(says(one)) for one in reader])

    kappas = (
        kappa(str),
        kappa(lambda label: label == "not covered"),
        kappa(lambda label: "shallow" in label),
        kappa(lambda label: "semantic" in label),
    )
    sides = [
        f"{shares(labels)} {100 * with_semantic(found):4.0f} %  {per_key(found):.1f}"
        for labels, found in (
            (rule, [one.rule for one in readings]),
            (reader, [one.reader for one in readings]),
        )
    ]
    agreement = "  ".join(f"{one:5.2f}" for one in kappas)
    return f"{name:<22}{len(readings):>5}  {agreement}   {sides[0]}   {sides[1]}"


def shares(labels: Sequence[str]) -> str:
    """The share of each label in per cent."""
    return " /".join(f"{100 * labels.count(label) / len(labels):3.0f}" for label in LABELS)


def with_semantic(keys: Sequence[Sequence[Pattern]]) -> float:
    """The share of keys that have a semantic pattern."""
    return sum(any(one.kind == "semantic" for one in key) for key in keys) / len(keys)


def per_key(keys: Sequence[Sequence[Pattern]]) -> float:
    """Patterns per key."""
    return sum(map(len, keys)) / len(keys)


def table(readings: Sequence[Reading]) -> list[str]:
    """The rows of the demo's keys by layer, of permuted keys and of controls."""

    def where(name: str, chosen: Callable[[ReadSheet], object]) -> list[str]:
        those = [one for one in readings if chosen(one.sheet)]
        return [line(name, those)] if those else []

    rows = where("demo", lambda one: one.model == "demo" and one.key)
    for low, high in BANDS:
        rows += where(
            f"  layers {low} to {high}",
            lambda one, low=low, high=high: (
                one.model == "demo" and one.key and low <= one.layer <= high
            ),
        )
    rows += where("permuted weights", lambda one: one.model == "permuted")
    for kind in ("random", "matched"):
        rows += where(f"controls, {kind}", lambda one, kind=kind: one.control == kind)
    return rows


def main() -> None:
    """Print the table of one half, or of both."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path, help="a scan or study of the demo")
    parser.add_argument("--half", choices=("first", "second", "both"), default="second")
    options = parser.parse_args()
    sheets = halves()[options.half]
    readings = read(ScanStore.open(options.folder), sheets)
    print(f"{len(readings)} of {len(sheets)} sheets are of this scan")
    print(f"{'':<22}sheets  kappa: 4 labels, covered, shallow, semantic")
    print("shares: shallow / both / semantic / none, keys with a semantic pattern, patterns a key")
    print("first of the rule, then of the reader")
    for row in table(readings):
        print(row)


if __name__ == "__main__":
    main()
