from dataclasses import replace
from typing import Literal

import pytest
import torch
from torch import nn

from ffmem.errors import ModelError
from ffmem.memories import projection
from ffmem.memories.projection import (
    Lens,
    best,
    is_odd,
    logits,
    strongest,
    sums_of_exponentials,
    top_tokens,
)
from ffmem.memories.recording import record
from ffmem.memories.value_vectors import rank_in_parts, value_tokens, value_vectors
from ffmem.models.language_model import LanguageModel
from ffmem.models.loading import load
from ffmem.models.tiny import tiny_model, tiny_tokenizer
from ffmem.models.wrapping import wrap
from tests.near_ties import assert_best

TEXT = "the river runs"


def test_chunks_do_not_change_the_answer(
    toy: LanguageModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    h = value_vectors(toy.layers[0])
    whole = logits(toy, h, "direction")
    monkeypatch.setattr(projection, "CHUNK_BYTES", 4 * toy.vocab_size * 7)
    tops = top_tokens(toy, h, "direction", 5)
    assert_best(tops.tokens[:, 0], whole)
    torch.testing.assert_close(tops.logits, whole.topk(5).values)
    torch.testing.assert_close(
        tops.probabilities, whole.softmax(-1).gather(1, tops.tokens), rtol=1e-4, atol=1e-7
    )


def test_unused_rows_of_the_embedding_are_never_predicted(relu: LanguageModel) -> None:
    assert relu.head.vocabulary == 264
    assert relu.vocab_size == 259
    assert logits(relu, torch.randn(3, relu.hidden_size), "residual").shape == (3, 259)


def test_folding_is_linear_and_ignores_scale(toy: LanguageModel) -> None:
    one, other = torch.randn(2, toy.hidden_size), torch.randn(2, toy.hidden_size)
    uncapped = Lens(head_bias="none")
    if toy.head.softcap is None:
        both = logits(toy, one, "direction", uncapped) + logits(toy, other, "direction", uncapped)
        torch.testing.assert_close(
            logits(toy, one + other, "direction", uncapped), both, rtol=1e-4, atol=1e-4
        )
    plain = logits(toy, one, "direction")
    for scale in (0.1, 1, 30):
        assert_best(logits(toy, scale * one, "direction").argmax(-1), plain)


def test_pieces_add_up_to_the_state_once_the_norm_is_frozen(gated: LanguageModel) -> None:
    reading = record(gated, TEXT, "ryo").layers[-1]
    norm = gated.head.norm
    assert norm is not None
    size = norm.size(reading.o)
    frozen = Lens(final_norm="frozen")
    total = logits(gated, reading.r, "direction", frozen, size)
    total = total + logits(gated, reading.y, "direction", frozen, size)
    torch.testing.assert_close(total, logits(gated, reading.o, "residual"), rtol=1e-3, atol=1e-3)


def test_a_frozen_norm_without_its_size_is_refused(gated: LanguageModel) -> None:
    with pytest.raises(ModelError, match="as `size`, or choose another final_norm"):
        value_tokens(gated, "L1.0", lens=Lens(final_norm="frozen"))


def test_top_tokens_show_themselves(gated: LanguageModel) -> None:
    found = top_tokens(gated, value_vectors(gated.layers[0]), "direction", 300)
    assert found.texts[1][0] == gated.token_text(int(found.tokens[1, 0]))
    more = f"and {gated.layers[0].memories - projection.VECTORS_IN_REPR} more vectors>"
    assert repr(found).endswith(more)
    assert f"{float(found.logits[0, 0]):.3f}" in repr(found)
    page = found._repr_html_()
    assert page.count("<tr>") == 1 + projection.VECTORS_IN_REPR * gated.vocab_size
    assert "&lt;" in page
    assert (repr(found) + page).isprintable()  # the toy's tokens are bytes, also control characters


def test_a_layer_norm_is_centred_and_an_rms_norm_is_not() -> None:
    gpt2, llama, gemma = (load(f"tiny:{kind}").head.norm for kind in ("gpt2", "llama", "gemma"))
    assert gpt2 is not None
    assert llama is not None
    assert gemma is not None
    assert (gpt2.centred, llama.centred, gemma.centred) == (True, False, False)
    weight = load("tiny:gemma").model.model.norm.weight
    torch.testing.assert_close(gemma.gain, 1 + weight.detach(), rtol=1e-4, atol=1e-4)


def test_constant_logits_count_where_the_lens_says(relu: LanguageModel) -> None:
    shift = relu.head.norm.shift @ relu.head.embedding[: relu.vocab_size].T  # type: ignore[union-attr]
    h = torch.randn(2, relu.hidden_size)

    def difference(kind: projection.VectorKind, one: Lens, other: Lens) -> torch.Tensor:
        return logits(relu, h, kind, one) - logits(relu, h, kind, other)

    everywhere, nowhere = Lens(head_bias="all"), Lens(head_bias="none")
    for kind in ("residual", "direction"):
        found = difference(kind, everywhere, nowhere)  # type: ignore[arg-type]
        torch.testing.assert_close(found, shift.expand(2, -1), rtol=1e-4, atol=1e-4)
    assert not difference("residual", Lens(), everywhere).any()
    assert not difference("direction", Lens(), nowhere).any()


def test_a_head_without_norm_projects_straight_as_in_the_paper() -> None:
    model = wrap(tiny_model("opt", _remove_final_layer_norm=True), tiny_tokenizer())
    assert model.head.chain == ()
    h = torch.randn(4, model.hidden_size)
    expected = h @ model.head.embedding[: model.vocab_size].T
    for kind in ("residual", "direction"):
        torch.testing.assert_close(logits(model, h, kind), expected)  # type: ignore[arg-type]


def test_the_input_embedding_is_a_lens_of_its_own(gated: LanguageModel) -> None:
    h = torch.randn(2, gated.hidden_size)
    assert gated.head.norm is not None
    expected = (
        gated.head.norm.fold(h) @ gated.model.get_input_embeddings().weight[: gated.vocab_size].T
    )
    torch.testing.assert_close(logits(gated, h, "direction", Lens(embed="input")), expected)


def test_sixteen_bit_weights_are_projected_in_thirty_two() -> None:
    model = load("tiny:llama", dtype="bfloat16")
    assert model.dtype == torch.bfloat16
    assert logits(model, torch.randn(2, model.hidden_size), "direction").dtype == torch.float32


def test_the_minus_cell_pushes_against_its_value(gated: LanguageModel) -> None:
    value = gated.layers[1].values[5:6]
    strongest = logits(gated, value, "direction")[0]
    assert_best(value_tokens(gated, "L2.5+", 1).tokens.item(), strongest)
    assert_best(value_tokens(gated, "L2.5-", 1).tokens.item(), -strongest)


def test_a_norm_behind_the_values_is_folded_into_them() -> None:
    model = load("tiny:gemma2")
    layer = model.layers[0]
    assert layer.after is not None
    y = record(model, TEXT, "my").layer(1)
    folded = y.m @ value_vectors(layer)
    cosine = nn.functional.cosine_similarity(folded, y.y, dim=-1)
    torch.testing.assert_close(cosine, torch.ones_like(cosine), rtol=1e-4, atol=1e-4)


def test_a_residual_multiplier_is_folded_into_the_values() -> None:
    model = wrap(tiny_model("granite", residual_multiplier=0.3), tiny_tokenizer())
    assert model.layers[0].scale == 0.3
    reading = record(model, TEXT, "my").layer(1)
    torch.testing.assert_close(
        reading.m @ value_vectors(reading.layer), reading.y, rtol=1e-4, atol=1e-4
    )


@pytest.mark.parametrize("size", [1.0, 290.0, 870.0])
def test_a_soft_cap_does_not_decide_the_ranking_of_pieces(size: float) -> None:
    """Far above the cap every capped logit is the cap itself, and the lowest id would win."""
    model = wrap(tiny_model("gemma2", final_logit_softcapping=30.0), tiny_tokenizer())
    assert (model.head.softcap, model.head.norm is not None) == (30.0, True)
    pieces = torch.randn(200, model.hidden_size, generator=torch.Generator().manual_seed(0))
    embedding = model.head.embedding[: model.vocab_size].double()
    exact = model.head.norm.fold(pieces).double() @ embedding.T  # type: ignore[union-attr]
    pieces *= (size / exact.max(dim=1, keepdim=True).values).float()
    exact *= size / exact.max(dim=1, keepdim=True).values
    assert_best(top_tokens(model, pieces, "direction", 1).tokens[:, 0], exact)


def test_a_soft_cap_stays_on_whole_states() -> None:
    model = wrap(tiny_model("gemma2", final_logit_softcapping=5.0), tiny_tokenizer())
    state = record(model, TEXT, "o").layers[-1].o[0]
    tokens = model.encode(TEXT)
    expected = model.model(tokens).logits[0, :, : model.vocab_size]
    torch.testing.assert_close(logits(model, state, "residual"), expected, rtol=1e-4, atol=1e-4)


def test_folded_pieces_of_a_sixteen_bit_model_are_not_rounded() -> None:
    model = load("tiny:llama", dtype="bfloat16")
    pieces = torch.randn(50, model.hidden_size, generator=torch.Generator().manual_seed(1))
    embedding = model.head.embedding[: model.vocab_size].double()
    exact = model.head.norm.fold(pieces).double() @ embedding.T  # type: ignore[union-attr]
    torch.testing.assert_close(
        logits(model, pieces, "direction").double(), exact, rtol=0, atol=1e-4
    )


@pytest.mark.parametrize("count", [5, 64, 1000, 3 * 64 * 7, 64 * 40 + 1])
@pytest.mark.parametrize("sign", [1, -1])
@pytest.mark.parametrize("values", [3, 50, None])
def test_the_strongest_are_those_of_a_whole_sort_with_ties_by_id(
    count: int, sign: Literal[1, -1], values: int | None
) -> None:
    """Few values make ties within groups, between them, and at the last place."""
    draw = torch.Generator().manual_seed(count)
    scores = torch.randn(6, count, generator=draw)
    if values is not None:
        scores = torch.randint(-values, values, (6, count), generator=draw) / 4
    scores[0] = 0.0
    scores[0, ::2] = -0.0  # the same number
    found, tokens = strongest(scores, 7, sign)
    for row, best_scores, ids in zip(scores.tolist(), found.tolist(), tokens.tolist(), strict=True):
        order = sorted(range(count), key=lambda token: (-sign * row[token], token))[:7]
        assert ids == order
        assert best_scores == [sign * row[token] for token in order]


def test_the_best_of_either_sign_is_the_first_of_equals() -> None:
    scores = torch.randint(-3, 3, (40, 30), generator=torch.Generator().manual_seed(0)) / 4
    for sign in (1, -1):
        expected = [min(range(30), key=lambda i: (-sign * row[i], i)) for row in scores.tolist()]
        assert best(scores, sign).tolist() == expected


LENSES = (Lens(), Lens("none"), Lens("apply"), Lens(head_bias="all"), Lens(bands="linear"))


def test_the_opposite_of_a_piece_has_opposite_logits_where_it_is_said(toy: LanguageModel) -> None:
    assert is_odd(toy.head)
    values = value_vectors(toy.layers[0])
    for lens in LENSES:
        if is_odd(toy.head, lens):
            opposite = logits(toy, -values, "direction", lens)
            torch.testing.assert_close(opposite, -logits(toy, values, "direction", lens))


def test_logits_by_bands_and_logits_with_a_constant_have_no_opposite(relu: LanguageModel) -> None:
    adaptive = load("tiny:fairseq_lm")
    for model, lens in ((relu, Lens(head_bias="all")), (adaptive, Lens())):
        assert not is_odd(model.head, lens)
        values = value_vectors(model.layers[0])
        one, other = (logits(model, each, "direction", lens) for each in (values, -values))
        assert not torch.allclose(one, -other, atol=1e-3)
    assert is_odd(adaptive.head, Lens(bands="linear"))
    for bias in (True, False):
        further = nn.Linear(relu.hidden_size, relu.hidden_size, bias=bias)
        head = replace(relu.head, chain=(*relu.head.chain, further))
        assert is_odd(head) == (not bias)


@pytest.mark.parametrize("size", [1.0, 30.0, 1000.0])
def test_sums_of_exponentials_are_those_of_either_sign(size: float) -> None:
    scores = torch.randn(7, 300, generator=torch.Generator().manual_seed(0)) * size
    high, low = scores.amax(1), scores.amin(1)
    up, down = sums_of_exponentials(scores, high, low)
    torch.testing.assert_close(up.log().double() + high, scores.double().logsumexp(1))
    torch.testing.assert_close(down.log().double() - low, (-scores).double().logsumexp(1))


def test_the_ends_of_a_ranking_are_those_of_a_whole_sort(toy: LanguageModel) -> None:
    layer = toy.layers[1]
    ends = next(rank_in_parts(toy, layer, 4))
    scores = projection.logits(toy, value_vectors(layer), "direction")
    for sign, found, tokens, sure in (
        (1, ends.promoted_logits, ends.promoted, ends.probability),
        (-1, ends.suppressed_logits, ends.suppressed, ends.suppressed_probability),
    ):
        expected = (sign * scores).sort(dim=1, descending=True, stable=True)
        torch.testing.assert_close(found, sign * expected.values[:, :4])
        same = tokens == expected.indices[:, :4]
        near = (scores.gather(1, tokens) - found).abs() < 1e-4  # rounding may part a tie
        assert (same | near).all()
        torch.testing.assert_close(sure, (sign * scores).softmax(dim=1).amax(dim=1))
