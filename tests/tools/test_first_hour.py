"""What a new user types is understood, and a step that goes wrong is noticed."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from ffmem.cli.main import ffmem
from tools.first_hour import (
    COMMANDS,
    LONG_SCAN,
    MISTAKES,
    PATHS,
    STRINGS,
    Command,
    err,
    expect,
    say,
    steps,
)


def test_every_command_of_the_first_hour_can_be_parsed() -> None:
    for step in (*COMMANDS.values(), *MISTAKES.values(), Command(LONG_SCAN, "")):
        command = ffmem.commands.get(step.words[0])
        if command is not None:
            context = command.make_context(step.words[0], list(step.words[1:]))
            assert context.params
        else:
            assert step.words == ("--help",)


def test_no_step_names_the_source_tree(tmp_path: Path) -> None:
    root = Path(__file__).parents[2]
    words = [word for step in COMMANDS.values() for word in step.words]
    assert not any(str(root) in text for text in [*words, *PATHS, STRINGS])
    names = list(steps("python", tmp_path, tmp_path / "ffmem.whl", installed=True))
    assert names[0] == "install"
    assert {"own text", "own strings", "prompt", "show", "explore", "report"} <= set(names)


def test_a_step_runs_without_the_source_tree_and_may_fail(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", "/somewhere")
    code = "import os; print(os.environ.get('PYTHONPATH'), os.getcwd())"
    said = say([sys.executable, "-c", code], tmp_path)
    assert said.strip() == f"None {tmp_path}"
    with pytest.raises(RuntimeError, match="ended with 3"):
        say([sys.executable, "-c", "raise SystemExit(3)"], tmp_path)
    with pytest.raises(RuntimeError, match="'that' is not in"):
        expect("it is what", "that")


def test_a_mistake_must_be_answered_by_one_sentence(tmp_path: Path) -> None:
    """A program that answers in two lines, or with another exit code, is noticed."""
    program = tmp_path / "python"
    for lines, code, wrong in (("one", 2, None), ("one\\ntwo", 2, "sentence"), ("one", 1, "ended")):
        program.write_text(f"#!/bin/sh\nprintf '{lines}'\nexit {code}\n")
        program.chmod(0o755)
        if wrong is None:
            err(str(program), tmp_path, Command(("show",), "one"))
        else:
            with pytest.raises(RuntimeError, match=wrong):
                err(str(program), tmp_path, Command(("show",), "one"))
