"""A plugin for pytest (`-p tools.test_order`): the tests in the order that FFMEM_TEST_ORDER names.

`reverse` begins with the last test. A number shuffles the files, each number in its own way: on
another machine a process may be given the files of tests in any order.
"""

from __future__ import annotations

import os
import random

import pytest


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Order the tests after everything else has ordered them."""
    order = os.environ["FFMEM_TEST_ORDER"]
    if order == "reverse":
        items.reverse()
        return
    files = sorted({item.path for item in items})
    random.Random(int(order)).shuffle(files)
    place = {path: at for at, path in enumerate(files)}
    items.sort(key=lambda item: place[item.path])
