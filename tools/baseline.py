"""What must not change while code moves: digests of scans, of answers and of a study's numbers.

    python -m tools.baseline before.json --tree ../other-checkout --study
    python -m tools.baseline after.json --study
    python -m tools.baseline --differences before.json after.json

Deleted when the house of `docs/decisions/0009` stands.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

SCANS = {
    "demo": ["demo", "demo"],
    "llama": ["tiny:llama", "demo"],
    "mixture": ["tiny:mixtral", "demo"],
}
ANSWERS = {
    "show": ["show", "{demo}", "L7.3", "--json"],
    "show-mixture": ["show", "{mixture}", "L2.E0.3", "--json"],
    "search": ["search", "{demo}", "--token", " that", "--json"],
    "prompt": ["prompt", "demo", "It was later discovered", "--json"],
    "prompt-gated": ["prompt", "tiny:llama", "It was later discovered", "--json"],
}
COMMAND = """
import sys
from ffmem.__main__ import main
sys.argv[1:] = {words!r}
try:
    main()
except SystemExit:
    pass
"""
IMPORTS = {
    "open_study": "import ffmem, sys; ffmem.open_study({demo!r})",
    "report": COMMAND.replace("{words!r}", "['report', {demo!r}]"),
    "compare": COMMAND.replace("{words!r}", "['compare', {demo!r}, {demo!r}]"),
}
COUNT = (
    "\nprint('COUNT', sum(m.split('.')[0] == 'ffmem' for m in sys.modules), 'torch' in sys.modules)"
)
NOT_NUMBERS = ("seconds", "versions", "ffmem", "written", "made_from")


def main() -> None:
    """Measure a checkout, or show how two measurements differ."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("files", nargs="+", type=Path)
    parser.add_argument("--tree", type=Path, default=Path.cwd())
    parser.add_argument("--sentences", default="2000")
    parser.add_argument("--study", action="store_true")
    parser.add_argument("--differences", action="store_true")
    chosen = parser.parse_args()
    if chosen.differences:
        before, after = (json.loads(path.read_text()) for path in chosen.files)
        for line in differences(before, after):
            print(line)
        return
    with tempfile.TemporaryDirectory() as folder:
        found = measure(chosen.tree.resolve(), Path(folder), chosen.sentences, chosen.study)
    chosen.files[0].write_text(json.dumps(found, indent=1, sort_keys=True))


def measure(tree: Path, folder: Path, sentences: str, study: bool) -> dict[str, Any]:
    """Digests of the scans' files, the answers, what is imported, and a study's numbers."""
    scans = {name: str(folder / name) for name in SCANS}
    found: dict[str, Any] = {}
    for name, (model, text) in SCANS.items():
        call(tree, "scan", model, text, "-o", scans[name], "--max-sentences", sentences)
        found[f"scan {name}"] = digests(Path(scans[name]))
    for name, words in ANSWERS.items():
        text = call(tree, *(word.format(**scans) for word in words))
        found[f"answer {name}"] = plain(json.loads(text))
    for name, code in IMPORTS.items():
        text = python(tree, "-c", code.format(**scans) + COUNT)
        found[f"imports {name}"] = text.splitlines()[-1]
    if study:
        call(tree, "study", "demo", "-o", str(folder / "study"))
        numbers = json.loads((folder / "study" / "numbers.json").read_text())
        found["study numbers"] = plain(numbers)
        found["study figures"] = digests(folder / "study" / "figures", "*.csv")
    return found


def digests(folder: Path, pattern: str = "*") -> dict[str, str]:
    """The SHA-256 of every array and table in a folder."""
    return {
        path.relative_to(folder).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest()[:16]
        for path in sorted(folder.rglob(pattern))
        if path.suffix in (".npy", ".parquet", ".csv", ".npz") and "prepared" not in path.parts
    }


def plain(value: Any) -> Any:
    """The values without seconds and versions."""
    if isinstance(value, dict):
        return {name: plain(one) for name, one in value.items() if name not in NOT_NUMBERS}
    return [plain(one) for one in value] if isinstance(value, list) else value


def call(tree: Path, *words: str) -> str:
    """The output of a command of a checkout."""
    return python(tree, "-m", "ffmem", *words)


def python(tree: Path, *words: str) -> str:
    """The output of Python in a checkout."""
    environment = {**os.environ, "PYTHONPATH": str(tree)}
    done = subprocess.run(
        [sys.executable, *words], cwd=tree, env=environment, capture_output=True, text=True
    )
    if done.returncode:
        raise SystemExit(f"{' '.join(words)[:200]}\n{done.stderr[-2000:]}")
    return done.stdout


def differences(before: Any, after: Any, where: str = "") -> list[str]:
    """One line for each value that differs."""
    if isinstance(before, dict) and isinstance(after, dict):
        return [
            line
            for name in sorted({*before, *after})
            for line in differences(before.get(name), after.get(name), f"{where}/{name}")
        ]
    if isinstance(before, list) and isinstance(after, list) and len(before) == len(after):
        pairs = enumerate(zip(before, after, strict=True))
        return [line for n, (a, b) in pairs for line in differences(a, b, f"{where}/{n}")]
    return [] if before == after else [f"{where}: {str(before)[:60]} -> {str(after)[:60]}"]


if __name__ == "__main__":
    main()
