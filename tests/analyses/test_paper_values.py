"""The paper's own values, in a file of its model's shape with values planted in it."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from rich.console import Console

import ffmem
from ffmem.analyses.statistics import PAPER_LAYERS, Interval
from ffmem.analyses.values.predictive import (
    PAPER_MEMORIES,
    PAPER_WORDS,
    TABLE_2,
    is_papers_model,
    paper_values,
)
from ffmem.analyses.values.record import Predictive, ValueGroup
from ffmem.cli.main import run
from ffmem.cli.output import print_paper_values
from ffmem.models.fairseq.conversion import convert
from ffmem.models.fairseq.word_list import SPECIAL
from making.train_paper_model import new_model, parse, save_as_fairseq
from tests.models.fairseq_files import LAYERS, MEMORIES, WORDS, write_toy

NAMES = [word for _, _, word in TABLE_2]
SHIFT = 1  # the toy counts memories from 0, as if the table counted them from 1


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> ffmem.LanguageModel:
    folder = tmp_path_factory.mktemp("paper")
    size = f"--layers {PAPER_LAYERS} --memories {PAPER_MEMORIES} --width 8 --heads 2 --factor 2"
    given = parse(["text", "--into", str(folder), *size.split(), "--device", "cpu"])
    torch.manual_seed(0)
    made = new_model(given, PAPER_WORDS)
    with torch.no_grad():
        for number, (layer, memory, _) in enumerate(TABLE_2[:5]):  # the last one is not planted
            row = made.lm_head.rows_0[len(SPECIAL) + number]
            row.copy_(torch.nn.functional.normalize(row, dim=0) * 9)
            made.model.layers[layer - 1].fc2.weight[:, memory - SHIFT] = 9 * row
    save_as_fairseq(made, given, folder / "model.pt")
    rest = (f"word{number}" for number in range(PAPER_WORDS - len(SPECIAL) - len(NAMES)))
    lines = [f"{word} 3\n" for word in (*NAMES, *rest)]
    (folder / "dict.txt").write_text("".join(lines))
    return ffmem.load(str(convert(folder, folder / "out")), device="cpu")


def group(upper: int, agreeing: int) -> Predictive:
    one = ValueGroup("largest", 100, upper, agreeing, Interval(0.0, 0.0, 0.0, 100))
    return Predictive(one, one, one, (), 11)


def test_planted_values_are_found_whatever_the_table_counts_from(
    model: ffmem.LanguageModel,
) -> None:
    assert is_papers_model(model)
    assert not is_papers_model(ffmem.load("tiny:fairseq_lm", device="cpu"))
    found = paper_values(model, group(97, 45))
    assert [value.matches for value in found] == [True] * 5 + [False, True, False]
    assert found[0].says == "top word of L15.221"
    assert found[2].found == "extratropical"
    assert len(paper_values(model, None)) == len(TABLE_2)


def test_the_study_of_such_a_checkpoint_ends_with_the_block(
    tmp_path: Path,
    few_figures: None,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    write_toy(tmp_path)
    stored = torch.load(tmp_path / "model.pt", weights_only=False)
    tensors = stored["model"]
    rows = tensors["decoder.embed_tokens.embeddings.0.0.weight"]
    word = next(w for w in range(len(SPECIAL), 20) if int((rows @ rows[w]).argmax()) == w)
    tensors["decoder.layers.1.fc2.weight"][:, 5] = 50 * rows[word]
    torch.save(stored, tmp_path / "model.pt")
    (tmp_path / "text.txt").write_text("word1 word7 word3 .\nword2 word40 word5 word1 .\n" * 9)
    table = ((2, 5, f"word{word - len(SPECIAL)}"), (1, 3, "jail"))
    shape = {"LAYERS": LAYERS, "MEMORIES": MEMORIES, "WORDS": WORDS, "VALUES": LAYERS * MEMORIES}
    for name, number in shape.items():
        monkeypatch.setattr(f"ffmem.analyses.values.predictive.PAPER_{name}", number)
    monkeypatch.setattr("ffmem.analyses.values.predictive.TABLE_2", table)
    place = str(convert(tmp_path, tmp_path / "out"))
    words = ["study", place, str(tmp_path / "text.txt"), "-o", str(tmp_path / "study")]
    assert run([*words, "--only", "values", "--no-controls", "--device", "cpu"]) == 0
    said = " ".join(capsys.readouterr().out.partition("the paper's own values")[2].split())
    assert f"top word of L2.5 {table[0][2]} {table[0][2]} matches" in said
    assert "top word of L1.3 jail" in said
    assert "with an agreeing trigger 46 " in said
    assert " of 4 match" in said


def test_the_block_says_what_matches(model: ffmem.LanguageModel) -> None:
    console = Console(width=100, record=True, quiet=False)
    print_paper_values(console, paper_values(model, group(97, 46)))
    said = console.export_text()
    assert "7 of 8 match" in said
    assert said.count("matches") == 7
    assert said.count("differs") == 1
    assert "L15.221" in said
