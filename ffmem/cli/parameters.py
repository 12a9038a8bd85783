"""Types of parameters: paths and numbers, each refused with what it can be."""

from __future__ import annotations

import math
from pathlib import Path

import click

from ffmem.errors import shorten
from ffmem.locations import location


class Location(click.ParamType[Path]):
    """A local file or folder, or one at a URL; refused if it can never be opened."""

    name = "path"

    def convert(
        self, value: str | Path, _param: click.Parameter | None, _ctx: click.Context | None
    ) -> Path:
        """Read the path."""
        return location(value)


class Output(Location):
    """A folder to write, in which what is written stays."""

    def convert(
        self, value: str | Path, param: click.Parameter | None, ctx: click.Context | None
    ) -> Path:
        """Read the path."""
        if str(value).startswith("memory:"):
            raise click.UsageError(
                f"{value} is gone when this command ends; choose a folder, or storage that stays"
            )
        return super().convert(value, param, ctx)


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
            shown = shorten(str(value))
            wanted = f"write a whole number from {self.least} to {self.most}"
            self.fail(f"{shown!r} is not one it can take; {wanted}.", param, ctx)
        return number


class Positive(click.ParamType[float]):
    """A number above 0 and below another."""

    name = "float"

    def __init__(self, bound: float = math.inf) -> None:
        self.bound = bound

    def convert(
        self, value: str | float, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        """Read the number."""
        try:
            number = float(value)
        except ValueError:
            number = math.nan
        if not 0 < number < self.bound:
            shown = shorten(str(value))
            wanted = "write a number above 0" + (
                f" and below {self.bound:g}" if self.bound < math.inf else ""
            )
            self.fail(f"{shown!r} is not one it can take; {wanted}.", param, ctx)
        return number


LOCATION, OUTPUT = Location(), Output()
SOME = Whole(1)
ANY = Whole(0)
SEED = Whole(0, 2**63 - 1)
POSITIVE = Positive()
SHARE_TYPE = Positive(1)
