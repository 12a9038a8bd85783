"""The paper's architecture, trained tiny: saved as fairseq saves, resumed where it stopped."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch

import ffmem
from ffmem.models.fairseq.conversion import convert
from ffmem.models.fairseq.word_list import read_words
from making.train_paper_model import batches, loss_of, main, new_model, parse, states
from making.word_data import words_of

WORDS = (
    "--layers 2 --width 16 --memories 32 --heads 2 --positions 64 --cutoffs 12,24 --block 16 "
    "--batch-tokens 64 --held-out 4 --least 2 --processes 1 --no-compile --device cpu --look 5 "
    "--rate 0.01 --reserve 0"
)
SIZE = WORDS.split()
LINES = [
    f"The {colour} {animal}'s well-known den, {number},000 feet away, is {colour}."
    for number in range(1, 4)
    for colour in ("red", "grey", "white", "brown")
    for animal in ("fox", "bear", "hare", "wolf", "owl")
]


@pytest.fixture
def text(tmp_path: Path) -> Path:
    path = tmp_path / "text.txt"
    path.write_text("".join(f"{line}\n" for line in LINES))
    return path


def curve(folder: Path) -> list[dict[str, float]]:
    found: list[dict[str, float]] = json.loads((folder / "curve.json").read_text())["curve"]
    return found


def test_training_in_two_runs_is_training_in_one(text: Path, tmp_path: Path) -> None:
    for folder, runs in (("one", [10]), ("two", [5, 10])):
        for steps in runs:
            main([str(text), "--into", str(tmp_path / folder), "--steps", str(steps), *SIZE])
    one, two = (
        torch.load(tmp_path / folder / "state.pt", weights_only=True) for folder in ("one", "two")
    )
    assert one["steps"] == two["steps"] == 10
    assert [point["step"] for point in curve(tmp_path / "two")] == [5, 10]
    first = curve(tmp_path / "one")[0]
    assert curve(tmp_path / "one")[-1]["validation perplexity"] < first["validation perplexity"]


def test_the_file_it_saves_converts_and_computes_the_same(text: Path, tmp_path: Path) -> None:
    folder = tmp_path / "trained"
    main([str(text), "--into", str(folder), "--steps", "6", *SIZE])
    model = ffmem.load(str(convert(folder, tmp_path / "converted")), device="cpu")
    assert model.vocab_size == len(read_words(folder / "dict.txt"))
    assert model.vocab_size % 8 == 0
    written = (folder / "valid.txt").read_text() + (folder / "train.txt").read_text()
    assert written.splitlines() == LINES
    assert model.model.config.output_bands[0] == [12, 16]
    kept = torch.load(folder / "state.pt", weights_only=True)["model"]
    for name, tensor in model.model.state_dict().items():
        torch.testing.assert_close(tensor, kept[name])
    ids = torch.from_numpy(np.load(folder / "valid.npy")).long()
    assert model.tokenizer is not None
    again = [[*model.tokenizer.encode(line), 2] for line in LINES[:4]]
    assert ids.tolist() == [number for line in again for number in line]


def test_loss_and_states_are_the_models_own() -> None:
    given = parse(["text", "--into", "folder", *SIZE])
    torch.manual_seed(0)
    model = new_model(given, 40).eval()
    ids = torch.randint(4, 40, (2, 9))
    h = states(model, ids[:, :-1])
    out = model(ids[:, :-1], output_hidden_states=True)
    torch.testing.assert_close(h, out.hidden_states[-1], atol=1e-5, rtol=1e-5)
    expected = -out.logits.gather(2, ids[:, 1:, None]).mean()
    found = loss_of(model.lm_head, h.flatten(0, 1), ids[:, 1:].flatten())
    torch.testing.assert_close(found, expected, atol=1e-5, rtol=1e-5)


def test_batches_go_on_where_they_were() -> None:
    given = parse(["text", "--into", "folder", *SIZE])
    ids = torch.arange(300)
    whole = [batch for batch, _ in zip(batches(ids, given, 0), range(9), strict=False)]
    later = [batch for batch, _ in zip(batches(ids, given, 4), range(5), strict=False)]
    assert all(torch.equal(one, other) for one, other in zip(whole[4:], later, strict=True))
    assert len({int(row[0]) for batch in whole[:4] for row in batch}) == 16


def test_words_are_in_wikitexts_form_sentence_by_sentence() -> None:
    line = "It's well-known. 1,000 of 3.5 (or so) U.S. Steel Co. men left."
    expected = "It 's well @-@ known . 1 @,@ 000 of 3 @.@ 5 ( or so ) U.S. Steel Co. men left ."
    assert " ".join(words_of(line)) == expected
