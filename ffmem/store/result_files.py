"""Any frozen dataclass of plain values as JSON, and back."""

from __future__ import annotations

import json
import math
import re
import types
from collections.abc import Collection
from dataclasses import dataclass, fields, is_dataclass
from functools import cache
from pathlib import Path
from typing import Any, Union, get_args, get_origin, get_type_hints

from ffmem.address import Address
from ffmem.errors import StoreError
from ffmem.store.digests import check_note, write_and_note
from ffmem.store.folder import StudyFolder, write_errors


@dataclass(frozen=True)
class ResultFile:
    """One result on disk: its name, everything it depends on, and the result as plain values."""

    name: str
    made_from: dict[str, Any]
    seconds: float
    result: Any


def write_result(path: Path, record: ResultFile) -> None:
    """Write a result, whole or not at all."""
    text = json.dumps(to_plain(record), indent=1, ensure_ascii=False) + "\n"
    write_and_note(path, lambda part: part.write_text(text, encoding="utf-8"))


def read_result(path: Path) -> ResultFile:
    """Read a result; its values stay plain until `restore` gets their type."""
    try:
        check_note(path)
        return ResultFile(**json.loads(path.read_text(encoding="utf-8")))
    except (ValueError, TypeError, OSError):
        raise StoreError(
            f"{path} cannot be read as a result; delete it and run the same command again"
        ) from None


def to_plain(value: Any) -> Any:
    """A value as JSON: NaN becomes null, an address its name."""
    match value:
        case Address():
            return str(value)
        case float():
            return value if math.isfinite(value) else None
        case dict():
            return {str(name): to_plain(inner) for name, inner in value.items()}
        case list() | tuple():
            return [to_plain(inner) for inner in value]
        case _ if is_dataclass(value):
            return {field.name: to_plain(getattr(value, field.name)) for field in fields(value)}
        case _:
            return value


def restore(kind: Any, value: Any) -> Any:
    """The value of type `kind` that `to_plain` was given; null becomes NaN for a float."""
    origin, inside = get_origin(kind), get_args(kind)
    if origin in (Union, types.UnionType):
        (kind,) = (one for one in inside if one is not type(None))
        return None if value is None else restore(kind, value)
    if kind is float:
        return math.nan if value is None else float(value)
    if kind is Address:
        return Address.parse(value)
    if is_dataclass(kind):
        hints = field_types(kind)  # type: ignore[arg-type]
        return kind(**{name: restore(hints[name], inner) for name, inner in value.items()})  # type: ignore[operator]
    return _restore_inside(origin, inside, value)


@cache
def field_types(kind: type) -> dict[str, Any]:
    """The types of a dataclass's fields by name, cached."""
    return get_type_hints(kind)


def _restore_inside(origin: Any, inside: tuple[Any, ...], value: Any) -> Any:
    """The same for containers; anything else is unchanged."""
    if origin is dict:
        return {inside[0](name): restore(inside[1], inner) for name, inner in value.items()}
    if origin is tuple:
        each = inside[:1] * len(value) if Ellipsis in inside else inside
        return tuple(restore(one, inner) for one, inner in zip(each, value, strict=True))
    return value


NOT_SETTINGS = ("scan", "ffmem")  # a result of another scan or version is out of date


def settings_in(made_from: dict[str, Any]) -> dict[str, Any]:
    """The user's settings among everything that a result depends on."""
    return {name: value for name, value in to_plain(made_from).items() if name not in NOT_SETTINGS}


def own_sources(folder: Path, name: str, scan: Any) -> dict[str, Any] | None:
    """The sources of the study's own result; None if it has none from this scan."""
    path = StudyFolder(folder).result(name)
    try:
        found = read_result(path).made_from if path.exists() else None
    except StoreError:  # damaged: make it again
        return None
    of_another = found is not None and scan is not None and found.get("scan", scan) != scan
    return None if of_another else found


def place_for(folder: Path, name: str, made_from: dict[str, Any]) -> Path:
    """The folder for a result: the study's, unless that has one of other settings."""
    own = own_sources(folder, name, made_from.get("scan"))
    if own is None or settings_in(own) == settings_in(made_from):
        return folder
    return other_settings_folder(folder, made_from)


def other_settings_folder(folder: Path, made_from: dict[str, Any]) -> Path:
    """A folder named by the settings of its results."""
    words = (f"{name}-{value}" for name, value in settings_in(made_from).items())
    return StudyFolder(folder).other_settings(re.sub(r"[^\w.-]+", "-", "-".join(words))).root


def move_to_other_settings(
    folder: Path, name: str, made_from: dict[str, Any], arrays: Collection[str] = ()
) -> Path | None:
    """Move the study's own result, with its arrays, out of the way of one with other settings.

    Returns its new folder, or None if nothing was in the way.
    """
    own = own_sources(folder, name, made_from.get("scan"))
    if own is None or settings_in(own) == settings_in(made_from):
        return None
    beside = other_settings_folder(folder, own)
    there, new = StudyFolder(folder), StudyFolder(beside)
    for path in (there.result(name), *map(there.numbers, arrays)):
        if path.exists():
            with write_errors(beside):
                new.analyses.mkdir(parents=True, exist_ok=True)
                path.replace(new.root / there.name(path))
    return beside
