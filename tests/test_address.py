import pytest
from hypothesis import given
from hypothesis import strategies as st

from ffmem.address import Address
from ffmem.errors import AddressError


@given(st.integers(1, 500), st.integers(0, 10**6), st.sampled_from(["", "+", "-"]))
def test_what_is_written_can_be_read_again(layer: int, index: int, sign: str) -> None:
    address = Address(layer, index, sign)  # type: ignore[arg-type]
    assert Address.parse(str(address)) == address


def test_it_looks_as_in_the_paper() -> None:
    assert str(Address(7, 1034)) == "L7.1034"
    assert repr(Address(7, 1034, "-")) == "<Address L7.1034->"
    assert Address.parse(" L7.1034- ") == Address(7, 1034, "-")


@pytest.mark.parametrize("text", ["", "7.1034", "L0.3", "L7", "L7.x", "L7.3*", "L-1.3", "L７.3"])
def test_anything_else_is_refused_with_what_to_write(text: str) -> None:
    with pytest.raises(AddressError, match=r"L7\.1034"):
        Address.parse(text)
