"""Run the tests as other machines would: other rounding, other load, another order, another user.

`python -m tools.machines` runs them all in every setting and ends with a table.
`python -m tools.machines --only busy --only reverse -- tests/execution -x` chooses settings and
hands what follows `--` to pytest.
"""

from __future__ import annotations

import argparse
import os
import pwd
import shutil
import subprocess
import sys
import tempfile
import time
import xml.etree.ElementTree as ElementTree
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).parent.parent
BUSY_LOOPS = 2
OTHER_USER = "nobody"
# as a worker of pytest starts: the first program may have rights that its children lack
REACH = (
    "import subprocess, sys; "
    "subprocess.run([sys.executable, '-c', 'import pytest, torch'], check=True)"
)
WORKERS = min((os.cpu_count() or 1) + 1, 5)  # as `make test` has
TOGETHER = ("-n", str(WORKERS), "--dist", "loadfile", "--no-loadscope-reorder")


@dataclass(frozen=True)
class Setting:
    """What is different from a plain run of the tests."""

    environment: dict[str, str] = field(default_factory=dict)
    arguments: tuple[str, ...] = ()
    busy: bool = False
    other_user: bool = False


SETTINGS = {
    "aten-default": Setting({"ATEN_CPU_CAPABILITY": "default"}),
    "aten-avx2": Setting({"ATEN_CPU_CAPABILITY": "avx2"}),
    "mkl-compatible": Setting({"MKL_CBWR": "COMPATIBLE"}),
    "onednn-sse41": Setting({"ONEDNN_MAX_CPU_ISA": "SSE41"}),
    "one-thread": Setting({"OMP_NUM_THREADS": "1"}),
    "busy": Setting(busy=True),
    "reverse": Setting({"FFMEM_TEST_ORDER": "reverse"}, ("-p", "tools.test_order")),
    "shuffle": Setting({"FFMEM_TEST_ORDER": "1"}, ("-p", "tools.test_order")),
    "other-user": Setting(other_user=True),
}


@dataclass(frozen=True)
class Outcome:
    """How the tests went in one setting; `trouble` where they did not run to their end."""

    passed: int = 0
    skipped: int = 0
    failed: tuple[str, ...] = ()
    seconds: float = 0.0
    trouble: str = ""


@dataclass(frozen=True)
class Place:
    """Where the tests run, and as whom."""

    tree: Path
    files: Path  # of the tests, and of this program
    before: tuple[str, ...] = ()  # words in front of the command


def run(setting: Setting, words: Sequence[str], log: Path) -> Outcome:
    """The tests in one setting; what pytest says goes to the log."""
    with ExitStack() as around:
        place = around.enter_context(place_of(setting))
        if setting.busy:
            around.enter_context(busy_loops())
        results = place.files / "results.xml"
        command = [*place.before, sys.executable, "-m", "pytest", *TOGETHER]
        command += ["-p", "no:cacheprovider"]
        command += ["--basetemp", str(place.files / "tests files"), "--junitxml", str(results)]
        began = time.monotonic()
        with log.open("w") as said:
            ended = subprocess.run(
                [*command, "-o", "junit_family=xunit1", *setting.arguments, *words],
                cwd=place.tree,
                env={**os.environ, **environment_of(setting, place)},
                stdout=said,
                stderr=subprocess.STDOUT,
            )
        seconds = time.monotonic() - began
        if ended.returncode not in (0, 1) or not results.exists():
            return Outcome(seconds=seconds, trouble=f"pytest ended with code {ended.returncode}")
        return outcome_in(results, seconds)


def environment_of(setting: Setting, place: Place) -> dict[str, str]:
    """Variables of the setting, and those that keep another user inside its own folders."""
    here = {"PYTHONPATH": str(place.tree), **setting.environment}
    if setting.other_user:
        here |= {"HOME": str(place.files), "RAY_TMPDIR": str(place.files)}
    return here


def outcome_in(results: Path, seconds: float) -> Outcome:
    """What pytest wrote about every test."""
    passed = skipped = 0
    failed = []
    for case in ElementTree.parse(results).iter("testcase"):
        kinds = {part.tag for part in case}
        if kinds & {"failure", "error"}:
            failed.append(f"{case.get('file') or case.get('classname')}::{case.get('name')}")
        elif "skipped" in kinds:
            skipped += 1
        else:
            passed += 1
    return Outcome(passed, skipped, tuple(dict.fromkeys(failed)), seconds)


@contextmanager
def place_of(setting: Setting) -> Iterator[Place]:
    """This tree, or for another user a copy of it in a folder with a space in its name."""
    with tempfile.TemporaryDirectory(prefix="ffmem-") as made:
        files = Path(made)
        if not setting.other_user:
            yield Place(ROOT, files)
            return
        user = pwd.getpwnam(OTHER_USER)
        tree = files / "a copy"
        copy_tree(tree)
        for path in (files, *files.rglob("*")):
            os.chown(path, user.pw_uid, user.pw_gid, follow_symlinks=False)
        ids = (f"--reuid={user.pw_uid}", f"--regid={user.pw_gid}", "--clear-groups")
        yield Place(tree, files, ("setpriv", *ids, "--"))


def copy_tree(into: Path) -> None:
    """Copy what git knows and what it does not ignore."""
    listed = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"]
    names = subprocess.run(listed, cwd=ROOT, check=True, capture_output=True, text=True).stdout
    for name in filter(None, names.split("\0")):
        if (ROOT / name).exists():
            (into / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, into / name, follow_symlinks=False)


@contextmanager
def busy_loops() -> Iterator[None]:
    """Processes that want all the time that they can get."""
    loops = [
        subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(BUSY_LOOPS)
    ]
    try:
        yield
    finally:
        for loop in loops:
            loop.kill()
            loop.wait()


def why_not(setting: Setting) -> str:
    """Why a setting cannot be had here; empty where it can."""
    if not setting.other_user:
        return ""
    if os.getuid() != 0:
        return "only root can run as another user"
    if shutil.which("setpriv") is None:
        return "setpriv is not installed"
    user = pwd.getpwnam(OTHER_USER)
    command = ["setpriv", f"--reuid={user.pw_uid}", f"--regid={user.pw_gid}", "--clear-groups"]
    try:
        subprocess.run([*command, sys.executable, "-c", REACH], check=True, capture_output=True)
    except subprocess.CalledProcessError:
        return f"{OTHER_USER} cannot reach {sys.executable} and its packages"
    return ""


def table(outcomes: dict[str, Outcome]) -> str:
    """A line per setting, and under it the tests that failed."""
    lines = [f"{'setting':<16} {'passed':>7} {'failed':>7} {'skipped':>8} {'seconds':>8}"]
    for name, found in outcomes.items():
        numbers = f"{found.passed:>7} {len(found.failed):>7} {found.skipped:>8}"
        lines.append(f"{name:<16} {numbers} {found.seconds:>8.0f}  {found.trouble}".rstrip())
        lines += [f"    {test}" for test in found.failed]
    return "\n".join(lines)


def main() -> None:
    """Run, print the table, and exit with 1 where anything failed."""
    parser = argparse.ArgumentParser(prog="python -m tools.machines", description=__doc__)
    parser.add_argument("--only", action="append", choices=SETTINGS, help="a setting; repeat it")
    parser.add_argument("--logs", type=Path, help="a folder for what pytest says")
    parser.add_argument("words", nargs="*", metavar="-- PYTEST ARGUMENTS")
    chosen = parser.parse_args()
    logs = chosen.logs or Path(tempfile.mkdtemp(prefix="ffmem-logs-"))
    logs.mkdir(parents=True, exist_ok=True)
    outcomes: dict[str, Outcome] = {}
    for name in chosen.only or SETTINGS:
        log = logs / f"{name}.log"
        print(f"{name}: {log}", flush=True)
        reason = why_not(SETTINGS[name])
        if reason:
            print(f"    left out: {reason}")
            continue
        outcomes[name] = run(SETTINGS[name], chosen.words, log)
    print(table(outcomes))
    raise SystemExit(any(found.failed or found.trouble for found in outcomes.values()))


if __name__ == "__main__":
    main()
