"""The rule annotator on the sheets that people get, so that it can be compared with them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from ffmem.address import Address
from ffmem.analyses.meanings import Embedding
from ffmem.analyses.pattern_study import POOL, rule_annotator
from ffmem.analyses.patterns import SHOWN
from ffmem.analyses.prefixes import Prefix, random_prefixes, trigger_prefixes
from ffmem.analyses.rules import Background
from ffmem.annotations.records import Said, Sheet, as_said
from ffmem.store.scan_store import ScanStore


def answers_by_rule(
    store: ScanStore,
    sheets: Sequence[Sheet],
    embed: Callable[[Background], Embedding],
    seed: int = 0,
) -> Iterator[tuple[Sheet, tuple[Said, ...]]]:
    """Answer every sheet drawn from this scan; control sheets by the prefixes they show."""
    annotator, _ = rule_annotator(store, embed, seed)
    pool = {prefix.text: prefix for prefix in random_prefixes(store, POOL, seed)}
    for sheet in sheets:
        if sheet.scan == store.manifest.key.digest:
            key = Address.parse(sheet.key) if sheet.key else Address(sheet.layer, 0)
            prefixes = _prefixes(store, sheet, pool)
            yield sheet, as_said(annotator.patterns(key, prefixes))


def _prefixes(store: ScanStore, sheet: Sheet, pool: dict[str, Prefix]) -> list[Prefix]:
    if sheet.key is not None:
        found = trigger_prefixes(store, Address.parse(sheet.key))
        return [prefix for prefix, _ in found[:SHOWN]]
    texts = [shown.before + shown.last for shown in sheet.prefixes]
    return [pool[text] for text in texts if text in pool]
