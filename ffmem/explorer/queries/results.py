"""Results of analyses as they lie in a study's folder."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ffmem.errors import StoreError


@dataclass(frozen=True)
class Results:
    """The files under `analyses/` and `figures/`, read when asked for and never written."""

    folder: Path

    @property
    def names(self) -> list[str]:
        """The analyses that have been run."""
        return sorted(path.stem for path in (self.folder / "analyses").glob("*.json"))

    def result(self, name: str) -> dict[str, Any] | None:
        """One analysis as plain data, or None where it has not been run."""
        if name not in self.names:  # also keeps every name inside the folder
            return None
        path = self.folder / "analyses" / f"{name}.json"
        try:
            data: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        except (OSError, ValueError):
            raise StoreError(f"{path} cannot be read; run the analysis again") from None
        found = data.get("result", data)
        return found if isinstance(found, dict) else None

    @property
    def figures(self) -> list[str]:
        """The figures that have been drawn."""
        return sorted(path.stem for path in (self.folder / "figures").glob("*.svg"))

    def figure(self, name: str, ending: str = "svg") -> Path | None:
        """The file of one figure, or None where it has not been drawn."""
        return self.folder / "figures" / f"{name}.{ending}" if name in self.figures else None
