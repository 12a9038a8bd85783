"""Labels, notes and lists of memories, as pages show them and as files carry them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from ffmem.address import Address
from ffmem.errors import AddressError
from ffmem.explorer.context import StudyContext
from ffmem.memories.edits import parse_set, set_text
from ffmem.store.cells import Cells
from ffmem.store.people.memory_labels import Label, MemoryLabels

TOKENS = 5  # that a memory of a list promotes, shown beside it


@dataclass(frozen=True)
class LabelView:
    """What people say of one memory: its label and note, its lists, and all lists there are."""

    label: str
    note: str
    lists: tuple[str, ...]
    known_lists: tuple[str, ...]


@dataclass(frozen=True)
class ListLine:
    """A list, and how many memories are on it."""

    name: str
    memories: int


@dataclass(frozen=True)
class LabelLine:
    """A memory on a list, or with a label."""

    address: str
    label: str
    note: str
    promotes: tuple[str, ...]


@dataclass(frozen=True)
class Lists:
    """All lists, and all memories that have a label or a note."""

    lists: tuple[ListLine, ...]
    labels: tuple[LabelLine, ...]


@dataclass(frozen=True)
class ListView:
    """One list."""

    name: str
    memories: tuple[LabelLine, ...]


@dataclass(frozen=True)
class ListChange:
    """How many memories came to a list, or left it."""

    changed: int


def labels_of(context: StudyContext) -> MemoryLabels:
    """The labels of this study's scan."""
    return context.annotations.labels(context.store.manifest.key.digest)


def label_view(context: StudyContext, cell: Address) -> LabelView:
    """What people say of one memory."""
    if not context.has_annotations:
        return LabelView("", "", (), ())
    labels, key = labels_of(context), str(cell)
    label = labels.label(key)
    return LabelView(label.label, label.note, tuple(labels.lists(key)), tuple(labels.lists()))


def lists_view(context: StudyContext) -> Lists:
    """All lists and labels."""
    if not context.has_annotations:
        return Lists((), ())
    labels = labels_of(context)
    lines = tuple(ListLine(name, len(keys)) for name, keys in labels.lists().items())
    return Lists(lines, _label_lines(context, _sorted_keys(labels.labels())))


def list_view(context: StudyContext, name: str) -> ListView:
    """One list, with what its memories are called and promote."""
    return ListView(name, _label_lines(context, members(context, name)))


def members(context: StudyContext, name: str) -> tuple[str, ...]:
    """The addresses on a list; refuses one that is not there."""
    lists = labels_of(context).lists() if context.has_annotations else {}
    if name not in lists:
        known = ", ".join(lists) or "none yet"
        raise AddressError(f"there is no list {name!r}; the lists are: {known}")
    return lists[name]


def _label_lines(context: StudyContext, keys: Sequence[str]) -> tuple[LabelLine, ...]:
    """Memories with their labels and first tokens."""
    known = labels_of(context).labels()
    lines = []
    for key in keys:
        pushes = context.lookup.value_tokens(Address.parse(key), count=TOKENS)
        label = known.get(key, Label())
        lines.append(LabelLine(key, label.label, label.note, tuple(p.text for p in pushes)))
    return tuple(lines)


def _sorted_keys(keys: Iterable[str]) -> list[str]:
    """Addresses in the order of layers and memories."""
    return [str(one) for one in sorted(map(Address.parse, keys))]


def cells_of_set(cells: Cells, text: str) -> list[str]:
    """The cells that a set names; a gated memory without a sign is both of its cells."""
    return [str(cell) for one in parse_set(text, "the text") for cell in cells.resolve(one)]


def list_text(name: str, keys: Sequence[str]) -> str:
    """A list as a set of memories: both cells of a gated memory are the memory itself."""
    cells = dict.fromkeys(map(Address.parse, keys))
    whole = dict.fromkeys(
        cell.memory
        if cell.sign and {replace(cell, sign="+"), replace(cell, sign="-")} <= cells.keys()
        else cell
        for cell in cells
    )
    return set_text(whole, f"{name}: {len(whole)} memories, from a list of the explorer")
