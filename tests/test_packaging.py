"""What is installed: every dependency has a lower bound, and the wheel holds the package whole."""

import re
import shutil
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import yaml

from tools.check_versions import (
    LOWEST,
    NEWEST,
    constraints,
    last_line,
    output,
    pins,
    requirements,
    results,
    table,
)

ROOT = Path(__file__).parent.parent


def version(text: str) -> list[int]:
    return [int(number) for number in re.findall(r"\d+", text)]


def test_every_dependency_has_a_lower_bound_not_above_the_pinned_version() -> None:
    bounds = requirements()
    assert {"torch", "transformers", "uvloop", "psycopg", "pytest", "sentencex"} <= set(bounds)
    assert [name for name, bound in bounds.items() if bound is None] == []
    pinned = pins()
    above = [
        name
        for name, bound in bounds.items()
        if name in pinned and version(bound or "") > version(pinned[name])
    ]
    assert above == []


def test_every_pin_of_a_dependency_is_by_the_name_it_has_in_the_project() -> None:
    """A pin by another name would hold nothing."""
    unpinned = {"setuptools", "transformer_lens", "nnsight"}
    assert set(requirements()) - set(pins()) == unpinned


def test_the_lowest_versions_keep_the_pinned_torch() -> None:
    assert constraints(NEWEST) == {"torch": pins()["torch"]}
    lowest = constraints(LOWEST)
    assert lowest["torch"] == pins()["torch"]
    assert lowest["transformers"] == requirements()["transformers"]


def test_the_tested_range_of_transformers_is_what_the_bound_and_the_pin_say() -> None:
    tested = f"{requirements()['transformers']} to {pins()['transformers']}"
    for name, start in (("README.md", "transformers "), ("pyproject.toml", "# tested with ")):
        text = " ".join((ROOT / name).read_text(encoding="utf-8").split())
        assert start + tested in text, name


def test_the_workflow_and_the_hook_run_what_a_developer_runs() -> None:
    jobs = yaml.safe_load((ROOT / ".github/workflows/test.yml").read_text("utf-8"))["jobs"]
    runs = {name: [s["run"] for s in job["steps"] if "run" in s] for name, job in jobs.items()}
    assert runs == {
        "test": ["make test PYTHON=python"],
        "newest": ["python -m tools.check_versions newest"],
    }
    lowest = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    versions = jobs["test"]["strategy"]["matrix"]["python"]
    assert f">={versions[0]}" == lowest["requires-python"]
    hooks = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text("utf-8"))["repos"]
    assert [hook["entry"] for repo in hooks for hook in repo["hooks"]] == ["make lint"]


def test_a_bound_is_read_with_extras_and_markers(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text(
        '[project]\nname = "x"\ndependencies = ["a-b>=1.2; python_version > \'3\'", "c[d] >= 4"]\n'
        '[project.optional-dependencies]\ntest = ["x[fast]", "free"]\nfast = ["e>=5.0.1"]\n',
        encoding="utf-8",
    )
    assert requirements(tmp_path) == {"a-b": "1.2", "c": "4", "free": None, "e": "5.0.1"}


def test_warnings_of_pip_are_not_the_last_word() -> None:
    assert last_line("No broken requirements found.\nWARNING: old pip\n[notice] a new pip\n\n") == (
        "No broken requirements found."
    )


def test_the_first_step_that_fails_is_the_last_and_the_table_says_so() -> None:
    def say(code: str) -> str:
        return output([sys.executable, "-c", code])

    row = results(
        {
            "python": lambda: say("print('first'); print('3.11')"),
            "install": lambda: say("print('no such version'); raise SystemExit(1)"),
            "tests": lambda: say("print('never')"),
        }
    )
    assert row == {"python": "3.11", "install": "FAILED: no such version"}
    line = " ".join(table([row]).splitlines()[1].split())
    assert line == "- 3.11 FAILED: no such version - -"


def test_the_wheel_holds_every_file_of_the_package_and_nothing_else(tmp_path: Path) -> None:
    """Built by setuptools from a copy of everything that is not the package's history."""
    source = tmp_path / "source"
    own = shutil.ignore_patterns(".*", "__pycache__", "build", "out", "*.egg-info")
    shutil.copytree(ROOT, source, ignore=own, symlinks=False)
    code = f"from setuptools.build_meta import build_wheel; build_wheel({str(tmp_path)!r})"
    subprocess.run([sys.executable, "-c", code], cwd=source, check=True, capture_output=True)
    (wheel,) = tmp_path.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        names = {name for name in archive.namelist() if ".dist-info/" not in name}
    package = (ROOT / "ffmem").resolve()
    files = {
        f"ffmem/{path.relative_to(package).as_posix()}"
        for path in package.rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    assert {
        "ffmem/assets/demo/model.safetensors",
        "ffmem/assets/readings/sheets.jsonl.xz",
        "ffmem/explorer/static/style.css",
    } <= files
    assert names == files
