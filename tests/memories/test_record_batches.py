"""`record` by names and by letters, for one prompt and for many."""

import pytest
import torch

from ffmem.address import Address
from ffmem.errors import AddressError, ModelError
from ffmem.memories.prompt_explanation import explain_prompt
from ffmem.memories.recording import RECORD_KINDS, record
from ffmem.models.language_model import LanguageModel
from ffmem.models.tiny import tiny_model, tiny_tokenizer
from ffmem.models.wrapping import wrap

PROMPTS = ["the river runs", "stone", "a light on the water"]


def test_a_name_is_the_letter(toy: LanguageModel) -> None:
    for by_name, by_letter in zip(
        record(toy, PROMPTS[0], tuple(RECORD_KINDS)),
        record(toy, PROMPTS[0], "hrxamyo"),
        strict=True,
    ):
        for name, letter in RECORD_KINDS.items():
            assert torch.equal(getattr(by_name, name), getattr(by_letter, letter))
            assert torch.equal(getattr(by_name, name), getattr(by_name, letter))


def test_only_what_is_asked_for_is_recorded(relu: LanguageModel) -> None:
    first = record(relu, PROMPTS[0], "coefficients").layer(1)
    assert first.kinds == ("coefficients",)
    shape = list(first.m.shape)
    assert repr(first) == f"<LayerRecord of layer 1: coefficients {shape}>"
    assert ">coefficients</td><td style='text-align:left'>m</td>" in first._repr_html_()
    with pytest.raises(ModelError, match="layer 1 has only coefficients; name everything"):
        first.residual  # noqa: B018 - reading it is what is refused


def test_a_batch_of_prompts_is_each_prompt_alone(toy: LanguageModel) -> None:
    together = record(toy, PROMPTS, ("coefficients", "residual"))
    for row, prompt in enumerate(PROMPTS):
        for many, one in zip(together, record(toy, prompt, "mr"), strict=True):
            length = one.m.shape[1]
            for name in ("coefficients", "residual"):
                found, alone = getattr(many, name)[row], getattr(one, name)[0]
                torch.testing.assert_close(found[:length], alone, rtol=1e-4, atol=1e-5)
                assert found[length:].isnan().all()


def test_the_last_token_of_every_row(toy: LanguageModel) -> None:
    last = record(toy, PROMPTS, "m", at=-1)
    for row, prompt in enumerate(PROMPTS):
        for many, one in zip(last, record(toy, prompt, "m"), strict=True):
            torch.testing.assert_close(many.m[row], one.m[0, -1], rtol=1e-4, atol=1e-5)


def test_token_ids_are_read_as_they_are(relu: LanguageModel) -> None:
    ids = relu.encode(PROMPTS[0])
    expected = record(relu, ids, "m").layer(1).m
    for form in (ids[0], ids[0].tolist(), ids.tolist()):
        assert torch.equal(record(relu, form, "m").layer(1).m, expected)


@pytest.mark.parametrize("kinds", ["mq", ("coefficient",), ()])
def test_another_kind_is_refused_with_those_there_are(
    relu: LanguageModel, kinds: tuple[str, ...]
) -> None:
    with pytest.raises(ModelError, match="choose among block_input, residual"):
        record(relu, PROMPTS[0], kinds)


@pytest.mark.parametrize("text", [[], [[]], [[1], []]])
def test_nothing_to_read_is_refused(relu: LanguageModel, text: list[list[int]]) -> None:
    with pytest.raises(ModelError, match=r"give \[batch, position\]"):
        record(relu, text)


def test_a_column_behind_the_row_is_refused(relu: LanguageModel) -> None:
    with pytest.raises(ModelError, match="no position 9"):
        record(relu, "ab", "m", at=9)


def test_an_explanation_shows_itself(gated: LanguageModel) -> None:
    found = explain_prompt(gated, "<b> & river")
    assert repr(found).startswith(
        f"<PromptExplanation after {found.position} tokens, '<b> & river'"
    )
    page = found._repr_html_()
    assert "after <b>&lt;b&gt; &amp; river</b>" in page
    assert page.count("<tr>") == 1 + len(gated.layers)
    assert page.isprintable()  # the toy's tokens are bytes, control characters among them
    assert str(found.steps[0].strongest[0].address) in page


def test_a_layer_and_a_memory_are_found_by_name(toy: LanguageModel) -> None:
    records = record(toy, PROMPTS[0], ("coefficients", "residual"))
    assert len(records) == len(toy.layers)
    assert records["L2"] is records.layer(2) is records.layers[1]
    m = records.layer(2).coefficients
    assert torch.equal(records["L2.3"], m[..., 3])
    assert torch.equal(records["L2.3+"] - records["L2.3-"], m[..., 3])
    assert torch.equal(records[Address(1, 5)], records["L1"].coefficients[..., 5])
    assert torch.equal(records.stack("residual")[1], records["L2"].residual)
    for wrong, because in (
        (1, "layers count from 1"),
        ("L9", "no layer 9"),
        ("2.3", "not a memory"),
    ):
        with pytest.raises(AddressError, match=because):
            records[wrong]  # type: ignore[index]


def test_kinds_of_layers_that_differ_are_not_stacked() -> None:
    records = record(wrap(tiny_model("glm4_moe"), tiny_tokenizer()), PROMPTS[0], "m")
    with pytest.raises(ModelError, match="read them layer by layer"):
        records.stack("coefficients")


def test_a_position_counts_the_tokens_that_were_read(toy: LanguageModel) -> None:
    text, ids = PROMPTS[0], toy.encode(PROMPTS[0])
    lead = 0 if toy.bos is None else 1
    whole, of_ids = record(toy, text, "m"), record(toy, ids, "m")
    for position in (1, 4, -1):
        here = record(toy, text, "m", at=position)
        column = whole.column(position)
        torch.testing.assert_close(here["L1"].m, whole["L1"].m[:, column], rtol=1e-4, atol=1e-5)
    assert whole.column(1) == lead
    assert of_ids.column(1) == 0
    before = ids[:, : 4 + lead]
    torch.testing.assert_close(
        record(toy, before, "m", at=-1)["L1"].m,
        record(toy, text, "m", at=4)["L1"].m,
        rtol=1e-4,
        atol=1e-5,
    )


def test_position_0_is_the_bos_where_there_is_one() -> None:
    bare = tiny_tokenizer()
    bare.bos_token = bare.eos_token = None
    with_bos, without = wrap(tiny_model("opt"), tiny_tokenizer()), wrap(tiny_model("opt"), bare)
    assert with_bos.bos is not None
    assert without.bos is None
    whole = record(with_bos, PROMPTS[0], "m")
    assert whole.column(0) == 0
    assert torch.allclose(record(with_bos, PROMPTS[0], "m", at=0)["L1"].m, whole["L1"].m[:, 0])
    for refused in (
        lambda: record(without, PROMPTS[0], "m", at=0),
        lambda: record(without, PROMPTS[0], "m").column(0),
        lambda: record(with_bos, [PROMPTS[0], [5, 6]]),  # type: ignore[list-item]
    ):
        with pytest.raises(ModelError, match="position 0|texts and some"):
            refused()
