"""A limit on address space, as clusters set it, is met before the work and with a sentence."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import ffmem
from ffmem.address_space import FIGURES, GIB, MODEL, STUDY, address_space
from ffmem.errors import FfmemError
from tests.cli.test_commands import run

resource = pytest.importorskip("resource", reason="limits are those of POSIX")


@pytest.mark.parametrize(
    ("size", "words", "what"),
    [
        (STUDY - 1, ["scan", "tiny:opt", "t.txt", "-o", "new"], "this command needs about 0.8 GiB"),
        (MODEL - 1, ["prompt", "tiny:opt", "a"], "a model needs about 1.2 GiB"),
        (MODEL, ["prompt", "tiny:opt", "a"], "the model tiny:opt needs about 1.3 GiB"),
        (MODEL + GIB // 8, ["scan", "tiny:opt", "t.txt", "-o", "new"], "the scan needs about"),
        (FIGURES - 1, ["study", "tiny:opt", "t.txt", "-o", "new"], "a study "),
    ],
)
def test_a_command_without_room_says_how_much_it_needs(
    size: int,
    words: list[str],
    what: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("t.txt").write_text("the river runs. a dog sat.\n" * 30)
    monkeypatch.setattr(resource, "getrlimit", lambda _kind: (size, size))
    assert address_space() == size
    code, _, err = run(capsys, *words)
    assert code == 2
    assert what in err
    assert "GiB of address space and this process may have" in err.splitlines()[-1]
    assert not Path("new").exists()


def test_a_figure_and_a_study_are_refused_before_the_work(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from ffmem.figures.saving import svg_of

    monkeypatch.setattr(resource, "getrlimit", lambda _kind: (FIGURES - 1, FIGURES - 1))
    with pytest.raises(FfmemError, match=r"a figure needs about 70\.0 GiB"):
        svg_of({})
    with pytest.raises(FfmemError, match=r"a study .* needs about 70\.0 GiB"):
        ffmem.run_study("tiny:opt", ["the river runs"], tmp_path / "new")
    assert not (tmp_path / "new").exists()


def test_the_explorer_needs_room_for_what_it_maps(
    toy_study: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda _kind: (MODEL, MODEL))
    code, _, err = run(capsys, "explore", str(toy_study.folder), "--no-browser")
    assert code == 2
    assert "the explorer needs about" in err


@pytest.mark.parametrize(
    ("size", "words", "what"),
    [
        (MODEL, ["search", "STUDY", "--phrase", "e"], "a model beside its scan needs about"),
        (MODEL, ["show", "STUDY", "L1.3", "--text", "e"], "a model beside its scan needs about"),
        (FIGURES - 1, ["patterns", "STUDY"], "a figure needs about 70.0 GiB"),
    ],
)
def test_what_a_command_needs_beside_a_study_is_asked_for_before_the_work(  # noqa: PLR0913
    size: int,
    words: list[str],
    what: str,
    toy_study: Any,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda _kind: (size, size))
    places = {"STUDY": str(toy_study.folder)}
    code, out, err = run(capsys, *(places.get(word, word) for word in words))
    assert (code, out) == (2, "")
    assert what in err


def test_without_a_limit_nothing_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    unlimited = resource.RLIM_INFINITY
    monkeypatch.setattr(resource, "getrlimit", lambda _kind: (unlimited, unlimited))
    assert address_space() is None
