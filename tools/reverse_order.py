"""A plugin for pytest (`-p tools.reverse_order`): the same tests, the last one first."""

from __future__ import annotations

import pytest


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Turn the order around after everything else has ordered the tests."""
    items.reverse()
