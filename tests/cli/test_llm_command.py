"""`ffmem annotate llm` and `score`, end to end: a scan, a real server, records, Fig 2."""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest

from ffmem.models.language_model import LanguageModel
from tests.analyses.conftest import scanned_lines
from tests.analyses.planted import filler
from tests.annotations.served import save_scripted, served
from tests.cli.test_commands import run

pytest.importorskip("openai")
pytest.importorskip("fastapi")
Capture = pytest.CaptureFixture[str]


def test_a_language_model_answers_sheets_like_anybody_else(
    capsys: Capture, relu: LanguageModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    draw = random.Random(0)
    lines = [f"{'good' if n % 2 else 'mended'} {' '.join(filler(draw))}"[:55] for n in range(150)]
    folder, model = tmp_path / "scan", tmp_path / "llm"
    scanned_lines(relu, folder, lines, top=50, sample=32)
    save_scripted(model)
    monkeypatch.setenv("FFMEM_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("MY_KEY", "my-secret-key")
    words = ["annotate", "llm", str(folder), "--llm", str(model), "--keys", "1", "--longest", "20"]
    code, out, _ = run(capsys, *words, "--dry-run", "--price", "1,10")
    assert code == 0
    assert out.startswith("9 questions to ask, 0 known already: about ")
    assert "at most 180 to write, for at most about 0." in out
    with served(model) as url:
        asked = [*words, "--endpoint", url, "--key-from", "MY_KEY", "--at-once", "2"]
        code, out, _ = run(capsys, *asked, "--price", "1,10")
        assert code == 0
        assert "9 of 9 sheets answered" in out
        assert "paid" in out
        code, out, _ = run(capsys, *asked)
    assert out.startswith("0 questions to ask, 9 known already")
    assert "0 requests, " in out
    kept = [path.read_text() for path in tmp_path.rglob("*.json")]
    assert kept
    assert not any("my-secret-key" in text for text in kept)
    who = f"llm:{model}"
    code, out, _ = run(capsys, "patterns", str(folder), "--annotator", who)
    assert code == 0
    assert "3 keys, 100 % with a pattern" in out
    assert "control keys of random prefixes: 100.0 % have a pattern" in out
    assert "do not trust Fig 2" in out
    assert "  keys     any " in out
    assert "annotate rules" not in out
    run(capsys, "annotate", "rules", str(folder))
    code, out, _ = run(capsys, "annotate", "score", str(folder))
    assert code == 0
    assert who in out.splitlines()
    assert "rules" in out.splitlines()
    scores = json.loads((folder / "analyses" / "annotators.json").read_text())["result"][
        "annotators"
    ]
    rows = {(row["on"], row["kind"], row["against"]) for row in scores[who]}
    assert {("keys", "shallow", "random"), ("controls", "semantic", "random")} <= rows
    assert f"{who} and rules: kappa" in run(capsys, "annotate", "agreement", str(folder))[1]


def test_a_server_that_is_not_there_is_one_sentence(
    capsys: Capture, relu: LanguageModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    draw = random.Random(0)
    folder = tmp_path / "scan"
    scanned_lines(relu, folder, [" ".join(filler(draw))[:55] for _ in range(80)], top=50, sample=9)
    monkeypatch.setenv("FFMEM_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr("ffmem.annotations.chat.RETRIES", 1)
    words = ["annotate", "llm", str(folder), "--llm", "x", "--keys", "1"]
    code, _, err = run(capsys, *words, "--endpoint", "http://127.0.0.1:9/v1")
    assert code == 2
    assert "check that the server runs" in err
    code, _, err = run(capsys, "annotate", "score", str(folder))
    assert code == 2
    assert "nobody has answered" in err
