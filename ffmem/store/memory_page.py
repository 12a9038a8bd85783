"""One record with everything that a store has on one cell; displays itself."""

from __future__ import annotations

import math
import zipfile
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from html import escape
from itertools import islice
from pathlib import Path
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from ffmem.address import Address
from ffmem.errors import visible_token
from ffmem.scan.histograms import Histogram
from ffmem.store.digests import check_note
from ffmem.store.lookup import MemoryIndex, TokenPush
from ffmem.store.scan_store import Counts, ScanStore
from ffmem.store.search_index import spans_of
from ffmem.store.slots import TRIGGERS_SHOWN, Trigger, TriggerList, read_together
from ffmem.store.weight_columns import weight_row

LINES_IN_TEXT = 10  # triggers and tokens in a text
BEFORE = 90  # characters of a prefix in a text
REST = 20  # characters behind the next token in a text
BANDS = (1.0, 0.75, 0.5, 0.25, 0.1, 0.0)  # of coefficients, in shares of the largest
PER_BAND = 3  # examples
LOWER_EDGES = np.array(BANDS[:0:-1], np.float32)
COLOUR = 0.75  # of the ground of a token with the largest coefficient


@dataclass(frozen=True)
class TriggerText:
    """A trigger for display: the end of the prefix, its last token, the next one, the rest."""

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
    """The end of a text, cut at the beginning of a word if possible."""
    if len(text) <= width:
        return text
    end = text[-width:]
    return "…" + (end.partition(" ")[2] or end)


def cut_end(text: str, width: int) -> str:
    """The beginning of a text, cut at the end of a word if possible, with dots for the rest."""
    if len(text) <= width:
        return text
    start = text[: max(width - 1, 0)]
    return (start.rpartition(" ")[0] or start).rstrip() + "…"


Mark = Literal["", "word", "last", "next"]
AROUND = 28  # characters on either side of a word that was looked for


@dataclass  # not frozen: a page has dozens, and a frozen one takes four times as long to make
class Piece:
    """A piece of a trigger: plain text, a searched word, the last token, or the next one."""

    text: str
    mark: Mark = ""


@dataclass  # not frozen, as above
class Evidence:
    """Why a search found a cell: one of its triggers (rank from 1), cut around the match."""

    rank: int
    coefficient: float
    pieces: tuple[Piece, ...]

    def __str__(self) -> str:
        brackets = {"next": "[{}]", "word": "*{}*"}
        return "".join(brackets.get(one.mark, "{}").format(one.text) for one in self.pieces)


def evidence(trigger: Trigger, rank: int, words: Collection[str] = ()) -> Evidence:
    """A trigger with some words marked, cut to about a line around the first of them."""
    read = trigger.before + trigger.last
    spans = spans_of(read, words) if words else []
    end = max(len(read) - BEFORE * 2 // 3, 0)
    windows = [(end, len(read))]
    if spans and spans[0][0] < end:
        first, stop = spans[0]
        windows = [(first - AROUND, stop + AROUND), (max(len(read) - AROUND, stop), len(read))]
    marks = mark_stretches(spans, len(trigger.before), len(read))
    pieces = [one for window in join_windows(windows, read) for one in runs(read, marks, window)]
    return Evidence(rank, trigger.coefficient, (*pieces, Piece(trigger.next or "end", "next")))


def mark_stretches(
    spans: Sequence[tuple[int, int]], last: int, end: int
) -> list[tuple[int, int, Mark]]:
    """A whole text as marked pieces: the words in `spans`, the last token, plain text."""
    if not spans:
        return [(0, last, ""), (last, end, "last")]
    found: list[tuple[int, int, Mark]] = []
    place = 0
    for start, stop in [*spans, (end, end)]:
        found += [(place, min(start, last), ""), (max(place, last), start, "last")]
        found.append((start, stop, "word"))
        place = stop
    return [(first, stop, mark) for first, stop, mark in found if first < stop]


def join_windows(windows: list[tuple[int, int]], text: str) -> list[tuple[int, int]]:
    """Windows of a text, merged where they touch and extended to whole words."""
    (first, stop), *rest = windows
    if rest and rest[0][0] <= stop:
        return join_windows([(first, rest[0][1])], text)
    first, stop = max(first, 0), min(stop, len(text))
    if first and (gap := text.find(" ", first, stop)) >= 0:
        first = gap
    if stop < len(text) and (gap := text.rfind(" ", first + 1, stop)) >= 0:
        stop = gap
    return [(first, stop), *(join_windows(rest, text) if rest else [])]


def runs(text: str, marks: Sequence[tuple[int, int, Mark]], window: tuple[int, int]) -> list[Piece]:
    """A window of a text as pieces of one mark each; dots replace omitted text before it."""
    first, stop = window
    pieces = [Piece("…")] if first else []
    for start, end, mark in marks:
        if start < stop and end > first:
            pieces.append(Piece(text[max(start, first) : min(end, stop)], mark))
    return pieces


def fold_equal(triggers: Iterable[Trigger], most: int) -> list[tuple[Trigger, int]]:
    """The first `most` triggers, equal prefixes in a row folded into one, with their number."""
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
    """The text of a trigger's prefix."""
    return trigger.before + trigger.last


@dataclass(frozen=True)
class CoefficientBand:
    """Prefixes whose coefficient is a share of the largest from `low` to `high`.

    `sampled` prefixes of the random sample lie in it. Examples come from the sample or, if it has
    too few, from the triggers after those that are shown anyway.
    """

    low: float
    high: float
    sampled: int
    examples: tuple[Trigger, ...]


def read_examples(
    triggers: TriggerList, sample: TriggerList, largest: float, shown: int = 0
) -> tuple[list[Trigger], tuple[CoefficientBand, ...]]:
    """The first triggers, `shown` of them; then the random sample and the weaker ones in bands.

    Bands are by size of the coefficient, strongest first.
    """
    if largest <= 0:
        return triggers[:shown], ()
    random, further = (
        sample.coefficients / largest,
        triggers.coefficients[TRIGGERS_SHOWN:] / largest,
    )
    inside = by_band(random)
    few = [spread_out(places, PER_BAND) for places in inside]
    more = [
        spread_out(places, PER_BAND - len(others))
        for places, others in zip(by_band(further), few, strict=True)
    ]
    first = list(range(min(shown, len(triggers))))
    first_and_weaker, of_sample = read_together(
        (triggers, first + [TRIGGERS_SHOWN + place for places in more for place in places]),
        (sample, [place for places in few for place in places]),
    )
    sampled, others = iter(of_sample), iter(first_and_weaker[len(first) :])
    return first_and_weaker[: len(first)], tuple(
        CoefficientBand(
            low,
            high,
            len(places),
            distinct_places([*islice(sampled, len(a)), *islice(others, len(b))]),
        )
        for low, high, places, a, b in zip(BANDS[1:], BANDS, inside, few, more, strict=False)
    )


def by_band(shares: NDArray[np.float32]) -> list[list[int]]:
    """The indices of `shares` of the largest coefficient in each band; 1 is in the highest."""
    found: list[list[int]] = [[] for _ in BANDS]
    for place, higher in enumerate(np.searchsorted(LOWER_EDGES, shares).tolist()):
        found[len(LOWER_EDGES) - higher].append(place)
    return found[:-1]  # without those that are not above 0


def distinct_places(triggers: Iterable[Trigger]) -> tuple[Trigger, ...]:
    """Triggers without repeats, strongest first."""
    found = {(one.sentence, one.position): one for one in triggers}
    return tuple(sorted(found.values(), key=lambda one: -one.coefficient))


def spread_out(places: Sequence[int], most: int) -> list[int]:
    """At most `most` of the places, evenly spaced from first to last."""
    if len(places) <= most:
        return list(places)
    return [places[len(places) * turn // most] for turn in range(most)]


def page_sentences(store: ScanStore, cell: Address, shown: int = TRIGGERS_SHOWN) -> list[int]:
    """The numbers of the sentences on a cell's page: first triggers, then examples of bands."""
    triggers, sample = store.triggers(cell), store.triggers(cell, "sample")
    _, bands = read_examples(triggers, sample, store.counts(cell).largest)
    numbers = triggers.slots.number[:shown].tolist()
    return list(dict.fromkeys([*numbers, *(one.sentence for b in bands for one in b.examples)]))


@dataclass(frozen=True, eq=False)
class StoredCoefficients:
    """The result of the analysis `coefficients`: coefficients along sentences, for some cells."""

    rows: NDArray[np.int64]  # [entry], in order
    sentences: NDArray[np.int64]  # [entry], in order within a row
    starts: NDArray[np.int64]
    shares: NDArray[np.float16]  # of the cell's largest coefficient

    def along(self, row: int, sentence: int, largest: float) -> NDArray[np.float32] | None:
        """A cell's coefficient at every token of a sentence, or None if it is not stored."""
        first, last = np.searchsorted(self.rows, [row, row + 1]).tolist()
        place = first + int(np.searchsorted(self.sentences[first:last], sentence))
        if place == last or int(self.sentences[place]) != sentence:
            return None
        part = self.shares[self.starts[place] : self.starts[place + 1]]
        return part.astype(np.float32) * np.float32(largest)


def stored_coefficients(store: ScanStore) -> StoredCoefficients | None:
    """The stored coefficients along sentences of this scan; reloaded when the file changes."""
    path = store.folder.numbers("coefficients")
    try:
        changed = path.stat().st_mtime_ns
    except OSError:
        return None
    return _read_coefficients(path, changed, store.manifest.key.digest)


@lru_cache(maxsize=4)
def _read_coefficients(path: Path, _changed: int, scan: str) -> StoredCoefficients | None:
    check_note(path)
    try:
        with np.load(path) as arrays:
            if str(arrays["scan"]) != scan:
                return None
            names = ("rows", "sentences", "starts", "shares")
            return StoredCoefficients(*(arrays[name] for name in names))
    except (ValueError, KeyError, EOFError, zipfile.BadZipFile):
        return None


@dataclass(frozen=True)
class MemoryPage:
    """One cell: a memory, or one sign of a gated memory; tokens and triggers strongest first.

    A notebook shows it as a table. Triggers and sample are read from the store on access.
    """

    address: Address
    opposite: Address | None  # the other sign of a gated memory
    counts: Counts
    promoted: tuple[TokenPush, ...]
    suppressed: tuple[TokenPush, ...]
    triggers: TriggerList
    sample: TriggerList  # random prefixes among those that fire it
    probability: float  # of the first promoted token, from this value alone
    vocabulary: int  # tokens

    @property
    def store(self) -> ScanStore:
        """The scan that the page is read from."""
        return self.triggers.slots.store

    @property
    def uniform(self) -> float:
        """The uniform probability: 1 / vocabulary size."""
        return 1 / max(self.vocabulary, 1)

    @property
    def histogram(self) -> Histogram | None:
        """The histogram of its coefficients, in powers of two; None for an older scan."""
        return self.store.histogram(self.address, self.triggers)

    @property
    def bands(self) -> tuple[CoefficientBand, ...]:
        """Examples by size of the coefficient, strongest first."""
        return self.examples()[1]

    def examples(self, shown: int = 0) -> tuple[list[Trigger], tuple[CoefficientBand, ...]]:
        """The first `shown` triggers and the bands, in one read."""
        return read_examples(self.triggers, self.sample, self.counts.largest, shown)

    @property
    def weights(self) -> dict[str, float | str]:
        """The memory's row of the weights analysis, if the study has one."""
        return weight_row(self.store, self.store.cells.memory(self.address))

    def times_uniform(self, pushes: Sequence[TokenPush]) -> list[float]:
        """The value's probability of each of some tokens as a multiple of the uniform one."""
        if not self.promoted:
            return [1.0] * len(pushes)
        first, times = self.promoted[0].logit, self.probability / self.uniform
        return [times * math.exp(push.logit - first) for push in pushes]

    def along(self, trigger: Trigger) -> list[tuple[str, float]] | None:
        """The trigger's whole sentence, token by token, with the coefficient at each.

        None if the study has not stored them.
        """
        known, store = stored_coefficients(self.store), self.store
        if known is None:
            return None
        row = store.cells.row(self.address)
        numbers = known.along(row, trigger.sentence, self.counts.largest)
        if numbers is None:
            return None
        pieces = store.sentences.pieces(store.sentences.row(trigger.sentence))
        return list(zip(pieces, numbers.tolist(), strict=True))

    @property
    def frequency(self) -> str:
        """How often it fires, as text."""
        counts = self.counts
        share = counts.fires / max(counts.prefixes, 1)
        return (
            f"fires on {counts.fires:,} of {counts.prefixes:,} prefixes ({100 * share:.2f} %), "
            f"mean {counts.mean:.3f}, largest {counts.largest:.3f}{self._threshold}{self._routing}"
        )

    @property
    def _threshold(self) -> str:
        counts = self.counts
        if counts.threshold is None or counts.positive is None:
            return ""
        share = counts.positive / max(counts.prefixes, 1)
        bar = f"{counts.threshold:.3g}"
        return f"; it fires above {bar}, and its coefficient is above 0 on {100 * share:.2f} %"

    @property
    def _routing(self) -> str:
        expert = self.counts.expert
        if expert is None:
            return ""
        if not expert.routed:
            return f"; expert {self.address.part} is never chosen"
        share = expert.routed / max(self.counts.prefixes, 1)
        given = self.counts.fires / expert.routed
        return (
            f"; expert {self.address.part} is chosen for {100 * share:.2f} %, with mean weight "
            f"{expert.mean_weight:.3f}, and it fires on {100 * given:.2f} % of those"
        )

    def __repr__(self) -> str:
        lines = [
            f"{self.address}: {self.frequency}",
            f"promotes {token_line(self.promoted)}",
            f"suppresses {token_line(self.suppressed)}",
        ]
        for trigger, times in fold_equal(self.triggers, LINES_IN_TEXT):
            text = trigger_text(trigger)
            prefix = f"{text.before}{text.last}{text.next}{times_text(times)}"
            lines.append(f"{trigger.coefficient:8.3f}  {prefix}")
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        rows = "".join(self._table_row(*fold) for fold in fold_equal(self.triggers, LINES_IN_TEXT))
        hook = (
            f"<code>{self.address.hook}</code> in TransformerLens<br>" if self.address.hook else ""
        )
        return (
            f"<b>{self.address}</b>, {self.frequency}<br>{hook}"
            f"promotes {escape(token_line(self.promoted))}<br>"
            f"suppresses {escape(token_line(self.suppressed))}"
            f"<table>{rows or '<tr><td>nothing in the corpus fires it</td></tr>'}</table>"
        )

    def _table_row(self, trigger: Trigger, times: int) -> str:
        """A trigger as a table row, coloured by token if the study has stored the coefficients."""
        text, tokens = trigger_text(trigger), self.along(trigger)
        read = f"{escape(text.before)}<u>{escape(text.last)}</u>"
        if tokens is not None:
            largest = max(self.counts.largest, 1e-30)
            before = [token_html(piece, m / largest) for piece, m in tokens[: trigger.position]]
            read = "".join([*before[:-1], f"<u>{before[-1]}</u>"])
        return (
            f"<tr><td>{trigger.coefficient:.3f}</td><td style='text-align:left'>{read}"
            f"<b>{escape(text.next)}</b>{escape(text.rest)}{times_text(times)}</td></tr>"
        )


def token_line(pushes: Sequence[TokenPush]) -> str:
    """The first tokens on one line, with visible spaces and control characters."""
    return "  ".join(visible_token(push.text) for push in pushes[:LINES_IN_TEXT])


def times_text(times: int) -> str:
    """`×3` for three triggers in a row with one prefix; empty for one."""
    return f" ×{times}" if times > 1 else ""


def token_html(text: str, share: float) -> str:
    """A token as HTML; the background is darker the larger its share of the largest coefficient."""
    strength = round(min(max(share, 0.0), 1.0) * COLOUR, 2)
    if not strength:
        return escape(text)
    return f"<span style='background:rgba(238,138,29,{strength})'>{escape(text)}</span>"


class MemoryPages(tuple[MemoryPage, ...]):
    """The pages of both cells of a gated memory: a tuple that displays one below the other."""

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
        probability=float(index.statistic("probability")[store.cells.row(cell)]),
        vocabulary=len(index.words),
    )


def memory_pages(index: MemoryIndex, address: Address) -> MemoryPages:
    """The pages of all cells that an address names: two for a gated memory without a sign."""
    cells = index.store.cells.resolve(address)
    return MemoryPages(memory_page(index, cell) for cell in cells)
