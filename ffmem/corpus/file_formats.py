"""The documents of one file: lines or paragraphs of text, JSON lines, a column of a table.

A file is opened as bytes, whether it is compressed or not, and counts what is read from it.
"""

from __future__ import annotations

import csv
import gzip
import io
import json
import lzma
import sys
import zlib
from codecs import getincrementaldecoder
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from itertools import chain, groupby
from pathlib import Path
from types import ModuleType
from typing import IO, Any

from ffmem.corpus.conversations import column_of, conversation_line
from ffmem.corpus.shards import pieces_of
from ffmem.errors import CorpusError, refusals, shorten
from ffmem.locations import first_line, for_arrow, is_remote

COMPRESSION_ENDINGS = (".gz", ".xz", ".zst")
ARCHIVE_ENDINGS = (".bz2", ".zip", ".7z", ".rar", ".tar", ".tgz", ".lz4")  # that are not read
JSON_LINES = (".jsonl", ".ndjson", ".json")
DELIMITERS = {".csv": ",", ".tsv": "\t"}
PART = 1 << 20  # bytes of a line that are read at a time
LONGEST = 64 << 20  # letters of a row of a table or of JSON lines, which is held whole
ROWS = 16  # of a Parquet file that are held at once; a small one can unpack to much


@dataclass
class Meter:
    """How many bytes of how many have been read from disk, for an estimate of the time left."""

    total: int = 0
    read: int = 0

    @property
    def share(self) -> float | None:
        """The part that has been read; None where the whole is not known."""
        return min(self.read / self.total, 1.0) if self.total else None


class _MeteredFile(io.FileIO):
    """A file that tells a meter what is read from it."""

    def __init__(self, path: Path, meter: Meter) -> None:
        super().__init__(path)
        self._meter = meter

    def readinto(self, buffer: Any) -> int:
        size = super().readinto(buffer) or 0
        self._meter.read += size
        return size


class _MeteredRemote(io.RawIOBase):
    """The same for a file behind a URL."""

    def __init__(self, path: Path, meter: Meter) -> None:
        self._file = path.open("rb")
        self._meter = meter

    def readable(self) -> bool:
        return True

    def close(self) -> None:
        self._file.close()
        super().close()

    def readinto(self, buffer: Any) -> int:
        data = self._file.read(len(buffer))
        buffer[: len(data)] = data
        self._meter.read += len(data)
        return len(data)


def _raw(path: Path, meter: Meter) -> io.RawIOBase:
    return _MeteredRemote(path, meter) if is_remote(path) else _MeteredFile(path, meter)


def _decompress(path: Path, raw: IO[bytes]) -> Any:
    if path.suffix == ".gz":
        return gzip.GzipFile(fileobj=raw)
    if path.suffix == ".xz":
        return lzma.LZMAFile(raw)
    if path.suffix == ".zst":
        zstd = _zstd()
        window = zstd.DecompressionParameter.window_log_max
        return zstd.ZstdFile(raw, options={window: window.bounds()[1]})
    return raw


def _zstd() -> ModuleType:
    """The standard library's module for Zstandard, or its backport."""
    if sys.version_info >= (3, 14):
        from compression import zstd
    else:
        from backports import zstd
    return zstd


def _damage() -> tuple[type[Exception], ...]:
    """The exceptions of decompressors for a corrupt or truncated file."""
    common = (gzip.BadGzipFile, zlib.error, lzma.LZMAError, EOFError)
    try:
        return (*common, _zstd().ZstdError)
    except ImportError:
        return common


@contextmanager
def open_file(path: Path, meter: Meter | None = None) -> Iterator[IO[bytes]]:
    """A file's bytes, decompressed by its suffix; trouble while reading becomes one sentence."""
    if path.suffix.lower() in ARCHIVE_ENDINGS or _format_of(path) == ".tar":
        raise CorpusError(
            f"{shorten(str(path))} is packed in a way that is not read; unpack it, or pack the "
            "text alone as .gz, .xz or .zst"
        )
    with (
        refusals(f"{shorten(str(path))} cannot be read", CorpusError),
        _whole(path),
        io.BufferedReader(_raw(path, meter or Meter()), 1 << 16) as raw,
        _decompress(path, raw) as file,
    ):
        yield file


@contextmanager
def _whole(path: Path) -> Iterator[None]:
    """Say so where a decompressor finds that a file is damaged, or is not installed."""
    try:
        yield
    except _damage() as error:
        raise CorpusError(
            f"{path} is corrupt or cut short ({error}); make or download it again"
        ) from error
    except ImportError as error:
        raise CorpusError(f"{path} needs a package: run `pip install backports.zstd`") from error


def _format_of(path: Path) -> str:
    """The suffix that decides how a file is read, without that of its compression."""
    inner = path.with_suffix("") if path.suffix in COMPRESSION_ENDINGS else path
    return inner.suffix.lower()


def has_columns(path: Path) -> bool:
    """Whether a file's documents lie in a named column."""
    return _format_of(path) in (".parquet", *JSON_LINES, *DELIMITERS)


@dataclass(frozen=True)
class RowFormat:
    """How rows become documents: the column, what to do with wrong text, and what it holds."""

    column: str = "text"
    errors: str = "strict"
    chat: bool = False  # lists of messages

    def document(self, row: Mapping[str, Any], where: str) -> str:
        """A row's document, empty when it is null or blank; refuses a row without the column."""
        name = column_of(row, self.column) if self.chat else self.column
        if name not in row:
            raise _missing_column(where, self.column, list(row))
        if self.chat:
            return conversation_line(row[name], where)
        return _row_text(row[name], where, name)


def file_documents(
    path: Path, rows: RowFormat, meter: Meter | None = None, paragraphs: bool = False
) -> Iterator[str]:
    """Every document of a file that is not blank, one at a time.

    Of plain text a document is a line, or with `paragraphs` all lines up to an empty one.
    """
    if _format_of(path) == ".parquet":
        yield from _parquet_rows(path, rows)
        if meter is not None:
            meter.read += path.stat().st_size
        return
    if rows.chat and not has_columns(path):
        raise CorpusError(
            f"{path} is plain text, which has no messages; give .jsonl or .parquet with --chat"
        )
    errors = rows.errors
    with open_file(path, meter) as file:
        if _format_of(path) in DELIMITERS:
            yield from table_rows(file, path, rows)
        elif has_columns(path):
            yield from json_rows(text_lines(file, str(path), errors), str(path), rows)
        elif paragraphs:
            yield from _paragraph_pieces(text_lines(file, str(path), errors))
        else:
            yield from text_pieces(file, str(path), errors)


def _paragraph_pieces(lines: Iterator[tuple[int, str]]) -> Iterator[str]:
    """Lines that follow each other without an empty one between them, joined, in pieces."""
    paragraphs = groupby(enumerate(lines), key=lambda pair: pair[1][0] - pair[0])
    for _, paragraph in paragraphs:
        texts = (line.strip() for _, (_, line) in paragraph)
        yield from pieces_of(chain([next(texts)], (f" {text}" for text in texts)))


def table_rows(file: IO[bytes], path: Path, rows: RowFormat) -> Iterator[str]:
    """One column of a CSV or TSV file, whose first row names the columns; blanks are left out."""
    held = 0  # letters of the lines that this row has so far

    def lines() -> Iterator[str]:
        nonlocal held
        for line in _decode_lines(file, str(path), rows.errors):
            held += len(line)
            if held > LONGEST:
                raise _too_long(f"the row from {path} line {table.line_num + 1}")
            yield line

    csv.field_size_limit(LONGEST)
    table = csv.DictReader(lines(), delimiter=DELIMITERS[_format_of(path)], strict=True)
    try:
        names = list(table.fieldnames or [])
        rows.document(dict.fromkeys(names), str(path))  # refuses a table without the column
        held = 0
        for row in table:
            held = 0
            text = rows.document(row, f"{path} line {table.line_num}")
            if text:
                yield text
    except csv.Error as error:
        raise CorpusError(
            f"{path} line {table.line_num} is not a row of a table ({error}); check its quotes"
        ) from None


def text_pieces(file: IO[bytes], name: str, errors: str) -> Iterator[str]:
    """The lines that are not blank, without the line break; pieces of those too long for a shard.

    However long a line is, no more than a shard of it is held.
    """
    parts = _line_parts(file, name, errors)
    for _, text, is_end in parts:
        if is_end:
            yield from _not_blank([text.rstrip("\r\n")])
        else:
            yield from _not_blank(pieces_of(_rest_of_line(text, parts)))


def _not_blank(texts: Iterable[str]) -> Iterator[str]:
    """The texts that hold more than white space."""
    return (text for text in texts if text and not text.isspace())


def _rest_of_line(first: str, parts: Iterator[tuple[int, str, bool]]) -> Iterator[str]:
    """The parts of one line, whose first has been read already, without the line break."""
    yield first
    for _, text, is_end in parts:
        yield text.rstrip("\r\n") if is_end else text
        if is_end:
            return


def text_lines(file: IO[bytes], name: str, errors: str) -> Iterator[tuple[int, str]]:
    """The lines that are not blank, each with its number from 1, without the line break."""
    for number, line in enumerate(_decode_lines(file, name, errors), 1):
        text = line.rstrip("\r\n")
        if text and not text.isspace():
            yield number, text


def _decode_lines(file: IO[bytes], name: str, errors: str) -> Iterator[str]:
    """All lines as text, with their line breaks; refuses one that should not be held whole."""
    held: list[str] = []
    for number, text, is_end in _line_parts(file, name, errors):
        held.append(text)
        if len(held) > LONGEST // PART:
            raise _too_long(f"{name} line {number}")
        if is_end:
            yield "".join(held)
            held.clear()


def _too_long(which: str) -> CorpusError:
    """The error about a line or a row that should not be held whole."""
    size = f"{LONGEST >> 20} MiB"
    return CorpusError(f"{which} is longer than {size}, too much to be held whole; cut it up")


def _line_parts(file: IO[bytes], name: str, errors: str) -> Iterator[tuple[int, str, bool]]:
    """Lines in parts of bounded size: the line's number from 1, text, and whether it ends there."""
    number, before = 1, 0  # of the line, and its bytes before this part
    decoder = getincrementaldecoder("utf-8")(errors)
    while (part := file.readline(PART)) or before:
        if b"\0" in part:
            raise CorpusError(
                f"{name} is not UTF-8 text: line {number} holds a NUL byte; "
                "leave out binary files or convert the file to UTF-8"
            )
        is_end = not part or part.endswith(b"\n")
        try:
            text = decoder.decode(part, final=is_end)
        except UnicodeDecodeError as error:
            byte = before - len(decoder.getstate()[0]) + error.start + 1
            raise CorpusError(
                f"{name} line {number} is not valid UTF-8 (byte {byte} of the line); "
                "convert the file, or pass `--errors replace` to put U+FFFD there"
            ) from error
        yield number, text.removeprefix("\ufeff") if number == 1 and not before else text, is_end
        number, before = (number + 1, 0) if is_end else (number, before + len(part))


def json_rows(lines: Iterator[tuple[int, str]], name: str, rows: RowFormat) -> Iterator[str]:
    """The text of one column of JSON lines; null and blank texts are left out."""
    for number, line in lines:
        where = f"{name} line {number}"
        try:
            row = json.loads(line)
        except (ValueError, RecursionError) as error:
            reason = f"{where} is not JSON ({error})"
            raise CorpusError(f"{reason}; write one object per line") from error
        if not isinstance(row, dict):
            raise CorpusError(f"{where} is JSON but not an object; write one object per line")
        text = rows.document(row, where)
        if text:
            yield _without_surrogates(text, where, rows.errors)


def _missing_column(where: str, column: str, columns: list[str]) -> CorpusError:
    """The error for a column that is not there, with those that are."""
    known = ", ".join(columns) or "none"
    return CorpusError(f"{where} has no column {column!r} (there are: {known}); pass `--column`")


def _row_text(value: Any, where: str, column: str) -> str:
    """A row's text, empty when it is null or blank."""
    if value is None:
        return ""
    if not isinstance(value, str):
        kind = type(value).__name__
        remedy = ", or `--chat` where these are messages" if isinstance(value, list) else ""
        raise CorpusError(
            f"{where}: column {column!r} holds {kind}, not text; pass `--column`{remedy}"
        )
    return "" if value.isspace() else value


def _without_surrogates(text: str, where: str, errors: str) -> str:
    """The text; half a surrogate pair, which JSON can escape, counts as an encoding error."""
    try:
        text.encode()
    except UnicodeEncodeError as error:
        if errors == "strict":
            raise CorpusError(
                f"{where} holds half a surrogate pair, which is not Unicode text; "
                "fix the file, or pass `--errors replace` to put U+FFFD there"
            ) from error
        return "".join("\ufffd" if "\ud800" <= c <= "\udfff" else c for c in text)
    return text


def _from_arrow(path: Path, read: Callable[[], Any]) -> Any:
    """The result of `read`; errors of pyarrow become one sentence."""
    from pyarrow import ArrowException

    try:
        return read()
    except (ArrowException, OSError) as error:
        raise CorpusError(
            f"{path} is not a whole Parquet file ({first_line(error)}); make or download it again"
        ) from error


def _parquet_rows(path: Path, rows: RowFormat) -> Iterator[str]:
    """One column of a Parquet file, a few rows at a time."""
    try:
        from pyarrow.parquet import ParquetFile
    except ImportError as error:
        raise CorpusError(f"{path} needs a package: run `pip install pyarrow`") from error
    with ExitStack() as files:
        file = files.enter_context(path.open("rb")) if is_remote(path) else for_arrow(path)
        table = files.enter_context(_from_arrow(path, lambda: ParquetFile(file)))
        names = table.schema_arrow.names
        rows.document(dict.fromkeys(names), str(path))  # refuses a table without the column
        column = column_of(names, rows.column) if rows.chat else rows.column
        batches = table.iter_batches(batch_size=ROWS, columns=[column])
        found = iter(lambda: _from_arrow(path, lambda: next(batches, None)), None)
        values = chain.from_iterable(batch.column(0) for batch in found)
        for number, value in enumerate(values, 1):
            text = rows.document({column: value.as_py()}, str(path))
            if len(text) > LONGEST:
                raise _too_long(f"{path} row {number}")
            if text:
                yield text
