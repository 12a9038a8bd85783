"""Claims are decided by numbers: each rule on studies that the paper is right and wrong about."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any, get_args

import pytest
import torch

import ffmem
from ffmem.analyses.causal import NextTokenEffect
from ffmem.analyses.inputs.claim_effects import dip_depth, lower_and_upper
from ffmem.analyses.statistics import Interval, bootstrap, wilson
from ffmem.report import paper_claims
from ffmem.report.verdicts import (
    ERROR_RATE,
    FEWEST,
    Claim,
    Effect,
    Finding,
    Outcome,
    Verdict,
    decide,
    exact,
    interval_text,
    judge_claims,
    tally,
)
from ffmem.studies.study import Study
from tests.report.planted_studies import DIP, FLAT, PLANTED, RISE, Planted

NAMES = [one.name for one in paper_claims.CLAIMS]
BY_NAME = {one.name: one for one in paper_claims.CLAIMS}


@cache
def study_of(planted: Planted, maker: str, seed: int, toy: Study) -> Mapping[str, Any]:
    """Several claims rest on the same numbers."""
    return planted.study(maker, seed, toy)


@cache
def mixture_of(planted: Planted, seed: int, toy: Study) -> tuple[Mapping[str, Any], ...]:
    return planted.mixture(seed, toy)


def verdict(claim: Claim, study: Mapping[str, Any], twin: Mapping[str, Any] | None) -> Verdict:
    """The verdict of a claim alone."""
    return judge_claims([claim], study, twin)[0]


def holds_among_all(found: Verdict) -> bool:
    """Whether a claim would hold even as the least likely one of the whole table."""
    return found.word == "holds" and found.chance * len(NAMES) <= ERROR_RATE


def test_every_rule_is_judged_and_has_its_planted_studies() -> None:
    rules = {one.name for one in vars(paper_claims).values() if isinstance(one, Claim)}
    assert rules == set(NAMES)
    assert len(NAMES) == len(rules)
    assert set(PLANTED) == rules
    for planted in PLANTED.values():
        assert all(
            callable(getattr(planted, kind)) for kind in ("trained", "untrained", "contrary")
        )


@pytest.mark.parametrize("name", NAMES)
def test_a_study_as_the_paper_says_holds(name: str, toy_study: Study) -> None:
    planted = PLANTED[name]
    study, twin = (study_of(planted, *how, toy_study) for how in (("trained", 1), ("untrained", 2)))
    found = verdict(BY_NAME[name], study, twin)
    assert holds_among_all(found), found
    same = verdict(BY_NAME[name], study, study)
    assert same.word == "also without training"
    without = verdict(BY_NAME[name], study, None)
    assert (without.word, without.reason) == ("undecided", "no untrained twin")


@pytest.mark.parametrize("name", NAMES)
def test_a_study_contrary_to_the_paper_does_not_hold(name: str, toy_study: Study) -> None:
    planted = PLANTED[name]
    study, twin = (
        study_of(planted, *how, toy_study) for how in (("contrary", 1), ("untrained", 2))
    )
    assert verdict(BY_NAME[name], study, twin).word == "does not hold"
    assert verdict(BY_NAME[name], study, None).word == "does not hold"


@pytest.mark.parametrize("name", NAMES)
def test_random_weights_do_not_hold(name: str, toy_study: Study) -> None:
    planted = PLANTED[name]
    study, twin = (study_of(planted, "untrained", seed, toy_study) for seed in (1, 2))
    assert not holds_among_all(verdict(BY_NAME[name], study, twin))


@pytest.mark.parametrize("name", NAMES)
def test_shuffled_with_its_twin_nothing_holds(name: str, toy_study: Study) -> None:
    study, twin = mixture_of(PLANTED[name], 1, toy_study)
    assert not holds_among_all(verdict(BY_NAME[name], study, twin))


def test_without_people_a_rule_neither_denies_meaning_nor_calls_tokens_distant(
    toy_study: Study,
) -> None:
    study = PLANTED["semantic-takes-over"].study("contrary", 1, toy_study)["patterns"].rule
    found = verdict(paper_claims.semantic_takes_over, {"patterns": study}, None)
    assert found.word == "undecided"
    assert "only people can deny it" in found.reason
    cases = PLANTED["last-changes-are-distant"].study("trained", 1, toy_study)["last-layer"].rule
    found = verdict(paper_claims.last_changes_are_distant, {"last-layer": cases}, None)
    assert found.word == "undecided"
    assert found.reason.startswith("nobody has judged")


def test_people_decide_and_the_rule_stands_beside_them(toy_study: Study) -> None:
    planted = PLANTED["semantic-takes-over"]
    trained = planted.study("trained", 1, toy_study)["patterns"]
    assert "by ann, the hardest to convince of 2 people (alpha 0.80); by rule" in (
        paper_claims.every_key_has_a_pattern.check(trained).detail
    )
    doubter = planted.study("contrary", 1, toy_study)["patterns"].people[1]
    one_doubts = type(trained)(trained.rule, (trained.people[0], doubter), 0.1)
    found = verdict(paper_claims.semantic_takes_over, {"patterns": one_doubts}, None)
    assert found.word == "does not hold"
    assert found.finding is not None
    assert "by bo, the hardest to convince" in found.finding.detail


def test_a_memory_and_the_other_one_are_compared_at_the_same_places(toy_study: Study) -> None:
    """A loss that both share at a place does not widen the interval of their difference."""
    found = PLANTED["silencing-matters"].study("trained", 1, toy_study)["causal"]
    both = 3 * torch.randn(10, generator=torch.Generator().manual_seed(0)).double()
    draw = torch.Generator().manual_seed(0)

    def wide(mean: float) -> NextTokenEffect:
        return NextTokenEffect(*[bootstrap(mean + both, draw)] * 4)

    layers = [
        replace(one, silenced=wide(-0.5), other_silenced=wide(-0.4)) for one in found.layers[:1]
    ]
    paired = [replace(one, lost_more=Interval(0.1, 0.08, 0.12, 10)) for one in layers]
    older = [replace(one, lost_more=None) for one in layers]
    sure, unsure = (
        paper_claims.silencing_matters.check(replace(found, layers=tuple(some))).effects[0].found
        for some in (paired, older)
    )
    assert sure.estimate == pytest.approx(unsure.estimate)
    assert unsure.low < 0 < sure.low


def test_a_dip_is_a_dip() -> None:
    assert float(dip_depth(torch.tensor(DIP) / 100)) > 0.02
    for curve in (FLAT, RISE, RISE[::-1], [36, 2, 2, 1, 0.7, 2, 3, 4, 5, 7, 7, 7, 8, 9, 11, 12]):
        assert float(dip_depth(torch.tensor(curve) / 100)) <= 0
    draw = torch.Generator().manual_seed(0)
    random = dip_depth(torch.rand(4000, 16, generator=draw))
    assert float((random > 0).double().mean()) < 0.06  # of random curves
    assert math.isnan(float(dip_depth(torch.rand(4))))  # too few layers to have one


def effect(low: float, high: float, bar: float = 0.0, n: int = 100) -> Effect:
    return Effect("effect", Interval((low + high) / 2, low, high, n), bar)


def finding(*effects: Effect) -> Finding:
    return Finding(effects[0].found, None, "", effects)


NOT_TWICE = "not twice as large as in the untrained twin"


@pytest.mark.parametrize(
    ("mine", "twin", "word", "reason"),
    [
        ((2, 3), (0, 0.5), "holds", ""),
        ((2, 3), (1.5, 1.6), "also without training", NOT_TWICE),
        ((2, 3), (-1, 6), "undecided", "not clearly twice as large as in the untrained twin"),
        ((2, 3), (-9, 1), "holds", ""),
        ((2, 3), (4, 5), "also without training", NOT_TWICE),
        ((-1, 1), (-3, -2), "undecided", "the interval reaches the bar: effect"),
        ((-2, -1), (-5, -4), "does not hold", "effect"),
        ((2, 3), None, "undecided", "no untrained twin"),
    ],
)
def test_four_outcomes(
    mine: tuple[float, float], twin: tuple[float, float] | None, word: str, reason: str
) -> None:
    known = None if twin is None else finding(effect(*twin))
    claim = Claim("c", ("a",), "", "", "share", "", "paper", lambda found: found)
    results = {} if known is None else {"a": known}
    found = judge_claims([claim], {"a": finding(effect(*mine))}, results)[0]
    assert (found.word, found.reason) == (word, reason)


def test_a_twin_that_fails_the_bar_does_not_show_that_training_is_not_needed() -> None:
    mine = finding(effect(0.65, 0.69, bar=0.5))
    fails, passes = (finding(effect(low, low + 0.04, bar=0.5)) for low in (0.38, 0.6))
    assert decide(mine, fails, 1.0) == ("undecided", f"{NOT_TWICE}, where it does not hold")
    assert decide(mine, passes, 1.0) == ("also without training", NOT_TWICE)


def test_every_effect_must_pass_its_bar_and_have_enough_behind_it() -> None:
    good, twin = effect(2, 3), finding(effect(0, 0.1))
    assert decide(finding(good, effect(-2, -1)), twin, 0.0)[0] == "does not hold"
    assert decide(finding(good, effect(-1, 1)), twin, 0.0)[0] == "undecided"
    few = effect(2, 3, n=FEWEST - 1)
    assert decide(finding(few), twin, 0.0) == ("undecided", f"only {FEWEST - 1} observations")
    assert decide(finding(effect(math.nan, math.nan)), twin, 0.0)[0] == "undecided"


def test_a_table_of_many_claims_is_corrected() -> None:
    """An effect that passes alone may be one of many chances."""
    claims = [
        Claim(f"c{n}", (f"a{n}",), "", "", "share", "", "paper", lambda found: found)
        for n in range(30)
    ]
    border, nothing = finding(effect(0.01, 1)), finding(effect(-1, 1))
    twin = {f"a{n}": finding(effect(-4, -3.9)) for n in range(30)}
    study = {f"a{n}": nothing for n in range(1, 30)} | {"a0": border}
    alone = judge_claims(claims[:1], study, twin)[0]
    among = judge_claims(claims, study, twin)[0]
    assert alone.word == "holds"
    assert (among.word, among.reason) == (
        "undecided",
        "not after correction for the number of claims",
    )
    assert alone.chance < ERROR_RATE < among.chance


def test_no_result_is_no_verdict() -> None:
    verdicts = judge_claims(paper_claims.CLAIMS, {})
    assert {(one.word, one.reason) for one in verdicts} == {("undecided", "not measured")}


def test_the_headline_counts_the_papers_claims_alone() -> None:
    verdicts = judge_claims(paper_claims.CLAIMS, {})
    own = [one.name for one in verdicts if one.source == "own"]
    assert own == [
        "values-know-more-than-frequency",
        "values-follow-the-next-token",
        "silencing-matters",
    ]
    assert [one.name for one in verdicts if one.source == "conjecture"] == ["layers-veto"]
    found = tally(verdicts)
    assert (found.claims, found.others) == (len(NAMES) - 4, 4)
    assert found.text == (
        f"0 of {found.claims} claims of the paper hold, 0 also without training, 0 do not, "
        f"{found.claims} undecided"
    )


def test_the_upper_layers_are_the_papers() -> None:
    lower, upper = lower_and_upper(range(1, 17))
    assert (lower[-1], upper[0]) == (10, 11)
    assert lower_and_upper([1]) == ([1], [1])
    assert [len(part) for part in lower_and_upper([1, 2, 3])] == [2, 1]


def test_numbers_are_written_for_people() -> None:
    assert interval_text(wilson(35, 1000), "share", interval=False) == "3.5 %"
    assert interval_text(exact(0.0004, 10), "share") == "0.04 % (n\u00a0=\u00a010)"
    assert interval_text(exact(-0.001, 10), "number", interval=False) == "0.00"
    assert interval_text(Interval(0.5, 0.5, 0.5, 3), "share") == "50.0 % (n\u00a0=\u00a03)"
    wide = Interval(0.98, 0.91, 1.05, 60)  # by the rule of three
    assert interval_text(wide, "share") == "98.0 % (91.0 .. 100.0, n\u00a0=\u00a060)"
    assert interval_text(wide, "number") == "0.98 (0.91 .. 1.1, n\u00a0=\u00a060)"
    assert interval_text(None, "share") == "–"
    assert interval_text(exact(math.nan, 0), "share") == "–"


@pytest.mark.parametrize("sheet", ["explorer/static/style.css", "report/templates/look.css"])
def test_every_outcome_has_a_look_of_its_own(sheet: str) -> None:
    style = (Path(ffmem.__file__).parent / sheet).read_text("utf-8")
    looks = [
        re.search(rf"\.verdict\.{word.replace(' ', '-')} {{(.*?)}}", style)
        for word in get_args(Outcome)
    ]
    assert all(looks), sheet
    assert len({look[1] for look in looks if look}) == len(looks)
