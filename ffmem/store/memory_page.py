"""All that a store knows of one cell, as one record that shows itself."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape

from ffmem.address import Address
from ffmem.store.lookup import MemoryIndex, TokenPush
from ffmem.store.scan_store import Counts
from ffmem.store.slots import Trigger, Triggers

SHOWN = 10  # triggers and tokens in a text
BEFORE = 90  # characters of a prefix in a text
REST = 20  # characters behind the next token in a text


@dataclass(frozen=True)
class TriggerText:
    """A trigger as it is shown: the end of the prefix, its last token, the next one, the rest."""

    before: str
    last: str
    next: str
    rest: str


def trigger_text(trigger: Trigger, width: int = BEFORE) -> TriggerText:
    """Cut a trigger to about `width` characters; the next token is in brackets."""
    return TriggerText(
        before=cut(trigger.before, width),
        last=trigger.last,
        next=f"[{trigger.next or 'end'}]",
        rest=cut_end(trigger.rest, REST),
    )


def cut(text: str, width: int) -> str:
    """The end of a text, from a word's beginning on where it has one."""
    if len(text) <= width:
        return text
    end = text[-width:]
    return "…" + (end.partition(" ")[2] or end)


def cut_end(text: str, width: int) -> str:
    """The beginning of a text, up to a word's end where it has one; dots stand for the rest."""
    if len(text) <= width:
        return text
    start = text[: max(width - 1, 0)]
    return (start.rpartition(" ")[0] or start).rstrip() + "…"


def fold_equal(triggers: Iterable[Trigger], most: int) -> list[tuple[Trigger, int]]:
    """The first triggers with different prefixes, and how often each prefix comes in a row."""
    folds: list[tuple[Trigger, int]] = []
    for trigger in triggers:
        if folds and prefix_of(folds[-1][0]) == prefix_of(trigger):
            folds[-1] = (folds[-1][0], folds[-1][1] + 1)
        elif len(folds) == most:
            break
        else:
            folds.append((trigger, 1))
    return folds


def prefix_of(trigger: Trigger) -> str:
    """What has been read."""
    return trigger.before + trigger.last


@dataclass(frozen=True)
class MemoryPage:
    """One cell: a memory, or one sign of a gated memory; tokens and triggers strongest first.

    A notebook shows it as a table. Triggers and sample are read from the store when looked at.
    """

    address: Address
    opposite: Address | None  # the other sign of a gated memory
    counts: Counts
    promoted: tuple[TokenPush, ...]
    suppressed: tuple[TokenPush, ...]
    triggers: Triggers
    sample: Triggers  # random prefixes among those that fire it

    @property
    def frequency(self) -> str:
        """How often it fires, in words."""
        counts = self.counts
        share = counts.fires / max(counts.prefixes, 1)
        return (
            f"fires on {counts.fires:,} of {counts.prefixes:,} prefixes ({share:.2%}), "
            f"mean {counts.mean:.3f}, largest {counts.largest:.3f}{self._threshold}{self._routing}"
        )

    @property
    def _threshold(self) -> str:
        counts = self.counts
        if counts.threshold is None or counts.positive is None:
            return ""
        share = counts.positive / max(counts.prefixes, 1)
        return (
            f"; to fire is a coefficient above {counts.threshold:.3g}, above 0 it is on {share:.2%}"
        )

    @property
    def _routing(self) -> str:
        expert = self.counts.expert
        if expert is None:
            return ""
        share = expert.routed / max(self.counts.prefixes, 1)
        given = self.counts.fires / max(expert.routed, 1)
        return (
            f"; expert {self.address.part} is chosen for {share:.2%}, with mean weight "
            f"{expert.mean_weight:.3f}, and it fires on {given:.2%} of those"
        )

    def __repr__(self) -> str:
        lines = [
            f"{self.address}: {self.frequency}",
            f"promotes {token_line(self.promoted)}",
            f"suppresses {token_line(self.suppressed)}",
        ]
        for trigger, times in fold_equal(self.triggers, SHOWN):
            text = trigger_text(trigger)
            prefix = f"{text.before}{text.last}{text.next}{times_text(times)}"
            lines.append(f"{trigger.coefficient:8.3f}  {prefix}")
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        rows = "".join(_table_row(*fold) for fold in fold_equal(self.triggers, SHOWN))
        return (
            f"<b>{self.address}</b>, {self.frequency}<br>"
            f"promotes {escape(token_line(self.promoted))}<br>"
            f"suppresses {escape(token_line(self.suppressed))}"
            f"<table>{rows or '<tr><td>nothing in the corpus fires it</td></tr>'}</table>"
        )


def token_line(pushes: Sequence[TokenPush]) -> str:
    """The first tokens in a line, their spaces visible."""
    return "  ".join(push.text.replace(" ", "·") for push in pushes[:SHOWN])


def times_text(times: int) -> str:
    """How many triggers in a row have one prefix, where it is more than one."""
    return f" ×{times}" if times > 1 else ""


def _table_row(trigger: Trigger, times: int) -> str:
    text = trigger_text(trigger)
    return (
        f"<tr><td>{trigger.coefficient:.3f}</td><td style='text-align:left'>"
        f"{escape(text.before)}<u>{escape(text.last)}</u><b>{escape(text.next)}</b>"
        f"{escape(text.rest)}{times_text(times)}</td></tr>"
    )


class MemoryPages(tuple[MemoryPage, ...]):
    """Both cells of a gated memory: a tuple that shows them one below the other."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "\n\n".join(map(repr, self))

    def _repr_html_(self) -> str:
        return "<br>".join(page._repr_html_() for page in self)


def memory_page(index: MemoryIndex, cell: Address) -> MemoryPage:
    """The page of one cell; a gated memory without a sign is not one cell."""
    store = index.store
    return MemoryPage(
        address=cell,
        opposite=store.cells.opposite(cell),
        counts=store.counts(cell),
        promoted=tuple(index.value_tokens(cell)),
        suppressed=tuple(index.value_tokens(cell, "suppressed")),
        triggers=store.triggers(cell),
        sample=store.triggers(cell, "sample"),
    )


def memory_pages(index: MemoryIndex, address: Address) -> MemoryPages:
    """The pages of all cells that an address names: two for a gated memory without a sign."""
    cells = index.store.cells.resolve(address)
    return MemoryPages(memory_page(index, cell) for cell in cells)
