"""One record with everything that a store has on one cell; displays itself."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from html import escape
from itertools import islice
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from ffmem.address import Address
from ffmem.records import data_frame
from ffmem.scan.histograms import Histogram
from ffmem.store.folder import StudyFolder
from ffmem.store.scan_store import Counts, ScanStore
from ffmem.store.search.columns import (
    ValueAgreement,
    agreement_table,
    read_numbers,
    weight_row,
)
from ffmem.store.search.index import spans_of
from ffmem.store.search.lookup import MemoryIndex, TokenPush
from ffmem.store.slots import (
    TRIGGERS_SHOWN,
    Trigger,
    TriggerList,
    read_together,
    trigger_columns,
)
from ffmem.text import (
    Piece,
    Snippet,
    cut_end,
    marked_pieces,
    pieces_text,
    token_html,
    visible_token,
)

if TYPE_CHECKING:
    import pandas

LINES_IN_TEXT = 10  # triggers and tokens in a text
BEFORE = 90  # characters of a prefix in a text
REST = 20  # characters behind the next token in a text
BANDS = (1.0, 0.75, 0.5, 0.25, 0.1, 0.0)  # of coefficients, in shares of the largest
PER_BAND = 3  # examples
LOWER_EDGES = np.array(BANDS[:0:-1], np.float32)


@dataclass  # not frozen: a page has dozens, and a frozen one takes four times as long to make
class Evidence:
    """Why a search found a cell: one of its triggers (rank from 1), cut around the match."""

    rank: int
    coefficient: float
    pieces: tuple[Piece, ...]

    def __str__(self) -> str:
        return pieces_text(self.pieces)


def evidence(trigger: Trigger, rank: int, words: Collection[str] = ()) -> Evidence:
    """A trigger with some words marked, cut to about a line around the first of them."""
    spans = spans_of(trigger.prefix, words) if words else []
    return Evidence(rank, trigger.coefficient, marked_pieces(trigger, spans))


def fold_equal(triggers: Iterable[Trigger], most: int) -> list[tuple[Trigger, int]]:
    """The first `most` triggers, equal prefixes in a row folded into one, with their number."""
    folds: list[tuple[Trigger, int]] = []
    for trigger in triggers:
        if folds and folds[-1][0].prefix == trigger.prefix:
            folds[-1] = (folds[-1][0], folds[-1][1] + 1)
        elif len(folds) == most:
            break
        else:
            folds.append((trigger, 1))
    return folds


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


def _read_examples(
    triggers: TriggerList, sample: TriggerList, largest: float, shown: int = 0
) -> tuple[list[Trigger], list[Trigger], tuple[CoefficientBand, ...]]:
    """The first triggers, `shown` of them; the random sample; it and the weaker ones in bands.

    Bands are by size of the coefficient, strongest first. All is read at once.
    """
    if largest <= 0:
        return triggers[:shown], sample[:], ()
    random, further = (
        sample.coefficients / largest,
        triggers.coefficients[TRIGGERS_SHOWN:] / largest,
    )
    inside = _by_band(random)
    few = [spread_out(places, PER_BAND) for places in inside]
    more = [
        spread_out(places, PER_BAND - len(others))
        for places, others in zip(_by_band(further), few, strict=True)
    ]
    first = list(range(min(shown, len(triggers))))
    first_and_weaker, drawn = read_together(
        (triggers, first + [TRIGGERS_SHOWN + place for places in more for place in places]),
        (sample, list(range(len(sample)))),
    )
    others = iter(first_and_weaker[len(first) :])
    return (
        first_and_weaker[: len(first)],
        drawn,
        tuple(
            CoefficientBand(
                low,
                high,
                len(places),
                _distinct_places([*(drawn[place] for place in a), *islice(others, len(b))]),
            )
            for low, high, places, a, b in zip(BANDS[1:], BANDS, inside, few, more, strict=False)
        ),
    )


def _by_band(shares: NDArray[np.float32]) -> list[list[int]]:
    """The indices of `shares` of the largest coefficient in each band; 1 is in the highest."""
    found: list[list[int]] = [[] for _ in BANDS]
    for place, higher in enumerate(np.searchsorted(LOWER_EDGES, shares).tolist()):
        found[len(LOWER_EDGES) - higher].append(place)
    return found[:-1]  # without those that are not above 0


def _distinct_places(triggers: Iterable[Trigger]) -> tuple[Trigger, ...]:
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
    *_, bands = _read_examples(triggers, sample, store.counts(cell).largest)
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
    return _read_coefficients(store.folder, changed, store.manifest.key.digest)


@lru_cache(maxsize=4)
def _read_coefficients(folder: StudyFolder, _changed: int, scan: str) -> StoredCoefficients | None:
    names = ("rows", "sentences", "starts", "shares")
    found = read_numbers(folder, "coefficients", "scan", *names)
    return None if found is None or str(found[0]) != scan else StoredCoefficients(*found[1:])


@dataclass(frozen=True)
class SentenceCoefficients:
    """A sentence of the corpus, cut into tokens, with a cell's coefficient at each."""

    sentence: int
    tokens: tuple[str, ...]
    coefficients: tuple[float, ...]


@dataclass(frozen=True)
class MemoryPage:
    """One cell: a memory, or one sign of a gated memory; tokens and triggers strongest first.

    `ffmem show --json` prints it, the explorer answers with it, and a notebook shows it as a table.
    """

    address: Address
    opposite: Address | None  # the other sign of a gated memory
    hook: str | None  # the same activation in TransformerLens, whose layers count from 0
    counts: Counts
    vocabulary: int  # tokens
    probability: float | None  # of the first promoted token, from this value alone
    promoted: tuple[TokenPush, ...]  # none before values are ranked
    suppressed: tuple[TokenPush, ...]
    agreement: ValueAgreement | None  # with what follows the triggers, where analysed
    weights: dict[str, float | str]  # of its keys and values in numbers, where analysed
    histogram: Histogram  # of its coefficients, in powers of two
    stored: int  # triggers that the scan keeps
    triggers: tuple[Trigger, ...]  # the first of them
    sample: tuple[Trigger, ...]  # random prefixes among those that fire it
    bands: tuple[CoefficientBand, ...]  # examples by size of the coefficient, strongest first
    along: tuple[SentenceCoefficients, ...]  # of the triggers, where the study has stored them

    @property
    def uniform(self) -> float:
        """The uniform probability: 1 / vocabulary size."""
        return 1 / max(self.vocabulary, 1)

    def times_uniform(self, push: TokenPush) -> float:
        """The value's probability of one of its tokens as a multiple of the uniform one."""
        return (
            (self.probability or 0.0) / self.uniform * math.exp(push.logit - self.promoted[0].logit)
        )

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

    def frame(self) -> pandas.DataFrame:
        """Its triggers as a data frame, with the columns of `Study.triggers`."""
        return data_frame(trigger_columns([self.address] * len(self.triggers), self.triggers))

    def __repr__(self) -> str:
        lines = [
            f"{self.address}: {self.frequency}",
            f"promotes {token_line(self.promoted)}",
            f"suppresses {token_line(self.suppressed)}",
        ]
        for trigger, times in fold_equal(self.triggers, LINES_IN_TEXT):
            text = Snippet.of(trigger, BEFORE)
            lines.append(f"{trigger.coefficient:8.3f}  {text}{times_text(times)}")
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        along = {one.sentence: one for one in self.along}
        rows = "".join(
            self._table_row(one, times, along.get(one.sentence))
            for one, times in fold_equal(self.triggers, LINES_IN_TEXT)
        )
        hook = f"<code>{self.hook}</code> in TransformerLens<br>" if self.hook else ""
        return (
            f"<b>{self.address}</b>, {self.frequency}<br>{hook}"
            f"promotes {escape(token_line(self.promoted))}<br>"
            f"suppresses {escape(token_line(self.suppressed))}"
            f"<table>{rows or '<tr><td>nothing in the corpus fires it</td></tr>'}</table>"
        )

    def _table_row(self, trigger: Trigger, times: int, along: SentenceCoefficients | None) -> str:
        """A trigger as a table row, coloured by token if the study has stored the coefficients."""
        text = Snippet.of(trigger, BEFORE)
        read = f"{escape(text.before)}<u>{escape(text.last)}</u>"
        if along is not None:
            largest = max(self.counts.largest, 1e-30)
            shares = (one / largest for one in along.coefficients)
            *before, last = islice(map(token_html, along.tokens, shares), trigger.position)
            read = f"{''.join(before)}<u>{last}</u>"
        return (
            f"<tr><td>{trigger.coefficient:.3f}</td><td style='text-align:left'>{read}"
            f"<b>{escape(text.following)}</b>{escape(cut_end(trigger.rest, REST))}"
            f"{times_text(times)}</td></tr>"
        )


def token_line(pushes: Sequence[TokenPush]) -> str:
    """The first tokens on one line, with visible spaces and control characters."""
    return "  ".join(visible_token(push.text) for push in pushes[:LINES_IN_TEXT])


def times_text(times: int) -> str:
    """`×3` for three triggers in a row with one prefix; empty for one."""
    return f" ×{times}" if times > 1 else ""


def memory_page(index: MemoryIndex, address: Address, shown: int | None = None) -> MemoryPage:
    """The page of a cell with `shown` of its triggers, or all; without a sign it is the + cell."""
    store = index.store
    cell = store.cells.resolve(address)[0]
    row, counts = store.cells.row(cell), store.counts(cell)
    every, sample = store.triggers(cell), store.triggers(cell, "sample")
    most = len(every) if shown is None else shown
    triggers, drawn, bands = _read_examples(every, sample, counts.largest, most)
    known = agreement_table(store.folder, store.cells.count)
    return MemoryPage(
        address=cell,
        opposite=store.cells.opposite(cell),
        hook=cell.hook,
        counts=counts,
        vocabulary=len(index.words),
        probability=float(index.statistic("probability")[row]) if store.has_rankings else None,
        promoted=tuple(index.value_tokens(cell)),
        suppressed=tuple(index.value_tokens(cell, "suppressed")),
        agreement=None if known is None else known.of(row),
        weights=weight_row(store, store.cells.memory(cell)),
        histogram=store.histogram(cell, every),
        stored=len(every),
        triggers=tuple(triggers),
        sample=tuple(drawn),
        bands=bands,
        along=_along_triggers(store, cell, triggers, counts.largest),
    )


def _along_triggers(
    store: ScanStore, cell: Address, triggers: Sequence[Trigger], largest: float
) -> tuple[SentenceCoefficients, ...]:
    """The stored coefficients along the sentences of some triggers."""
    known = stored_coefficients(store)
    if known is None:
        return ()
    kept, row = store.sentences, store.cells.row(cell)
    found = []
    for number in dict.fromkeys(one.sentence for one in triggers):
        along = known.along(row, number, largest)
        if along is not None:
            pieces = kept.pieces(kept.row(number))
            found.append(SentenceCoefficients(number, tuple(pieces), tuple(along.tolist())))
    return tuple(found)
