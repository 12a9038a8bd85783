"""Before a study runs, its plan names the claims that so few keys or prefixes cannot decide."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ffmem.analyses.analysis import SMALL_SIZES, Sizes, Workload, sizes_of
from ffmem.analyses.catalogue import CLAIMS, STANDARD
from ffmem.analyses.open_claims.forecast import (
    BY_ANALYSIS,
    BY_CLAIM,
    OF_READERS,
    open_claims,
    open_claims_text,
)

DEMO = Workload(16, 16_384, 150_000, 25, SMALL_SIZES, (16, 16_384))


def names(found: dict[str, list[str]]) -> set[str]:
    return {name for each in found.values() for name in each}


def test_every_name_is_that_of_a_claim_or_analysis() -> None:
    claims = {claim.name for claim in CLAIMS}
    assert claims >= {*BY_CLAIM, *OF_READERS}
    assert {claim.analysis for claim in CLAIMS} >= set(BY_ANALYSIS)


def test_few_keys_leave_claims_open_and_many_do_not() -> None:
    assert open_claims(DEMO, STANDARD, has_readings=True) == {}
    assert open_claims_text({}) == ""
    few = replace(DEMO, layers=3, memories=3072)
    found = open_claims(few, STANDARD)
    assert {"every-key-has-a-pattern", "last-token-fades", "silencing-matters"} <= names(found)
    assert "125 keys, not 45" in found
    assert "last-changes-are-distant" in found["people"]
    many = replace(few, sizes=Sizes(pattern_keys=200))
    assert names(open_claims(many, STANDARD)) < names(found)
    assert "a-third-is-settled-early" not in names(found)
    short = replace(few, tokens=25 * 40)  # forty sentences have forty prefixes
    assert "a-third-is-settled-early" in names(open_claims(short, STANDARD))
    gated = replace(few, memories=3 * 1536, signs=2)  # a memory's two cells are one unit
    assert "5,500 memories, not 4,608" in open_claims(gated, ("values",))
    assert "lower-values-do-not-agree" in names(found)
    assert "lower-values-do-not-agree" not in names(open_claims(gated, ("values",)))
    assert names(open_claims(few, ("values",))) == {"sure-values-are-right", *upper_values(found)}


@pytest.mark.parametrize("layers", [1, 3, 8, 30])
def test_where_layers_are_few_each_has_more_keys_and_memories(layers: int) -> None:
    work = replace(DEMO, layers=layers, memories=layers * 1536, sizes=sizes_of("small", layers))
    names_of = [name for name in STANDARD if name != "values"]  # which reads all there are
    found = set(open_claims(work, names_of))
    assert found <= {"people", f"160 keys, not {layers * work.sizes.pattern_keys}"}


def upper_values(found: dict[str, list[str]]) -> set[str]:
    return {name for name in names(found) if "value" in name or name == "ranks-improve"}


def test_the_plan_says_what_they_want() -> None:
    few = replace(DEMO, layers=3, memories=3072)
    text = open_claims_text(open_claims(few, ("removal",)))
    assert text == (
        "probably undecided after it: last-token-matters-most, first-token-matters-least, "
        "last-token-fades (wants 125 keys, not 45)"
    )
