"""Sets of memories: a text file with one address per line; `#` begins a comment."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from ffmem.address import Address
from ffmem.errors import AddressError, EditError, refusals, shorten
from ffmem.memories.edits import Edit
from ffmem.models.language_model import LanguageModel

SET_EDIT = re.compile(r"@(.+?)(?:([=*×])([^=*×]*))?")
Means = Callable[[Sequence[Address]], Sequence[float]]


def read_set(path: str | Path) -> tuple[Address, ...]:
    """The addresses in a file, in its order, each once; refuses an empty set."""
    with refusals(f"the set {path} cannot be read", AddressError):
        try:
            text = Path(path).read_text(encoding="utf-8")
        except UnicodeDecodeError:
            raise AddressError(
                f"the set {path} is not UTF-8 text; write one address per line"
            ) from None
    return parse_set(text, str(path))


def parse_set(text: str, name: str) -> tuple[Address, ...]:
    """The addresses in the text of a set; `name` says in an error which set it is."""
    found: dict[Address, None] = {}
    for number, line in enumerate(text.splitlines(), 1):
        address = line.partition("#")[0].strip()
        if address:
            try:
                found[Address.parse(address)] = None
            except AddressError as error:
                raise AddressError(f"line {number} of {name}: {error}") from None
    if not found:
        raise AddressError(f"the set {name} holds no address; write one per line, as in L7.1034")
    return tuple(found)


def set_text(addresses: Iterable[Address], about: str = "") -> str:
    """A set as its file says it."""
    head = [f"# {line}" for line in about.splitlines()]
    return "\n".join([*head, *map(str, addresses)]) + "\n"


def check_set(model: LanguageModel, addresses: Iterable[Address]) -> None:
    """Refuse an address that is not in the model."""
    for address in addresses:
        model.layer_of(address)


def expand_edits(
    texts: Iterable[str], model: LanguageModel, means: Means | None = None
) -> list[Edit]:
    """Edits from texts; `@FILE=0`, `@FILE*2` and `@FILE=mean` stand for one of each address.

    `@FILE` alone silences. `means` gives the mean coefficients for `=mean`.
    """
    found: list[Edit] = []
    for text in texts:
        match = SET_EDIT.fullmatch(text)
        if match is None:
            name, mark, amount = text.partition("=")
            if mark and amount.strip() == "mean":
                found += mean_edits([Address.parse(name)], model, means)
            else:
                found.append(Edit.parse(text))
            continue
        addresses = read_set(match[1])
        check_set(model, addresses)
        mark, amount = match[2] or "=", match[3] if match[2] else "0"
        if mark == "=" and amount.strip() == "mean":
            found += mean_edits(addresses, model, means)
        else:
            found += [Edit.parse(f"{address}{mark}{amount}") for address in addresses]
    check_set(model, [edit.address for edit in found])
    return found


def mean_edits(
    addresses: Sequence[Address], model: LanguageModel, means: Means | None
) -> list[Edit]:
    """Hold each memory at its mean coefficient (mean-ablation)."""
    check_set(model, addresses)
    if means is None:
        raise EditError(
            f"the mean of {shorten(str(addresses[0]))} is known only from a text; name a scan with "
            "--scan, or write a number"
        )
    signed = [one for one in addresses if one.sign]
    if signed:
        raise EditError(f"a mean is that of a whole memory; write {str(signed[0])[:-1]}=mean")
    amounts = means(addresses)
    return [Edit(one, "set", float(m)) for one, m in zip(addresses, amounts, strict=True)]
