"""Commands that only read a store do not wait for what is slow to import, nor for figures."""

from __future__ import annotations

import json
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from ffmem.analyses.study import Study

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
def folder(toy_study: Study) -> Path:
    """The folder of a finished study."""
    return toy_study.folder


def answers_of(commands: list[list[str]]) -> tuple[list[Any], str]:
    """What each command said in one process: its exit code, and what slow modules were there."""
    command = [sys.executable, "-c", CODE, json.dumps(commands)]
    done = subprocess.run(command, capture_output=True, text=True)
    return json.loads(done.stdout.rpartition("ANSWERS")[2]), done.stderr


def test_claims_and_reports_need_no_torch(folder: Path, tmp_path: Path) -> None:
    """Claims are judged from records; charts, which a page and a report have, are slow too."""
    study = tmp_path / "study"
    shutil.copytree(folder, study)
    for result in (study / "analyses").glob("*.json"):
        if result.stem != "weights":
            result.unlink()  # each is figures to draw
    (study / "report.html").unlink()
    claims = ["compare", str(study), str(study)]
    page = [*claims, "-o", str(tmp_path / "both.html")]
    commands = [claims, [*claims, "--json"], ["report", str(study)], page]
    answers, errors = answers_of(commands)
    assert answers[:2] == [[words, 0, []] for words in commands[:2]], errors
    for words, code, slow in answers[2:]:
        assert code == 0, (words, errors)
        assert not {"torch", "transformers"} & set(slow), words
    assert "<figure" in (study / "report" / "weights.html").read_text()
    assert "<figure>" in (tmp_path / "both.html").read_text()


def test_an_opened_study_needs_no_torch(folder: Path) -> None:
    code = """
import sys, ffmem
study = ffmem.open_study(sys.argv[1])
assert study.memory("L1.3").triggers and study.verdicts and study.charts
assert all(study.result(name) for name in study.names)
assert len(study.frame("values-agreement")) and len(study.memories())
print({"torch", "transformers"} & set(sys.modules))
"""
    command = [sys.executable, "-c", code, str(folder)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.stdout.strip() == "set()", done.stderr


def test_a_command_that_ends_at_once_has_said_everything(folder: Path) -> None:
    """Through a pipe, where output is kept back until there is much of it."""
    shown = ffmem_process("show", str(folder), "L1.3", "--json")
    assert shown.returncode == 0, shown.stderr
    assert json.loads(shown.stdout)["triggers"]
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
