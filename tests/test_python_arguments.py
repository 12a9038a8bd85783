"""What a Python caller gives by mistake: one sentence of ffmem's own, whatever its type."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

import ffmem
from ffmem.errors import CorpusError
from ffmem.models.language_model import LanguageModel

WRONG: list[Any] = [
    5,
    1.5,
    float("nan"),
    True,
    b"x",
    object(),
    [None],
    [[1]],
    {"a": 1},
    torch.ones(2),
]
TEXT = "the river"


def refuses(call: Callable[[Any], object], values: list[Any]) -> None:
    for value in values:
        with pytest.raises(ffmem.FfmemError) as error:
            call(value)
        assert len(str(error.value).splitlines()) == 1, value


def test_what_is_not_a_loaded_model_is_refused(relu: LanguageModel, tmp_path: Path) -> None:
    readings = ffmem.explain_prompt(relu, TEXT).records
    for call in (
        lambda wrong: ffmem.explain_prompt(wrong, TEXT),
        lambda wrong: ffmem.record(wrong, TEXT),
        lambda wrong: ffmem.edited(wrong, ["L1.1=0"]).__enter__(),
        lambda wrong: ffmem.value_tokens(wrong, "L1.1"),
        lambda wrong: ffmem.top_tokens(wrong, torch.ones(1, 32), "direction"),
        lambda wrong: ffmem.contributions(wrong, readings, 5),
    ):
        refuses(call, [*WRONG, None, "tiny:opt", relu.model])
    refuses(lambda wrong: ffmem.run_scan(wrong, [TEXT], tmp_path / "scan"), [*WRONG, None])
    refuses(ffmem.value_vectors, [*WRONG, None, relu])
    refuses(ffmem.load, [*WRONG, None, relu])


def test_other_arguments_of_a_wrong_type_are_refused(relu: LanguageModel, tmp_path: Path) -> None:
    readings = ffmem.explain_prompt(relu, TEXT).records
    for call in (
        ffmem.open_study,
        ffmem.Address.parse,
        lambda wrong: ffmem.load("tiny:opt", patch=wrong),
        lambda wrong: ffmem.load("tiny:opt", dtype=wrong),
        lambda wrong: ffmem.explain_prompt(relu, wrong),
        lambda wrong: ffmem.edited(relu, wrong).__enter__(),
        lambda wrong: ffmem.value_tokens(relu, wrong),
        lambda wrong: ffmem.run_scan(relu, [TEXT], wrong),
        lambda wrong: ffmem.run_scan(relu, [TEXT], tmp_path / "scan", layers=wrong),
    ):
        refuses(call, WRONG)
    refuses(lambda wrong: ffmem.record(relu, wrong), [w for w in WRONG if type(w) is not list])
    refuses(lambda wrong: ffmem.load("tiny:opt", device=wrong), WRONG[1:])
    numbers = [w for w in WRONG if type(w) is not int]
    refuses(lambda wrong: ffmem.explain_prompt(relu, TEXT, wrong), numbers)
    refuses(lambda wrong: ffmem.value_tokens(relu, "L1.1", k=wrong), [*numbers, 0, -1])
    refuses(lambda wrong: ffmem.contributions(relu, readings, wrong), [*numbers, ""])
    with pytest.raises(CorpusError, match="nothing"):
        ffmem.run_study(relu, [TEXT], tmp_path / "scan", valid="nothing.txt")
    assert not (tmp_path / "scan").exists()


def test_what_a_lens_cannot_read_is_refused(relu: LanguageModel) -> None:
    """Also a misspelt kind of vector, which would be read as a piece."""
    vectors = torch.ones(1, 32)
    narrow = torch.ones(2, 31)
    refuses(lambda wrong: ffmem.logits(relu, wrong, "direction"), [*WRONG, None, narrow])
    refuses(lambda wrong: ffmem.top_tokens(relu, wrong, "direction"), [*WRONG, narrow, vectors[:0]])
    refuses(lambda wrong: ffmem.top_tokens(relu, vectors, wrong), [*WRONG, None, "staet"])
    refuses(lambda wrong: ffmem.contributions(relu, wrong, 5), [*WRONG, None, "", (), [], {}])
    readings = ffmem.explain_prompt(relu, TEXT).records
    refuses(lambda wrong: ffmem.contributions(relu, readings, wrong), [10**30, -1, "\ud800"])
    kinds = [w for w in WRONG if type(w) is not dict]  # {"a": 1} names the scores
    refuses(lambda wrong: ffmem.record(relu, TEXT, wrong), [*kinds, None])


def test_settings_of_a_scan_and_a_study_are_refused(relu: LanguageModel, tmp_path: Path) -> None:
    out, numbers = tmp_path / "scan", [w for w in WRONG if type(w) is not int]
    wrong_words = [*WRONG, "", "valuess"]
    for name, values in (
        ("max_sentences", [*numbers, 0, -1]),
        ("splitter", [*wrong_words, None]),
        ("layers", [[], ""]),
    ):
        refuses(lambda wrong, name=name: ffmem.run_scan(relu, [TEXT], out, **{name: wrong}), values)
    for name, values in (("size", [*wrong_words, None]), ("only", wrong_words)):
        refuses(
            lambda wrong, name=name: ffmem.run_study(relu, [TEXT], out, **{name: wrong}), values
        )
    assert not out.exists()


def test_a_study_refuses_them_too(toy_study: Any) -> None:
    refuses(toy_study.memories, [w for w in WRONG if type(w) is not int])
    refuses(toy_study.memory, [*WRONG, None])
    refuses(toy_study.chart, [*WRONG, None])


def test_one_edit_several_and_a_dictionary_are_the_same(relu: LanguageModel) -> None:
    def after(edits: Any) -> torch.Tensor:
        with ffmem.edited(relu, edits):
            return ffmem.explain_prompt(relu, TEXT).distribution

    wanted = after(["L1.5=3"])
    assert not torch.equal(wanted, after([]))
    for edits in ("L1.5=3", {"L1.5": 3}, ffmem.Edit.parse("L1.5=3")):
        assert torch.equal(after(edits), wanted)


def test_several_memories_have_a_row_each(gated: LanguageModel) -> None:
    names = ["L1.5+", "L2.7-", "L3.0"]
    together = ffmem.value_tokens(gated, names, k=4)
    for row, name in enumerate(names):
        assert together.texts[row] == ffmem.value_tokens(gated, name, k=4).texts[0]


def test_a_token_may_be_named_by_its_text(relu: LanguageModel) -> None:
    readings = ffmem.explain_prompt(relu, TEXT).records
    (token,) = relu.tokenizer.encode("e", add_special_tokens=False)
    by_text, by_id = (ffmem.contributions(relu, readings, one) for one in ("e", token))
    assert by_text.start == by_id.start
    assert by_text.constant == by_id.constant


def test_a_model_may_be_a_path(tmp_path: Path, relu: LanguageModel) -> None:
    relu.model.save_pretrained(tmp_path)
    relu.tokenizer.save_pretrained(tmp_path)
    assert ffmem.load(tmp_path).name == str(tmp_path)


@pytest.mark.parametrize(
    "ids", [[[264]], [[-1]], [[2**40]], [[0.5]], [[[0]]], [[]]], ids=lambda ids: str(ids)
)
def test_token_ids_that_are_not_the_models_are_refused(relu: LanguageModel, ids: Any) -> None:
    with pytest.raises(ffmem.FfmemError, match=r"token"):
        ffmem.record(relu, torch.tensor(ids))


def test_targets_that_are_not_the_models_are_refused(relu: LanguageModel) -> None:
    readings = ffmem.explain_prompt(relu, "the river").records
    for wrong in (-1, relu.vocab_size, 2**40):
        with pytest.raises(ffmem.FfmemError, match="not a token"):
            ffmem.contributions(relu, readings, wrong)
