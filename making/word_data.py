"""Text as fairseq reads it: words in WikiText's form, `</s>` behind lines, ids by frequency."""

import itertools
import multiprocessing
from collections import Counter
from collections.abc import Iterable, Iterator
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from ffmem.corpus.splitters import split_by_rule
from ffmem.models.fairseq.word_list import SPECIAL, read_words, word_splitter

from making.files import write_whole

CHUNK = 5_000  # lines per piece of work
END, UNKNOWN = SPECIAL.index("</s>"), SPECIAL.index("<unk>")
Ids = np.ndarray[tuple[int], np.dtype[np.int32]]


@lru_cache
def _splitter() -> Any:
    return word_splitter(wikitext=True)


def words_of(line: str) -> list[str]:
    """The words of one line, sentence by sentence, as a scan of the same text reads them."""
    tokenizer, found = _splitter(), []
    for start, end in split_by_rule(line):
        text = tokenizer.normalizer.normalize_str(line[start:end])
        found += [word for word, _ in tokenizer.pre_tokenizer.pre_tokenize_str(text)]
    return found


def count_words(lines: list[str]) -> Counter[str]:
    """How often each word is there."""
    return Counter(itertools.chain.from_iterable(map(words_of, lines)))


def ids_of(lines: list[str], numbers: dict[str, int]) -> Ids:
    """The ids of all words, with the end of each line."""
    found: list[int] = []
    for line in lines:
        found += [numbers.get(word, UNKNOWN) for word in words_of(line)]
        found.append(END)
    return np.array(found, dtype=np.int32)


def chunks(lines: Iterable[str]) -> Iterator[list[str]]:
    """Some lines at a time."""
    rest = iter(lines)
    return iter(lambda: list(itertools.islice(rest, CHUNK)), [])


def in_processes(work: Any, pieces: Iterable[Any], processes: int) -> Iterator[Any]:
    """The results in order."""
    if processes == 1:
        yield from map(work, pieces)
        return
    with multiprocessing.get_context("fork").Pool(processes) as pool:
        yield from pool.imap(work, pieces)


def write_dictionary(lines: Iterable[str], path: Path, most: int, least: int, jobs: int) -> None:
    """Write dict.txt: words by frequency, filled up to a multiple of 8 as fairseq does.

    At most `most` ids with fairseq's own four, of words that are there at least `least` times.
    """
    counts: Counter[str] = Counter()
    for part in in_processes(count_words, chunks(lines), jobs):
        counts.update(part)
    ordered = sorted(counts.items(), key=lambda pair: (-pair[1], pair[0]))
    rows = [(word, n) for word, n in ordered if n >= least and word not in SPECIAL]
    rows = rows[: most - len(SPECIAL)]
    missing = -(len(rows) + len(SPECIAL)) % 8
    rows += [(f"madeupword{number:04d}", 0) for number in range(missing)]
    write_whole(path, "".join(f"{word} {n}\n" for word, n in rows).encode())


_NUMBERS: dict[str, int] = {}  # processes that are forked see them without a copy


def _ids(lines: list[str]) -> Ids:
    return ids_of(lines, _NUMBERS)


def encode_words(lines: Iterable[str], dictionary: Path, jobs: int) -> Ids:
    """All lines as one row of ids."""
    _NUMBERS.clear()
    _NUMBERS.update((word, number) for number, word in enumerate(read_words(dictionary)))
    parts = list(in_processes(_ids, chunks(lines), jobs))
    if not parts:
        raise SystemExit("the text has no lines; give a file with one paragraph a line")
    return np.concatenate(parts)
