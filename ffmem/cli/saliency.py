"""Which tokens of a trigger a key needs, for `ffmem show --saliency`."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ffmem.store.scan_store import ScanStore


def add_saliency(store: ScanStore, pages: list[dict[str, Any]], count: int) -> None:
    """Put the change of the coefficient, token by token, into the first triggers of each page."""
    from ffmem.address import Address
    from ffmem.analyses.removal import saliency
    from ffmem.studies.scanned_model import scanned_model

    model = scanned_model(store)
    for page in pages:
        key = Address.parse(page["address"])
        for trigger in page["triggers"][:count]:
            row, position = store.kept.row(trigger["sentence"]), trigger["position"]
            if position < 2:
                continue  # nothing would be left to read
            found = saliency(model, key, store.kept.token_ids(row)[:position].tolist())
            ends = [0, *store.kept.token_ends[store.kept.starts[row] :][:position].tolist()]
            text = store.kept.sentence(row)
            trigger["saliency"] = [
                {
                    "token": text[start:end],
                    "change": None if math.isnan(change) else round(change, 2),
                }
                for start, end, change in zip(ends, ends[1:], found.changes, strict=False)
            ]


def shaded(trigger: dict[str, Any]) -> Any:
    """One trigger as a line, redder where a removed token takes more of the coefficient away."""
    from rich.text import Text

    line = Text(f"  {trigger['coefficient']:8.3f}  ")
    for place in trigger["saliency"]:
        line.append(place["token"], style=ground(place["change"]))
    line.append(f"[{trigger['next']}]" if trigger["next"] else "[end]", style="bold")
    return line


def ground(change: float | None) -> str:
    """The style for a change in percent: red for a loss, blue for a gain, nothing near none."""
    if change is None or abs(change) < 5:
        return ""
    strength = min(abs(change), 100) / 100
    pale = round(235 - 150 * strength)
    red, green, blue = (235, pale, pale) if change < 0 else (pale, pale, 235)
    return f"black on #{red:02x}{green:02x}{blue:02x}"
