"""Compares sentence splitters: boundaries against a small gold set, and sentences per second.

    python -m benchmarks.splitters [TEXT]

TEXT is a plain text file, one paragraph per line, for the speed column; without it the gold set
itself is repeated. Candidates that are not installed are named and left out.
"""

import sys
import time
from collections.abc import Callable, Iterable
from importlib import import_module
from itertools import accumulate
from pathlib import Path
from typing import Any

from ffmem.corpus.splitters import SPLITTERS

GOLD = Path(__file__).with_name("splitters_gold.txt")
MARK = "‖"
SPEED_CHARACTERS = 2_000_000
SPEED_SECONDS = 10.0

Split = Callable[[str], Iterable[str]]


def gold_paragraphs() -> list[tuple[str, str]]:
    """Every paragraph of the gold set with its marks, as (group, paragraph)."""
    group, found = "", []
    for block in GOLD.read_text(encoding="utf-8").split("\n\n"):
        if block.startswith("## "):
            heading, _, block = block.partition("\n")
            group = heading.removeprefix("## ")
        if block.strip() and not block.startswith("# "):
            found.append((group, block.strip("\n")))
    return found


def boundaries(sentences: Iterable[str]) -> set[int]:
    """Where sentences end inside their text, counted in characters that are not white space."""
    sizes = [len("".join(sentence.split())) for sentence in sentences]
    return set(list(accumulate(size for size in sizes if size))[:-1])


def ours(name: str) -> Split:
    """One of the package's own splitters, as a function to strings."""
    spans = SPLITTERS[name]
    return lambda text: [text[start:end] for start, end in spans(text)]


def _spacy() -> Split:
    pipeline: Any = import_module("spacy").blank("en")
    pipeline.add_pipe("sentencizer")
    return lambda text: [sentence.text for sentence in pipeline(text).sents]


def _nltk() -> Split:
    return import_module("nltk.tokenize.punkt").PunktSentenceTokenizer().tokenize


def _pysbd() -> Split:
    return import_module("pysbd").Segmenter(language="en", clean=False).segment


def _syntok() -> Split:
    analyse = import_module("syntok.segmenter").analyze

    def split(text: str) -> list[str]:
        sentences = (sentence for paragraph in analyse(text) for sentence in paragraph)
        return ["".join(t.spacing + t.value for t in sentence) for sentence in sentences]

    return split


def _blingfire() -> Split:
    split = import_module("blingfire").text_to_sentences
    return lambda text: split(text).split("\n")


def _sentencex() -> Split:
    segment = import_module("sentencex").segment
    return lambda text: segment("en", text)


def _sentence_splitter() -> Split:
    return import_module("sentence_splitter").SentenceSplitter(language="en").split


def _segtok() -> Split:
    return import_module("segtok.segmenter").split_single


LIBRARIES: dict[str, Callable[[], Split]] = {
    "blingfire": _blingfire,
    "nltk punkt, untrained": _nltk,
    "pysbd": _pysbd,
    "segtok": _segtok,
    "sentence-splitter": _sentence_splitter,
    "sentencex": _sentencex,
    "spacy sentencizer": _spacy,
    "syntok": _syntok,
}


def candidates() -> dict[str, Split]:
    """The package's own splitters and every library that is installed."""
    found = {f"ffmem {name}": ours(name) for name in SPLITTERS}
    for name, load in LIBRARIES.items():
        try:
            found[name] = load()
        except ImportError:
            print(f"not installed: {name}")
    return found


def quality(split: Split, paragraphs: list[tuple[str, str]]) -> tuple[int, int, int]:
    """Boundaries found and right, found in all, and right in all."""
    hits = found_in_all = right_in_all = 0
    for _, paragraph in paragraphs:
        expected = boundaries(paragraph.split(MARK))
        found = boundaries(split(paragraph.replace(MARK, "")))
        hits += len(expected & found)
        found_in_all += len(found)
        right_in_all += len(expected)
    return hits, found_in_all, right_in_all


def speed(split: Split, documents: list[str]) -> float:
    """Sentences per second on one core, over all documents or as many as ten seconds allow."""
    count, start = 0, time.perf_counter()
    for document in documents:
        count += sum(1 for _ in split(document))
        if time.perf_counter() - start > SPEED_SECONDS:
            break
    return count / (time.perf_counter() - start)


def speed_text(arguments: list[str]) -> list[str]:
    """The first paragraphs of the given file, or the gold set many times."""
    if not arguments:
        return [paragraph.replace(MARK, "") for _, paragraph in gold_paragraphs()] * 200
    with open(arguments[0], encoding="utf-8") as file:
        return [line for line in file.read(SPEED_CHARACTERS).split("\n") if line.strip()]


def show_misses(split: Split) -> None:
    """Print every paragraph that a splitter gets wrong, as it split it."""
    for group, paragraph in gold_paragraphs():
        sentences = list(split(paragraph.replace(MARK, "")))
        if boundaries(sentences) != boundaries(paragraph.split(MARK)):
            print(f"[{group}] {MARK.join(sentences)!r}")


def main(arguments: list[str]) -> None:
    """Print one row a candidate, best F1 first."""
    if arguments and arguments[0] == "--misses":
        show_misses(candidates()[arguments[1]])
        return
    paragraphs, documents = gold_paragraphs(), speed_text(arguments)
    groups = list(dict.fromkeys(group for group, _ in paragraphs))
    rows = []
    for name, split in candidates().items():
        hits, found, right = quality(split, paragraphs)
        scores = [hits / max(found, 1), hits / right, 2 * hits / (found + right)]
        parts = [quality(split, [p for p in paragraphs if p[0] == group]) for group in groups]
        by_group = [2 * h / max(f + r, 1) for h, f, r in parts]
        rows.append((name, scores, speed(split, documents), by_group))
    print(f"| splitter | precision | recall | F1 | sentences/s | {' | '.join(groups)} |")
    print("|---" * (5 + len(groups)) + "|")
    for name, scores, rate, by_group in sorted(rows, key=lambda row: -row[1][2]):
        numbers = [f"{score:.3f}" for score in scores] + [f"{rate:,.0f}"]
        print(f"| {name} | {' | '.join(numbers + [f'{score:.2f}' for score in by_group])} |")


if __name__ == "__main__":
    main(sys.argv[1:])
