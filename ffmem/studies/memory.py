"""One memory as a value that shows itself: in a terminal as text, in a notebook as HTML."""

from __future__ import annotations

from dataclasses import dataclass
from html import escape

from ffmem.address import Address
from ffmem.store.lookup import TokenPush
from ffmem.store.scan_store import Counts, Trigger

SHOWN = 10  # triggers and tokens on display
BEFORE = 90  # characters of a prefix on display


@dataclass(frozen=True)
class Memory:
    """All that a store knows of one memory, strongest first."""

    address: Address
    counts: Counts
    promoted: tuple[TokenPush, ...]
    suppressed: tuple[TokenPush, ...]
    triggers: tuple[Trigger, ...]

    def __repr__(self) -> str:
        lines = [f"{self.address}: {self._fires()}", f"promotes {_tokens(self.promoted)}"]
        lines += [
            f"{t.coefficient:8.3f}  {t.before[-BEFORE:]}{t.last}[{t.next}]"
            for t in self.triggers[:SHOWN]
        ]
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        rows = "".join(
            f"<tr><td>{t.coefficient:.3f}</td><td style='text-align:left'>"
            f"{escape(t.before[-BEFORE:])}<u>{escape(t.last)}</u><b>[{escape(t.next)}]</b>"
            f"{escape(t.rest[:20])}</td></tr>"
            for t in self.triggers[:SHOWN]
        )
        return (
            f"<b>{self.address}</b>, {self._fires()}<br>"
            f"promotes {escape(_tokens(self.promoted))}<br>"
            f"suppresses {escape(_tokens(self.suppressed))}"
            f"<table>{rows or '<tr><td>nothing in the corpus fires it</td></tr>'}</table>"
        )

    def _fires(self) -> str:
        share = self.counts.fires / max(self.counts.prefixes, 1)
        return f"fires on {share:.2%} of {self.counts.prefixes:,} prefixes"


def _tokens(pushes: tuple[TokenPush, ...]) -> str:
    return "  ".join(push.text.replace(" ", "·") for push in pushes[:SHOWN])
