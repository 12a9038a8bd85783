"""Fig 1 from a real memory: what triggers its key, and what its value promotes."""

from __future__ import annotations

from typing import Any

import altair as alt

from ffmem.figures import style
from ffmem.store.memory_page import MemoryPage
from ffmem.text import cut

BEFORE = 60  # characters of a prefix
LINE = 24  # pixels per trigger
LEFT, MIDDLE, RIGHT = 430, 170, 150  # pixels: text before, last and next token, promoted tokens


def memory_chart(page: MemoryPage, rows: int = 8) -> Any:
    """Triggers on the left, the last token read in the middle, promoted tokens on the right."""
    lines = [
        {
            "row": row,
            "coefficient": found.coefficient,
            "before": cut(found.before, BEFORE),
            "last": found.last.strip() or found.last,
            "next": found.next.strip() or found.next or "end",
        }
        for row, found in enumerate(page.triggers[:rows])
    ]
    pushes = [
        {"row": row, "token": found.text.strip() or found.text, "logit": found.logit}
        for row, found in enumerate(page.promoted[:rows])
    ]
    place = alt.Y("row:O", axis=None)
    text = style.base(lines)
    before = text.mark_text(align="right", color=style.INK, fontSize=12).encode(
        x=alt.XValue(LEFT), y=place, text=alt.Text("before:N")
    )
    last = text.mark_text(align="left", color=style.BLUE, fontSize=12, fontWeight="bold").encode(
        x=alt.XValue(LEFT + 6), y=place, text=alt.Text("last:N")
    )
    following = text.mark_text(align="left", color=style.GREEN, fontSize=12).encode(
        x=alt.XValue(LEFT + MIDDLE - 70), y=place, text=alt.Text("next:N")
    )
    key = _panel(alt.layer(before, last, following), LEFT + MIDDLE, rows, "the key fires after …")
    bars = style.base(pushes)
    size = alt.X("logit:Q", axis=None, scale=alt.Scale(zero=True))
    bar = bars.mark_bar(color=style.GREEN, opacity=0.35).encode(x=size, y=place)
    name = bars.mark_text(align="left", dx=4, color=style.INK, fontSize=12).encode(
        x=alt.XValue(0), y=place, text=alt.Text("token:N")
    )
    value = _panel(alt.layer(bar, name), RIGHT, rows, "its value promotes")
    caption = (
        "Left: the strongest triggers, the last token read in blue, the token that followed in "
        "green. Right: the tokens that the value promotes most."
    )
    return style.with_caption(
        alt.hconcat(key, value, spacing=30), f"Memory {page.address}", caption, 3
    )


def _panel(chart: Any, width: int, rows: int, title: str) -> Any:
    heading = alt.TitleParams(title, anchor="start", color=style.INK, fontSize=12)
    return style.with_size(chart, width, LINE * rows).properties(title=heading)
