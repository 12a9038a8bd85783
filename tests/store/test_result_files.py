"""A result goes to JSON and comes back as it was."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import pytest

from ffmem.address import Address
from ffmem.errors import StoreError
from ffmem.store.result_files import ResultFile, read_result, restore, to_plain, write_result


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
    count: int


OUTER = Outer(
    Address(3, 14), (Inner(0.5, "a"), Inner(1.0, "b")), (7, 2.5), {4: ("x", "y")}, None, 9
)


def test_a_round_trip_changes_nothing(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "outer.json"
    write_result(path, ResultFile("outer", {"seed": 1}, 0.25, OUTER))
    found = read_result(path)
    assert (found.name, found.made_from, found.seconds) == ("outer", {"seed": 1}, 0.25)
    assert restore(Outer, found.result) == OUTER


def test_what_is_no_number_is_null_and_comes_back_as_such() -> None:
    assert to_plain(Inner(math.nan, "a")) == {"share": None, "label": "a"}
    assert math.isnan(restore(Inner, {"share": None, "label": "a"}).share)


def test_a_damaged_file_is_one_sentence(tmp_path: Path) -> None:
    path = tmp_path / "bad.json"
    for text in ("{", '{"name": 1}', "[]"):
        path.write_text(text)
        with pytest.raises(StoreError, match="bad.json"):
            read_result(path)
