from __future__ import annotations

import math
from dataclasses import replace

import pytest

from ffmem.address import Address
from ffmem.analyses.patterns.record import Pattern
from ffmem.analyses.statistics import cohen_kappa
from ffmem.annotations.agreement import agreement, krippendorff_alpha
from ffmem.annotations.sheets import PatternAnswer, SheetAnswer
from ffmem.records import restore, to_plain
from tests.annotations.test_sheets import SHEET


def test_kappa_of_a_table_done_by_hand() -> None:
    one = ["a"] * 25 + ["b"] * 25
    other = ["a"] * 20 + ["b"] * 5 + ["a"] * 10 + ["b"] * 15
    assert cohen_kappa(one, other) == pytest.approx((0.7 - 0.5) / 0.5)
    assert cohen_kappa(one, one) == 1
    assert math.isnan(cohen_kappa(["a", "a"], ["a", "a"]))


def test_alpha_is_one_less_observed_over_expected_difference() -> None:
    units = [["a", "a"], ["a", "b"], ["b", "b"], ["b", "b", "a"], ["c"]]
    values = [(u, label) for u, unit in enumerate(units) if len(unit) > 1 for label in unit]
    within = across = 0.0
    for i, (unit, label) in enumerate(values):
        for j, (other_unit, other) in enumerate(values):
            if i != j:
                across += label != other
                if unit == other_unit:
                    within += (label != other) / (len(units[unit]) - 1)
    n = len(values)
    assert krippendorff_alpha(units) == pytest.approx(1 - (within / n) / (across / (n * (n - 1))))
    assert krippendorff_alpha([["a", "a"], ["b", "b"]]) == 1
    assert math.isnan(krippendorff_alpha([["a"]]))


def test_agreement_names_who_disagrees_where_and_counts_false_patterns_on_controls_only() -> None:
    control = replace(SHEET, name="00aa", key=None, control="random")
    shallow, semantic = (
        PatternAnswer("x", "shallow", (1, 2, 3)),
        PatternAnswer("y", "semantic", (3, 4, 5)),
    )
    found = agreement(
        [
            SheetAnswer(SHEET, "ana", (shallow,)),
            SheetAnswer(SHEET, "bo", (shallow, semantic)),
            SheetAnswer(control, "ana", ()),
            SheetAnswer(control, "bo", (semantic,)),
        ]
    )
    [pair] = found.pairs
    assert (pair.one, pair.other, pair.keys, pair.prefixes, pair.same) == ("ana", "bo", 1, 8, 5 / 8)
    assert [(each.rank, each.labels) for each in found.disagreements] == [
        (3, {"ana": "shallow", "bo": "shallow + semantic"}),
        (4, {"ana": "not covered", "bo": "semantic"}),
        (5, {"ana": "not covered", "bo": "semantic"}),
    ]
    rates = {who: (rate.estimate, rate.n) for who, rate in found.false_patterns.items()}
    assert rates == {"ana": (0.0, 1), "bo": (1.0, 1)}


def test_patterns_of_a_control_sheet_have_no_key() -> None:
    said = (PatternAnswer("x", "shallow", (1, 2, 3)),)
    control = SheetAnswer(replace(SHEET, key=None, control="random"), "ana", said)
    of_key = SheetAnswer(SHEET, "ana", said)
    assert [pattern.key for pattern in control.patterns()] == [None]
    assert [pattern.key for pattern in of_key.patterns()] == [Address(2, 7)]
    for pattern, key in zip(control.patterns() + of_key.patterns(), (None, "L2.7"), strict=True):
        plain = to_plain(pattern)
        assert plain["key"] == key
        assert restore(Pattern, plain) == pattern
    assert control.labels == of_key.labels == of_key.key_patterns().labels
    with pytest.raises(ValueError, match="control key"):
        control.key_patterns()
