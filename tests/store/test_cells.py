"""The rows of cells against the slow way: count them one after the other."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ffmem.address import Address, Sign
from ffmem.errors import AddressError
from ffmem.store.cells import Cells, sign_factor


@st.composite
def some_cells(draw: st.DrawFn) -> Cells:
    numbers = draw(st.lists(st.integers(1, 40), unique=True, min_size=1, max_size=5))
    layers = tuple((number, draw(st.integers(1, 6))) for number in sorted(numbers))
    return Cells(layers, draw(st.booleans()))


def every_cell(cells: Cells) -> list[Address]:
    """All cells in the order that the store's format says: layer, then sign, then memory."""
    signs: tuple[Sign, ...] = ("+", "-") if cells.signed else ("",)
    return [
        Address(number, index, sign)
        for number, memories in cells.layers
        for sign in signs
        for index in range(memories)
    ]


@given(some_cells())
def test_rows_and_addresses_are_each_others_inverse(cells: Cells) -> None:
    expected = every_cell(cells)
    assert cells.count == len(expected)
    assert [cells.row(cell) for cell in expected] == list(range(cells.count))
    assert [cells.address(row) for row in range(cells.count)] == expected
    backwards = np.arange(cells.count)[::-1]
    assert cells.addresses(backwards) == expected[::-1]
    assert cells.addresses(np.zeros(0, np.int64)) == []


@given(some_cells())
def test_layers_and_signs_are_the_rows_that_have_them(cells: Cells) -> None:
    expected = every_cell(cells)
    for number, _ in cells.layers:
        mine = [cell for cell in expected if cell.layer == number]
        assert expected[cells.rows_of(number)] == mine
        assert cells.first_rows(np.array([number])) == [expected.index(mine[0])]
        assert cells.in_layer(number, range(len(mine))) == mine
        for sign in cells.signs:
            assert all(cell.sign == sign for cell in mine[cells.within(number, sign)])
    for sign in cells.signs:
        rows = cells.rows_with(sign).tolist()
        assert rows == [row for row, cell in enumerate(expected) if cell.sign == sign]


@given(some_cells())
def test_memories_are_counted_over_all_layers(cells: Cells) -> None:
    expected = every_cell(cells)
    names = [(number, index) for number, size in cells.layers for index in range(size)]
    numbers = [names.index((cell.layer, cell.index)) for cell in expected]
    assert [cells.memory(cell) for cell in expected] == numbers
    found, negative = cells.memories_of(np.arange(cells.count))
    assert found.tolist() == numbers
    assert negative.tolist() == [cell.sign == "-" for cell in expected]


@given(some_cells())
def test_the_opposite_has_the_other_factor(cells: Cells) -> None:
    for cell in every_cell(cells):
        other = cells.opposite(cell)
        if other is None:
            assert not cells.signed
            assert sign_factor(cell) == 1
        else:
            assert (other.layer, other.index) == (cell.layer, cell.index)
            assert sign_factor(other) == -sign_factor(cell)
            assert cells.opposite(other) == cell


@given(some_cells())
def test_an_address_without_a_sign_names_all_cells_of_its_memory(cells: Cells) -> None:
    for number, memories in cells.layers:
        whole = Address(number, memories - 1)
        mine = [
            cell for cell in every_cell(cells) if (cell.layer, cell.index) == (number, memories - 1)
        ]
        assert list(cells.resolve(whole)) == mine
        assert all(cells.resolve(cell) == (cell,) for cell in mine)


@pytest.mark.parametrize(
    ("address", "sentence"),
    [
        ("L3.0", "the scan has no layer 3; its layers are 2, 7"),
        ("L7.4", "the scan has no memory L7.4; layer 7 has memories 0 to 3"),
        ("L7.1-", "L7.1- names one sign, but the scan's layers are not gated; write L7.1"),
    ],
)
def test_an_address_that_is_not_there_is_refused(address: str, sentence: str) -> None:
    with pytest.raises(AddressError, match=sentence.replace(".", r"\.")):
        Cells(((2, 5), (7, 4)), signed=False).resolve(Address.parse(address))
