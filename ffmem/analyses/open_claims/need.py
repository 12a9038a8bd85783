"""What an undecided claim needs, in words, and how a user gets it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from ffmem.text import duration_text

if TYPE_CHECKING:
    from ffmem.analyses.verdicts import Verdict

WAYS = {  # how a claim gets what it needs, by kind of need
    "more": "ffmem study DIR --decide",
    "text": "a longer --valid, and a new folder",
    "controls": "the same command without --no-controls",
    "people": "sheets by ffmem annotate",
    "analysis": "the same command with --only",
}
AIMS = {
    "more": "measure more",
    "text": "read more text",
    "controls": "have controls",
    "people": "ask people",
    "analysis": "have the analysis",
}


@dataclass(frozen=True)
class Need:
    """What would decide an undecided claim: `amount` more of a unit, or times the text; seconds.

    Of the other kinds `unit` says it in words.
    """

    kind: Literal["more", "text", "controls", "people", "analysis", "nothing"]
    unit: str
    amount: float | None = None
    seconds: float | None = None

    @property
    def text(self) -> str:
        """As a person says it: `12 more keys a layer, 7 s`."""
        words = self.unit
        if self.kind == "more" and self.amount is not None:
            words = f"{self.amount:,.0f} more {self.unit}"
        elif self.kind == "text" and self.amount is not None:
            words = f"{self.amount:.1f} times {self.unit}"
        return words if self.seconds is None else f"{words}, {duration_text(self.seconds)}"

    @property
    def sentence(self) -> str:
        """The same after what it answers."""
        if self.kind == "nothing":
            return f"nothing would decide it: {self.text}"
        return f"what would decide it: {self.text} ({WAYS[self.kind]})"


def ways_to_decide(verdicts: Sequence[Verdict]) -> list[str]:
    """How the undecided claims get what they need, a line for each kind of need."""
    kinds = {one.need.kind for one in verdicts if one.need is not None}
    return [f"to {AIMS[kind]}: {way}" for kind, way in WAYS.items() if kind in kinds]
