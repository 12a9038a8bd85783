"""The code on the pages about models runs."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from ffmem.models.families import FAMILIES, Family

DOCS = Path(__file__).parents[2] / "docs"


@pytest.mark.parametrize("page", ["concepts/memories.md", "how-to/add-a-family.md"])
def test_code_on_the_page_runs(page: str, capsys: pytest.CaptureFixture[str]) -> None:
    rows: dict[str, Family] = dict(FAMILIES)
    blocks = re.findall(r"```python\n(.*?)```", (DOCS / page).read_text("utf-8"), flags=re.DOTALL)
    assert blocks
    try:
        for block in blocks:
            names: dict[str, Any] = {}
            exec(block, names)
    finally:
        FAMILIES.clear()
        FAMILIES.update(rows)
    printed = capsys.readouterr().out
    assert page != "how-to/add-a-family.md" or "keys='feed_forward.up_proj'" in printed


def test_every_field_of_a_row_is_on_the_how_to_page() -> None:
    text = (DOCS / "how-to" / "add-a-family.md").read_text("utf-8")
    for field in Family.__dataclass_fields__:
        assert f"| `{field}` |" in text
