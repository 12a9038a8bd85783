"""A result on disk."""

from __future__ import annotations

from pathlib import Path

import pytest

from ffmem.address import Address
from ffmem.analyses.result_files import ResultFile, read_result, write_result
from ffmem.errors import StoreError


def test_a_result_on_disk_is_as_it_was(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "outer.json"
    write_result(path, ResultFile("outer", {"seed": 1}, 0.25, {"cell": Address(3, 14)}))
    assert read_result(path) == ResultFile("outer", {"seed": 1}, 0.25, {"cell": "L3.14"})


def test_a_damaged_file_is_one_sentence(tmp_path: Path) -> None:
    path = tmp_path / "bad.json"
    for text in ("{", '{"name": 1}', "[]"):
        path.write_text(text)
        with pytest.raises(StoreError, match="bad.json"):
            read_result(path)
