"""Install ffmem's wheel with the lowest or the newest versions it allows and run the tests there.

python -m tools.check_versions [lowest|newest|pinned ...] [--python PYTHON ...] [-- PYTEST WORDS]

`lowest` takes every lower bound of pyproject.toml, `newest` whatever pip finds, `pinned` what
constraints.txt says. torch is always the build that constraints.txt pins, because another one may
bring gigabytes of CUDA packages; its own lower bound is therefore not tried. The environments are
made in a temporary folder and the tests run in a copy of the tree, on the wheel's files.
"""

from __future__ import annotations

import argparse
import re
import shutil
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Callable, Iterable
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
LOWEST, NEWEST, PINNED = "lowest", "newest", "pinned"
REQUIREMENT = re.compile(r"(?P<name>[\w.-]+)(?P<extras>\[[^]]*\])?\s*(>=\s*(?P<lowest>[\w.]+))?")
NOT_COPIED = ("ffmem", ".git", ".venv", "build", "out", "*.egg-info", "__pycache__", ".*_cache")


def requirements(root: Path = ROOT) -> dict[str, str | None]:
    """Every package that pyproject.toml names, in an extra or not, and its lower bound."""
    project = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = project["optional-dependencies"].values()
    lines = [*project["dependencies"], *(line for extra in extras for line in extra)]
    parts = [match for line in lines if (match := REQUIREMENT.match(line))]
    return {part["name"]: part["lowest"] for part in parts if part["name"] != project["name"]}


def pins(root: Path = ROOT) -> dict[str, str]:
    """What constraints.txt pins."""
    text = (root / "constraints.txt").read_text(encoding="utf-8")
    return dict(re.findall(r"^([\w.-]+)==(\S+)$", text, re.MULTILINE))


def constraints(versions: str) -> dict[str, str]:
    """The versions to hold packages at: for lowest, newest or pinned."""
    bounds = {name: bound for name, bound in requirements().items() if bound is not None}
    held = {LOWEST: bounds, NEWEST: {}, PINNED: pins()}[versions]
    return held | {"torch": pins()["torch"]}


def build_wheel(python: str, folder: Path) -> Path:
    """The wheel of the tree, built from a copy: a build folder of old may hold deleted files."""
    source = folder / "source"
    shutil.copytree(ROOT / "ffmem", source / "ffmem", ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source)
    command = [python, "-m", "pip", "wheel", "--quiet", "--no-deps", "-w", str(folder), str(source)]
    subprocess.run(command, check=True)
    return next(folder.glob("*.whl"))


def check(python: str, versions: str, wheel: Path, words: list[str]) -> dict[str, str]:
    """One environment from nothing: what came of each step, up to the first that failed."""
    folder = Path(tempfile.mkdtemp(prefix=f"{versions}-", dir=wheel.parent))
    held = folder / "constraints.txt"
    lines = [f"{name}=={version}\n" for name, version in constraints(versions).items()]
    held.write_text("".join(lines), encoding="utf-8")
    own = python_of(folder / "venv")
    pip = [own, "-m", "pip"]
    install = [*pip, "install", "--quiet", "--prefer-binary", "--constraint", str(held)]
    steps: dict[str, Callable[[], str]] = {
        "python": lambda: make_environment(python, folder / "venv"),
        "install": lambda: output([*install, f"{wheel}[test]"]) or "ok",
        "pip check": lambda: output([*pip, "check"]),
        "tests": lambda: output([own, "-m", "pytest", *words], tested_copy(own, folder / "tree")),
    }
    return results(steps)


def python_of(environment: Path) -> str:
    """The Python of a virtual environment."""
    return str(environment / "bin" / "python")


def make_environment(python: str, folder: Path) -> str:
    """Make an empty virtual environment; the version of its Python."""
    output([python, "-m", "venv", str(folder)])
    return output([python_of(folder), "--version"])


def results(steps: dict[str, Callable[[], str]]) -> dict[str, str]:
    """The steps' last lines; the first that fails is the last."""
    row: dict[str, str] = {}
    for name, step in steps.items():
        try:
            row[name] = step()
        except subprocess.CalledProcessError as error:
            row[name] = f"FAILED: {last_line(error.stdout)}"
            print(error.stdout, file=sys.stderr)
            break
    return row


def output(command: list[str], folder: Path | None = None) -> str:
    """Run a command; the last line it says."""
    print("running", *command, file=sys.stderr)
    done = subprocess.run(
        command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=True
    )
    return last_line(done.stdout)


def last_line(text: str) -> str:
    """The last line that is not a warning or a notice of pip's."""
    asides = ("WARNING", "[notice]")
    lines = [line for line in text.splitlines() if line.strip() and not line.startswith(asides)]
    return lines[-1] if lines else ""


def tested_copy(python: str, folder: Path) -> Path:
    """A copy of the tree whose package is the one that the wheel installed."""
    shutil.copytree(ROOT, folder, ignore=shutil.ignore_patterns(*NOT_COPIED))
    where = "import sysconfig; print(sysconfig.get_path('purelib'))"
    (folder / "ffmem").symlink_to(Path(output([python, "-c", where])) / "ffmem")
    return folder


def table(rows: Iterable[dict[str, str]]) -> str:
    """The rows as columns of equal width under their names."""
    names = ["versions", "python", "install", "pip check", "tests"]
    lines = [names, *([row.get(name, "-") for name in names] for row in rows)]
    widths = [max(len(line[at]) for line in lines) for at in range(len(names))]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()
        for line in lines
    )


def arguments() -> argparse.Namespace:
    """What the command line asks for."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("versions", nargs="*", default=[LOWEST, NEWEST])
    parser.add_argument("--python", action="append", help="a Python to try; may be repeated")
    words = sys.argv[1:]
    end = words.index("--") if "--" in words else len(words)
    asked = parser.parse_args(words[:end])
    asked.pytest = words[end + 1 :]
    unknown = set(asked.versions) - {LOWEST, NEWEST, PINNED}
    if unknown:
        parser.error(f"there is no {min(unknown)}; write lowest, newest or pinned")
    for python in asked.python or []:
        if shutil.which(python) is None:
            parser.error(f"{python} is not a program here; give the name or path of a Python")
    return asked


def main() -> int:
    """Check what was asked for and print the table; 1 if anything failed."""
    asked = arguments()
    with tempfile.TemporaryDirectory(prefix="ffmem-versions-") as folder:
        wheel = build_wheel(sys.executable, Path(folder))
        rows = [
            {"versions": versions} | check(python, versions, wheel, asked.pytest)
            for python in asked.python or [sys.executable]
            for versions in asked.versions
        ]
    print(table(rows))
    bound = requirements()["torch"]
    print(f"torch is {pins()['torch']} everywhere; its lower bound, {bound}, was not tried")
    return int(any("FAILED" in cell for row in rows for cell in row.values()))


if __name__ == "__main__":
    sys.exit(main())
