"""The tests as other machines would run them: a setting reaches pytest, and a failure its name."""

from __future__ import annotations

from pathlib import Path

import pytest

from tools import machines
from tools.machines import SETTINGS, Outcome, Setting, run, table

TESTS = """
import os
from pathlib import Path
NOTES = Path(__file__).with_name("notes")
def note(name):
    NOTES.write_text((NOTES.read_text() if NOTES.exists() else "") + name)
def test_a(): note("a")
def test_b():
    note("b")
    assert os.environ.get("ATEN_CPU_CAPABILITY") == "default"
"""


@pytest.fixture(autouse=True)
def one_light_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without what only the tests of ffmem need."""
    monkeypatch.setattr(machines, "TOGETHER", ())
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "test_two.py"
    path.write_text(TESTS)
    return path


def test_a_setting_reaches_the_tests_and_a_failure_is_named(
    file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("ATEN_CPU_CAPABILITY", raising=False)  # these tests may run in a setting too
    found = run(SETTINGS["aten-default"], [str(file)], tmp_path / "log")
    assert (found.passed, found.failed, found.trouble) == (2, (), "")
    found = run(SETTINGS["reverse"], [str(file)], tmp_path / "log")
    assert (found.passed, len(found.failed)) == (1, 1)
    assert found.failed[0].endswith("test_two.py::test_b")
    assert file.with_name("notes").read_text() == "abba"


def test_shuffled_files_keep_the_order_of_their_tests(tmp_path: Path) -> None:
    """One number is one order, and not every number the same."""
    names = "abcdef"
    notes = tmp_path / "notes"
    for name in names:
        text = f"def note(x):\n  with open({str(notes)!r}, 'a') as file: file.write({name!r} + x)\n"
        text += "def test_1(): note('1')\ndef test_2(): note('2')\n"
        (tmp_path / f"test_{name}.py").write_text(text)

    def order(number: int) -> str:
        notes.write_text("")
        setting = Setting({"FFMEM_TEST_ORDER": str(number)}, SETTINGS["shuffle"].arguments)
        assert run(setting, [str(tmp_path)], tmp_path / "log").passed == 2 * len(names)
        return notes.read_text()

    orders = [order(number) for number in (1, 2)]
    assert order(1) == orders[0] != orders[1]
    for found in orders:
        assert found[1::2] == "12" * len(names), "a file's own tests"
        assert set(found[::4]) == set(names)


def test_what_does_not_run_to_its_end_is_trouble(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    found = run(Setting(), [str(tmp_path / "empty")], tmp_path / "log")
    assert found.trouble == "pytest ended with code 5"


def test_the_table_has_a_line_per_setting_and_the_exit_code_says_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    outcomes = iter([Outcome(5, 1), Outcome(4, 1, ("tests/x.py::test_y",), 3.2)])
    monkeypatch.setattr(machines, "run", lambda *_: next(outcomes))
    words = ["machines", "--logs", str(tmp_path), "--only", "busy", "--only", "reverse"]
    monkeypatch.setattr("sys.argv", words)
    with pytest.raises(SystemExit) as end:
        machines.main()
    assert end.value.code == 1
    lines = capsys.readouterr().out.splitlines()[-4:]
    assert [line.split()[:4] for line in lines[1:3]] == [
        ["busy", "5", "0", "1"],
        ["reverse", "4", "1", "1"],
    ]
    assert lines[3].strip() == "tests/x.py::test_y"
    assert table({"busy": Outcome(trouble="it broke")}).endswith("it broke")
