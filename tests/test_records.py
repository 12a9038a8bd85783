"""A record goes to JSON and comes back as it was; what is not plain is refused."""

from __future__ import annotations

import json
import math
import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

import pytest
import torch

from ffmem.address import Address
from ffmem.records import json_line, json_text, restore, to_plain


@dataclass(frozen=True)
class Inner:
    share: float
    label: Literal["a", "b"]


@dataclass(frozen=True)
class Outer:
    cell: Address
    rows: tuple[Inner, ...]
    pair: tuple[int, float]
    by_layer: dict[int, tuple[str, ...]]
    maybe: Inner | None
    mixed: dict[str, float | str]
    count: int


MIXED: dict[str, float | str] = {"a": 1.5, "b": "c"}
OUTER = Outer(
    Address(3, 14), (Inner(0.5, "a"), Inner(1.0, "b")), (7, 2.5), {4: ("x", "é\n")}, None, MIXED, 9
)


def test_a_round_trip_changes_nothing() -> None:
    for text in (json_text(OUTER), json_line(OUTER)):
        assert restore(Outer, json.loads(text)) == OUTER


def test_the_text_is_that_of_the_standard_library() -> None:
    plain = asdict(OUTER) | {"cell": "L3.14"}
    assert json_text(OUTER) == json.dumps(plain, indent=1, ensure_ascii=False) + "\n"
    assert json_line(OUTER) == json.dumps(plain, ensure_ascii=False, separators=(",", ":"))


def test_what_is_no_number_is_null_and_comes_back_as_such() -> None:
    assert to_plain(Inner(math.nan, "a")) == {"share": None, "label": "a"}
    assert to_plain([math.inf, -math.inf, 1.5]) == [None, None, 1.5]
    assert math.isnan(restore(Inner, {"share": None, "label": "a"}).share)


@pytest.mark.parametrize("value", [torch.ones(2), sys.stdin, Path(), {1, 2}, Outer, object()])
def test_what_is_not_plain_is_refused_wherever_it_lies(value: Any) -> None:
    for record in (value, [value], {"a": value}, Inner(value, "a")):
        with pytest.raises(TypeError, match="is not a plain value"):
            json_text(record)
