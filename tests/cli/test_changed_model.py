"""A model that changed after the scan is refused by every command that loads it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from ffmem.analyses.inputs import study_inputs
from ffmem.errors import StoreError
from ffmem.explorer.live_model import LiveModel
from ffmem.models.fingerprint import tokenizer_digest
from ffmem.models.language_model import LanguageModel
from ffmem.models.loading import load
from ffmem.models.tiny import tiny_model, tiny_tokenizer
from ffmem.store.scan_store import ScanStore
from tests.analyses.conftest import FEW_LINES, scanned_lines
from tests.cli.test_commands import run
from tests.waiting import in_a_loop

COMMANDS = [
    ["show", "L1.3", "--saliency"],
    ["analyse", "--only", "values", "--no-figures"],
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A scan of a model in a folder, whose weights are other ones now."""
    root = tmp_path_factory.mktemp("changed")
    saved, out = root / "model", root / "scan"
    toy = tiny_model("opt")
    toy.save_pretrained(saved)
    tiny_tokenizer().save_pretrained(saved)
    scanned_lines(load(str(saved)), out, FEW_LINES, top=30)
    with torch.no_grad():
        toy.model.decoder.layers[1].fc1.weight.add_(0.5)
    toy.save_pretrained(saved)
    return out


@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
def test_a_command_refuses_weights_that_were_not_scanned(
    capsys: pytest.CaptureFixture[str], folder: Path, words: list[str]
) -> None:
    before = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    code, _, err = run(capsys, words[0], str(folder), *words[1:])
    assert code == 2
    assert "are not those that" in err
    assert len(err.splitlines()) == 1
    assert {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()} == before


def test_the_explorer_refuses_them_too(folder: Path) -> None:
    with pytest.raises(StoreError, match="are not those that"):
        in_a_loop(LiveModel(ScanStore.open(folder)).ask(lambda model: model.vocab_size))


def test_a_scan_by_another_tokenizer_is_read_again_by_that_one(
    capsys: pytest.CaptureFixture[str], folder: Path, tmp_path: Path
) -> None:
    tokenizer = tiny_tokenizer()
    tokenizer.add_special_tokens({"additional_special_tokens": [" river"]})
    mine = tmp_path / "tokenizer"
    tokenizer.save_pretrained(mine)
    text = tmp_path / "text.txt"
    text.write_text("The river runs.\nA river of words.\n")
    out, named = str(tmp_path / "scan"), ["--tokenizer", str(mine)]
    code, _, err = run(capsys, "scan", "tiny:gpt2", str(text), "-o", out, *named)
    assert code == 0, err
    store = ScanStore.open(tmp_path / "scan")
    again = study_inputs.scanned_model(store)
    assert tokenizer_digest(again.tokenizer) == tokenizer_digest(tokenizer)
    assert store.manifest.key.model["tokenizer"] == tokenizer_digest(tokenizer)
    river = tokenizer.convert_tokens_to_ids(" river")
    assert again.encode(" river")[0, 1:].tolist() == [river]
    assert "tokenizer_name" not in ScanStore.open(folder).manifest.key.model
    code, _, err = run(capsys, "inspect", "tiny:gpt2", "--tokenizer", str(tmp_path))
    assert code == 2
    assert "there is no tokenizer at" in err


def test_the_scans_revision_is_loaded_unless_another_model_is_named(
    relu: LanguageModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = scanned_lines(relu, tmp_path / "scan", FEW_LINES)
    asked: list[str | None] = []

    def recorded(name: str, *, revision: str | None, **options: Any) -> Any:
        asked.append(revision)
        return load(name, **options)

    monkeypatch.setattr(study_inputs, "load", recorded)
    monkeypatch.setitem(store.manifest.key.model, "revision", "abc")
    name = store.manifest.key.model["name"]
    for given in (None, name):
        study_inputs.scanned_model(store, name=given)
    with pytest.raises(StoreError, match=r"tiny:gpt2 \(float32\) are not those that"):
        study_inputs.scanned_model(store, name="tiny:gpt2")
    assert asked == ["abc", "abc", None]
