"""A field that a form sends empty is one that was not filled in."""

from __future__ import annotations

from pydantic import BeforeValidator


def none_if_empty(value: object) -> object:
    """None for the empty text; anything else as it is."""
    return None if value == "" else value


EMPTY_IS_NONE = BeforeValidator(none_if_empty)
