"""Numbers on the command line; one that is out of range is refused before anything is done."""

from __future__ import annotations

import math

import click

from ffmem.os_errors import shortened


class Whole(click.ParamType[int]):
    """A whole number between two others, both included."""

    name = "integer"

    def __init__(self, least: int, most: int = 2**32) -> None:
        self.least, self.most = least, most

    def convert(
        self, value: str | int, param: click.Parameter | None, ctx: click.Context | None
    ) -> int:
        """Read the number."""
        try:
            number = int(value)
        except ValueError:
            number = self.least - 1
        if not self.least <= number <= self.most:
            shown = shortened(str(value))
            wanted = f"write a whole number from {self.least} to {self.most}"
            self.fail(f"{shown!r} is not one it can take; {wanted}.", param, ctx)
        return number


class Positive(click.ParamType[float]):
    """A number above 0 that is not infinite."""

    name = "float"

    def convert(
        self, value: str | float, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        """Read the number."""
        try:
            number = float(value)
        except ValueError:
            number = math.nan
        if not 0 < number < math.inf:
            shown = shortened(str(value))
            self.fail(f"{shown!r} is not one it can take; write a number above 0.", param, ctx)
        return number


SOME = Whole(1)
ANY = Whole(0)
SEED = Whole(0, 2**63 - 1)
POSITIVE = Positive()
