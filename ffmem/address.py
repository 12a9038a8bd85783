"""The name of a memory, the same in commands, URLs, files and figures."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

from ffmem.errors import AddressError, shorten

Sign = Literal["", "+", "-"]


@dataclass(frozen=True, order=True)
class Address:
    """One memory: the `index`-th key/value pair of feed-forward layer `layer`.

    Layers are counted from 1, as in the paper; memories from 0. A gated layer's coefficient can
    have either sign, so there `sign` names the cell: `+` pushes along the value, `-` against it.
    """

    layer: int
    index: int
    sign: Sign = ""

    def __str__(self) -> str:
        return f"L{self.layer}.{self.index}{self.sign}"

    @classmethod
    def parse(cls, text: str) -> Address:
        """Read what `str` writes; spaces around it are allowed."""
        match = re.fullmatch(r"L([1-9]\d{,17})\.(\d{1,18})([+-]?)", text.strip(), flags=re.ASCII)
        if match is None:
            raise AddressError(
                f"{shorten(text)!r} is not a memory address; write layer (from 1) and memory "
                "(from 0), as in L7.1034, with + or - behind it for one sign of a gated memory"
            )
        sign: Sign = "+" if match[3] == "+" else "-" if match[3] == "-" else ""
        return cls(int(match[1]), int(match[2]), sign)
