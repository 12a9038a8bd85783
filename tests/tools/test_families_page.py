"""The page of model types says what its own table says."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import pytest

from ffmem.models.families import FAMILIES
from tools.families import BY_ROW, BY_STRUCTURE, REFUSED, VERDICTS, Result, page, reason

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "families.md"


@pytest.fixture(scope="module")
def text() -> str:
    return PAGE.read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def verdicts(text: str) -> dict[str, str]:
    rows = re.findall(rf"^\| ({'|'.join(VERDICTS)}) \| .* \| (`.*`) \|$", text, flags=re.MULTILINE)
    kinds = [(kind, verdict) for verdict, line in rows for kind in re.findall(r"`([^`]+)`", line)]
    assert len(kinds) == len(dict(kinds))
    return dict(kinds)


def test_every_tabled_family_passes_by_its_row(verdicts: dict[str, str]) -> None:
    assert {kind: verdicts.get(kind) for kind in FAMILIES} == dict.fromkeys(FAMILIES, BY_ROW)


def test_the_counts_are_those_of_the_table(text: str, verdicts: dict[str, str]) -> None:
    counts = Counter(verdicts.values())
    for verdict in VERDICTS:
        assert f"*{verdict.capitalize()}* ({counts[verdict]})" in text
    passed = counts[BY_ROW] + counts[BY_STRUCTURE]
    assert f"Of the {len(verdicts)} causal language model types" in text
    assert f"**{passed} pass**" in text
    assert passed - (verdicts["fairseq_lm"] in (BY_ROW, BY_STRUCTURE)) >= 150


def test_a_page_is_written_from_results() -> None:
    results = [
        Result("opt", BY_ROW, "sequential, relu", 3e-8),
        Result("ctrl", BY_ROW, "sequential, relu", 2e-8),
        Result("xglm", BY_ROW, "sequential, relu", 2e-8, "gradient"),
        Result("new", BY_STRUCTURE, "parallel, silu, gated", 0.0),
        Result("mixtral", REFUSED, "mixture of experts"),
        Result("bert", REFUSED, "reads ahead"),
    ]
    written = page(results)
    assert page(results[::-1]) == written
    assert "**4 pass**" in written
    assert "largest error of all that pass is 3e-08" in written
    assert written.endswith(
        "| passes by row | sequential, relu |  | `ctrl`, `opt` |\n"
        "| passes by row | sequential, relu | gradient | `xglm` |\n"
        "| passes by structure | parallel, silu, gated |  | `new` |\n"
        "| refused | mixture of experts |  | `mixtral` |\n"
        "| refused | reads ahead |  | `bert` |\n"
    )


def test_a_refusal_becomes_a_phrase() -> None:
    assert reason("x: its feed-forward layers are mixtures of experts (Y), ...") == (
        "experts that cannot be read"
    )
    assert reason("something new") == "something new"
