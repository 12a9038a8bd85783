"""Arrays that make a store quick to search: made once from its tables, then memory-mapped.

| array                        | what                                                              |
|------------------------------|-------------------------------------------------------------------|
| promoted, promoted_logits    | [memory, rank]: the tokens that a value promotes most             |
| suppressed, ..._logits       | the same for its other end                                        |
| probability, suppressed_...  | [memory]: of the end's first token                                |
| promoting_starts, _rows, ... | of every token the cells that promote it, see parquet_tables.py   |
| suppressing_...              | the same for cells that suppress it                               |
| word_*, sentence_*           | which triggers a word is in                                       |

A word is a run of letters and digits, in lower case. It belongs to a trigger if it ends within
the prefix that was read.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Iterator
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ffmem.errors import StoreError
from ffmem.files.whole_files import write_errors, write_text
from ffmem.records import UNRESTORABLE
from ffmem.store.digests import Files, files_of, first_wrong, seal, unseal
from ffmem.store.folder import read_json
from ffmem.store.kept_sentences import flat_indices, starts_of
from ffmem.store.parquet_tables import (
    END_COLUMNS,
    End,
    all_pushes,
    by_token,
    end_column,
    read_column,
)
from ffmem.store.scan_store import READ_AT_OPENING, ScanStore
from ffmem.store.scan_writer import write_array_at
from ffmem.store.slots import TRIGGERS_SHOWN
from ffmem.store.verification import refuse_damage

CELLS = 1 << 15  # counted at a time
COMMON = 20_000  # triggers from which on a word's memories are counted in advance
# The same rule for characters as SEPARATORS and `_is_letter` have it for bytes, quick for one text.
WORD = re.compile("[0-9A-Za-z\u00c0-\u1fff\u2080-\u2fff\u3040-\U0010ffff]+")
SEPARATORS = ((0xC2, 0x80, 0xBF), (0xE2, 0x80, 0x81), (0xE3, 0x80, 0x80))  # lead, then second byte
FORMAT = 4  # raised when the arrays change
PUSHING: dict[str, End] = {"promoting": "promoted", "suppressing": "suppressed"}
Arrays = dict[str, NDArray[Any]]


@dataclass(frozen=True)
class WordOccurrences:
    """Every word of every sentence once, in order of sentences, with the tokens read by then."""

    words: NDArray[np.int64]
    sentences: NDArray[np.int64]
    read: NDArray[np.int64]


def _word_arrays(store: ScanStore) -> Iterator[tuple[str, NDArray[Any]]]:
    """The index as arrays: words, their sentences, the triggers of sentences, common words."""
    kept = store.sentences
    text = np.asarray(kept.text)
    starts, ends = word_spans(text, np.asarray(kept.text_starts))
    names, which = _distinct_words(text, starts, ends)
    rows = np.searchsorted(kept.text_starts, starts, side="right") - 1
    read = _tokens_read(text, ends, rows, store)
    first = _first_of_each(which, rows)
    spoken = WordOccurrences(which[first], rows[first], read[first])
    order = np.argsort(spoken.words, kind="stable")
    yield "word_text", np.frombuffer(b"".join(names), dtype=np.uint8)
    yield "word_text_starts", starts_of(np.array([len(name) for name in names], dtype=np.int64))
    word_starts = starts_of(np.bincount(spoken.words, minlength=len(names)))
    yield "word_starts", word_starts
    yield "word_sentences", spoken.sentences[order].astype(np.int32)
    yield "word_read", spoken.read[order].astype(np.uint16)
    triggers = dict(_sentence_triggers(store))
    yield from triggers.items()
    per_sentence = np.diff(triggers["sentence_starts"])
    totals = np.bincount(spoken.words, per_sentence[spoken.sentences], minlength=len(names))
    yield from common_words(store, spoken, np.flatnonzero(totals > COMMON))


def word_spans(
    text: NDArray[np.uint8], boundaries: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """First byte of every word and the byte behind it; no word goes over a boundary."""
    letter = np.zeros(len(text) + 2, dtype=bool)
    letter[1:-1] = _is_letter(text)
    change = np.flatnonzero(letter[1:] != letter[:-1])
    starts, ends = change[::2], change[1::2]
    cuts = boundaries[1:-1]
    inside = cuts[(np.searchsorted(starts, cuts) - np.searchsorted(ends, cuts, side="right")) > 0]
    return np.sort(np.concatenate([starts, inside])), np.sort(np.concatenate([ends, inside]))


def words_in(text: str) -> list[str]:
    """The different words of a text in lower case, in order of the alphabet."""
    return sorted({word for _, _, word in word_places(text)})


def word_places(text: str) -> list[tuple[int, int, str]]:
    """First character and end of every word of a text, and the word in lower case."""
    return [(match.start(), match.end(), match[0].lower()) for match in WORD.finditer(text)]


def spans_of(text: str, words: Collection[str]) -> list[tuple[int, int]]:
    """First character and end of every word of a text that is among some."""
    return [match.span() for match in WORD.finditer(text) if match[0].lower() in words]


def _is_letter(text: NDArray[np.uint8]) -> NDArray[np.bool_]:
    """Bytes that belong to words: letters, digits, and whatever is not ASCII nor punctuation."""
    known = np.zeros(256, dtype=bool)
    known[[byte for byte in range(128) if chr(byte).isalnum()]] = True
    known[128:] = True
    found = known[text]
    for lead, low, high in SEPARATORS:
        at = np.flatnonzero(text[:-1] == lead)
        at = at[(text[at + 1] >= low) & (text[at + 1] <= high)]
        for behind in range(2 if lead == 0xC2 else 3):
            found[np.minimum(at + behind, len(text) - 1)] = False
    return found


def _distinct_words(
    text: NDArray[np.uint8], starts: NDArray[np.int64], ends: NDArray[np.int64]
) -> tuple[list[bytes], NDArray[np.int64]]:
    """Every word in lower case once, sorted, and for each span the number of its word."""
    import pyarrow as pa

    letters = text[flat_indices(starts, ends - starts)]
    offsets = starts_of(ends - starts)
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(np.ascontiguousarray(letters))]
    raw = pa.Array.from_buffers(pa.large_binary(), len(starts), buffers).dictionary_encode()
    lower = [fold_case(word) for word in raw.dictionary.to_pylist()]
    names = sorted(set(lower))
    number = {name: place for place, name in enumerate(names)}
    renamed = np.array([number[word] for word in lower], dtype=np.int64)
    return names, renamed[raw.indices.to_numpy()]


def fold_case(word: bytes) -> bytes:
    """A word in lower case; bytes that are not text stay as they are."""
    return word.decode("utf-8", "surrogateescape").lower().encode("utf-8", "surrogateescape")


def _tokens_read(
    text: NDArray[np.uint8], ends: NDArray[np.int64], rows: NDArray[Any], store: ScanStore
) -> NDArray[np.int64]:
    """How many tokens of its sentence have been read when each word is whole."""
    kept = store.sentences
    letters = starts_of((text & 0xC0) != 0x80)  # characters before each byte
    behind = letters[ends] - letters[np.asarray(kept.text_starts)[rows]]
    # One key orders tokens of all sentences: sentence first, then where the token ends.
    step = int(np.asarray(kept.token_ends).max(initial=0)) + 2
    sentence = np.repeat(np.arange(len(kept)), np.diff(kept.starts))
    token_keys = sentence * step + np.asarray(kept.token_ends)
    place = np.searchsorted(token_keys, rows * step + behind)
    return place - np.asarray(kept.starts)[rows] + 1


def _first_of_each(which: NDArray[np.int64], rows: NDArray[Any]) -> NDArray[np.int64]:
    """The first span of every word in every sentence (spans stand in order of the text)."""
    pairs = which.astype(np.int64) * (int(rows.max(initial=0)) + 1) + rows
    return np.sort(np.unique(pairs, return_index=True)[1])


def _sentence_triggers(store: ScanStore) -> Iterator[tuple[str, NDArray[Any]]]:
    """For every kept sentence the cells that it triggers, and how much of it each has read."""
    slots = store.slots(slice(None), top=TRIGGERS_SHOWN)
    order = np.argsort(slots.sentence, kind="stable")
    yield "sentence_starts", starts_of(np.bincount(slots.sentence, minlength=len(store.sentences)))
    yield "sentence_cells", slots.cell[order].astype(np.int32)
    yield "sentence_read", slots.position[order].astype(np.uint16)


def common_words(
    store: ScanStore, spoken: WordOccurrences, common: NDArray[np.int64]
) -> Iterator[tuple[str, NDArray[Any]]]:
    """For every common word the cells with two or more triggers that hold it, most first."""
    place = np.full(int(spoken.words.max(initial=0)) + 1, -1)
    place[common] = np.arange(len(common))
    kept = place[spoken.words] >= 0
    few = WordOccurrences(place[spoken.words[kept]], spoken.sentences[kept], spoken.read[kept])
    starts = starts_of(np.bincount(few.sentences, minlength=len(store.sentences)))
    parts = [
        count_words(store, few, starts, slice(first, first + CELLS))
        for first in range(0, len(store.positive_counts), CELLS)
    ]
    words, cells, counts = (np.concatenate(column) for column in zip(*parts, strict=True))
    order = np.lexsort((cells, -counts, words))
    yield "common_words", common
    yield "common_starts", starts_of(np.bincount(words, minlength=len(common)))
    yield "common_cells", cells[order].astype(np.int32)
    yield "common_counts", counts[order].astype(np.uint8)


def count_words(
    store: ScanStore, few: WordOccurrences, starts: NDArray[np.int64], rows: slice
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    """(word, cell, triggers) of some cells, where two or more triggers hold the word."""
    slots = store.slots(rows, top=TRIGGERS_SHOWN)
    sizes = starts[slots.sentence + 1] - starts[slots.sentence]
    where = flat_indices(starts[slots.sentence], sizes)
    whole = few.read[where] <= np.repeat(slots.position, sizes)
    pairs = few.words[where[whole]] * CELLS + np.repeat(slots.cell, sizes)[whole]
    found, counts = np.unique(pairs, return_counts=True)
    found, counts = found[counts > 1], counts[counts > 1]
    return found // CELLS, found % CELLS + rows.start, counts


def open_index(store: ScanStore, watch: Callable[[str], None] = lambda _name: None) -> Arrays:
    """The arrays of a store, made now if they are not there; `watch` hears what is being made.

    In a folder that cannot be written they are held in memory instead. Two commands may make them
    at once: both write the same arrays, and neither takes any away.
    """
    if not is_current_index(store):
        refuse_damage(store)  # else the index would look right ever after
        try:
            with write_errors(store.folder.index_note):
                store.folder.index_note.unlink(missing_ok=True)
            digests: Files = {}
            for name, array in _index_arrays(store, watch):
                digests |= write_array_at(store.folder, store.folder.index_array(name), array)
            files = {name: asdict(digest) for name, digest in digests.items()}
            note = json.dumps(seal({**mark(store), "files": files}))
            write_text(store.folder.index_note, note)
        except StoreError:
            return dict(_index_arrays(store, watch))
    return load_arrays(store)


def load_arrays(store: ScanStore) -> Arrays:
    """The arrays that are in the folder, memory-mapped."""
    files = store.folder.matching(store.folder.index_array("*"))
    return {path.stem: np.load(path, mmap_mode="r").view(np.ndarray) for path in files}


def mark(store: ScanStore) -> dict[str, Any]:
    """The sources of the arrays, to detect outdated ones."""
    return {
        "format": FORMAT,
        "scan": store.manifest.key.digest,
        "values": _size_and_time(store) if store.has_rankings else None,
    }


def _size_and_time(store: ScanStore) -> list[int]:
    """The table of values as it lies there."""
    try:
        values = store.folder.table("values").stat()
    except OSError as error:
        raise StoreError(
            f"{store.folder.table('values')} cannot be read ({error.strerror}); scan again"
        ) from None
    return [values.st_size, values.st_mtime_ns]


def is_current_index(store: ScanStore) -> bool:
    """Whether the folder has the arrays, whole and of this scan."""
    try:
        found = unseal(read_json(store.folder, store.folder.index_note))
        files = files_of(found.pop("files"))
    except (OSError, *UNRESTORABLE):
        return False
    if found != mark(store):
        return False
    try:
        return first_wrong(store.folder.root, files, READ_AT_OPENING) is None
    except StoreError:  # closed to us, so it is as good as none
        return False


def _index_arrays(
    store: ScanStore, watch: Callable[[str], None]
) -> Iterator[tuple[str, NDArray[Any]]]:
    """Every array by its name, one after the other, so that few are in memory at once."""
    if store.has_rankings:
        yield from value_arrays(store, watch)
    watch("the words of triggers")
    yield from _word_arrays(store)


def value_arrays(
    store: ScanStore, watch: Callable[[str], None]
) -> Iterator[tuple[str, NDArray[Any]]]:
    """The ends of values, and the cells of every token."""
    watch("the ends of all values")
    for name in END_COLUMNS:
        yield name, end_column(store, name)
    words = len(read_column(store, "vocabulary", "id"))
    for name, end in PUSHING.items():
        watch(f"the memories {name} every token")
        pushes = all_pushes(store, end)
        if (pushes.tokens >= words).any():
            raise ValueError("a value promotes a token outside the vocabulary")
        starts, rows, ranks = by_token(pushes, words)
        yield f"{name}_starts", starts
        yield f"{name}_rows", rows
        yield f"{name}_ranks", ranks
