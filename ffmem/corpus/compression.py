"""Files opened as bytes, whether they are compressed or not."""

import gzip
import io
import lzma
import sys
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import IO, Any

from ffmem.errors import CorpusError, refusals, shorten
from ffmem.locations import is_remote

COMPRESSED = (".gz", ".xz", ".zst")


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
    """What the decompressors raise when a file is corrupt or cut short."""
    common = (gzip.BadGzipFile, zlib.error, lzma.LZMAError, EOFError)
    try:
        return (*common, _zstd().ZstdError)
    except ImportError:
        return common


@contextmanager
def open_file(path: Path, meter: Meter | None = None) -> Iterator[IO[bytes]]:
    """A file's bytes, decompressed by its suffix; trouble while reading becomes one sentence."""
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
