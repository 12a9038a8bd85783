"""Write the numbers of a study and of its untrained twin into one small file, without the texts.

    python -m tools.study_numbers STUDY numbers.json.xz

Pages of docs/reference/ are made from such files. What a corpus says stays out of them: prefixes,
trigger sentences and the words of patterns; tokens and counts stay.
"""

from __future__ import annotations

import argparse
import json
import lzma
from pathlib import Path
from typing import Any

TWIN = "control-random-weights"
Numbers = dict[str, Any]


def study_numbers(folder: Path) -> Numbers:
    """Every result of a study and of its twin, if any, with seconds, counts and the scan's key."""
    found: Numbers = {}
    for part, root in (("", folder), (" of the twin", folder / TWIN)):
        if part and not root.exists():
            continue
        records = [json.loads(path.read_text("utf-8")) for path in result_files(root)]
        manifest = json.loads((root / "manifest.json").read_text("utf-8"))
        results = {record["name"]: without_texts(record["result"]) for record in records}
        found["untrained twin" if part else "results"] = results
        found[f"seconds{part}"] = {record["name"]: record["seconds"] for record in records}
        found[f"scan{part}"] = manifest["counts"] | {"seconds": manifest["seconds"]}
        if not part:
            found["settings"] = without_folders(manifest["key"])
    return found


def without_folders(key: Numbers) -> Numbers:
    """What decides a scan, with the bare names of model and text."""
    model, corpus = key["model"], key["corpus"]
    return key | {
        "model": model | {"name": Path(model["name"]).name},
        "corpus": corpus | {"path": Path(corpus["path"]).name},
    }


def result_files(root: Path) -> list[Path]:
    """The results in a study's folder."""
    return sorted((root / "analyses").glob("*.json"))


def without_texts(value: Any) -> Any:
    """A result without the words of the corpus, in the same form."""
    if isinstance(value, list):
        return [without_texts(one) for one in value]
    if not isinstance(value, dict):
        return value
    empty = {"prefix": "", "before": "", "records": [], "examples": []}
    return {
        name: empty[name] if name in empty else without_texts(inner)
        for name, inner in value.items()
    }


def write_numbers(numbers: Numbers, path: Path) -> None:
    """One compressed file."""
    text = json.dumps(numbers, ensure_ascii=False, separators=(",", ":"))
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(lzma.compress(text.encode(), preset=9))


def main() -> None:
    """Read a study, write its numbers."""
    parser = argparse.ArgumentParser(prog="python -m tools.study_numbers", description=main.__doc__)
    parser.add_argument("study", type=Path, help="folder of the study")
    parser.add_argument("numbers", type=Path, help="file to write, .json.xz")
    chosen = parser.parse_args()
    write_numbers(study_numbers(chosen.study), chosen.numbers)


if __name__ == "__main__":
    main()
