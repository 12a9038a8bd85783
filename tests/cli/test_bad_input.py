"""Whatever is wrong with what a user gives: one sentence, exit code 2, nothing written."""

from __future__ import annotations

import bz2
import os
import shutil
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import ffmem
from ffmem.cli import main as cli
from ffmem.corpus.sources import STREAM, Source, digest, documents
from ffmem.errors import FfmemError
from ffmem.files.whole_files import write_whole
from ffmem.models.language_model import LanguageModel
from ffmem.models.tiny import tiny_model, tiny_tokenizer
from ffmem.report.comparison import summarise, write_comparison
from ffmem.store.folder import check_folder
from ffmem.store.scan_store import ScanStore
from ffmem.store.search.lookup import MemoryIndex
from tests.cli.test_commands import run
from tests.full_disk import full_disk
from tests.models.fairseq_files import write_toy

LONG = "x" * 300  # more than any file system allows for one name
DEEP = "/".join(["y" * 200] * 30)  # more than it allows for a path
NUL, HALF = "a\0b", "caf\udce9"  # HALF is what Python makes of bytes that are not UTF-8
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
    ["patterns"],
    ["annotate", "sheets", "", "sheets"],
    ["annotate", "agreement"],
    ["explore", "", "--no-browser"],
    ["compare", "", "study"],
    ["inspect"],
]
NO_NAMES = ["", " ", "x" * 81, "a\nb", "a\x1b[31mb", "a\u200bb", "rules"]
EDITS = [f"@{LONG}=0", "@empty=0", "@text.txt=0", "@study=0", "@unknown=0", "L1.1=x"]
PATHS = [LONG, DEEP, NUL, HALF, "loop", "~nobody-of-this-name/x", "file://", "file://[x"]


def with_path(words: list[str], path: str) -> list[str]:
    """A command with its path put where the gap is, or at its end."""
    return [path if word == "" else word for word in words] if "" in words else [*words, path]


CASES = [
    *(with_path(words, LONG) for words in FOLDER),
    *(["scan", "tiny:opt", path, "-o", "out"] for path in (*PATHS, "", "empty/x")),
    *(["scan", "tiny:opt", "text.txt", "-o", path] for path in (*PATHS, "", "empty", "empty/x")),
    *(["scan", path, "text.txt", "-o", "out"] for path in (LONG, NUL, "", "s3://b/x")),
    *(["compare", "study", "study", "-o", path] for path in (".", "pipe")),
    *(["show", "study", "L1.1", "--picture", path] for path in ("empty/x.svg", "no/x.svg")),
    *(["compare", "study", "study", *words] for words in (["--match"], ["--weights"])),
    ["compare", "study", "study", "--layer", "1"],
    ["compare", "study", "study", "--memories", "-o", "page.html"],
    ["annotate", "sheets", "study", "o", "--database", LONG],
    *(["annotate", "import", "study", path, "--annotator", "a"] for path in ("bytes", "pipe")),
    *(["annotate", "import", "study", "text.txt", "--annotator", name] for name in NO_NAMES),
    [*LLM[:4], "x" * 77, "--dry-run"],
    ["study", "tiny:opt", "text.txt", "-o", "out", "--valid", "nothing.txt"],
    ["study", "tiny:opt", "text.txt", "-o", "out", "--again", "x" * 3000],
    ["analyse", "study", "--only", ""],
    ["analyse", "study", "--only", "refinement", "--valid", "nothing.txt"],
    *(["inspect", path] for path in ("pipe", "nested-model", "no/such/folder", "tiny:nonsense")),
    ["inspect", "tiny:opt", "--dtype", "float7"],
    *(["inspect", "tiny:opt", "--device", name] for name in ("vulkan", "meta", "cuda:999")),
    *([*SCAN, "--devices", text] for text in ("", "cuda:999", "cpu,")),
    *([*SCAN, "--experts", text] for text in ("3-1", "x", "0")),
    *([*SCAN, "--layers", text] for text in ("3-1", "1-99999999999", "0", "1,,2")),
    *([*SCAN, "--seed", number] for number in ("-1", str(2**63), "nan")),
    [*SCAN, "--max-sentences", "0"],
    [*SCAN, "--ray", "--gpus-per-worker", "nan"],
    [*SCAN, "--split", "x" * 3000],
    ["cache", "clear", "nothing"],
    *(["models", "get", name] for name in (NUL, "nothing")),
    ["nonsense"],
    ["prompt", "tiny:opt"],
    ["prompt", "tiny:opt", "x" * 100],
    [*PROMPT, "--position", "7"],
    *(
        [*PROMPT, "--set", edit]
        for edit in ("L1.5=1e39", "L1.5*1e39", "L1.5=nan", "L9.1=0", "L1.1~0")
    ),
    *([*PROMPT, "--set", f"@{path}=0"] for path in (NUL, "bytes", "loop", ".", "nothing")),
    [*PROMPT, "--dtype", "float16", "--set", "L1.5=1e5"],
    [*PROMPT, "--set", "L1.1=mean", "--study", "gated"],
    ["prompt", "tiny:opt", HALF],
    *([*EFFECT, path] for path in (NUL, "bytes", "nested", ".", "nothing", "empty")),
    [*EFFECT, "numbers.jsonl"],
    [*EFFECT[:-1], "--generate", "the", "--most", "100000"],
    *(["effect", "tiny:opt", "text.txt", "--set", edit] for edit in EDITS),
    ["patch", "tiny:opt", "--set", "L1.1=0", "-o", "study"],
    ["patch", "tiny:llama", "--set", "L1.1+=0", "-o", "out"],
    ["patch", "tiny:opt", "--set", "L1.1=0", "-o", "memory://patch"],
    *(["contrast", "study", "other", "--level", level] for level in ("0", "nan")),
    *(["contrast", *folders] for folders in (["study"], ["study", "study"], ["study", LONG])),
    *(["search", "study", "--token", text] for text in (HALF, "a" * 5000)),
    *(["search", "study", "--where", condition] for condition in ("fires>nan", "nothing=1")),
    ["show", "study", "L2.1", "--wakes", "L1.1"],
    ["explore", "study", "--port", "-1"],
    *(["explore", "study", "--host", host, "--no-browser"] for host in ("a..b", NUL)),
    *([*LLM, "--endpoint", url] for url in ("", "http://[::1", "file:///x")),
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
        ([*PROMPT, "--set", "L1.1=mean", "--study", "gated"], "are not those that gated was"),
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
    ends = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **how}
    return subprocess.run([sys.executable, *words], env=env, text=True, timeout=300, **ends)


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
        with full_disk(50):
            code, out_text, err = run(capsys, *words, out)
        assert (code, out_text) == (2, ""), words
        assert out in only_message(err)
        assert (sorted(place.iterdir()), list(Path("begun").iterdir())) == before, words
        assert Path("old.svg").read_text() == "an older picture"
        assert run(capsys, *words, out)[0] == 0, words
    assert not list(place.rglob("*.part"))
    code, _, err = run(capsys, "patch", "tiny:opt", "--set", "L1.1=0", "-o", "patched")
    assert (code, "is there already" in only_message(err)) == (2, True)


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
    done = command("-m", "ffmem", "models", stdout=writing)
    os.close(writing)
    assert (done.returncode, done.stderr) == (1, "")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_a_full_disk_under_standard_output_is_one_sentence(place: Path) -> None:
    with open("/dev/full", "w") as full:
        done = command("-m", "ffmem", "models", stdout=full)
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
    done = command("-c", INTERRUPT)
    assert (done.returncode, done.stderr) == (130, "stopped\n")


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
