"""SIGTERM and SIGHUP take the way of Ctrl-C: a checkpoint, one line, an exit code of their own."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from ffmem.execution.run import run_scan
from ffmem.models.loading import load
from ffmem.store.folder import StudyFolder
from tests.execution.small_scans import plan_for, same_store, sentences

STOPPED = """
import signal, sys
from ffmem import interrupts
from ffmem.execution import run
from ffmem.models.loading import load
from ffmem.cli.main import main
from tests.execution.small_scans import plan_for
from pathlib import Path

number, corpus, out = sys.argv[1:]
signal.signal(signal.SIGINT, signal.SIG_IGN)  # as in a shell's background
interrupts.stop_as_by_ctrl_c()

def stop(_progress, _share):
    with interrupts.delay_interrupts():
        signal.raise_signal(int(number))
        print("delayed")
    print("never")

def scan(_words):
    model = load("tiny:opt")
    run.run_scan(model, plan_for(model, Path(corpus)), Path(out), stop)

import ffmem.cli.main as command_line
command_line.run = scan
sys.argv = ["ffmem", "scan"]
main()
"""


def test_a_signal_saves_and_says_so(tmp_path: Path) -> None:
    corpus, out = tmp_path / "corpus.txt", tmp_path / "scan"
    corpus.write_text("\n".join(sentences(60)) + "\n", encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "-c", STOPPED, str(int(signal.SIGTERM)), str(corpus), str(out)],
        env={**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(Path(__file__).parent.parent)},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 128 + signal.SIGTERM, done.stderr
    assert done.stdout == "delayed\n"
    assert done.stderr == "stopped; the same command goes on from here\n"
    assert os.listdir(out) == [StudyFolder(out).checkpoint.name]
    model = load("tiny:opt")
    run_scan(model, plan_for(model, corpus), out)
    run_scan(model, plan_for(model, corpus), tmp_path / "whole")
    same_store(tmp_path / "whole", out)


ENDED = """
import signal, sys
import ffmem.cli.main as command_line
from ffmem.__main__ import main

command_line.run = lambda _words: signal.raise_signal(int(sys.argv[1]))
main()
"""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_each_signal_has_its_exit_code(number: signal.Signals) -> None:
    done = subprocess.run(
        [sys.executable, "-c", ENDED, str(int(number))],
        env={**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(Path(__file__).parent.parent)},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 128 + number
    assert done.stderr == "stopped\n"
