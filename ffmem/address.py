"""The name of a memory, the same in commands, URLs, files and figures."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property, total_ordering
from typing import Any, Literal

from ffmem.errors import AddressError, shorten

Sign = Literal["", "+", "-"]
WHOLE = -1  # the index in the name of a whole expert
PART = r"E[0-9]{1,9}|S(?:[1-9][0-9]{0,8})?"  # an expert, counted from 0, or a shared one


@total_ordering
@dataclass(frozen=True)
class Address:
    """One memory (MLP neuron): the `index`-th key/value pair of feed-forward layer `layer`.

    Layers are counted from 1, as in the paper; memories from 0. A gated layer's coefficient can
    have either sign, so there `sign` names the cell: `+` pushes along the value, `-` against it.
    In a mixture of experts memories are counted within their `part`: expert `E3`, or a shared
    expert `S` (`S1`, `S2` where there are several), as in L7.E3.1034.
    """

    layer: int
    index: int
    sign: Sign = ""
    part: str = ""

    def __str__(self) -> str:
        part = f".{self.part}" if self.part else ""
        index = "" if self.index == WHOLE else f".{self.index}"
        return f"L{self.layer}{part}{index}{self.sign}"

    def __repr__(self) -> str:
        return f"<Address {self}>"

    @property
    def memory(self) -> Address:
        """The address without a sign."""
        return replace(self, sign="")

    @property
    def hook(self) -> str | None:
        """The same activation in TransformerLens, which counts layers from 0.

        None in a mixture of experts, where a coefficient also holds the router's weight.
        """
        return None if self.part else f"blocks.{self.layer - 1}.mlp.hook_post[..., {self.index}]"

    def __lt__(self, other: Address) -> bool:
        return self._order < other._order

    @property
    def _order(self) -> tuple[int, str, int, int, str]:
        return self.layer, self.part[:1], int(self.part[1:] or 0), self.index, self.sign

    @classmethod
    def __get_pydantic_core_schema__(cls, _source: Any, handler: Any) -> Any:
        """Text, to whoever describes records."""
        return handler(str)

    @classmethod
    def parse(cls, text: str) -> Address:
        """Read what `str` writes; spaces around it are allowed."""
        given = text if isinstance(text, str) else repr(text)
        match = re.fullmatch(
            rf"L([1-9]\d{{,17}})\.(?:({PART})\.)?(\d{{1,18}})([+-]?)", given.strip(), flags=re.ASCII
        )
        if match is None or given is not text:
            raise AddressError(
                f"{shorten(given)!r} is not a memory address; write layer (from 1) and memory "
                "(from 0), as in L7.1034, followed by + or - for one sign of a gated memory, "
                "and the expert between them in a mixture of experts, as in L7.E3.1034"
            )
        sign: Sign = "+" if match[4] == "+" else "-" if match[4] == "-" else ""
        return cls(int(match[1]), int(match[3]), sign, _number(match[2] or ""))

    @classmethod
    def guess(cls, text: str) -> Address | None:
        """The address that a person means, also by `l7.1034` or `7.1034`; None for other text."""
        word = text.strip().upper()
        try:
            return cls.parse(word if word.startswith("L") else f"L{word}")
        except AddressError:
            return None


def _number(part: str) -> str:
    """The name of a part without zeros in front of its number."""
    return f"{part[0]}{int(part[1:])}" if part[1:] else part


@dataclass(frozen=True)
class Parts:
    """How the memories of one layer are divided, and their places in the layer's arrays.

    `experts` of `size` memories each come first, then the `shared` experts. A dense layer
    has no experts and one shared part, without a name. `numbers` are
    the numbers of the experts if some of the layer's are missing.
    """

    experts: int
    size: int
    shared: tuple[int, ...]
    numbers: tuple[int, ...] = ()

    @classmethod
    def dense(cls, memories: int) -> Parts:
        """The one part of a layer without experts."""
        return cls(0, 0, (memories,))

    @property
    def memories(self) -> int:
        """Number of memories in all parts."""
        return self.experts * self.size + sum(self.shared)

    @property
    def expert_numbers(self) -> Sequence[int]:
        """The numbers of the experts, in the order of the layer's arrays."""
        return self.numbers or range(self.experts)

    @cached_property
    def sizes(self) -> dict[str, int]:
        """Memories of every part by its name, in the order of the layer's arrays."""
        experts = {f"E{expert}": self.size for expert in self.expert_numbers}
        if not self.experts:
            return {"": self.shared[0]}
        if len(self.shared) == 1:
            return experts | {"S": self.shared[0]}
        return experts | {f"S{number}": size for number, size in enumerate(self.shared, start=1)}

    def index(self, address: Address, owner: str = "the model") -> int:
        """The place of a memory in its layer's arrays; refuses one that `owner` does not have."""
        within = self.within(address, owner)
        if not 0 <= address.index < within.stop - within.start:
            place = f"L{address.layer}.{address.part}" if address.part else f"layer {address.layer}"
            raise AddressError(
                f"{owner} has no memory {address}; {place} has memories 0 to "
                f"{within.stop - within.start - 1}"
            )
        return within.start + address.index

    def within(self, address: Address, owner: str = "the model") -> slice:
        """The places of an address's whole part in the layer's arrays."""
        sizes = self.sizes
        if address.part not in sizes:
            what = "expert" if address.index == WHOLE else "memory"
            raise AddressError(f"{owner} has no {what} {address}; {self._advice(address)}")
        if address.part.startswith("E"):
            start = self.expert_numbers.index(int(address.part[1:])) * self.size
        else:
            before = list(sizes).index(address.part) - self.experts
            start = self.experts * self.size + sum(self.shared[:before])
        return slice(start, start + sizes[address.part])

    def columns(self, address: Address, owner: str = "the model") -> slice | int:
        """The place of a memory, or the places of a whole expert."""
        if address.index == WHOLE:
            return self.within(address, owner)
        return self.index(address, owner)

    def part(self, index: int) -> tuple[str, int]:
        """The part that a place of the layer's arrays lies in, and the memory's index there."""
        if not self.experts:
            return "", index
        expert, inside = divmod(index, self.size)
        if expert < self.experts:
            return f"E{self.expert_numbers[expert]}", inside
        inside = index - self.experts * self.size
        for name, size in zip(list(self.sizes)[self.experts :], self.shared, strict=True):
            if inside < size:
                return name, inside
            inside -= size
        raise IndexError(index)

    def address(self, layer: int, index: int, sign: Sign = "") -> Address:
        """The name of the memory at a place of the layer's arrays."""
        part, inside = self.part(index)
        return Address(layer, inside, sign, part)

    def _advice(self, address: Address) -> str:
        """The hint for an address whose part the layer does not have."""
        layer, whole = address.layer, address.index == WHOLE
        if not self.experts:
            own = (
                f"name its memories, as in L{layer}.0"
                if whole
                else f"write L{layer}.{address.index}"
            )
            return f"layer {layer} has no experts, so {own}"
        numbers = self.expert_numbers
        experts = f"E{numbers[0]} to E{numbers[-1]}"
        if self.numbers:
            experts = ", ".join(f"E{number}" for number in numbers)
        beside = "".join(f" and {name}" for name in list(self.sizes)[self.experts :])
        return (
            f"layer {layer} is a mixture of experts with the parts {experts}"
            f"{beside}, so name one of them, as in "
            f"{replace(address, part=f'E{numbers[0]}', sign='')}"
        )
