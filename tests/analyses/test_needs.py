"""What would decide an undecided claim: it is tried on numbers whose truth is known."""

from __future__ import annotations

import math
import random
from dataclasses import replace
from statistics import NormalDist, fmean, stdev

import pytest

from ffmem.analyses.claim import Claim, Effect, Finding
from ffmem.analyses.open_claims.need import WAYS, Need
from ffmem.analyses.open_claims.needs import Measurement, need_of_units, with_needs
from ffmem.analyses.statistics import Interval
from ffmem.analyses.verdicts import LaterLook, Verdict, judge_claims, look_weight

KEYS = Measurement(100, "keys a layer", 10.0)
ABOVE = NormalDist().inv_cdf(0.975)


def measure(truth: float, units: int, draw: random.Random) -> Interval:
    """The mean of so many normal numbers with its interval."""
    found = [draw.gauss(truth, 1) for _ in range(units)]
    middle, half = fmean(found), ABOVE * stdev(found) / math.sqrt(units)
    return Interval(middle, middle - half, middle + half, units)


def exactly(value: float, half: float = 0.0, n: int = 100) -> Interval:
    return Interval(value, value - half, value + half, n)


def finding(found: Interval, **more: str) -> Finding:
    return replace(Finding(found, None, "", (Effect("effect", found),)), **more)


CLAIM = Claim("c", "a", "", "", "share", "", "paper", lambda found: found)
LOW = {"C": [{"a": finding(exactly(value))} for value in (-4.0, -4.1, -3.9)]}


def judged(found: Finding | None, measured: Measurement | None = KEYS) -> Verdict:
    """The verdict on one claim, whose controls have much less."""
    results = {} if found is None else {"a": found}
    verdicts = judge_claims([CLAIM], results, LOW)
    return with_needs(verdicts, {} if measured is None else {"c": measured})[0]


@pytest.mark.parametrize("truth", [0.15, -0.15])
def test_as_many_more_keys_as_it_says_decide_four_times_in_five(truth: float) -> None:
    """Of normal numbers, in a second look, in which the estimate is not what it was."""
    half = ABOVE / math.sqrt(KEYS.amount)
    first = judged(finding(exactly(truth, half)))
    assert first.word == "undecided"
    assert first.need is not None
    assert (first.need.kind, first.need.unit) == ("more", KEYS.unit)
    units = KEYS.amount + int(first.need.amount or 0)
    assert first.need.seconds == pytest.approx(KEYS.seconds * units / KEYS.amount, rel=0.02)
    draw, rounds, ended = random.Random(1), 200, 0
    for _ in range(rounds):
        again = LaterLook(2, finding(measure(truth, units, draw)), {})
        again = replace(again, controls={"C": [one["a"] for one in LOW["C"]]})
        word = judge_claims([CLAIM], {}, LOW, {"c": again})[0].word
        ended += word == ("holds" if truth > 0 else "does not hold")
    assert 0.72 < ended / rounds < 0.97  # the units are searched in steps of a quarter


def test_what_lies_on_its_bar_is_decided_by_nothing() -> None:
    found = judged(finding(exactly(0.001, 0.3))).need
    assert found is not None
    assert (found.kind, found.text) == ("nothing", "lies on the bar")


def test_a_claim_says_who_or_what_would_decide_it() -> None:
    unsure = finding(exactly(0.1, 0.3))
    assert judged(unsure).need is not None
    needs = {
        "the analysis a": judged(None),
        "people": judged(replace(unsure, reason="by rule not seen", awaits="people")),
        "lies on the bar, and all there is was read": judged(replace(unsure, whole=True)),
        "there is nothing to measure it on": judged(finding(exactly(math.nan))),
    }
    for text, verdict in needs.items():
        assert verdict.word == "undecided"
        assert verdict.need is not None
        assert verdict.need.text == text
        way = WAYS.get(verdict.need.kind, "")
        said = (
            f"what would decide it: {text} ({way})" if way else f"nothing would decide it: {text}"
        )
        assert verdict.need.sentence == said
    alone = judge_claims([CLAIM], {"a": finding(exactly(2, 0.1))})
    assert with_needs(alone, {"c": KEYS})[0].need == Need("controls", "controls")
    few = judge_claims([CLAIM], {"a": finding(exactly(2, 0.1, n=15))})
    assert with_needs(few, {"c": KEYS})[0].need == Need("controls", "controls")  # more alone is not
    denied = judge_claims([CLAIM], {"a": finding(exactly(-2, 0.1, n=15))})
    need = with_needs(denied, {"c": KEYS})[0].need  # which no control is needed for
    assert need is not None
    assert need.kind == "more"
    far = {"C": [{"a": finding(exactly(value))} for value in (-9.0, 0.0, 11.0)]}
    apart = judge_claims([CLAIM], {"a": finding(exactly(3, 0.1))}, far)
    assert with_needs(apart, {"c": KEYS})[0].need == Need("nothing", "the controls differ too much")
    decided = judged(finding(exactly(2, 0.1)))
    assert (decided.word, decided.need) == ("holds", None)


def test_too_few_observations_need_as_many_as_are_believed() -> None:
    few = judged(finding(exactly(5, 0.1, n=5)), Measurement(5, "keys a layer", 2.0))
    assert few.reason == "only 5 observations"
    assert few.need is not None
    assert few.need.text == "15 more keys a layer, 8 s"


def test_a_need_is_of_the_text_where_that_has_no_more() -> None:
    sentences = Measurement(1000, "sentences", 60.0, most=400, in_text=True)
    assert need_of_units(sentences, 1.2).text == "3.0 times the text, 72 s"
    assert need_of_units(replace(sentences, most=None), 2).text == "1,000 more sentences, 2 min"
    all_keys = Measurement(30, "keys a layer", 5.0, most=50)
    assert need_of_units(all_keys, 2).text == "lies on the bar"
    assert need_of_units(all_keys, 1.5).text == "15 more keys a layer, 8 s"


def test_all_looks_together_have_the_error_rate_of_one() -> None:
    shares = [1 / look_weight(look) for look in range(1, 40)]
    assert sum(shares) == pytest.approx(1)
    assert shares == sorted(shares, reverse=True)
    sure = finding(exactly(1, 0.9))
    first, second = (
        judge_claims([CLAIM], {"a": sure}, LOW, later)[0]
        for later in ({}, {"c": LaterLook(2, sure, {"C": [one["a"] for one in LOW["C"]]})})
    )
    assert second.chance == pytest.approx(18 * first.chance)
    assert (first.word, second.word, second.look) == ("holds", "undecided", 2)
