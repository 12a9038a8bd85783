"""Words that keep the same company in the scanned text, to search triggers by meaning.

No language model and no download: a word is a vector of the words that it stands near
(`word_vectors`), counted on the scan's own sentences and kept in the search index.
"""

from __future__ import annotations

import zipfile
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ffmem.analyses.inputs.english import is_content
from ffmem.errors import StoreError
from ffmem.files.whole_files import write_whole
from ffmem.store.folder import check_unpacked_size
from ffmem.store.scan_store import ScanStore
from ffmem.store.search.index import words_in

FORMAT = 1  # raised when the vectors are made in another way
MOST_SENTENCES = 50_000  # that words are counted in
RELATED_PER_WORD = 12  # words for each word that is asked for
LEAST_COSINE = 0.45  # from which on a word is related


@dataclass(frozen=True, eq=False)
class RelatedWords:
    """The commoner content words of a text and their vectors [word, width], each of length one."""

    words: tuple[str, ...]
    vectors: NDArray[np.float32] = field(repr=False)

    @cached_property
    def _numbers(self) -> dict[str, int]:
        return {word: number for number, word in enumerate(self.words)}

    @lru_cache(maxsize=4096)  # noqa: B019 - one of them lives as long as its process
    def of(self, word: str) -> dict[str, float]:
        """The words nearest to one, with their cosines; none where it is rare."""
        number = self._numbers.get(word)
        if number is None:
            return {}
        cosines = self.vectors @ self.vectors[number]
        nearest = np.argsort(-cosines, kind="stable")[: RELATED_PER_WORD + 1].tolist()
        return {
            self.words[one]: float(cosines[one])
            for one in nearest
            if one != number and cosines[one] >= LEAST_COSINE
        }

    def weights(self, phrase: str) -> tuple[dict[str, float], int]:
        """Words to look for, each with a weight, and how many of them were asked for.

        The words of the phrase weigh 1 and their relatives their cosine; words such as `the` are
        left out unless there is no other.
        """
        every = words_in(phrase)
        own = [word for word in every if is_content(word)] or every
        found: dict[str, float] = {}
        for word in own:
            for other, cosine in self.of(word).items():
                found[other] = max(cosine, found.get(other, 0.0))
        return found | dict.fromkeys(own, 1.0), len(own)


def open_related_words(
    store: ScanStore, watch: Callable[[str], None] = lambda _part: None
) -> RelatedWords:
    """Read the vectors, or make them now; in a folder that cannot be written they are not kept."""
    found = read_vectors(store)
    if found is None:
        watch("words that keep the same company")
        found = count_vectors(store)
        with suppress(StoreError):
            _write_vectors(store, found)
    return found


def mark(store: ScanStore) -> str:
    """The sources of the vectors, to detect outdated ones."""
    return f"{FORMAT} {store.manifest.key.digest}"


def read_vectors(store: ScanStore) -> RelatedWords | None:
    """The vectors in the folder; None where there are none of this scan."""
    try:
        with (
            store.folder.related_words.open("rb") as file,
            np.load(file, allow_pickle=False) as arrays,
        ):
            size = sum(one.file_size for one in arrays.zip.infolist())
            check_unpacked_size(store.folder, store.folder.related_words, size)
            if str(arrays["mark"]) != mark(store):
                return None
            return RelatedWords(tuple(arrays["words"].tolist()), arrays["vectors"])
    except (OSError, ValueError, KeyError, EOFError, AttributeError, zipfile.BadZipFile):
        return None


def _write_vectors(store: ScanStore, found: RelatedWords) -> None:
    arrays: dict[str, NDArray[Any]] = {
        "mark": np.array(mark(store)),
        "words": np.array(found.words, dtype=np.str_),
        "vectors": found.vectors,
    }

    def write(part: Path) -> None:
        with part.open("wb") as file:
            np.savez(file, **arrays)  # type: ignore[arg-type]

    write_whole(store.folder.related_words, write)


def scanned_texts(store: ScanStore) -> list[str]:
    """The sentences of a scan that words are counted in."""
    rows = np.random.default_rng(6).permutation(len(store.sentences))[:MOST_SENTENCES]
    return [store.sentences.sentence(int(row)) for row in np.sort(rows)]


def count_vectors(store: ScanStore) -> RelatedWords:
    """Count which words stand near each other in the sentences of the scan."""
    from ffmem.analyses.inputs.word_vectors import word_vectors  # here: torch imports slowly

    found = word_vectors(scanned_texts(store))
    if not found:
        return RelatedWords((), np.zeros((0, 1), np.float32))
    vectors = np.stack([vector.numpy() for vector in found.values()]).astype(np.float32)
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    return RelatedWords(tuple(found), vectors / np.maximum(lengths, 1e-12))
