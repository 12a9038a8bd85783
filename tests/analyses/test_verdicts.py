"""Claims are decided by numbers: each rule on studies that the paper is right and wrong about."""

from __future__ import annotations

import math
import random
import re
from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any, get_args

import pytest
import torch

import ffmem
from ffmem.address import Address
from ffmem.analyses.catalogue import CLAIMS
from ffmem.analyses.causal.claims import silencing_matters
from ffmem.analyses.causal.record import NextTokenEffect
from ffmem.analyses.claim import (
    FEWEST,
    AnyClaim,
    Claim,
    Effect,
    Finding,
    JointClaim,
    exact,
    interval_text,
)
from ffmem.analyses.composition.measure import dip_depth
from ffmem.analyses.inputs.blind_readings import READER, read_sheets, reader_name
from ffmem.analyses.last_layer.claims import last_changes_are_distant
from ffmem.analyses.last_layer.record import JudgedCases, JudgesCases
from ffmem.analyses.patterns.claims import every_key_has_a_pattern, semantic_takes_over
from ffmem.analyses.patterns.measure import summarise_patterns
from ffmem.analyses.patterns.readings import permuted_keys, read_key
from ffmem.analyses.patterns.record import (
    ControlRate,
    JudgedPatterns,
    JudgesPatterns,
    KeyPatterns,
    Pattern,
)
from ffmem.analyses.statistics import (
    ONE_SEED,
    Interval,
    beyond_seeds,
    bootstrap,
    difference,
    lower_and_upper,
    wilson,
)
from ffmem.analyses.study import Study
from ffmem.analyses.verdicts import ERROR_RATE, Outcome, Verdict, decide, judge_claims, tally
from tests.analyses.planted_studies import DIP, FLAT, PLANTED, RISE, Planted, key_patterns

NAMES = [one.name for one in CLAIMS]
BY_NAME = {one.name: one for one in CLAIMS}


@cache
def study_of(planted: Planted, maker: str, seed: int, toy: Study) -> Mapping[str, Any]:
    """Several claims rest on the same numbers."""
    return planted.study(maker, seed, toy)


@cache
def mixture_of(planted: Planted, seed: int, toy: Study) -> tuple[Mapping[str, Any], ...]:
    return planted.mixture(seed, toy)


def verdict(claim: AnyClaim, study: Mapping[str, Any], twin: Mapping[str, Any] | None) -> Verdict:
    """The verdict of a claim alone."""
    return judge_claims([claim], study, {} if twin is None else {"random weights": [twin]})[0]


def holds_among_all(found: Verdict) -> bool:
    """Whether a claim would hold even as the least likely one of the whole table."""
    return found.word == "holds" and found.chance * len(NAMES) <= ERROR_RATE


def test_every_rule_is_judged_and_has_its_planted_studies() -> None:
    files = sorted((Path(ffmem.__file__).parent / "analyses").glob("*/claims.py"))
    modules = [import_module(f"ffmem.analyses.{file.parent.name}.claims") for file in files]
    every = [one for module in modules for one in vars(module).values()]
    rules = {one.name for one in every if isinstance(one, Claim | JointClaim)}
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
    same, without = (verdict(BY_NAME[name], study, control) for control in (study, None))
    if found.finding is not None and found.finding.alone:
        assert {same.word, without.word} == {"holds"}
        return
    assert same.word == "also without training"
    assert (without.word, without.reason) == ("undecided", "no control")


@pytest.mark.parametrize("name", NAMES)
def test_a_study_contrary_to_the_paper_does_not_hold(name: str, toy_study: Study) -> None:
    planted = PLANTED[name]
    study, twin = (
        study_of(planted, *how, toy_study) for how in (("contrary", 1), ("untrained", 2))
    )
    assert verdict(BY_NAME[name], study, twin).word == "does not hold"
    assert verdict(BY_NAME[name], study, None).word == "does not hold"


NEVER_OPEN = {  # a number that is counted, not estimated
    "layers-are-most-parameters",
}


@pytest.mark.parametrize("name", [name for name in NAMES if name not in NEVER_OPEN])
def test_a_study_of_too_little_stays_undecided(name: str, toy_study: Study) -> None:
    """A prefix or key a layer as the paper says, and one contrary to it."""
    planted = PLANTED[name]
    for maker in ("trained", "contrary"):
        numbers = getattr(planted, maker)(torch.Generator().manual_seed(1))
        few = planted.results({one: each[:1] for one, each in numbers.items()}, toy_study)
        twin = study_of(planted, "untrained", 2, toy_study)
        found = verdict(BY_NAME[name], few, twin)
        assert found.word == "undecided", (maker, found)


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
    found = verdict(semantic_takes_over, {"patterns": study}, None)
    assert found.word == "undecided"
    assert "only readers can deny it" in found.reason
    cases = PLANTED["last-changes-are-distant"].study("trained", 1, toy_study)["last-layer"].rule
    found = verdict(last_changes_are_distant, {"last-layer": cases}, None)
    assert found.word == "undecided"
    assert found.reason.startswith("nobody has judged")


def test_people_decide_and_the_rule_stands_beside_them(toy_study: Study) -> None:
    planted = PLANTED["semantic-takes-over"]
    trained = planted.study("trained", 1, toy_study)["patterns"]
    assert "by ann, the hardest to convince of 2 people (alpha 0.80); by rule" in (
        every_key_has_a_pattern.check(trained).detail
    )
    doubter = planted.study("contrary", 1, toy_study)["patterns"].judges[1]
    one_doubts = type(trained)(trained.rule, (trained.judges[0], doubter), 0.1)
    found = verdict(semantic_takes_over, {"patterns": one_doubts}, None)
    assert found.word == "does not hold"
    assert found.finding is not None
    assert "by bo, the hardest to convince" in found.finding.detail


def person(related: float, on_controls: float, with_pattern: int, few: int) -> Mapping[str, Any]:
    """One person's answers: shares of related pairs, keys of 160 and controls of 32 with one."""
    cases = JudgesCases(
        "ann", wilson(round(100 * related), 100), wilson(round(50 * on_controls), 50)
    )
    controls = (ControlRate("random", wilson(few // 2, 16), 0.05),)
    controls += (ControlRate("matched", wilson(few - few // 2, 16), 0.05),)
    keys = [
        key_patterns(number // 10, int(number >= 90) if number < with_pattern else -1, number % 10)
        for number in range(160)
    ]
    return {
        "cases": cases,
        "patterns": JudgesPatterns(summarise_patterns("ann", keys), controls),
    }


def by_readers(
    keys: list[KeyPatterns], permuted: list[KeyPatterns], toy: Study
) -> Mapping[str, Any]:
    """Patterns of one who has also read keys of permuted weights."""
    summaries = [summarise_patterns(reader_name(READER), found) for found in (keys, permuted)]
    judge = JudgesPatterns(summaries[0], (), summaries[1])
    return {"patterns": JudgedPatterns(toy.result("patterns"), (judge,), math.nan)}


def test_the_blind_readings_see_meaning_rise_and_in_permuted_keys_they_do_not(
    toy_study: Study,
) -> None:
    demo = [read_key(sheet) for sheet in read_sheets() if sheet.model == "demo" and sheet.key]
    permuted = permuted_keys()
    found = verdict(semantic_takes_over, by_readers(demo, permuted, toy_study), None)
    assert found.word == "holds"
    for other in (demo, permuted):
        found = verdict(semantic_takes_over, by_readers(permuted, other, toy_study), None)
        assert found.word == "does not hold"
    order = torch.randperm(len(demo), generator=torch.Generator().manual_seed(0)).tolist()
    elsewhere = [replace(key, key=demo[other].key) for key, other in zip(demo, order, strict=True)]
    found = verdict(semantic_takes_over, by_readers(elsewhere, permuted, toy_study), None)
    assert found.word != "holds"


def test_fewer_shallow_triggers_above_are_no_meaning(toy_study: Study) -> None:
    """Ten of 25 triggers have a meaning in every layer; above, fewer have a shallow pattern."""

    def read(layer: int, number: int) -> KeyPatterns:
        key, shallow = Address(layer, number), 12 if layer < 10 else 4 + number % 3
        meaning = 9 + number % 3  # and so many of permuted keys, too
        return KeyPatterns(
            key,
            25,
            (
                Pattern(key, "a subject", "semantic", tuple(range(1, meaning + 1)), "ann"),
                Pattern(key, "a word", "shallow", tuple(range(26 - shallow, 26)), "ann"),
            ),
        )

    keys = [read(layer, number) for layer in range(1, 17) for number in range(10)]
    found = verdict(semantic_takes_over, by_readers(keys, keys, toy_study), None)
    assert found.finding is not None
    rises, *others = found.finding.effects
    assert all(effect.found.low > effect.bar for effect in others)
    assert rises.found.low <= 0
    assert found.word != "holds"


PEOPLES = (
    "every-key-has-a-pattern",
    "several-patterns-a-key",
    "most-triggers-are-covered",
    "semantic-takes-over",
    "last-changes-are-distant",
)


def judged_by(answers: Mapping[str, Any], toy: Study) -> dict[str, Verdict]:
    """The claims that people decide, in the whole table; no model is a control."""
    results = {
        "patterns": JudgedPatterns(toy.result("patterns"), (answers["patterns"],), 0.8),
        "last-layer": JudgedCases(toy.result("last-layer"), (answers["cases"],), 0.7),
    }
    return {one.name: one for one in judge_claims(CLAIMS, results) if one.name in PEOPLES}


def test_a_person_who_answers_as_the_papers_did_decides_and_one_at_random_does_not(
    toy_study: Study,
) -> None:
    """34 of 100 related; patterns on all keys and on few of the blind control keys."""
    found = judged_by(person(0.34, 0.02, 160, 2), toy_study)
    assert {one.word for one in found.values()} == {"holds"}, found
    for share in (0.34, 0.5):  # whatever is asked, and so for the blind controls too
        found = judged_by(person(share, share, round(160 * share), round(32 * share)), toy_study)
        assert "holds" not in {one.word for one in found.values()}, found
    found = judged_by(person(0.34, 0.34, 160, 32), toy_study)
    for name in ("every-key-has-a-pattern", "several-patterns-a-key", "last-changes-are-distant"):
        assert found[name].word == "undecided"
    assert "did not tell the cases" in found["last-changes-are-distant"].reason


def test_a_memory_and_the_other_one_are_compared_at_the_same_places(toy_study: Study) -> None:
    """A loss that both share at a place does not widen the interval of their difference."""
    found = PLANTED["silencing-matters"].study("trained", 1, toy_study)["causal"]
    both = 3 * torch.randn(10, generator=torch.Generator().manual_seed(0)).double()
    draw = torch.Generator().manual_seed(0)

    def wide(mean: float) -> NextTokenEffect:
        return NextTokenEffect(*[bootstrap(mean + both, draw)] * 4)

    own, other = wide(-0.5), wide(-0.4)
    pair = {"lost_more": Interval(0.1, 0.08, 0.12, 10)}
    layer = replace(found.layers[0], silenced=own, other_silenced=other, **pair)
    sure = silencing_matters.check(replace(found, layers=(layer,))).effects[0].found
    unsure = difference(other.value_log_probability, own.value_log_probability)
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


def numbers(*each: float) -> list[Finding]:
    """Findings of several seeds that are measured without error."""
    return [finding(effect(one, one)) for one in each]


@pytest.mark.parametrize(
    ("mine", "controls", "word", "reason"),
    [
        ((2, 3), numbers(0, 0.1, -0.1), "holds", ""),
        ((2, 3), numbers(-9, -8, -10), "holds", ""),
        ((2, 3), numbers(1, 1.1, 0.9), "holds", ""),  # no need to be twice as large
        ((2, 3), numbers(2.4, 2.5, 2.6), "also without training", "not clearly more than with C"),
        ((2, 3), numbers(4, 4.1, 4.2), "also without training", "not clearly more than with C"),
        (
            (2, 3),
            numbers(-4, -1, 4),  # another seed might well have more
            "undecided",
            "not clearly more than with C, where it does not hold",
        ),
        ((-1, 1), numbers(-3, -2), "undecided", "the interval reaches the bar: effect"),
        ((-1, 1), numbers(4, 4.1, 4.2), "does not hold", "less than with C"),
        ((-2, -1), numbers(-5, -4), "does not hold", "effect"),
        ((2, 3), [], "undecided", "no control"),
    ],
)
def test_four_outcomes(
    mine: tuple[float, float], controls: list[Finding], word: str, reason: str
) -> None:
    claim = Claim("c", "a", "", "", "share", "", "paper", lambda found: found)
    found = judge_claims(
        [claim], {"a": finding(effect(*mine))}, {"C": [{"a": one} for one in controls]}
    )[0]
    assert (found.word, found.reason) == (word, reason)


def test_the_kind_of_control_that_is_hardest_to_beat_decides() -> None:
    claim = Claim("c", "a", "", "", "share", "", "paper", lambda found: found)
    kinds = {"weak": numbers(0, 0.1, 0.2), "strong": numbers(2.4, 2.5, 2.6)}
    for order in (kinds, dict(reversed(kinds.items()))):
        controls = {kind: [{"a": one} for one in found] for kind, found in order.items()}
        found = judge_claims([claim], {"a": finding(effect(2, 3))}, controls)[0]
        assert (found.word, found.controls[0].kind) == ("also without training", "strong")
        assert "strong 2.4" in found.effect_text.replace("240.0 %", "2.4")


@pytest.mark.parametrize(("other", "least", "most"), [(2.0, 0.96, 0.985), (0.01, 0.94, 0.965)])
def test_the_span_of_seeds_has_another_one_at_least_as_often_as_it_says(
    other: float, least: float, most: float
) -> None:
    """Of normal numbers, with few seeds beside those of a kind that deviates as much, or hardly."""
    draw, inside, rounds = random.Random(1), 0, 4000
    for _ in range(rounds):
        mine, beside = (
            [draw.gauss(mean, deviation) for _ in range(4)]
            for mean, deviation in ((0, 2.0), (50, other))
        )
        kinds = [[exact_interval(one) for one in kind[:3]] for kind in (mine, beside)]
        span = beyond_seeds(kinds)[0]
        inside += span.low < mine[3] < span.high
    assert least < inside / rounds < most


def exact_interval(value: float) -> Interval:
    return Interval(value, value, value, 100)


def test_one_seed_is_taken_to_deviate_by_a_share_and_at_least_by_its_own_error() -> None:
    (span,) = beyond_seeds([[exact_interval(40.0)]])
    assert span.high - 40 == pytest.approx(1.96 * 40 * ONE_SEED * 2**0.5, rel=1e-3)
    (of_4_layers,) = beyond_seeds([[exact_interval(40.0)]], layers=4)
    assert of_4_layers.high - 40 == pytest.approx(2 * (span.high - 40))
    (near_zero,) = beyond_seeds([[Interval(0.1, -2.9, 3.1, 100)]])
    assert near_zero.high - 0.1 == pytest.approx(3 * 3**0.5)
    (none,) = beyond_seeds([[exact_interval(0.0)]])
    assert (none.low, none.high) == (0, 0)


def test_what_says_so_is_judged_by_its_bar_alone() -> None:
    claim = Claim(
        "c", "a", "", "", "share", "", "paper", lambda found: replace(found, alone="a fact")
    )
    for mine, expected in (((2, 3), "holds"), ((-3, -2), "does not hold"), ((-1, 1), "undecided")):
        controls = {"C": [{"a": finding(effect(5, 6))}]}
        found = judge_claims([claim], {"a": finding(effect(*mine))}, controls)[0]
        assert found.word == expected
        assert "bar alone: a fact" in found.effect_text


def test_every_effect_must_pass_its_bar_and_have_enough_behind_it() -> None:
    good = effect(2, 3)
    assert decide(finding(good, effect(-2, -1)), (), 0.0, 0.0)[0] == "does not hold"
    assert decide(finding(good, effect(-1, 1)), (), 0.0, 0.0)[0] == "undecided"
    few = effect(2, 3, n=FEWEST - 1)
    unsure = ("undecided", f"only {FEWEST - 1} observations")
    assert decide(finding(few), (), 0.0, 0.0) == unsure
    assert decide(finding(good, few), (), 0.0, 0.0) == unsure
    assert decide(finding(few, effect(-2, -1)), (), 1.0, 0.0)[0] == "does not hold"
    assert decide(finding(good, effect(-2, -1, n=FEWEST - 1)), (), 1.0, 0.0) == unsure
    assert decide(finding(effect(math.nan, math.nan)), (), 0.0, 0.0)[0] == "undecided"


def test_a_table_of_many_claims_is_corrected() -> None:
    """An effect that passes alone may be one of many chances."""
    claims = [
        Claim(f"c{n}", f"a{n}", "", "", "share", "", "paper", lambda found: found)
        for n in range(30)
    ]
    nothing = finding(effect(-1, 1))
    controls = {"C": [{f"a{n}": one for n in range(30)} for one in numbers(-4, -4.1)]}
    borders = {"holds": effect(0.01, 1), "does not hold": effect(-1, -0.05)}
    for word, border in borders.items():
        study = {f"a{n}": nothing for n in range(1, 30)} | {"a0": finding(border)}
        alone, among = (judge_claims(some, study, controls)[0] for some in (claims[:1], claims))
        assert alone.word == word
        assert among.word == "undecided"
        assert "may be chance among so many claims" in among.reason
    others = [claims[0], *(replace(one, source="own") for one in claims[1:])]
    assert judge_claims(others, study, controls)[0].word == word  # a family of their own
    missing = {"a0": study["a0"]}
    assert judge_claims(claims, missing, controls)[0].word == word  # nor those without a result


def test_no_result_is_no_verdict() -> None:
    verdicts = judge_claims(CLAIMS, {})
    assert {(one.word, one.reason) for one in verdicts} == {("undecided", "not measured")}


def test_the_headline_counts_the_papers_claims_alone() -> None:
    verdicts = judge_claims(CLAIMS, {})
    papers = [one.name for one in verdicts if one.source == "paper"]
    own = {"values-know-more-than-frequency", "values-follow-the-next-token", "silencing-matters"}
    assert not {*own, "layers-veto"} & set(papers)
    found = tally(verdicts)
    assert found.claims == len(papers) == 30
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
