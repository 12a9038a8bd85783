"""Commands that only read a store do not wait for torch, transformers or pandas to be imported."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

from ffmem.report.build import write_report
from ffmem.studies.study import open_study

STUDIES = Path(__file__).parent.parent / "fixtures" / "studies.tar.xz"
SLOW = {"torch", "transformers", "pandas"}
COMMANDS: list[tuple[list[str], int]] = [
    (["--help"], 0),
    (["show", "FOLDER", "L1.3"], 0),
    (["show", "FOLDER", "L99.3"], 2),
    (["show", "FOLDER", "nonsense"], 2),
    (["show", "FOLDER/nowhere", "L1.3"], 2),
    (["search", "FOLDER", "--token", "a"], 0),
    (["search", "FOLDER", "--token", "no token at all"], 2),
    (["compare", "FOLDER", "FOLDER", "--memories", "--json"], 0),
    (["compare", "FOLDER", "FOLDER", "--memories", "--match"], 0),
    (["compare", "FOLDER"], 2),
    (["compare", "FOLDER", "FOLDER/nowhere"], 2),
    (["explore", "FOLDER/nowhere"], 2),
    (["report", "FOLDER/nowhere"], 2),
    (["verify", "FOLDER"], 0),
    (["models"], 0),
    (["cache", "list"], 0),
]
CODE = f"""
import json, sys
from ffmem.cli.main import main
answers = []
for words in json.loads(sys.argv[1]):
    sys.argv = ["ffmem", *words]
    try:
        main()
    except SystemExit as end:
        answers.append((words, end.code or 0, sorted({SLOW} & set(sys.modules))))
print("ANSWERS" + json.dumps(answers))
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished study, made by another version."""
    place = tmp_path_factory.mktemp("studies")
    with tarfile.open(STUDIES) as archive:
        archive.extractall(place, filter="data")
    return next(path.parent for path in sorted(place.rglob("manifest.json")))


def answers_of(commands: list[list[str]]) -> tuple[list[object], str]:
    """What each command said in one process: its exit code, and what slow modules were there."""
    command = [sys.executable, "-c", CODE, json.dumps(commands)]
    done = subprocess.run(command, capture_output=True, text=True)
    return json.loads(done.stdout.rpartition("ANSWERS")[2]), done.stderr


def test_a_comparison_of_reports_imports_nothing_slow(folder: Path, tmp_path: Path) -> None:
    """The page is made from what reports have left; they must not be older than the results."""
    study = tmp_path / "study"
    shutil.copytree(folder, study)
    write_report(open_study(study))
    words = ["compare", str(study), str(study), "-o", str(tmp_path / "both.html")]
    answers, errors = answers_of([words])
    assert answers == [[words, 0, []]], errors
    assert "<figure>" in (tmp_path / "both.html").read_text()


def test_reading_imports_nothing_slow(folder: Path) -> None:
    """One process for all of them: what the first one imports, those behind it have too."""
    commands = [[word.replace("FOLDER", str(folder)) for word in words] for words, _ in COMMANDS]
    answers, errors = answers_of(commands)
    assert answers == [[words, COMMANDS[at][1], []] for at, words in enumerate(commands)], errors
