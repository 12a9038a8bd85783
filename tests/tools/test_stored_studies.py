"""Stored studies are judged by the present rules, as can be done by hand."""

from __future__ import annotations

import math
from typing import Any

import pytest

from ffmem.analyses.catalogue import CLAIMS, judge
from ffmem.analyses.study import Study
from tools.results_page import Results, verdict_text
from tools.stored_studies import (
    Row,
    finding_of,
    judge_again,
    judge_random_weights,
    part_of,
    read_studies,
    row_of,
)

CLAIM, BAR = "residual-decides", 0.5
STORED = read_studies()


def part(*effects: float, **texts: str) -> Row:
    """Effects, each an estimate give or take 0.01, over the bar of the claim."""
    return {"effects": [[BAR, one, one - 0.01, one + 0.01, 4000] for one in effects], **texts}


def studies(found: Row, *random: float, own: bool = False) -> dict[str, Row]:
    """A study of one claim for every model with random weights; all have found the same."""
    names = [f"seed-{seed}" for seed in range(len(random))]
    cells = [
        {
            "claim": CLAIM,
            "word": "undecided",
            "effects": ["left in place", "another"][: len(found["effects"])],
            "found": found,
            "untrained": part(*[one] * len(found["effects"])),
        }
        for one in random
    ]
    return {
        name: {
            "study": name,
            "commit": "0",
            "controls": [name] if own else names,
            "verdicts": [one],
        }
        for name, one in zip(names, cells, strict=True)
    }


def verdict(found: Row, *random: float, own: bool = False) -> tuple[str, str]:
    one = judge_again(studies(found, *random, own=own), "seed-0")[CLAIM]
    assert one.before == "undecided"
    return one.now, one.reason


@pytest.mark.parametrize(
    ("found", "random", "word", "reason"),
    [
        # the seeds deviate by 0.02, so that another may reach 0.12 + 4.3 * 0.02 * (4 / 3) ** 0.5
        (part(0.8), (0.1, 0.12, 0.14), "holds", ""),
        # the same mean, but the seeds deviate by 0.2: another may reach 1.1
        (part(0.8), (-0.08, 0.12, 0.32), "undecided", "not clearly more than with random weights"),
        (part(0.8), (0.79, 0.8, 0.81), "also without training", "not clearly more than"),
        (part(0.3), (0.1, 0.12, 0.14), "does not hold", "left in place"),
        (part(0.8, 0.3), (0.1, 0.12, 0.14), "does not hold", "another"),
        (part(0.8, 0.505), (0.1, 0.12, 0.14), "undecided", "reaches the bar: another"),
        (part(0.8, reason="nobody has"), (0.1, 0.12, 0.14), "undecided", "nobody has"),
        (part(0.8, alone="of the shape"), (0.79, 0.8, 0.81), "holds", "of the shape"),
    ],
)
def test_a_study_is_judged_by_all_effects_and_the_random_weights_of_all_seeds(
    found: Row, random: tuple[float, ...], word: str, reason: str
) -> None:
    now, why = verdict(found, *random)
    assert now == word
    assert reason in why


def test_only_the_named_controls_count() -> None:
    """By its own random weights alone a study holds that another seed's leave undecided."""
    assert verdict(part(0.8), 0.12, 0.32, -0.08, own=True)[0] == "holds"
    assert verdict(part(0.8), 0.12, 0.32, -0.08)[0] == "undecided"


def test_random_weights_are_judged_against_those_of_the_other_seeds() -> None:
    """What is far above the other two is said to hold; a fact of the shape is no test."""

    def holding(*random: float, **texts: str) -> list[str]:
        found = studies(part(0.8), *random)
        for one in found.values():
            one["verdicts"][0]["untrained"] |= texts
        tables = judge_random_weights(found)
        assert list(tables) == list(found)
        return [name for name, table in tables.items() if [x.word for x in table] == ["holds"]]

    assert holding(0.1, 0.11, 0.9) == ["seed-2"]
    assert holding(0.88, 0.89, 0.9) == []
    assert holding(0.1, 0.11, 0.9, alone="of the shape") == []


def test_a_study_without_seeds_beside_it_has_no_table_of_random_weights() -> None:
    assert judge_random_weights(studies(part(0.8), 0.1, own=True)) == {}


def test_the_last_column_counts_then_and_now() -> None:
    """Old words and new ones of all studies without a column."""
    results = Results(studies(part(0.8), 0.1, 0.12, 0.14))
    assert results.elsewhere_text(CLAIM) == "undecided → **holds**"
    assert CLAIM in results.stable()
    assert f"`{CLAIM}` (3 of 3)" in results.changes_table()
    assert verdict_text(results.told["seed-0"][CLAIM]) == "undecided → **holds (random)**"


def test_the_verdicts_of_a_study_enter_the_tables(toy_study: Study) -> None:
    """Under a model's name in its column, and under another one in the last."""
    verdicts = judge(toy_study)
    whole, short = (row_of(name, "0", verdicts) for name in ("demo", "wiki-7"))
    (one,) = (one for one in whole["verdicts"] if one["claim"] == "silencing-matters")
    before, after = Results(STORED), Results(STORED | {"demo": whole, "wiki-7": short})
    said = after.claims_table(("causal",)).splitlines()[-1].split("|")
    assert verdict_text(after.told["demo"][one["claim"]]) in said[3]
    assert before.elsewhere_text(one["claim"]) != after.elsewhere_text(one["claim"])


def test_a_finding_comes_back_from_the_file_as_it_was(toy_study: Study) -> None:
    for one in judge(toy_study):
        assert one.finding is not None
        names = [effect.name for effect in one.finding.effects]
        back = finding_of(names, part_of(one.finding))
        assert (back.reason, back.alone) == (one.finding.reason, one.finding.alone)
        for mine, other in zip(one.finding.effects, back.effects, strict=True):
            assert math.isclose(mine.bar, other.bar, rel_tol=1e-5, abs_tol=1e-9)
            ends = ((x.found.estimate, x.found.low, x.found.high, x.found.n) for x in (mine, other))
            for a, b in zip(*ends, strict=True):
                assert math.isclose(a, b, rel_tol=1e-5, abs_tol=1e-9) or math.isnan(a + b)


def test_what_is_stored_has_the_effects_and_bars_of_the_present_rules(toy_study: Study) -> None:
    """But for bars that a study sets itself: by its vocabulary, or by its control keys."""
    own_bars = ("ten times a random token’s", "more than on control keys")
    rules = {
        one.name: [(x.name, x.bar) for x in one.finding.effects if x.name not in own_bars]
        for one in judge(toy_study)
        if one.finding is not None
    }
    old = {name: row for name, row in STORED.items() if "controls" in row}
    assert len(old) == len(STORED) - 1
    for row in old.values():
        assert [one["claim"] for one in row["verdicts"]] == [one.name for one in CLAIMS]
        assert set(row["controls"]) <= set(old)
        for one in row["verdicts"]:
            for which in ("found", "untrained"):
                bars: list[Any] = [effect[0] for effect in one[which]["effects"]]
                stored = list(zip(one["effects"], bars, strict=True))
                assert [x for x in stored if x[0] not in own_bars] == rules[one["claim"]]
