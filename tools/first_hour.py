"""Do what a new user does in the first hour, from the wheel, in an empty environment and folder.

python -m tools.first_hour [--wheel FILE] [--installed]

Installs the wheel (built from this tree unless one is named) with what pip finds; --installed takes
the packages of this Python instead, all but ffmem, so that nothing is fetched. Then: a prompt, an
own text, one memory, an own list of strings, the report, the explorer; then what goes wrong: a path
that is not there, a damaged file, Ctrl-C. Everything runs in a folder that holds nothing else, and
PYTHONPATH is not set, so no step can use the source tree.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import signal
import subprocess
import sys
import sysconfig
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from urllib.request import urlopen

from tools.check_versions import NEWEST, build_wheel, constraints, make_environment, python_of

TEXT = """It was later discovered that the river had changed its course.
The report goes on to mention that the bridge was closed in winter.
In the article, it is reported that the lake is the largest in the north.
They believe that the city was founded by the king of the island.
The seventh Regiment was an infantry regiment of the army.
"""
STRINGS = """
import ffmem
texts = ["It was later discovered that the river runs dry.", "The lake is in the north."]
study = ffmem.run_scan("demo", texts, "out/strings", layers=[12])
print(study.memory("L12.691"))
"""
PATHS = {  # of the explorer, with a word that each page must have
    "": "memories (MLP neurons) in",
    "memory/L12.691": "Triggers",
    "report": "remember",
    "static/style.css": "color",
    "api/overview": "analyses",
}
ADDRESS = re.compile(r" at (http://\S+)")


@dataclass(frozen=True)
class Command:
    """One thing that a user types, and a text that the answer must have."""

    words: tuple[str, ...]
    answer: str


COMMANDS = {
    "help": Command(("--help",), "explore"),
    "inspect": Command(("inspect", "demo"), "16,384"),
    "prompt": Command(("prompt", "demo", "It was later discovered"), "that"),
    "own text": Command(
        ("study", "demo", "my-text.txt", "-o", "out/mine", "--layers", "11,12", "--only", "values"),
        "report.html",
    ),
    "show": Command(("show", "out/mine", "L12.691"), "that"),
    "search": Command(("search", "out/mine", "--token", " that"), "L12."),
    "report": Command(("report", "out/mine"), "report.html"),
}


MISTAKES = {  # each is answered by one sentence and the exit code 2
    "wrong model": Command(("prompt", "no/such-model-here", "hi"), "no/such-model-here"),
    "wrong path": Command(("scan", "demo", "not-there.txt", "-o", "out/none"), "not-there.txt"),
    "wrong folder": Command(("show", "out/nothing", "L1.1"), "out/nothing"),
    "wrong address": Command(("show", "out/mine", "L99.1"), "99"),
    "damaged study": Command(("show", "out/broken", "L12.691"), "out/broken"),
    "damaged text": Command(("scan", "demo", "broken.txt", "-o", "out/none"), "UTF-8"),
}
LONG_SCAN = ("scan", "demo", "demo", "--max-sentences", "3000", "-o", "out/long")
WAIT = 120.0  # seconds that a scan may take to begin


def surroundings() -> dict[str, str]:
    """The variables of a terminal of 120 columns, without those that lead to the source tree."""
    own = {k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "VIRTUAL_ENV")}
    return own | {"COLUMNS": "120"}


def say(command: list[str], folder: Path, code: int = 0) -> str:
    """Run a command in a folder, which must end with an exit code; all that it says."""
    done = subprocess.run(
        command,
        cwd=folder,
        env=surroundings(),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    if done.returncode != code:
        raise RuntimeError(f"{' '.join(command)} ended with {done.returncode}:\n{done.stdout}")
    return done.stdout


def damage(folder: Path) -> None:
    """A copy of the study with half a file, and a text with a byte that is not UTF-8."""
    shutil.copytree(folder / "out/mine", folder / "out/broken")
    file = folder / "out/broken/values.parquet"
    file.write_bytes(file.read_bytes()[: file.stat().st_size // 2])
    (folder / "broken.txt").write_bytes(TEXT.encode() + b"caf\xe9\n")


def err(python: str, folder: Path, mistake: Command) -> None:
    """Make a mistake; the answer must be one sentence that names what is wrong."""
    said = say([python, "-m", "ffmem", *mistake.words], folder, code=2).strip()
    expect(said, mistake.answer)
    if "Traceback" in said or said.count("\n"):
        raise RuntimeError(f"this is not one sentence:\n{said[:2000]}")
    if (folder / "out/none").exists():
        raise RuntimeError(f"ffmem {' '.join(mistake.words)} left a folder behind")


def interrupt(python: str, folder: Path) -> None:
    """Ctrl-C in a scan; the same command then goes on and ends."""
    command = [python, "-m", "ffmem", *LONG_SCAN]
    signal.signal(signal.SIGINT, signal.default_int_handler)  # ignored in a shell's background
    with subprocess.Popen(
        command,
        cwd=folder,
        env=surroundings(),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    ) as scan:
        until = time.monotonic() + WAIT
        while not (folder / "out/long").exists() and time.monotonic() < until:
            time.sleep(0.1)
        scan.send_signal(signal.SIGINT)
        said, _ = scan.communicate()
    if scan.returncode != 130:
        raise RuntimeError(f"Ctrl-C ended with {scan.returncode}:\n{said[-2000:]}")
    expect(said, "the same command goes on from here")
    expect(say(command, folder), "3,000 sentences")


def expect(text: str, answer: str) -> None:
    """Complain of an answer that is not there."""
    if answer not in text:
        raise RuntimeError(f"{answer!r} is not in:\n{text[:2000]}")


def install(python: str, wheel: Path, installed: bool) -> None:
    """Install the wheel: with what pip finds, or beside the packages of this Python."""
    folder = wheel.parent
    pip = [python, "-m", "pip", "install", "--quiet"]
    if installed:
        where = say(
            [python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"], folder
        )
        here = sysconfig.get_path("purelib")
        (Path(where.strip()) / "packages.pth").write_text(f"{here}\n", encoding="utf-8")
        say([*pip, "--no-deps", str(wheel)], folder)
        return
    held = folder / "constraints.txt"  # only torch's build, which may bring gigabytes otherwise
    lines = [f"{name}=={version}\n" for name, version in constraints(NEWEST).items()]
    held.write_text("".join(lines), encoding="utf-8")
    say([*pip, "--prefer-binary", "--constraint", str(held), f"{wheel}[pandas]"], folder)


def check_origin(python: str, folder: Path) -> None:
    """See that ffmem is the installed one."""
    where = say([python, "-c", "import ffmem; print(ffmem.__file__)"], folder)
    expect(where, str(Path(python).parents[1]))


@contextmanager
def serve(python: str, study: Path | str, folder: Path | None = None) -> Iterator[str]:
    """Start the explorer of a Python in a folder; gives its address, and stops it at the end."""
    words = ["-m", "ffmem", "explore", str(study), "--port", "0", "--no-browser"]
    pipe = subprocess.PIPE
    with subprocess.Popen(
        [python, *words], cwd=folder, stdout=pipe, stderr=subprocess.STDOUT, text=True
    ) as process:
        try:
            yield address(process)
        finally:
            process.terminate()


def address(process: subprocess.Popen[str]) -> str:
    """The address that the explorer prints when it listens."""
    lines = []
    for line in process.stdout or ():
        lines.append(line)
        found = ADDRESS.search(line)
        if found:
            return found[1]
    raise RuntimeError(f"the explorer did not start: {''.join(lines)}")


def browse(python: str, folder: Path) -> None:
    """Open pages of the explorer."""
    with serve(python, "out/mine", folder) as address:
        for path, word in PATHS.items():
            with urlopen(address + path) as answer:  # noqa: S310 - an address of this machine
                expect(answer.read().decode(), word)


def steps(python: str, folder: Path, wheel: Path, installed: bool) -> dict[str, Callable[[], None]]:
    """What is done, in order, by name."""

    def command(one: Command) -> Callable[[], None]:
        return lambda: expect(say([python, "-m", "ffmem", *one.words], folder), one.answer)

    return {
        "install": lambda: install(python, wheel, installed),
        "origin": lambda: check_origin(python, folder),
        **{name: command(one) for name, one in COMMANDS.items()},
        "own strings": lambda: expect(say([python, "-c", STRINGS], folder), "discovered[ that]"),
        "explore": lambda: browse(python, folder),
        "damage": lambda: damage(folder),
        **{name: partial(err, python, folder, one) for name, one in MISTAKES.items()},
        "Ctrl-C": lambda: interrupt(python, folder),
    }


def arguments() -> argparse.Namespace:
    """What the command line asks for."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--wheel", type=Path, help="a wheel of ffmem; built from here without it")
    parser.add_argument("--installed", action="store_true", help="take this Python's packages")
    return parser.parse_args()


def main() -> int:
    """Do every step and say how long it took; 1 at the first that fails."""
    asked = arguments()
    with tempfile.TemporaryDirectory(prefix="ffmem-first-hour-") as name:
        wheel = (asked.wheel or build_wheel(sys.executable, Path(name))).resolve()
        make_environment(sys.executable, Path(name) / "venv")
        folder = Path(name) / "empty"
        folder.mkdir()
        (folder / "my-text.txt").write_text(TEXT, encoding="utf-8")
        for step, action in steps(
            python_of(Path(name) / "venv"), folder, wheel, asked.installed
        ).items():
            begin = time.monotonic()
            try:
                action()
            except (RuntimeError, OSError) as error:
                print(f"{step}: FAILED: {error}")
                return 1
            print(f"{step}: {time.monotonic() - begin:.1f} s", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
