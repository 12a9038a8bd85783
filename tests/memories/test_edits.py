from typing import Any

import pytest
import torch

from ffmem.address import Address
from ffmem.errors import AddressError, EditError, FfmemError
from ffmem.memories.edits import Edit, edited
from ffmem.memories.recording import record
from ffmem.models.language_model import LanguageModel
from ffmem.models.tiny import tiny_model, tiny_tokenizer
from ffmem.models.wrapping import wrap
from tests.memories.test_recording import hooks_in
from tests.near_ties import assert_best

TEXT = "the river runs"


def says(model: LanguageModel) -> torch.Tensor:
    return model.model(model.encode(TEXT)).logits


def test_holding_a_memory_adds_the_difference_times_its_value(toy: LanguageModel) -> None:
    layer = toy.layers[1]
    plain = record(toy, TEXT, "my").layer(2)
    with edited(toy, ["L2.7=5"]):
        held = record(toy, TEXT, "my").layer(2)
    push = (5 - plain.m[..., 7, None]) * layer.values[7]
    found = held.raw["values out"] - plain.raw["values out"]
    torch.testing.assert_close(found, push, rtol=1e-4, atol=1e-4)


def test_an_edit_to_the_coefficient_it_already_has_changes_nothing(toy: LanguageModel) -> None:
    plain = says(toy)
    m = record(toy, TEXT, "m").layer(3).m[0, :, 3]
    same = [Edit(Address(3, 3), "set", float(c), (column,)) for column, c in enumerate(m)]
    for edits in ([], ["L1.0*1"], same):
        with edited(toy, edits):
            assert torch.equal(says(toy), plain)


def test_a_real_edit_changes_something_and_is_gone_afterwards(toy: LanguageModel) -> None:
    plain, before = says(toy), hooks_in(toy.model)
    with edited(toy, ["L1.3=9"]):
        assert not torch.equal(says(toy), plain)
    assert torch.equal(says(toy), plain)
    assert hooks_in(toy.model) == before


def test_everything_is_restored_after_an_exception(relu: LanguageModel) -> None:
    plain, before = says(relu), hooks_in(relu.model)
    with pytest.raises(ZeroDivisionError), edited(relu, ["L1.3=9", "L3.1*0"]):
        raise ZeroDivisionError
    assert torch.equal(says(relu), plain)
    assert hooks_in(relu.model) == before


def test_an_edit_at_one_position_leaves_earlier_ones_alone(toy: LanguageModel) -> None:
    plain = says(toy)
    with edited(toy, [Edit(Address(2, 7), "set", 9.0, (4,))]):
        changed = says(toy)
    assert torch.equal(changed[:, :4], plain[:, :4])
    assert not torch.allclose(changed[:, 4], plain[:, 4])


def test_positions_count_the_tokens_that_were_read_with_and_without_a_bos() -> None:
    bare = tiny_tokenizer()
    bare.bos_token = bare.eos_token = None
    for tokenizer in (tiny_tokenizer(), bare):
        model = wrap(tiny_model("opt"), tokenizer)
        plain = record(model, TEXT, "m")["L2.7"][0]
        with edited(model, "L2.7=9@2,4-5"):
            held = record(model, TEXT, "m")["L2.7"][0]
        lead = 0 if model.bos is None else 1
        changed = (held != plain).nonzero().flatten().tolist()
        assert changed == [1 + lead, 3 + lead, 4 + lead]
        for wrong in ((-1,), (3, lead - 2)):
            edit = Edit(Address(2, 7), "set", 9.0, wrong)
            with pytest.raises(EditError, match=f"count from {1 - lead}"), edited(model, edit):
                pass


def test_an_edit_with_positions_is_its_text() -> None:
    for text in ("L7.3=0@2", "L7.3*2@0,5-7", "L7.E3.4+=1@1-3"):
        assert str(Edit.parse(text)) == text
    assert Edit.parse("L7.3=0@7,1-2,2").positions == (1, 2, 7)
    for wrong in ("L7.3=0@", "L7.3=0@x", "L7.3=0@-1", "L7.3=0@3-1", "L7.3=0@1-9999", "L7.3=0@²"):
        with pytest.raises(EditError, match="positions"):
            Edit.parse(wrong)


@pytest.mark.parametrize("cached", [True, False])
def test_positions_mean_the_same_inside_generate(relu: LanguageModel, cached: bool) -> None:
    tokens = relu.encode("abc")
    edit = Edit(Address(3, 7), "set", 40.0, (5,))  # two tokens behind the prompt

    with edited(relu, [edit]):
        found = relu.model.generate(
            tokens, max_new_tokens=6, do_sample=False, use_cache=cached, eos_token_id=None
        )
    plain = relu.model.generate(tokens, max_new_tokens=6, do_sample=False, eos_token_id=None)
    with edited(relu, [edit]):  # one pass over all that was written: each token is the likeliest
        assert_best(found[0, 4:], relu.model(found).logits[0, 3:-1])
    assert found[0].tolist() != plain[0].tolist()


def test_generate_gives_the_text_that_the_edited_model_writes(relu: LanguageModel) -> None:
    tokens = relu.encode("abc")
    with edited(relu, "L3.7=40"):
        found = relu.generate("abc", 6)
        ids = relu.model.generate(tokens, max_new_tokens=6, do_sample=False)[0, tokens.shape[1] :]
    assert found == relu.text_behind(tokens[0, 1:], ids)
    assert relu.generate("abc", 6) != found
    assert relu.generate("abc", 0) == ""
    longest = "a" * (relu.context_length - 1)
    assert relu.generate(longest, 3) == ""  # no room is left
    for text, count in (("", 3), ("abc", -1), ("abc", 2.5)):
        with pytest.raises(FfmemError):
            relu.generate(text, count)  # type: ignore[arg-type]


def test_a_sign_names_one_half_of_a_gated_coefficient() -> None:
    m = torch.tensor([-2.0, 0.0, 3.0])
    assert Edit.parse("L1.0+=0").apply(m).tolist() == [-2, 0, 0]
    assert Edit.parse("L1.0-=0").apply(m).tolist() == [0, 0, 3]
    assert Edit.parse("L1.0+*2").apply(m).tolist() == [-2, 0, 6]
    assert Edit.parse("L1.0-=5").apply(m).tolist() == [-5, -5, -2]


def test_edits_of_one_layer_apply_in_the_order_given(relu: LanguageModel) -> None:
    with edited(relu, ["L1.3=2", "L1.3*4"]):
        with edited(relu, []):
            pass
        held = says(relu)
    with edited(relu, ["L1.3=8"]):
        assert torch.equal(says(relu), held)


@pytest.mark.parametrize("text", ["L1.3", "L1.3=", "L1.3=x", "L1=3", "L1.3=inf", "L1.3*nan", "=3"])
def test_an_unknown_edit_is_refused(text: str) -> None:
    with pytest.raises(EditError, match="edit"):
        Edit.parse(text)


@pytest.mark.parametrize("text", ["L9.0=1", "L1.64=1", "L1.3+=1"])
def test_an_address_outside_the_model_is_refused(relu: LanguageModel, text: str) -> None:
    with pytest.raises(AddressError), edited(relu, [text]):
        pass


def test_one_edit_needs_no_list(relu: LanguageModel) -> None:
    edit = Edit.parse("L2.7=5")
    with edited(relu, [edit]):
        expected = says(relu)
    for one in ("L2.7=5", edit):
        with edited(relu, one):
            assert torch.equal(says(relu), expected)


@pytest.mark.parametrize("edits", [None, 3, [3], Address(2, 7)])
def test_what_is_not_an_edit_is_refused_in_one_sentence(relu: LanguageModel, edits: Any) -> None:
    with pytest.raises(EditError, match="is not an edit; write an address"), edited(relu, edits):
        pass
