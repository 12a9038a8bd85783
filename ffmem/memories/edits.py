"""Hold, scale or zero coefficients while a model runs, and restore everything afterwards.

A set of memories is a text file with one address per line; `#` begins a comment.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from itertools import groupby
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor, nn

from ffmem.address import PART, WHOLE, Address, Parts
from ffmem.errors import AddressError, EditError, shorten
from ffmem.locations import file_text
from ffmem.models.language_model import LanguageModel, check_model
from ffmem.models.patches import ValueChange

EXPERT = rf"L[1-9][0-9]*\.(?:{PART})"  # a whole one
ADDRESS = rf"\s*(?:{EXPERT}|L[1-9][0-9]*\.(?:(?:{PART})\.)?[0-9]+[+-]?)\s*"
NUMBER = r"\s*[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?\s*"
RANGE = r"[0-9]{1,7}(?:-[0-9]{1,7})?"
RANGES = rf"{RANGE}(?:,{RANGE})*"
EDIT_PATTERN = rf"^{ADDRESS}[=*]{NUMBER}(?:@{RANGES})?$"  # what `Edit.parse` reads
MOST_POSITIONS = 4096  # of one stretch
SET_EDIT = re.compile(r"@(.+?)(?:([=*×])([^=*×]*))?")
Means = Callable[[Sequence[Address]], Sequence[float]]


@dataclass(frozen=True)
class Edit:
    """A change of one memory's coefficient, after the activation function (an intervention).

    `positions` count the tokens that were read: 1 is the first token of a text, 0 the BOS where
    there is one; a text that is generated has no last one, so none is negative. None means every
    position. An address with a sign changes that cell only: `L7.3+` the positive part of the
    coefficient, `L7.3-` the size of the negative one.
    In a mixture of experts a memory can also be held at a number where its expert is not chosen;
    `L7.E3=0` silences all memories of an expert without changing the router's choice.
    `is_mean` says that the amount is the memory's mean coefficient: a control is held at its own.
    """

    address: Address
    action: Literal["set", "scale"]
    amount: float
    positions: tuple[int, ...] | None = None
    is_mean: bool = field(default=False, compare=False)

    @classmethod
    def parse(cls, text: str) -> Edit:
        """Read `L7.1034=0` (hold at a number) or `L7.1034*2` (scale; `×` is the same).

        `L7.1034=0@2,5-7` holds at these positions only.
        """
        text = (text if isinstance(text, str) else repr(text)).replace("×", "*")
        for mark, action in (("=", "set"), ("*", "scale")):
            name, found, rest = text.partition(mark)
            if found:
                amount, at, places = rest.partition("@")
                positions = _positions(places, text) if at else None
                return cls(_address(name, text), action, _number(amount, text), positions)  # type: ignore[arg-type]
        raise EditError(
            f"{shorten(text)!r} is not an edit; write an address and a number, as in L7.1034=0 "
            "or L7.1034*2"
        )

    def __str__(self) -> str:
        change = f"{self.address}{'=' if self.action == 'set' else '*'}{self.amount:g}"
        return change if self.positions is None else f"{change}@{_stretches(self.positions)}"

    def apply(self, m: Tensor) -> Tensor:
        """The new coefficients of this memory for the old ones, in any shape."""
        return _change_cell(m, self.address.sign, self._change)

    def _change(self, m: Tensor) -> Tensor:
        return torch.full_like(m, self.amount) if self.action == "set" else m * self.amount


def _change_cell(m: Tensor, sign: str, change: Callable[[Tensor], Tensor]) -> Tensor:
    """Coefficients after a change of the cells of one sign, or of whole memories."""
    if not sign:
        return change(m)
    if sign == "+":
        return change(m.clamp(min=0)) + m.clamp(max=0)
    return m.clamp(min=0) - change((-m).clamp(min=0))


def _address(name: str, text: str) -> Address:
    if re.fullmatch(EXPERT, name.strip()):
        return replace(Address.parse(f"{name.strip()}.0"), index=WHOLE)
    try:
        return Address.parse(name)
    except AddressError as error:
        raise EditError(f"in the edit {shorten(text)!r}: {error}") from None


def _positions(places: str, text: str) -> tuple[int, ...]:
    if re.fullmatch(RANGES, places.strip(), flags=re.ASCII) is None:
        raise EditError(
            f"in the edit {shorten(text)!r}, {shorten(places)!r} names no positions; write them as "
            "in L7.1034=0@2,5-7"
        )
    found: set[int] = set()
    for part in places.split(","):
        first, _, last = part.partition("-")
        stretch = range(int(first), int(last or first) + 1)
        if not 0 < len(stretch) <= MOST_POSITIONS:
            raise EditError(
                f"in the edit {shorten(text)!r}, {shorten(part)!r} is not a stretch of 1 to "
                f"{MOST_POSITIONS:,} positions; write the smaller number first, as in 5-7"
            )
        found.update(stretch)
    return tuple(sorted(found))


def _stretches(positions: Sequence[int]) -> str:
    """Positions as text, neighbours together: 2,5-7."""
    found: list[list[int]] = []
    for place in positions:
        if found and place == found[-1][1] + 1:
            found[-1][1] = place
        else:
            found.append([place, place])
    return ",".join(str(a) if a == b else f"{a}-{b}" for a, b in found)


def _number(amount: str, text: str) -> float:
    if re.fullmatch(NUMBER, amount) is None:
        raise EditError(
            f"in the edit {shorten(text)!r}, {shorten(amount)!r} is not a number; write it as "
            "in L7.1034=0"
        )
    number = float(amount)
    if math.isinf(number):
        raise EditError(
            f"in the edit {shorten(text)!r}, {shorten(amount)!r} is too large; "
            "write a smaller number"
        )
    return number


def _check_edit(model: LanguageModel, edit: Edit) -> None:
    """Refuse an address or position outside the model, and numbers that it cannot hold."""
    model.places_of(edit.address)
    first = 1 if model.bos is None else 0
    if edit.positions is not None and min(edit.positions, default=first) < first:
        why = "a text that is generated has no last one" if first == 0 else "it reads no BOS"
        raise EditError(f"in {edit}, positions of {model.name} count from {first}: {why}")
    if not torch.tensor(edit.amount, dtype=torch.float64).to(model.dtype).isfinite():
        kind = str(model.dtype).removeprefix("torch.")
        raise EditError(
            f"the edit {edit} is not finite in {kind}, the model's precision; choose a number "
            f"between {torch.finfo(model.dtype).min:.1e} and {torch.finfo(model.dtype).max:.1e}"
        )


def parse_edits(edits: Edit | str | Iterable[Edit | str] | Mapping[str, float]) -> list[Edit]:
    """Edits from one edit, several, or a dictionary of coefficients by address."""
    if isinstance(edits, Edit | str):
        edits = [edits]
    elif isinstance(edits, Mapping):
        edits = [f"{address}={amount}" for address, amount in edits.items()]
    elif not isinstance(edits, Iterable):
        edits = [edits]
    return [edit if isinstance(edit, Edit) else Edit.parse(edit) for edit in edits]


@contextmanager
def edited(
    model: LanguageModel, edits: Edit | str | Iterable[Edit | str] | Mapping[str, float]
) -> Iterator[None]:
    """Apply `edits` to every forward pass inside the `with`, in the order given.

    `edits` is one edit or several. An edit is an `Edit`, or text: `"L7.1034=0"` silences a memory
    (zero-ablation), `"L7.1034*2"` doubles its coefficient; `{"L7.1034": 0}` silences it too. They
    hold inside `generate()` too. All hooks are removed on exit, also after an exception.
    """
    check_model(model)
    parsed = parse_edits(edits)
    for edit in parsed:
        _check_edit(model, edit)
    seen = _ColumnTracker(lead=0 if model.bos is None else 1)
    ordered = sorted(parsed, key=lambda edit: edit.address.layer)  # stable: order is kept
    with ExitStack() as hooks:
        hooks.callback(
            model.block_stack.register_forward_pre_hook(seen.note, with_kwargs=True).remove
        )
        for number, group in groupby(ordered, key=lambda edit: edit.address.layer):
            layer = model.layer(number)
            hook = _changing(list(group), layer.parts, seen)
            hooks.callback(layer.value_map.module.register_forward_pre_hook(hook).remove)
        yield


@dataclass
class _ColumnTracker:
    """The columns of the whole input that the current forward pass computes."""

    lead: int  # columns before the first token: the BOS
    start: int = 0
    length: int = 0

    def note(self, _module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        cache = kwargs.get("past_key_values")
        tokens = kwargs.get("input_ids", args[0] if args else None)
        tokens = kwargs.get("inputs_embeds") if tokens is None else tokens
        self.start = 0 if cache is None else int(cache.get_seq_length())
        self.length = int(tokens.shape[1]) if tokens is not None else 0


@dataclass(frozen=True)
class _EditGroup:
    """Edits of different memories of a layer that change all positions in the same way."""

    edits: list[Edit]
    columns: list[int]

    def apply(self, m: Tensor) -> Tensor:
        amounts = torch.tensor([edit.amount for edit in self.edits]).to(m)
        first = self.edits[0]
        change = (lambda part: amounts.expand_as(part)) if first.action == "set" else amounts.mul
        return _change_cell(m, first.address.sign, change)


def _group_edits(edits: list[Edit], parts: Parts) -> tuple[list[_EditGroup], list[Edit]]:
    """Edits as a few groups, each applied in one step; those whose order matters stay single."""
    if any(edit.positions is not None or edit.address.index == WHOLE for edit in edits):
        return [], edits
    columns = [parts.index(edit.address) for edit in edits]
    if len(set(columns)) < len(columns):
        return [], edits
    kinds: dict[tuple[str, str], _EditGroup] = {}
    for edit, column in zip(edits, columns, strict=True):
        group = kinds.setdefault((edit.action, edit.address.sign), _EditGroup([], []))
        group.edits.append(edit)
        group.columns.append(column)
    return list(kinds.values()), []


def _changing(
    edits: list[Edit], parts: Parts, seen: _ColumnTracker
) -> Callable[..., tuple[Tensor, ...]]:
    groups, single = _group_edits(edits, parts)

    def hook(_module: nn.Module, inputs: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        changed = inputs[0].clone()
        by_column = changed.view(-1, seen.length, changed.shape[-1])
        for group in groups:
            by_column[..., group.columns] = group.apply(by_column[..., group.columns])
        for edit in single:
            cell = by_column[..., parts.columns(edit.address)]
            if edit.positions is None:
                cell.copy_(edit.apply(cell))
                continue
            for position in edit.positions:
                column = position - 1 + seen.lead
                if seen.start <= column < seen.start + seen.length:
                    here = cell[:, column - seen.start]
                    here.copy_(edit.apply(here))
        return (changed, *inputs[1:])

    return hook


def value_changes(model: LanguageModel, edits: Sequence[Edit]) -> dict[int, ValueChange]:
    """Edits as changes of values, by layer; memories by their places in the layer's arrays."""
    found: dict[int, ValueChange] = {}
    for edit in edits:
        _check_edit(model, edit)
        if edit.address.sign:
            raise EditError(
                f"{edit.address} is one sign of a memory, which no change of weights can edit; "
                f"write {str(edit.address)[:-1]}"
            )
        if edit.positions is not None:
            raise EditError(f"weights are the same at every position; leave out the @ of {edit}")
        change = found.setdefault(edit.address.layer, ValueChange({}, {}))
        for index in model.places_of(edit.address):
            if index in change.factors:
                raise EditError(f"{edit.address} is edited twice; write each memory once")
            change.factors[index] = edit.amount if edit.action == "scale" else 0.0
            if edit.action == "set":
                change.held[index] = edit.amount
    return found


def read_set(path: str | Path) -> tuple[Address, ...]:
    """Read a set of memories: the addresses in a text file, in its order, each once."""
    return parse_set(file_text(path, f"the set {path}", AddressError), str(path))


def parse_set(text: str, name: str) -> tuple[Address, ...]:
    """The addresses in the text of a set; `name` names the set in errors."""
    found: dict[Address, None] = {}
    for number, line in enumerate(text.splitlines(), 1):
        address = line.partition("#")[0].strip()
        if address:
            try:
                found[Address.guess(address) or Address.parse(address)] = None
            except AddressError as error:
                raise AddressError(f"line {number} of {name}: {error}") from None
    if not found:
        raise AddressError(f"the set {name} holds no address; write one per line, as in L7.1034")
    return tuple(found)


def set_text(addresses: Iterable[Address], about: str = "") -> str:
    """A set as the text of its file."""
    head = [f"# {line}" for line in about.splitlines()]
    return "\n".join([*head, *map(str, addresses)]) + "\n"


def _check_set(model: LanguageModel, addresses: Iterable[Address], name: str = "") -> None:
    """Refuse an address that is not in the model; `name` is the file that contains it, if any."""
    for address in addresses:
        try:
            model.layer_of(address)
        except AddressError as error:
            where = f"{address} in the set {name}: " if name else ""
            raise AddressError(f"{where}{error}") from None


def expand_edits(
    texts: Iterable[str], model: LanguageModel, means: Means | None = None
) -> list[Edit]:
    """Edits from texts; `@FILE=0`, `@FILE*2` and `@FILE=mean` expand to one edit per address.

    `@FILE` alone silences. `means` gives the mean coefficients for `=mean`; `L7.E3=mean` stands
    for one edit of each memory of the expert.
    """
    found: list[Edit] = []
    for text in texts:
        match = SET_EDIT.fullmatch(text)
        if match is None:
            name, mark, amount = text.partition("=")
            if mark and amount.strip() == "mean":
                found += _mean_edits([_address(name, text)], model, means)
            else:
                found.append(Edit.parse(text))
            continue
        addresses = read_set(match[1])
        _check_set(model, addresses, match[1])
        mark, amount = match[2] or "=", match[3] if match[2] else "0"
        if mark == "=" and amount.strip() == "mean":
            found += _mean_edits(addresses, model, means)
        else:
            found += [Edit.parse(f"{address}{mark}{amount}") for address in addresses]
    _check_set(model, [edit.address for edit in found])
    return found


def _mean_edits(
    addresses: Sequence[Address], model: LanguageModel, means: Means | None
) -> list[Edit]:
    """Hold each memory, and each of a whole expert, at its mean coefficient (mean-ablation)."""
    _check_set(model, addresses)
    if means is None:
        raise EditError(
            f"the mean of {shorten(str(addresses[0]))} is known only from a text; name a scan with "
            "--study, or write a number"
        )
    signed = [one for one in addresses if one.sign]
    if signed:
        raise EditError(f"a mean is that of a whole memory; write {str(signed[0])[:-1]}=mean")
    memories = [one for address in addresses for one in model.memories_of(address)]
    amounts = means(memories)
    return [
        Edit(one, "set", float(m), is_mean=True) for one, m in zip(memories, amounts, strict=True)
    ]
