"""Whatever is wrong with what a user gives: one sentence, exit code 2, nothing written."""

from __future__ import annotations

import bz2
import os
import shutil
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch

import ffmem
from ffmem.analyses.effect import read_tasks
from ffmem.analyses.published_numbers import published_models
from ffmem.cli import main as cli
from ffmem.corpus.sources import STREAM, Source, digest, documents
from ffmem.errors import FfmemError
from ffmem.figures.memory import memory_chart
from ffmem.figures.saving import save_picture
from ffmem.locations import may_have_no_end
from ffmem.memories.edits import read_set
from ffmem.models.language_model import LanguageModel
from ffmem.models.tiny import tiny_model, tiny_tokenizer
from ffmem.report.build import summarise
from ffmem.report.comparison import write_comparison
from ffmem.store.folder import check_folder, write_whole
from ffmem.store.lookup import MemoryIndex, TokenPush
from ffmem.store.memory_page import MemoryPage
from ffmem.store.scan_store import Counts, ScanStore
from tests.cli.test_commands import run
from tests.models.fairseq_files import write_toy

LONG = "x" * 300  # more than any file system allows for one name
DEEP = "/".join(["y" * 200] * 30)  # more than it allows for a path
NUL, HALF = "a\0b", "caf\udce9"  # HALF is what Python makes of bytes that are not UTF-8
DIGITS = "9" * 5000  # more than Python reads as a number
ROOT = Path(__file__).parents[2]

SCAN = ["scan", "tiny:opt", "text.txt", "-o", "out"]
PROMPT = ["prompt", "tiny:opt", "hi"]
EFFECT = ["effect", "tiny:opt", "text.txt", "--set", "L1.1=0", "--task"]
LLM = ["annotate", "llm", "study", "--llm", "x", "--dry-run", "--keys", "1"]
FOLDER = [
    ["report"],
    ["show", "", "L1.1"],
    ["search", "", "--token", " a"],
    ["analyse"],
    ["removal"],
    ["patterns"],
    ["annotate", "sheets", "", "sheets"],
    ["annotate", "agreement"],
    ["explore", "", "--no-browser"],
    ["compare", "", "study"],
    ["inspect"],
]
EDITS = [f"@{LONG}=0", "@empty=0", "@text.txt=0", "@study=0", "@unknown=0", "L1.1=x"]
PATHS = [LONG, DEEP, NUL, HALF, "loop", "~nobody-of-this-name/x", "file://", "file://[x"]


def with_path(words: list[str], path: str) -> list[str]:
    """A command with its path put where the gap is, or at its end."""
    return [path if word == "" else word for word in words] if "" in words else [*words, path]


CASES = [
    *(with_path(words, path) for words in FOLDER for path in (LONG, NUL)),
    *(["scan", "tiny:opt", path, "-o", "out"] for path in (*PATHS, "", "/dev/zero", "empty/x")),
    *(["scan", "tiny:opt", "text.txt", "-o", path] for path in (*PATHS, "", "empty", "empty/x")),
    *(["study", "tiny:opt", "text.txt", "-o", path] for path in ("empty", "empty/x")),
    ["weights", "tiny:opt", "-o", "empty/x"],
    ["inspect", "pipe"],
    ["inspect", "nested-model"],
    ["inspect", "tiny:opt", "--device", "vulkan"],
    *(["scan", path, "text.txt", "-o", "out"] for path in (*PATHS, "", "s3://b/x")),
    *(["compare", "study", "study", "-o", path] for path in (LONG, NUL, ".", "empty/x", "pipe")),
    *(["show", "study", "L1.1", "--picture", path] for path in (f"{LONG}.svg", "empty/x.svg")),
    *(["annotate", "sheets", "study", path] for path in (LONG, NUL)),
    *(["annotate", "sheets", "study", "o", "--database", path] for path in (LONG, NUL)),
    *(["annotate", "import", "study", path, "--annotator", "a"] for path in (LONG, NUL)),
    ["study", "tiny:opt", "", "-o", "out"],
    *([*SCAN, "--experts", text] for text in ("3-1", "x", "0,,2", "0-", "01", DIGITS, "0")),
    *([*SCAN, "--layers", text] for text in ("3-1", "1-99999999999", "0", "1,,2", "1-", DIGITS)),
    *([*SCAN, "--seed", number] for number in ("-1", str(2**63), DIGITS, "nan")),
    *([*SCAN, "--max-sentences", number] for number in ("0", "-1", DIGITS)),
    *([*SCAN, "--budget", number] for number in ("0", "-1")),
    *([*SCAN, "--workers", "0"], [*SCAN, "--ray", "--gpus-per-worker", "nan"]),
    *([*SCAN, "--devices", text] for text in ("", "cuda:999", "cpu,", DIGITS)),
    *(["cache", word, "nothing"] for word in ("list", "clear")),
    *(
        ["inspect", "tiny:opt", "--device", name]
        for name in ("meta", "", "cuda:999", "mtia", "mkldnn")
    ),
    *([*PROMPT, "--set", edit] for edit in ("L1.5=1e39", "L1.5*1e39", "L1.5=3e38", "L1.5=nan")),
    *([*PROMPT, "--set", f"L1.{DIGITS}=1"], [*PROMPT, "--top", "0"], [*PROMPT, "--top", "-1"]),
    [*PROMPT, "--dtype", "float16", "--set", "L1.5=1e5"],
    *([*PROMPT, "--set", f"@{path}=0"] for path in (LONG, NUL, "bytes", "loop", ".", "nothing")),
    *([*EFFECT, path] for path in (LONG, NUL, "bytes", "nested", ".", "nothing")),
    *(["check", "tiny:opt", "--published", path] for path in (LONG, "bytes", "nested", "nothing")),
    *(["annotate", "import", "study", path, "--annotator", "a"] for path in ("bytes", "loop")),
    ["prompt", "tiny:opt", HALF],
    ["search", "study", "--token", HALF],
    ["search", "study", "--token", " a", "-n", "-1"],
    ["show", "study", f"L1.{DIGITS}"],
    ["show", "study", "L1.1", "-n", "-1"],
    ["analyse", "study", "--only", ""],
    ["analyse", "study", "--sample", "0"],
    ["analyse", "study", "--only", "refinement", "--valid", "nothing.txt"],
    ["study", "tiny:opt", "text.txt", "-o", "out", "--valid", "nothing.txt"],
    ["study", "tiny:opt", "text.txt", "-o", "out", "--again", "x" * 3000],
    ["study", "tiny:opt", "text.txt", "-o", "out", "--splitter", "x" * 3000],
    ["analyse", "study", "--device", "meta"],
    ["removal", "study", "--top", "-1"],
    ["patterns", "study", "--keys", "-1"],
    *(["contrast", "study", "other", "--level", level] for level in ("0", "1", "nan", "x")),
    *(["contrast", *folders] for folders in (["study"], ["study", "study"], ["study", LONG])),
    *(["effect", "tiny:opt", "text.txt", "--set", edit] for edit in EDITS),
    *(["patch", "tiny:opt", "-o", "out", "--set", edit] for edit in EDITS),
    ["effect", "tiny:opt", "text.txt", "--set", "L1.1=0", "--task", "empty"],
    [*EFFECT, "numbers.jsonl"],
    [*EFFECT[:-1], "--generate", "the", "--most", "100000"],
    [*PROMPT, "--set", "L1.1=mean", "--scan", "gated"],
    ["patch", "tiny:opt", "-o", "out", "--set", "L1.1=mean", "--scan", "gated"],
    ["search", "study", "--token", "a" * 5000],
    ["search", "study", "--where", "fires>nan"],
    ["patch", "tiny:opt", "--set", "L1.1=0", "-o", "study"],
    ["patch", "tiny:llama", "--set", "L1.1+=0", "-o", "out"],
    ["patch", "tiny:opt", "--set", "L1.1=0", "-o", "memory://patch"],
    ["inspect", "tiny:opt", "--device", "x" * 3000],
    [*SCAN, "--split", "x" * 3000],
    ["show", "study", "L2.1", "--wakes", "L1.1"],
    ["search", "study", "--where", "nothing=1"],
    ["check", "tiny:gpt2"],
    ["models", "get", NUL],
    ["explore", "study", "--port", "-1"],
    ["explore", "study", "--host", "a..b", "--no-browser"],
    ["explore", "study", "--host", "x" * 300, "--no-browser"],
    ["explore", "study", "--host", NUL, "--no-browser"],
    *([*LLM, "--endpoint", url] for url in ("", "x", NUL, "http://[::1", "file:///x")),
    *([*LLM, "--endpoint", "http://x/v1", "--rate", rate] for rate in ("0", "nan", "-1")),
    *([*LLM, "--endpoint", "http://x/v1", "--price", price] for price in ("nan,1", "-1,1")),
]


@pytest.fixture
def place(
    tmp_path: Path, toy_study: Any, gated_study: Any, monkeypatch: pytest.MonkeyPatch
) -> Path:
    """A folder with texts of several kinds, an empty file, a wrong set, a link, and studies."""
    monkeypatch.chdir(tmp_path)
    Path("text.txt").write_text("the river runs\n")
    Path("bytes").write_bytes(b"caf\xe9\n")
    Path("nested").write_text("[" * 100_000 + "]" * 100_000)
    Path("empty").touch()
    Path("unknown").write_text("L1.1\nL99.1  # not in the toy\n")
    Path("loop").symlink_to("loop")
    os.mkfifo("pipe")
    Path("text.txt.bz2").write_bytes(bz2.compress(b"the river runs\n"))
    Path("numbers.jsonl").write_text('{"prompt": 5, "answer": null}\n')
    Path("nested-model").mkdir()
    shutil.copy("nested", "nested-model/config.json")
    Path("study").symlink_to(toy_study.folder)
    Path("gated").symlink_to(gated_study.folder)
    return tmp_path


def only_message(err: str) -> str:
    """The one sentence on standard error; click says how a command is used before it."""
    assert "Traceback" not in err
    lines = [line for line in err.splitlines() if line and not line.startswith(("Usage", "Try"))]
    assert len(lines) == 1, err
    return lines[0]


def short(words: list[str]) -> str:
    """A name for a case."""
    return ascii(" ".join(word if len(word) < 40 else f"{word[:5]}..." for word in words))


@pytest.mark.parametrize("words", CASES, ids=short)
def test_bad_input_is_one_sentence_and_nothing_is_written(
    place: Path, capsys: pytest.CaptureFixture[str], words: list[str]
) -> None:
    before = sorted(place.iterdir())
    code, out, err = run(capsys, *words)
    assert code == 2, err
    assert out.strip() == ""
    assert len(only_message(err)) < 700
    assert sorted(place.iterdir()) == before
    assert Path("pipe").is_fifo()  # nothing that is not a file is replaced by one


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["scan", "tiny:opt", "text.txt.bz2", "-o", "out"], "text.txt.bz2 is packed in a way"),
        (["scan", "tiny:opt", "ftp://127.0.0.1:1/x", "-o", "out"], "ftp://127.0.0.1:1/x cannot be"),
        (["search", "study", "--sort", "sign"], "sign is text and has no order"),
        (["search", "study", "--where", "sign=+"], "there are none, so leave the condition out"),
        ([*PROMPT, "--set", "L1.1=mean", "--scan", "gated"], "are not those that gated was"),
    ],
    ids=lambda one: one if isinstance(one, str) else "",
)
def test_the_sentence_names_the_cause(
    place: Path, capsys: pytest.CaptureFixture[str], words: list[str], says: str
) -> None:
    assert says in only_message(run(capsys, *words)[2])


def command(*words: str, **how: Any) -> subprocess.CompletedProcess[str]:
    """Run Python in a process of its own."""
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    return subprocess.run(
        [sys.executable, *words], env=env, capture_output=True, text=True, timeout=300, **how
    )


CLOSED = """
import os, sys
sys.argv = ["ffmem", "models"]
from ffmem.__main__ import main
try:
    main()
finally:
    print(sys.stdin is None)
"""


def test_closed_standard_input_is_one_sentence(
    place: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Commands start without it, and one that wants text from it says that there is none."""
    done = command("-c", CLOSED, preexec_fn=lambda: os.close(0))
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.endswith("True\n")
    monkeypatch.setattr(sys, "stdin", None)
    code, _, err = run(capsys, "scan", "tiny:opt", "-", "-o", "out")
    assert code == 2
    assert "standard input is closed" in only_message(err)
    assert not Path("out").exists()


def test_bytes_that_are_not_utf8_are_one_sentence(place: Path) -> None:
    done = subprocess.run(
        [sys.executable.encode(), b"-m", b"ffmem", b"prompt", b"tiny:opt", b"caf\xe9"],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
    )
    assert done.returncode == 2
    assert "UTF-8" in only_message(done.stderr.decode())


@pytest.mark.skipif(not Path("/proc/self/mem").exists(), reason="needs Linux's /proc")
def test_a_file_that_cannot_be_read_is_one_sentence(
    place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, _, err = run(capsys, "scan", "tiny:opt", "/proc/self/mem", "-o", "out")
    assert code == 2
    assert "/proc/self/mem cannot be read" in only_message(err)


@contextmanager
def no_room(size: int) -> Iterator[None]:
    """No file may grow beyond this size, as if the disk were full."""
    resource = pytest.importorskip("resource", reason="no limits of file sizes here")
    usual = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, usual[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, usual)


def test_what_finds_no_room_is_not_there_and_can_be_made_again(
    place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_toy(Path("fairseq"))
    Path("old.svg").write_text("an older picture")
    Path("begun").mkdir()
    for words, out in (
        (["patch", "tiny:opt", "--set", "L1.1=0", "-o"], "patched"),
        (["patch", "tiny:opt", "--set", "L1.1=0", "-o"], "begun"),
        (["models", "convert", "fairseq", "-o"], "converted"),
        (["show", "study", "L1.1", "--picture"], "new.png"),
        (["show", "study", "L1.1", "--picture"], "old.svg"),
    ):
        before = sorted(place.iterdir()), list(Path("begun").iterdir())
        with no_room(50):
            code, out_text, err = run(capsys, *words, out)
        assert (code, out_text) == (2, ""), words
        assert out in only_message(err)
        assert (sorted(place.iterdir()), list(Path("begun").iterdir())) == before, words
        assert Path("old.svg").read_text() == "an older picture"
        assert run(capsys, *words, out)[0] == 0, words
    assert not list(place.rglob("*.part"))
    code, _, err = run(capsys, "patch", "tiny:opt", "--set", "L1.1=0", "-o", "patched")
    assert (code, "is there already" in only_message(err)) == (2, True)


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="needs Linux's /proc")
def test_a_file_that_may_have_no_end_is_not_read(
    place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """/proc/kmsg is one that has none: to read it is to wait for ever."""
    text = "/proc/self/status"
    for words in (
        ["scan", "tiny:opt", text, "-o", "out"],
        ["prompt", "tiny:opt", "hi", "--set", f"@{text}=0"],
    ):
        code, _, err = run(capsys, *words)
        assert code == 2
        assert f"{text} has text but no length" in only_message(err)
    for words in (["scan", "tiny:opt", "/proc/kmsg", "-o", "out"], ["inspect", "/proc/kmsg"]):
        if os.access("/proc/kmsg", os.R_OK):
            assert run(capsys, *words)[0] == 2
    assert not Path("out").exists()
    assert not may_have_no_end(Path("empty"))
    assert not may_have_no_end(Path("text.txt"))
    assert not may_have_no_end(Path("pipe"))


@pytest.mark.skipif(not Path(os.devnull).is_char_device(), reason="needs a device with a name")
def test_a_device_is_not_read_as_a_small_file() -> None:
    for read in (read_set, read_tasks, published_models):
        with pytest.raises(FfmemError, match="is a device"):
            read(Path(os.devnull))


def refusals_of_another_user(calls: list[Callable[[], object]]) -> list[str]:
    """What the calls are refused with in a copy of this process whom permissions hold for."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            if os.geteuid() == 0:
                os.setgid(65534)
                os.setuid(65534)
            for call in calls:
                try:
                    call()
                except FfmemError as error:
                    os.write(writing, f"{error}\n".encode())
        finally:
            os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as said:
        lines = said.read().splitlines()
    os.waitpid(child, 0)
    return lines


def test_a_file_of_somebody_else_is_one_sentence() -> None:
    with tempfile.TemporaryDirectory() as name:  # pytest's own folders are closed to others
        folder = Path(name)
        folder.chmod(0o755)
        file, inside = folder / "closed.txt", folder / "closed" / "text.txt"
        inside.parent.mkdir()
        for path in (file, inside):
            path.write_text("the river\n")
        file.chmod(0)
        inside.parent.chmod(0)
        sources = [Source(str(path)) for path in (file, inside, inside.parent)]
        reads = [lambda one=one: list(documents(one)) for one in sources]
        lines = refusals_of_another_user(
            [*(lambda one=one: digest(one) for one in sources), *reads]
        )
        inside.parent.chmod(0o700)
    assert len(lines) == 6
    assert all("Permission denied" in line and "permission, or" in line for line in lines)


def test_a_closed_file_of_a_study_is_not_damaged(toy_study: Any) -> None:
    closed = ["arrays/totals.npy", "values.parquet", "prepared/promoted.npy"]
    with tempfile.TemporaryDirectory() as name:
        Path(name).chmod(0o755)
        MemoryIndex.open(ScanStore.open(toy_study.folder))
        folders = [
            Path(shutil.copytree(toy_study.folder, Path(name) / str(number)))
            for number in range(len(closed))
        ]
        for folder, file in zip(folders, closed, strict=True):
            (folder / file).chmod(0)
        lines = refusals_of_another_user(
            [lambda one=one: MemoryIndex.at_once(ScanStore.open(one)) for one in folders]
        )
    assert len(lines) == 2  # what was prepared can be done without
    assert all("Permission denied" in line and "permission, or" in line for line in lines)


def test_a_named_pipe_is_read_as_a_stream(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source = Source("pipe")
    assert digest(source) == STREAM
    writer = threading.Thread(target=lambda: Path("pipe").write_text("one river\ntwo rivers\n"))
    writer.start()
    assert list(documents(source)) == ["one river", "two rivers"]
    writer.join()
    writer = threading.Thread(target=lambda: Path("pipe").write_text("one river\ntwo rivers\n"))
    writer.start()
    code, out, err = run(capsys, "scan", "tiny:opt", "pipe", "-o", "out")
    writer.join()
    assert code == 0, err
    assert "2 sentences" in out
    code, _, err = run(capsys, "analyse", "out", "--only", "refinement", "--no-figures")
    assert code == 2
    assert "came through a pipe" in only_message(err)


def test_a_reader_who_leaves_ends_the_command_quietly(place: Path) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, "-m", "ffmem", "models"], env=env, stdout=writing, stderr=subprocess.PIPE
    )
    os.close(writing)
    assert done.returncode == 1
    assert done.stderr == b""


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_a_full_disk_under_standard_output_is_one_sentence(place: Path) -> None:
    with open("/dev/full", "w") as full:
        env = {**os.environ, "PYTHONPATH": str(ROOT)}
        done = subprocess.run(
            [sys.executable, "-m", "ffmem", "models"],
            env=env,
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
        )
    assert done.returncode == 2
    assert "make room" in only_message(done.stderr)


INTERRUPT = """
import importlib.abc, signal, sys

signal.signal(signal.SIGINT, signal.default_int_handler)  # ignored in a shell's background

class Pressed(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name == "click":
            signal.raise_signal(signal.SIGINT)

sys.meta_path.insert(0, Pressed())
from ffmem.__main__ import main
main()
"""


def test_ctrl_c_while_commands_are_imported_is_one_line() -> None:
    done = subprocess.run(
        [sys.executable, "-c", INTERRUPT],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 130
    assert done.stderr == "stopped\n"


@pytest.mark.parametrize("command", ["scan", "study"])
def test_a_text_that_is_missing_is_refused_before_a_model_is_loaded(
    command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        f"ffmem.cli.commands.{command}.load_model", lambda *_: pytest.fail("a model was loaded")
    )
    with pytest.raises(FfmemError, match="no such file"):
        cli.run([command, "tiny:opt", str(tmp_path / "wrong.txt"), "-o", str(tmp_path / "out")])
    assert not (tmp_path / "out").exists()


def test_a_folder_that_cannot_be_filled_is_refused_before_the_work(
    relu: LanguageModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ffmem.execution.run.Scanner", lambda *_: pytest.fail("work was begun"))
    (tmp_path / "file").touch()
    for name in ("file", "file/inside", "file/far/inside"):
        with pytest.raises(FfmemError, match="file is not a folder; choose another"):
            ffmem.run_scan(relu, ["the river"], tmp_path / name)
    with tempfile.TemporaryDirectory() as name:
        closed = Path(name) / "closed"
        closed.mkdir(mode=0o555)
        Path(name).chmod(0o755)
        lines = refusals_of_another_user([lambda: check_folder(closed / "new" / "scan")])
    assert len(lines) == 1
    assert f"nothing can be written into {closed}; ask" in lines[0]


def test_two_writers_of_one_file_leave_one_of_the_two_whole(tmp_path: Path) -> None:
    path = tmp_path / "result"

    def write_both(part: Path) -> None:
        with part.open("w") as file:
            file.write("fir")
            file.flush()
            write_whole(path, lambda other: other.write_text("second"))
            file.write("st")
            file.flush()
            assert path.read_text() == "second"

    write_whole(path, write_both)
    assert path.read_text() == "first"
    assert list(tmp_path.iterdir()) == [path]


def test_what_a_killed_writer_left_is_removed_when_it_is_old(tmp_path: Path) -> None:
    old, young, other = (tmp_path / f"{name}.part" for name in ("a.0", "a.1", "b.0"))
    for part in (old, young, other):
        part.touch()
    for part in (old, other):
        os.utime(part, (0, 0))
    write_whole(tmp_path / "a", lambda part: part.write_text("x"))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a", "a.1.part", "b.0.part"]


@pytest.mark.parametrize("path", [LONG, NUL, HALF, "\ud800"], ids=ascii)
def test_python_functions_refuse_a_path_that_cannot_be(
    tmp_path: Path, toy_study: Any, path: str
) -> None:
    for call in (
        lambda: ffmem.open_study(path),
        lambda: ffmem.load(path),
        lambda: list(documents(Source(path))),
        lambda: digest(Source(path)),
        lambda: write_comparison([summarise(toy_study)] * 2, tmp_path / path),
        lambda: write_whole(tmp_path / path, lambda part: part.write_text("x")),
    ):
        with pytest.raises(FfmemError):
            call()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "ids", [[[264]], [[-1]], [[2**40]], [[0.5]], [[[0]]], [[]]], ids=lambda ids: str(ids)
)
def test_token_ids_that_are_not_the_models_are_refused(relu: LanguageModel, ids: Any) -> None:
    with pytest.raises(FfmemError, match=r"token"):
        ffmem.record(relu, torch.tensor(ids))


def test_targets_that_are_not_the_models_are_refused(relu: LanguageModel) -> None:
    h = torch.zeros(1, relu.hidden_size)
    readings = ffmem.explain_prompt(relu, "the river").readings
    for wrong in (-1, relu.vocab_size, 2**40):
        for call in (
            lambda wrong=wrong: ffmem.token_ranks(relu, h, torch.tensor([wrong]), "state"),
            lambda wrong=wrong: ffmem.token_probabilities(relu, h, torch.tensor([wrong]), "state"),
            lambda wrong=wrong: ffmem.contributions(relu, readings, wrong),
        ):
            with pytest.raises(FfmemError, match="not a token"):
                call()


def test_a_tokenizer_of_another_model_is_one_sentence(
    place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    tokenizer = tiny_tokenizer()
    model = tiny_model("opt")
    tokenizer.add_tokens([f"word{n}" for n in range(model.config.vocab_size)])
    model.save_pretrained("model")
    tokenizer.save_pretrained("model")
    Path("more.txt").write_text("word0 word260\n")
    for words in (["scan", "model", "more.txt", "-o", "out"], ["prompt", "model", "word260"]):
        code, _, err = run(capsys, *words)
        assert code == 2, err
        assert "the tokenizer gives token" in only_message(err)
    assert not Path("out").exists()


def test_half_a_character_in_a_prompt_is_refused(relu: LanguageModel) -> None:
    for text in (HALF, "\ud800"):
        with pytest.raises(FfmemError, match="half a character"):
            ffmem.explain_prompt(relu, text)


def test_tokens_that_are_control_characters_can_be_drawn(tmp_path: Path) -> None:
    pushes = [TokenPush(1, "\x17\0", 1.0), TokenPush(2, "\uffff", 0.5)]
    page = MemoryPage(
        address=ffmem.Address(1, 0),
        opposite=None,
        counts=Counts(0, 1, 0.0, 0.0),
        promoted=tuple(pushes),
        suppressed=(),
        triggers=(),  # type: ignore[arg-type]
        sample=(),  # type: ignore[arg-type]
        probability=0.5,
        vocabulary=2,
    )
    chart = memory_chart(page)
    for ending in ("svg", "png"):
        save_picture(chart, tmp_path / f"memory.{ending}")
        assert (tmp_path / f"memory.{ending}").stat().st_size > 0
    assert "\u2417" in (tmp_path / "memory.svg").read_text()
