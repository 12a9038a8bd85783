"""Records, which are frozen dataclasses of plain values, as JSON and back: the only encoder."""

from __future__ import annotations

import csv
import io
import json
import math
import types
from collections.abc import Collection, Sequence
from dataclasses import fields, is_dataclass
from functools import cache
from typing import TYPE_CHECKING, Any, Literal, Union, get_args, get_origin, get_type_hints

from ffmem.address import Address
from ffmem.errors import FfmemError

if TYPE_CHECKING:
    import pandas

FORMULA = ("=", "+", "-", "@", "\t", "\r")  # how text begins that a spreadsheet would run
# What `restore` raises at a value that is not of its kind.
UNRESTORABLE = (TypeError, ValueError, LookupError, AttributeError, ArithmeticError, FfmemError)


def json_text(record: Any) -> str:
    """A record, or a tuple or dict of them, as JSON text: NaN is null, an address its name."""
    return json.dumps(to_plain(record), indent=1, ensure_ascii=False) + "\n"


def json_line(record: Any) -> str:
    """The same without spaces, for a program at the other end of a connection."""
    return json.dumps(to_plain(record), ensure_ascii=False, separators=(",", ":"))


def as_csv(rows: Sequence[Any], without: Collection[str] = ()) -> str:
    """Records as CSV, a column a field but for some; lists are joined by spaces."""
    text = io.StringIO(newline="")
    writer = csv.writer(text)  # lines end as the format wants, so that breaks in text are quoted
    for number, row in enumerate(rows):
        names = [name for name in _field_names(row.__class__) if name not in without]
        if number == 0:
            writer.writerow(names)
        writer.writerow([csv_cell(getattr(row, name)) for name in names])
    return text.getvalue()


def csv_cell(value: Any) -> Any:
    """One value; text that a spreadsheet would run as a formula gets an apostrophe in front."""
    if isinstance(value, list | tuple):
        value = " ".join(str(part) for part in value)
    return f"'{value}" if isinstance(value, str) and value.startswith(FORMULA) else value


def data_frame(rows: Any) -> pandas.DataFrame:
    """Rows or columns of plain values as a data frame; says what to install without pandas."""
    try:
        import pandas
    except ImportError:
        raise FfmemError("data frames need pandas; run `pip install pandas`") from None
    return pandas.DataFrame(rows)


def to_plain(value: Any) -> Any:
    """A record as what JSON has; refuses a tensor, an open file and all else that is not plain."""
    match value:
        case None | str() | int():
            return value
        case float():
            return value if math.isfinite(value) else None
        case list() | tuple():
            return [to_plain(inner) for inner in value]
        case dict():
            return {str(name): to_plain(inner) for name, inner in value.items()}
        case Address():
            return str(value)
        case _ if is_dataclass(value) and not isinstance(value, type):
            return {name: to_plain(getattr(value, name)) for name in _field_names(type(value))}
        case _:
            raise TypeError(f"{type(value).__name__} is not a plain value that JSON has")


def restore(kind: Any, value: Any) -> Any:
    """The value of type `kind` that `to_plain` was given; null becomes NaN for a float.

    Raises one of UNRESTORABLE if the value is of another kind.
    """
    origin, inside = get_origin(kind), get_args(kind)
    if origin in (Union, types.UnionType):
        kinds = [one for one in inside if one is not type(None)]
        if value is None and type(None) in inside:
            return None
        return restore(type(value) if type(value) in kinds else kinds[0], value)
    if kind is float:
        return math.nan if value is None else _finite(value)
    if kind in (int, str, bool) and type(value) is not kind:
        raise TypeError(f"{type(value).__name__} instead of {kind.__name__}")
    if kind is Address:
        return Address.parse(value)
    if is_dataclass(kind):
        hints = _field_types(kind)  # type: ignore[arg-type]
        return kind(**{name: restore(hints[name], inner) for name, inner in value.items()})  # type: ignore[operator]
    return _restore_inside(origin, inside, value)


def _finite(value: Any) -> float:
    if type(value) not in (int, float) or not math.isfinite(value):
        raise TypeError(f"{type(value).__name__} instead of a number")
    return float(value)


def _restore_inside(origin: Any, inside: tuple[Any, ...], value: Any) -> Any:
    """The same for containers; anything else is unchanged."""
    if origin is dict:
        return {inside[0](name): restore(inside[1], inner) for name, inner in value.items()}
    if origin in (tuple, list):
        each = inside if origin is tuple and Ellipsis not in inside else inside[:1] * len(value)
        if not isinstance(value, list | tuple):
            raise TypeError(f"{type(value).__name__} instead of a list")
        return origin(restore(one, inner) for one, inner in zip(each, value, strict=True))
    if origin is Literal and value not in inside:
        raise ValueError(f"not one of {inside}")
    return value


@cache
def _field_names(kind: type) -> tuple[str, ...]:
    return tuple(field.name for field in fields(kind))


@cache
def _field_types(kind: type) -> dict[str, Any]:
    return get_type_hints(kind)
