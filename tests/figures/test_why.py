"""The graph of `ffmem why --edges`: who stands where."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ffmem.address import Address
from ffmem.figures.why import edge_graph, layout
from ffmem.memories.why.answer import why
from ffmem.memories.why.record import Edge, Why
from ffmem.models.language_model import LanguageModel


@pytest.fixture(scope="module")
def found(gated: LanguageModel) -> Why:
    """One memory of each layer at the first place, in a line; two at the second."""
    ends = [("L2.1+", 1, "L7.1+", 1), ("L7.1+", 1, "L9.1+", 1), ("L7.1+", 1, "L9.2+", 2)]
    more = [*ends, ("L9.1+", 1, "L12.4+", 1), ("L7.1+", 1, "L9.3+", 2)]
    edges = [Edge(Address.parse(a), p, Address.parse(b), q, 1.0, 1.0) for a, p, b, q in more]
    return replace(why(gated, "the", top=2), edges=tuple(edges))


def test_no_memory_is_above_another_of_its_place(found: Why) -> None:
    where, middles = layout(found)
    assert len(where) == 6
    assert len(set(where.values())) == 6
    first = [x for (_, place), x in where.items() if place == 1]
    second = [x for (_, place), x in where.items() if place == 2]
    assert 0 < min(first) < max(first) < 1 < min(second) < max(second) < 3
    assert middles == {1: 0.5, 2: 2.0}


def test_the_axis_has_the_layers_and_no_fractions(found: Why) -> None:
    y = edge_graph(found).to_dict()["layer"][0]["encoding"]["y"]
    assert y["axis"]["values"] == list(range(2, 13))
    assert y["scale"] == {"zero": False, "nice": False}
