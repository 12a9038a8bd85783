"""How commands leave a result behind: numbers in JSON, the figure beside them."""

from __future__ import annotations

import json
import math
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ffmem.store.folder import write_whole

if TYPE_CHECKING:
    import altair


def plain(value: Any) -> Any:
    """A value as JSON can hold it: what is not a number is null, anything unknown its text."""
    match value:
        case float():
            return value if math.isfinite(value) else None
        case dict():
            return {str(name): plain(inner) for name, inner in value.items()}
        case list() | tuple():
            return [plain(inner) for inner in value]
        case bool() | int() | str() | None:
            return value
        case _:
            return str(value)


def save_numbers(folder: Path, name: str, result: Any) -> Path:
    """Write a result dataclass to FOLDER/analyses/NAME.json, whole or not at all."""
    text = json.dumps(plain(asdict(result)), indent=1, ensure_ascii=False) + "\n"
    return save_text(folder / "analyses" / f"{name}.json", text)


def save_text(path: Path, text: str) -> Path:
    """Write a text file, whole or not at all."""
    write_whole(path, lambda part: part.write_text(text, encoding="utf-8"))
    return path


def save_figure(folder: Path, name: str, chart: altair.TopLevelMixin) -> Path:
    """Write a chart to FOLDER/figures in every form, with its numbers; the PNG's path."""
    from ffmem.figures.saving import save  # here: charts are slow to import

    save(chart, folder / "figures", name)
    return folder / "figures" / f"{name}.png"
