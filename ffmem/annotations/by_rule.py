"""The rule annotator on the sheets that people get, so that it can be compared with them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from ffmem.address import Address
from ffmem.annotations.sheets import Said, Sheet, as_said
from ffmem.annotations.shown import shown_prefixes
from ffmem.patterns.analysis import rule_annotator
from ffmem.patterns.clusters import Embedding
from ffmem.patterns.surface_rules import Background
from ffmem.store.scan_store import ScanStore


def answers_by_rule(
    store: ScanStore,
    sheets: Sequence[Sheet],
    embed: Callable[[Background], Embedding],
    seed: int = 0,
) -> Iterator[tuple[Sheet, tuple[Said, ...]]]:
    """Answer every sheet drawn from this scan; control sheets by the prefixes they show."""
    annotator, _ = rule_annotator(store, embed, seed)
    shown = shown_prefixes(store, sheets, seed)
    for sheet in sheets:
        if sheet.name in shown:
            key = Address.parse(sheet.key) if sheet.key else Address(sheet.layer, 0)
            yield sheet, as_said(annotator.patterns(key, shown[sheet.name]))
