"""The patterns of any one key on request, with what they are worth, kept beside the study."""

from __future__ import annotations

import time
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import Path

from ffmem.address import Address
from ffmem.analyses.patterns.held_out import held_out_scores
from ffmem.analyses.patterns.measure import key_trial, reference_prefixes, rule_annotator
from ffmem.analyses.patterns.prefixes import Prefix, PseudoKeys, first_prefixes
from ffmem.analyses.patterns.record import MIN_TRIGGERS, HeldOutScore, Pattern
from ffmem.analyses.patterns.rule_annotator import Rule, RuleAnnotator, rules_from_examples
from ffmem.analyses.result_files import ResultFile, read_result, write_result
from ffmem.errors import StoreError
from ffmem.records import restore
from ffmem.store.folder import StudyFolder
from ffmem.store.people.annotators import RULES
from ffmem.store.scan_store import ScanStore
from ffmem.version import VERSION

RESULT = "patterns_on_request"


@dataclass(frozen=True)
class OutputScore:
    """How often a description tells what its memory writes from what a matched one writes.

    Shares of `questions` with two lists each, so that chance is one half: by the tokens that the
    values promote, and by those that fall most when the memories are silenced at their triggers.
    """

    questions: int
    by_value: float
    by_change: float


@dataclass(frozen=True)
class ChatUsage:
    """The cost of an explanation: questions to a language model, tokens read and written."""

    asked: int
    read: int
    written: int


@dataclass(frozen=True)
class KeyFinding:
    """What an annotator says of one key.

    `held_out` is the score of all its patterns as one: the triggers beyond those shown, against
    random prefixes and against weaker ones. The same rules found a pattern on `false_patterns` of
    `controls` control keys made for this key.
    """

    key: Address
    annotator: str
    triggers: int
    patterns: tuple[Pattern, ...]
    held_out: tuple[HeldOutScore, ...]
    controls: int
    false_patterns: int
    output: OutputScore | None = None
    usage: ChatUsage | None = None  # of a language model


class PatternFinder:
    """The rule annotator of one scan; it is calibrated when first asked, which takes a while."""

    def __init__(self, store: ScanStore, seed: int = 0) -> None:
        self.store, self.seed = store, seed

    @cached_property
    def _tools(self) -> tuple[RuleAnnotator, PseudoKeys]:
        return rule_annotator(self.store, self.seed)

    def by_rule(self, key: Address) -> KeyFinding:
        """The patterns that the rules find among a key's strongest triggers."""
        annotator, _ = self._tools
        shown = first_prefixes(self.store, key)
        found = annotator.rules(key, shown) if len(shown) >= MIN_TRIGGERS else []
        return self._finding(key, RULES, shown, found)

    def by_other(self, key: Address, patterns: Sequence[Pattern], name: str) -> KeyFinding:
        """Patterns that somebody else gave for a key, scored with the same yardstick."""
        annotator, _ = self._tools
        shown, others = first_prefixes(self.store, key), reference_prefixes(self.store, self.seed)
        return self._finding(
            key, name, shown, rules_from_examples(annotator, patterns, shown, others)
        )

    def _finding(
        self, key: Address, name: str, shown: Sequence[Prefix], rules: Sequence[Rule]
    ) -> KeyFinding:
        annotator, pseudo = self._tools
        own = PseudoKeys(pseudo.pool, self.seed + zlib.crc32(str(key).encode()), pseudo.shown)
        trial = key_trial(self.store, key, rules, own)
        scores = held_out_scores(annotator, [trial], "keys", self.seed)
        controls = own.of_each_kind(key.layer, shown, self.store) if shown else []
        return KeyFinding(
            key=key,
            annotator=name,
            triggers=len(shown),
            patterns=tuple(rule.pattern for rule in rules),
            held_out=tuple(score for score in scores if score.kind == "any"),
            controls=len(controls),
            false_patterns=sum(bool(annotator.rules(None, one.shown)) for one in controls),
        )


@dataclass(frozen=True)
class Findings:
    """All that was found on request; `records` are the patterns as other results have them."""

    records: tuple[Pattern, ...]
    findings: tuple[KeyFinding, ...]


def read_findings(folder: StudyFolder, scan: str) -> tuple[KeyFinding, ...]:
    """The findings in this scan so far; a damaged or older file counts as none."""
    path = folder.result(RESULT)
    try:
        record = read_result(path) if path.exists() else None
        if record is None or record.made_from.get("scan") != scan:
            return ()
        found: Findings = restore(Findings, record.result)
    except (StoreError, TypeError, ValueError, KeyError, AttributeError):
        return ()
    return found.findings


def add_findings(folder: StudyFolder, scan: str, new: Sequence[KeyFinding]) -> None:
    """Write what was found beside what was found before; of one key and annotator the newest."""
    began = time.monotonic()
    kept = {(one.key, one.annotator): one for one in (*read_findings(folder, scan), *new)}
    findings = tuple(kept.values())
    result = Findings(tuple(p for one in findings for p in one.patterns), findings)
    made_from = {"scan": scan, "ffmem": VERSION}
    seconds = round(time.monotonic() - began, 2)
    write_result(folder.result(RESULT), ResultFile(RESULT, made_from, seconds, result))


def findings_of(store: ScanStore, address: str) -> tuple[KeyFinding, ...]:
    """The patterns found on request for one memory."""
    path = store.folder.result(RESULT)
    try:
        changed = path.stat().st_mtime_ns
    except OSError:
        return ()
    return _by_key(path, changed, store.manifest.key.digest).get(address, ())


@lru_cache(maxsize=2)
def _by_key(path: Path, _changed: int, scan: str) -> dict[str, tuple[KeyFinding, ...]]:
    found: dict[str, tuple[KeyFinding, ...]] = {}
    for one in read_findings(StudyFolder(path.parent.parent), scan):
        found[str(one.key)] = (*found.get(str(one.key), ()), one)
    return found
