"""Files on this machine or at a URL, used as paths.

A URL is anything that fsspec supports: s3://, gs://, abfs://, hf://, memory:// ... Operations that
need a local file, such as memory-mapping, use a copy. Models and datasets of the Hugging Face hub
are read by its own libraries; whether it replies at all is asked here.
"""

from __future__ import annotations

import os
import re
import socket
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Literal
from urllib.parse import unquote, urlparse

from ffmem.errors import FfmemError, refusals, shorten

UNREACHABLE = (ConnectionError, TimeoutError, socket.gaierror)  # of what the system says
HUB_SECONDS = 10  # in which the hub replies, or counts as not reached
_URL = re.compile(r"[A-Za-z][\w+.-]+://")


def is_url(text: str) -> bool:
    """Whether a text is a URL."""
    return _URL.match(text) is not None


def location(text: str | Path) -> Path:
    """The path that a text names; for a URL an object that answers as a path does.

    `file://` is an ordinary path. A path that cannot be opened is refused: one that is empty, too
    long or not text, a loop of links, or a folder without permission; also a URL whose storage
    cannot be reached.
    """
    if not isinstance(text, str):
        if isinstance(text, Path) or hasattr(text, "fs"):  # of this machine, or behind a URL
            return check_path(text)
        raise FfmemError(f"{shorten(repr(text))} is not a path; name a file or a folder")
    if not is_url(text):
        return check_path(_at_home(text))
    if text.startswith("file://"):
        return check_path(_at_home(_path_of_url(text)))
    try:
        from upath import UPath  # slow, and few need it

        path: Any = UPath(text)
        try:
            path.fs.info(path.path)
        except OSError as error:  # nothing there yet, or not to be listed: whoever needs it says so
            if isinstance(error, UNREACHABLE):
                raise
    except Exception as error:  # each storage's library raises what its transports raise
        raise FfmemError(
            f"{shorten(text)} cannot be reached ({first_line(error)}); check the URL and the "
            "connection, or install the fsspec package for it (s3fs, gcsfs, adlfs ...)"
        ) from error
    return path


def hub_silence(name: str, kind: Literal["model", "dataset"]) -> str | None:
    """Why the Hugging Face hub cannot be asked about a model or a dataset; None where it replies.

    One request: the hub's own library tries again and again, for half a minute or more.
    """
    from huggingface_hub import get_hf_file_metadata, hf_hub_url, is_offline_mode
    from huggingface_hub.errors import HfHubHTTPError

    if is_offline_mode():  # the library itself refuses at once
        return None
    try:
        page = hf_hub_url(name, "README.md", repo_type=kind)
        get_hf_file_metadata(page, timeout=HUB_SECONDS)
    except (HfHubHTTPError, ValueError):  # a reply, or a name that the library refuses
        return None
    except Exception as error:  # what its transport raises
        return first_line(error)
    return None


def _path_of_url(text: str) -> str:
    try:
        return unquote(urlparse(text).path)
    except ValueError as error:
        raise FfmemError(f"{shorten(text)} is not a URL ({error}); check it") from error


def first_line(error: Exception) -> str:
    """What an error says first, without its full stop."""
    return (str(error).splitlines() or [type(error).__name__])[0].rstrip(". ")


def _at_home(text: str) -> Path:
    """A path with a leading `~` or `~name` expanded to that user's folder."""
    if not text:
        raise FfmemError("a path is empty; name a file or a folder (. is this one)")
    try:
        return Path(text).expanduser()
    except RuntimeError as error:
        raise FfmemError(f"{shorten(text)} names nobody's folder ({error}); check it") from error


def check_path(path: Path) -> Path:
    """The path itself, existing or not; refused if the system cannot open such a path."""
    if is_remote(path):
        return path
    name = shorten(str(path))
    try:
        str(path).encode()  # a name that is not text could not stand in any result
        with (
            refusals(f"{name} cannot be opened"),
            suppress(FileNotFoundError, NotADirectoryError),  # whoever needs it says so
        ):
            path.stat()
    except ValueError:
        raise FfmemError(
            f"{name} cannot be a path (it holds NUL or half a character); rename it or check it"
        ) from None
    return path


def file_text(name: str | Path, what: str, kind: type[FfmemError] = FfmemError) -> str:
    """The text of a file that the user names; `what` begins the error message."""
    path = location(name)
    with refusals(f"{what} cannot be read", kind):
        if not is_remote(path) and (path.is_char_device() or path.is_block_device()):
            raise kind(f"{what} is a device, which may have no end; name a file")
        try:
            return path.read_text(encoding="utf-8")
        except UnicodeDecodeError:
            raise kind(f"{what} is not UTF-8 text; save it as UTF-8") from None


def for_arrow(path: Path) -> Path:
    """A local path in the form that Arrow needs; Arrow would read run:1/x as a URL."""
    return path.absolute()


def is_remote(path: Path) -> bool:
    """Whether a path is at a URL."""
    return not isinstance(path, Path)


@contextmanager
def local_copy(path: Path) -> Iterator[Path]:
    """A local file: the file itself, or a copy for the duration of the `with`."""
    if not is_remote(path):
        yield path
        return
    remote: Any = path
    with tempfile.TemporaryDirectory(prefix="ffmem-") as folder:
        here = Path(folder) / path.name
        remote.fs.get_file(remote.path, str(here))
        yield here


def put(here: Path, path: Path) -> None:
    """Copy a local file to a URL; object stores show it whole or not at all."""
    remote: Any = path
    remote.fs.makedirs(remote.parent.path, exist_ok=True)
    remote.fs.put_file(str(here), remote.path)


def cache_folder() -> Path:
    """The cache folder: $FFMEM_CACHE, or `ffmem` in the user's cache folder."""
    chosen = os.environ.get("FFMEM_CACHE")
    if chosen:
        return Path(chosen)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "ffmem"
