from itertools import pairwise

import torch
from torch import nn

from ffmem.memories.projection import logits
from ffmem.memories.recording import record
from ffmem.models.language_model import LanguageModel
from ffmem.models.tiny import tiny_model, tiny_tokenizer
from ffmem.models.wrapping import wrap
from tests.near_ties import assert_best

TEXT = "the river runs"


def close(one: torch.Tensor, other: torch.Tensor) -> None:
    torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-5)


def hooks_in(model: nn.Module) -> int:
    return sum(len(m._forward_hooks) + len(m._forward_pre_hooks) for m in model.modules())


def test_coefficients_times_values_plus_bias_is_what_the_value_map_gives(
    toy: LanguageModel,
) -> None:
    for reading in record(toy, TEXT, "my"):
        total = reading.m @ reading.layer.values
        if reading.layer.value_bias is not None:
            total = total + reading.layer.value_bias
        close(total, reading.raw["values out"])


def test_residual_plus_layer_is_the_output_and_the_next_input(toy: LanguageModel) -> None:
    readings = record(toy, TEXT, "hryo")
    for reading in readings:
        close(reading.r + reading.y, reading.o)
    for before, after in pairwise(readings):
        close(before.o, after.h)


def says_what_the_model_says(model: LanguageModel) -> None:
    tokens = model.encode(TEXT)
    expected = model.model(tokens).logits[..., : model.vocab_size]
    found = logits(model, record(model, tokens, "o").layers[-1].o, "residual")
    close(found, expected)
    assert_best(found.argmax(-1), expected)


def test_the_last_output_through_the_head_is_what_the_model_says(toy: LanguageModel) -> None:
    says_what_the_model_says(toy)


def test_so_it_is_with_the_norm_behind_the_layer() -> None:
    model = tiny_model("opt", do_layer_norm_before=False)
    says_what_the_model_says(wrap(model, tiny_tokenizer()))


def test_keys_and_biases_make_the_scores(toy: LanguageModel) -> None:
    for reading in record(toy, TEXT, "xau"):
        layer = reading.layer
        scores = reading.x @ layer.keys.T
        if layer.key_map.bias is not None:
            scores = scores + layer.key_map.bias
        close(scores, reading.a if reading.u is None else reading.u)
        if layer.gate_keys is not None:
            close(reading.x @ layer.gate_keys.T, reading.a)


def test_gate_and_up_multiply_to_the_coefficient(gated: LanguageModel) -> None:
    for reading in record(gated, TEXT, "aum"):
        assert reading.u is not None
        close(nn.functional.silu(reading.a) * reading.u, reading.m)


def test_a_prefix_alone_gives_the_same_coefficients(toy: LanguageModel) -> None:
    tokens = toy.encode(TEXT)
    whole, prefix = record(toy, tokens, "m"), record(toy, tokens[:, :6], "m")
    for one, other in zip(whole, prefix, strict=True):
        close(one.m[:, :6], other.m)


def test_chosen_columns_are_the_same_columns_of_a_full_reading(toy: LanguageModel) -> None:
    tokens = torch.cat([toy.encode("abcdef"), toy.encode("zyxwvu")])
    at = torch.tensor([3, 5])  # columns; as positions of ids, which count from 1, one more
    for full, some in zip(record(toy, tokens), record(toy, tokens, at=at + 1), strict=True):
        for quantity in "rxamyo":
            expected = getattr(full, quantity)[torch.arange(2), at]
            close(getattr(some, quantity), expected)


def test_reading_leaves_no_hook_behind(relu: LanguageModel) -> None:
    before = hooks_in(relu.model)
    record(relu, TEXT)
    assert hooks_in(relu.model) == before
