"""Commands that only read a store do not wait for what is slow to import, nor for figures."""

from __future__ import annotations

import json
import shlex
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

from ffmem.report.build import write_report
from ffmem.studies.study import open_study

STUDIES = Path(__file__).parent.parent / "fixtures" / "studies.tar.xz"
DRAWING = ["altair", "vl_convert"]
SLOW = {"torch", "transformers", "pandas", "pyarrow.compute", *DRAWING}
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
        archive.extractall(place)
    return next(path.parent for path in sorted(place.rglob("manifest.json")))


def answers_of(commands: list[list[str]]) -> tuple[list[object], str]:
    """What each command said in one process: its exit code, and what slow modules were there."""
    command = [sys.executable, "-c", CODE, json.dumps(commands)]
    done = subprocess.run(command, capture_output=True, text=True)
    return json.loads(done.stdout.rpartition("ANSWERS")[2]), done.stderr


def test_a_comparison_of_reports_imports_nothing_slow(folder: Path, tmp_path: Path) -> None:
    """Claims are read from what reports have left, and only the page is drawn."""
    study = tmp_path / "study"
    shutil.copytree(folder, study)
    for result in (study / "analyses").glob("*.json"):
        if result.stem not in ("values", "refinement"):
            result.unlink()  # each is figures to draw, twice
    twin = study / "control-random-weights"
    shutil.copytree(study, tmp_path / "twin")
    shutil.move(tmp_path / "twin", twin)
    write_report(open_study(study))
    claims = ["compare", str(study), str(study)]
    data, page = [*claims, "--json"], [*claims, "-o", str(tmp_path / "both.html")]
    with_twin = ["compare", str(study), str(twin)]  # which has no report of its own
    answers, errors = answers_of([with_twin, claims, data, page])
    quick = [[words, 0, []] for words in (with_twin, claims, data)]
    assert answers == [*quick, [page, 0, DRAWING]], errors
    assert "<figure>" in (tmp_path / "both.html").read_text()


def test_a_command_that_ends_at_once_has_said_everything(folder: Path) -> None:
    """Through a pipe, where output is kept back until there is much of it."""
    shown = ffmem_process("show", str(folder), "L1.3", "--json")
    assert shown.returncode == 0, shown.stderr
    assert json.loads(shown.stdout)[0]["triggers"]
    refused = ffmem_process("show", str(folder), "L99.3")
    assert (refused.returncode, refused.stdout) == (2, "")
    assert "has no layer 99" in refused.stderr
    wrong = ffmem_process("compare", str(folder))
    assert wrong.returncode == 2
    assert "a comparison needs two studies" in wrong.stderr


@pytest.mark.parametrize("closed", [">&-", "2>&-"])
def test_a_closed_stream_changes_no_exit_code(folder: Path, closed: str) -> None:
    for address, code in (("L1.3", 0), ("L99.3", 2)):
        command = shlex.join([sys.executable, "-m", "ffmem", "show", str(folder), address])
        done = subprocess.run(["sh", "-c", f"{command} {closed}"], capture_output=True, text=True)
        assert done.returncode == code, done.stderr


def ffmem_process(*words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "ffmem", *words]
    return subprocess.run(command, capture_output=True, text=True)


def test_reading_imports_nothing_slow(folder: Path) -> None:
    """One process for all of them: what the first one imports, those behind it have too."""
    commands = [[word.replace("FOLDER", str(folder)) for word in words] for words, _ in COMMANDS]
    answers, errors = answers_of(commands)
    assert answers == [[words, COMMANDS[at][1], []] for at, words in enumerate(commands)], errors
