"""Both ends of rankings from blocks of scores are those of a whole sort of the plain product."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from ffmem.loops.ranking_ends import RankingEnds
from ffmem.memories import value_vectors
from ffmem.memories.projection import Lens, is_odd, logits
from ffmem.memories.value_vectors import ValueEnds, rank_in_parts
from ffmem.models import unembedding
from ffmem.models.feedforward import FeedForward
from ffmem.models.language_model import LanguageModel
from ffmem.models.loading import load
from ffmem.models.tiny import tiny_model, tiny_tokenizer
from ffmem.models.wrapping import wrap

# A soft cap, scales, a bias, norms and none.
HEADS: list[tuple[str, dict[str, Any]]] = [
    ("opt", {}),
    ("gpt2", {}),
    ("llama", {}),
    ("gemma2", {"final_logit_softcapping": 5.0}),
    ("granite", {"logits_scaling": 8.0}),
    ("cohere", {"logit_scale": 0.25}),
    ("phi", {}),
]


def value_ends(model: LanguageModel, layer: FeedForward, k: int) -> ValueEnds:
    return ValueEnds.join(list(rank_in_parts(model, layer, k)))


@pytest.mark.parametrize("values", [3, 50, None])
def test_blocks_give_what_a_whole_sort_gives(values: int | None) -> None:
    """Few values make ties within groups, between groups and blocks, and at the last place."""
    for count, k in ((5, 5), (64, 7), (1000, 7), (64 * 40 + 1, 20)):
        draw = torch.Generator().manual_seed(count)
        scores = torch.randn(6, count, generator=draw)
        if values is not None:
            scores = torch.randint(-values, values, (6, count), generator=draw) / 4
        scores[0] = 0.0
        scores[0, ::2] = -0.0  # the same number
        for size in (count, 130, 7):
            ends = RankingEnds(6, k)
            for block in scores.split(size, dim=1):
                ends.add(block)
            for row, line in enumerate(scores.tolist()):
                for sign, found, ids in (
                    (1, ends.high, ends.promoted),
                    (-1, ends.low, ends.suppressed),
                ):
                    order = sorted(range(count), key=lambda i: (-sign * line[i], i))[:k]  # noqa: B023
                    assert ids[row].tolist() == order, (count, size, row, sign)
                    assert found[row].tolist() == [sign * line[token] for token in order]


@pytest.mark.parametrize("size", [0.01, 1.0, 30.0, 1000.0])
def test_sums_of_exponentials_are_exact_whatever_the_scores_are(size: float) -> None:
    scores = torch.randn(7, 3000, generator=torch.Generator().manual_seed(0)) * size
    ends = RankingEnds(7, 3)
    for block in scores.split(500, dim=1):
        ends.add(block)
    for sums, top, sign in ((ends.sums[:, 0], ends.high, 1), (ends.sums[:, 1], ends.low, -1)):
        exact = (sign * scores.double()).logsumexp(dim=1).numpy()
        np.testing.assert_allclose(np.log(sums) + top[:, 0], exact, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("threads", [1, 3, 8])
def test_threads_share_the_values(threads: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """In their order, and torch has the threads afterwards that it had before."""
    model, before = load("tiny:llama", device="cpu"), torch.get_num_threads()
    layer = model.layers[1]
    monkeypatch.setattr(value_vectors, "BLOCK_VALUES", 5)
    try:
        torch.set_num_threads(threads)
        found = value_ends(model, layer, 20)
        assert torch.get_num_threads() == threads
    finally:
        torch.set_num_threads(before)
    compare(found, logits(model, value_vectors.value_vectors(layer), "direction", Lens()))


@torch.no_grad()
@pytest.mark.parametrize(("kind", "changes"), HEADS)
def test_values_of_every_kind_of_head_are_ranked_as_by_the_plain_product(
    kind: str, changes: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where tokens' vectors are nearly equal, and with oneDNN's product."""
    toy = tiny_model(kind, **changes)
    with torch.no_grad():
        rows = next(one for name, one in named_rows(toy))
        rows[40:44] = rows[30:31] * (1 + 1e-3 * torch.arange(4.0)[:, None])
    model = wrap(toy, tiny_tokenizer(), kind)
    assert is_odd(model.head)
    monkeypatch.setattr(value_vectors, "BLOCK_TOKENS", 100)
    monkeypatch.setattr(value_vectors, "BLOCK_VALUES", 24)
    monkeypatch.setattr(unembedding, "MANY", 1)
    layer = model.layers[1]
    found = value_ends(model, layer, 20)
    monkeypatch.setattr(unembedding, "has_fast_product", lambda: False)
    compare(found, logits(model, value_vectors.value_vectors(layer), "direction"))


def named_rows(toy: torch.nn.Module) -> Any:
    """The vectors of tokens that a head holds, by name."""
    head = toy.get_output_embeddings()  # type: ignore[operator]
    return ((name, one) for name, one in head.named_parameters() if one.ndim == 2)


def compare(found: ValueEnds, scores: torch.Tensor) -> None:
    """Hold ends against plain scores; rounding may part what is nearly equal."""
    for sign, ends, tokens, sure in (
        (1, found.promoted_logits, found.promoted, found.probability),
        (-1, found.suppressed_logits, found.suppressed, found.suppressed_probability),
    ):
        expected = (sign * scores).sort(dim=1, descending=True, stable=True)
        near = 1e-6 * scores.abs().max().item()
        assert (sign * ends - expected.values[:, :20]).abs().max() <= near
        assert (scores.gather(1, tokens) - ends).abs().max() <= near
        assert all(len(set(row)) == 20 for row in tokens.tolist())
        chances = (sign * scores.double()).softmax(dim=1).amax(dim=1)
        assert (sure - chances).abs().max() <= 1e-6


def test_equal_tokens_are_in_order_of_their_ids(relu: LanguageModel) -> None:
    """With numbers whose products are exact, tokens with one vector tie in every block."""
    toy = tiny_model("opt", word_embed_proj_dim=32, do_layer_norm_before=False)  # no final norm
    draw = torch.Generator().manual_seed(0)
    with torch.no_grad():
        rows = toy.get_output_embeddings().weight
        rows.copy_(torch.randint(-4, 5, (10, rows.shape[1]), generator=draw).repeat(27, 1)[:264])
        for block in toy.model.decoder.layers:
            block.fc2.weight.copy_(torch.randint(-4, 5, block.fc2.weight.shape, generator=draw))
    model = wrap(toy, relu.tokenizer, "ties")
    found = value_ends(model, model.layers[1], 20)
    values = value_vectors.value_vectors(model.layers[1])
    scores = logits(model, values, "direction", Lens())
    for sign, tokens in ((1, found.promoted), (-1, found.suppressed)):
        order = (sign * scores).sort(dim=1, descending=True, stable=True).indices
        assert torch.equal(tokens, order[:, :20])


def test_an_adaptive_head_has_ends_of_its_own() -> None:
    """The opposite values of log-probabilities are asked for themselves."""
    model = load("tiny:fairseq_lm", device="cpu")
    assert not is_odd(model.head)
    values = value_vectors.value_vectors(model.layers[0])
    found = value_ends(model, model.layers[0], 5)
    for sign, tokens in ((1, found.promoted), (-1, found.suppressed)):
        scores = logits(model, sign * values, "direction")
        best = scores.topk(5, dim=1).values
        assert (scores.gather(1, tokens) - best).abs().max() <= 1e-5
