"""Corpus sources, and the stream of their documents.

A corpus is a file, a folder or a glob, local or at a URL, standard input (`-`) or a Hugging Face
dataset; from Python, it can also be texts in memory. At most one document, a shard
of plain text, and the reader's buffer are held at a time.
"""

import glob
import hashlib
import re
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, fields
from itertools import islice, pairwise, takewhile
from pathlib import Path
from typing import Any, Literal

from ffmem import demo
from ffmem.corpus.conversations import column_of, conversation_line
from ffmem.corpus.file_formats import (
    COMPRESSION_ENDINGS,
    JSON_LINES,
    Meter,
    RowFormat,
    file_documents,
    has_columns,
    json_rows,
    text_lines,
    text_pieces,
)
from ffmem.errors import CorpusError, is_text, refusals, shorten
from ffmem.locations import first_line, hub_silence, is_remote, is_url, location

IN_MEMORY = "texts in memory"  # the path of text that lies nowhere
STREAM = "stdin"  # the digest of text that can be read only once
_EDGE = 1 << 20  # bytes of a file's beginning and end that its digest reads
_LOOKED_AT, _FEWEST, _WIDEST = 300, 20, 140  # lines, lines, characters of a line
_LONG = 100_000  # characters of a line, behind which no more are looked at
_STOPS = frozenset(".!?…:;\"'”’)]}。！？")
_DATASET_ID = re.compile(r"[\w.-]+(/[\w.-]+)?(:[\w.-]+)?")
_FILE_SUFFIXES = (
    ".txt",
    ".tokens",
    ".parquet",
    ".csv",
    ".tsv",
    ".md",
    *JSON_LINES,
    *COMPRESSION_ENDINGS,
)


@dataclass(frozen=True)
class Source:
    """The location of a text and how it is read.

    `path` is a file, folder or glob (also at a URL of fsspec: s3://, gs://, file://),
    a named pipe, `-` for standard input, or a dataset id (`owner/name`, with
    a configuration as `owner/name:config`). `column` is for JSON lines, Parquet and datasets,
    `split` for datasets alone. With `paragraphs`, consecutive lines of plain text are
    one document: for text with a fixed width. With `chat` the column holds conversations, as lists
    of messages.
    """

    path: str
    column: str = "text"
    split: str | None = None
    errors: Literal["strict", "replace"] = "strict"
    paragraphs: bool = False
    chat: bool = False

    def plain(self) -> dict[str, Any]:
        """The fields that locate the text, as plain values."""
        return {each.name: getattr(self, each.name) for each in fields(Source)}

    @property
    def rows(self) -> RowFormat:
        """How the rows of a table become documents."""
        return RowFormat(self.column, self.errors, self.chat)


@dataclass(frozen=True)
class TextsInMemory(Source):
    """Documents in the program's memory, identified by their digest."""

    texts: Iterable[Any] = field(default=(), repr=False)  # can be read again and again


def source_of(texts: Any, column: str = "text") -> Source:
    """The source for a Python argument: a path, a dataset's id, a Dataset, or texts."""
    if isinstance(texts, Source):
        return texts
    if isinstance(texts, str | Path):
        return Source(demo.corpus(str(texts)), column)
    columns = getattr(texts, "column_names", None)  # a Dataset of the library `datasets`
    if isinstance(columns, dict):
        raise CorpusError(
            f"the dataset has the splits {', '.join(columns)}; choose one, as in dataset['train']"
        )
    column = column if columns is None else column_of(columns, column)
    if columns is not None and column not in columns:
        raise CorpusError(
            f"the dataset has no column {column!r} (there are: {', '.join(columns)}); pass column="
        )
    if columns is None and not isinstance(texts, Iterable):
        raise CorpusError(
            f"{type(texts).__name__} is not a text corpus; give a path, a list of strings or a "
            "Dataset"
        )
    rows = list(texts) if columns is None else texts[column]
    return TextsInMemory(IN_MEMORY, column, texts=rows)


def documents(source: Source, meter: Meter | None = None) -> Iterator[str]:
    """The documents of a corpus in their fixed order; none is blank.

    A line or paragraph of plain text that is too long for a shard comes in pieces that are not.
    A wrong path is refused at once, bad content when it is reached. `meter` counts the
    bytes of files that were read; other sources do not change it.
    """
    if isinstance(source, TextsInMemory):
        return _not_empty(source, _texts(source))
    if source.path == "-":
        return _not_empty(source, _standard_input(source))
    if is_dataset(source):
        return _not_empty(source, _dataset_rows(source, _dataset(source)))
    files = _files(source)
    if meter is not None:
        meter.total = sum(path.stat().st_size for _, path in files)
    rows = (file_documents(path, source.rows, meter, source.paragraphs) for _, path in files)
    return _not_empty(source, (document for file in rows for document in file))


def refuse_missing(source: Source) -> Source:
    """The source itself; a wrong path is refused now, before the work that comes first."""
    documents(source)
    return source


def has_fixed_width(source: Source) -> bool:
    """Whether plain text seems to have a fixed width, so that a line is not a document.

    True if most lines neither end a sentence nor are followed by a capital letter.
    """
    if isinstance(source, TextsInMemory) or source.paragraphs or is_stream(source):
        return False
    if is_dataset(source) or has_columns(_files(source)[0][1]):
        return False
    beginning = islice(documents(source), _LOOKED_AT)
    lines = [line.strip() for line in takewhile(lambda line: len(line) <= _LONG, beginning)]
    broken = sum(
        len(line) < _WIDEST and line[-1] not in _STOPS and following[0].islower()
        for line, following in pairwise(lines)
    )
    return len(lines) >= _FEWEST and broken > len(lines) / 3


def is_stream(source: Source) -> bool:
    """Whether the text can be read only once: standard input, or a named pipe."""
    return source.path == "-" or (not is_url(source.path) and location(source.path).is_fifo())


def digest(source: Source) -> str:
    """A cheap identity of the corpus, independent of its location: 64 hexadecimal digits.

    For files: their names inside the folder, their sizes, the first and last MiB of each, and the
    column if there are columns. A change in the middle of a file that keeps its size is missed.
    For a dataset: id, split, column and the hub's revision if it answers. Standard input and pipes
    cannot be read twice: the digest is the word `stdin`, which says nothing about the text. For
    texts in memory, every character counts.
    """
    if is_stream(source):
        return STREAM
    found = hashlib.sha256()
    if isinstance(source, TextsInMemory):
        for text in _texts(source):
            found.update(f"{len(text)}\0{text}".encode())
        return found.hexdigest()
    if is_dataset(source):
        parts = [source.path, source.split or "train", source.column, _revision(source)]
        found.update("\0".join(parts).encode())
        return found.hexdigest()
    for name, path in _files(source):
        found.update(f"{name}\0{path.stat().st_size}\0".encode("utf-8", "surrogateescape"))
        found.update(f"{source.column}\0".encode() if has_columns(path) else b"")
        found.update(_edges(path))
    return found.hexdigest()


def _edges(path: Path) -> bytes:
    """The first and the last MiB of a file, or all of one that is smaller."""
    with (
        refusals(f"{shorten(str(path))} cannot be read", CorpusError),
        path.open("rb") as file,
    ):
        first = file.read(_EDGE)
        file.seek(max(file.tell(), path.stat().st_size - _EDGE))
        return first + file.read(_EDGE)


def _not_empty(source: Source, found: Iterator[str]) -> Iterator[str]:
    count = 0
    for count, document in enumerate(found, 1):  # noqa: B007
        yield document
    if not count:
        raise CorpusError(f"the corpus {source.path!r} is empty; give one that holds some text")


def _texts(source: TextsInMemory) -> Iterator[str]:
    for number, one in enumerate(source.texts, 1):
        where = f"text {number} of the corpus"
        text = conversation_line(one, where) if source.chat else one
        if text is not None and not isinstance(text, str):
            raise CorpusError(
                f"text {number} of the corpus is of the type {type(text).__name__}; "
                "give strings only"
            )
        if text and not is_text(text):
            raise CorpusError(
                f"text {number} of the corpus holds half a character, which is not Unicode text; "
                "leave it out"
            )
        if text and not text.isspace():
            yield text


def _standard_input(source: Source) -> Iterator[str]:
    if sys.stdin is None:
        raise CorpusError("standard input is closed; send text into it, or name a file")
    with refusals("standard input cannot be read", CorpusError):
        file, name = sys.stdin.buffer, "standard input"
        if source.chat:
            yield from json_rows(text_lines(file, name, source.errors), name, source.rows)
        else:
            yield from text_pieces(file, name, source.errors)


def _files(source: Source) -> list[tuple[str, Path]]:
    """The files of a path, as (name relative to the folder or glob, path), in order of the name."""
    root = location(source.path)
    if source.split is not None:
        raise CorpusError(
            f"a split ({shorten(source.split)!r}) is for Hugging Face datasets, and "
            f"{source.path!r} is not one; leave `--split` out"
        )
    if root.is_dir():
        base, inside = root, list(_open_folder(root).rglob("*"))
    elif root.exists():
        return [(root.name, _readable(root, source))]
    else:
        base, inside = _matches(root)
    files = [(_name_below(base, path), path) for path in inside if path.is_file()]
    visible = [(name, path) for name, path in files if "/." not in f"/{name}"]
    if not visible:
        raise CorpusError(f"no such file, or no files there: {source.path!r}; check the path")
    return sorted(visible)


def _open_folder(path: Path) -> Path:
    """The folder itself; refused without permission, because it would seem empty."""
    with refusals(f"{shorten(str(path))} cannot be listed", CorpusError):
        next(iter(path.iterdir()), None)
    return path


def _readable(path: Path, source: Source) -> Path:
    """A file or a pipe; refuses devices, which have no end, and sockets."""
    if is_remote(path) or path.is_file() or path.is_fifo():
        return path
    raise CorpusError(f"{source.path!r} is a device or a socket; name a file, a folder or a pipe")


def _matches(pattern: Path) -> tuple[Path, list[Path]]:
    """The folder of a glob above its first wild card, and the paths that match."""
    base, above = pattern, list(pattern.parents)
    while glob.has_magic(str(base)) and above:
        base = above.pop(0)
    if not glob.has_magic(str(pattern)):
        return base, []
    if is_remote(pattern):
        return base, list(base.glob(_name_below(base, pattern)))
    return base, [Path(match) for match in glob.glob(str(pattern), recursive=True)]


def _name_below(folder: Path, path: Path) -> str:
    """The path inside a folder, with forward slashes on every machine."""
    return path.as_posix()[len(folder.as_posix().rstrip("/")) + 1 :]


def is_dataset(source: Source) -> bool:
    """Whether a path can only be a dataset id: it names no file and looks like one."""
    path = source.path
    if is_url(path):
        return False
    if location(path).exists() or path.lower().endswith(_FILE_SUFFIXES):
        return False
    return _DATASET_ID.fullmatch(path) is not None


def _dataset(source: Source) -> Any:
    """A dataset from the hub, as a stream of rows."""
    try:
        from datasets import load_dataset
        from datasets.config import HF_DATASETS_CACHE
    except ImportError as error:
        raise CorpusError(
            f"no such file or folder: {source.path!r}; check the path, or run "
            "`pip install datasets` if it is a Hugging Face dataset"
        ) from error
    name, _, config = source.path.partition(":")
    known = (Path(HF_DATASETS_CACHE) / name.replace("/", "___")).exists()
    if not known and (reason := hub_silence(name, "dataset")) is not None:
        raise _unreachable(source, reason)
    try:
        return load_dataset(name, config or None, split=source.split or "train", streaming=True)
    except Exception as error:  # the library raises what its many transports raise
        raise _unreachable(source, first_line(error)) from error


def _unreachable(source: Source, reason: str) -> CorpusError:
    return CorpusError(
        f"{source.path!r} is not a file or folder here and cannot be read as a Hugging Face "
        f"dataset ({reason}); check the path, or the id, configuration, split and connection"
    )


def _dataset_rows(source: Source, rows: Any) -> Iterator[str]:
    stream = iter(rows)
    while True:
        try:
            row = next(stream, None)
        except Exception as error:  # as above: the connection may go at any row
            raise _unreachable(source, first_line(error)) from error
        if row is None:
            return
        text = source.rows.document(row, source.path)
        if text:
            yield text


def _revision(source: Source) -> str:
    """The hub's revision of a dataset; empty if the hub does not answer."""
    from huggingface_hub import dataset_info

    try:
        return dataset_info(source.path.partition(":")[0]).sha or ""
    except Exception:  # no connection: the digest is of the name alone
        return ""
