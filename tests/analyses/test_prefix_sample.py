from __future__ import annotations

import pytest
import torch

from ffmem.analyses.inputs.layer_readings import (
    UNKNOWN,
    SampleRecord,
    conventions_of,
    foreign_gold,
    record_sample,
)
from ffmem.analyses.inputs.prefix_sample import (
    NO_TOKEN,
    PrefixSample,
    draw_sample,
    other_rows,
    prefix_batches,
)
from ffmem.corpus.sentences import Sentences
from ffmem.errors import CorpusError
from ffmem.memories.projection import Lens, best, logits, ranks
from ffmem.memories.recording import record
from ffmem.memories.value_vectors import value_vectors
from ffmem.models.language_model import LanguageModel
from ffmem.store.scan_store import ScanStore
from tests.analyses.conftest import lines, sentences_of
from tests.near_ties import (
    assert_best,
    assert_rank,
    is_surely_best,
    may_be_best,
)

Scanned = tuple[LanguageModel, ScanStore]
NEAR_ZERO = 1e-6


def sample_for(model: LanguageModel, count: int = 24) -> PrefixSample:
    return draw_sample([sentences_of(model, lines(50, 2))], count)


def halves(sentences: Sentences) -> list[Sentences]:
    def part(first: int, last: int) -> Sentences:
        start, end = int(sentences.starts[first]), int(sentences.starts[last])
        return Sentences(
            sentences.numbers[first:last],
            sentences.texts[first:last],
            sentences.tokens[start:end],
            sentences.starts[first : last + 1] - start,
            sentences.token_ends[start:end],
            sentences.cut[first:last],
        )

    return [part(0, 20), part(20, len(sentences))]


def test_the_sample_does_not_depend_on_the_order_of_reading(relu: LanguageModel) -> None:
    sentences = sentences_of(relu, lines(50, 2))
    whole = draw_sample([sentences], 15)
    parts = draw_sample(reversed(halves(sentences)), 15)
    assert torch.equal(whole.numbers, parts.numbers)
    assert torch.equal(whole.positions, parts.positions)
    assert torch.equal(whole.tokens, parts.tokens)
    assert not torch.equal(whole.numbers, draw_sample([sentences], 15, seed=1).numbers)


def test_prefix_gold_and_text_belong_together(relu: LanguageModel) -> None:
    sample = sample_for(relu, 50)
    assert len(set(sample.numbers.tolist())) == len(sample) == 50
    sizes = sample.starts.diff()
    assert (sample.positions >= 1).all()
    assert (sample.positions <= sizes).all()
    for row in range(len(sample)):
        ids = relu.encode(sample.texts[row])[0, 1:]
        p = int(sample.positions[row])
        assert sample.prefix_tokens(row).tolist() == ids[:p].tolist()
        assert relu.encode(sample.prefix(row))[0, 1:].tolist() == ids[:p].tolist()
        assert int(sample.gold[row]) == (int(ids[p]) if p < len(ids) else -1)


def test_positions_are_uniform_over_the_sentence(relu: LanguageModel) -> None:
    texts = ["abcd"] * 3000
    found = draw_sample([sentences_of(relu, texts)], 3000).positions.bincount(minlength=5)
    assert found[0] == 0
    assert (found[1:] - 750).abs().max() < 110


def test_places_of_a_sentence_differ_and_a_smaller_sample_is_in_a_larger_one(
    relu: LanguageModel,
) -> None:
    texts = ["a", "ab", "abc", "abcdefgh"] * 500
    sentences = sentences_of(relu, texts)
    one, many = (draw_sample([sentences], 1500, places=places) for places in (1, 4))
    assert one.count == many.count == len(one) == 1500
    for name in ("numbers", "positions", "gold"):
        assert torch.equal(getattr(one, name), getattr(many, name)[:1500])
    drawn: dict[int, list[int]] = {}
    for number, position in zip(many.numbers.tolist(), many.positions.tolist(), strict=True):
        drawn.setdefault(number, []).append(position)
    counts = torch.zeros(9)
    for number, positions in drawn.items():
        size = len(texts[number])
        assert len(set(positions)) == len(positions) == min(4, size)
        if size == 8:
            counts[positions] += 1
    assert counts[0] == 0
    expected = counts.sum() / 8
    assert (counts[1:] - expected).abs().max() < 5 * (expected / 2) ** 0.5
    assert many.sentences.bincount().tolist() == [len(found) for found in drawn.values()]


def test_another_row_is_the_next_one_of_another_sentence() -> None:
    sentences = torch.tensor([0, 0, 2, 1, 1, 1, 0])
    assert other_rows(sentences, 1).tolist() == [2, 2, 3, 6, 6, 6, 2]
    assert other_rows(sentences, -1).tolist() == [5, 5, 1, 2, 2, 2, 5]
    assert other_rows(torch.arange(4), -1).tolist() == [3, 0, 1, 2]
    assert other_rows(torch.zeros(3).long(), 1).tolist() == [0, 1, 2]


def test_several_places_of_a_sentence_are_read_as_each_alone_would_be(
    scanned_toy: Scanned,
) -> None:
    model, _ = scanned_toy
    sample = draw_sample([sentences_of(model, lines(50, 2))], 12, places=3)
    found = record_sample(model, sample, budget=150)
    assert found.sample.numbers.bincount().max() == 3
    for row in range(0, len(sample), 7):
        check_predictions(model, found, row)
        check_coefficients(model, found, row)


def test_one_sentence_alone_has_no_other_to_be_compared_with(relu: LanguageModel) -> None:
    found = record_sample(relu, draw_sample([sentences_of(relu, lines(50, 2))], 1, places=3))
    assert len(found.output) == 3
    assert (found.predictions[0].foreign_change == UNKNOWN).all()
    assert found.normalised.foreign_cosine.isnan().all()
    assert found.normalised.foreign_same_top.isnan().all()
    assert (foreign_gold(found.sample) == NO_TOKEN).all()


def test_no_text_is_one_sentence(relu: LanguageModel) -> None:
    with pytest.raises(CorpusError, match="no sentence"):
        draw_sample([], 5)


def test_batches_hold_every_prefix_once_within_the_budget() -> None:
    prefixes = [torch.arange(3, 3 + size) for size in (4, 1, 9, 2, 2, 7, 30)]
    seen = []
    for batch in prefix_batches(prefixes, 2, most_rows=3, budget=20):
        assert len(batch.rows) <= 3
        assert batch.tokens.numel() <= 20 or len(batch.rows) == 1
        for place, row in enumerate(batch.rows.tolist()):
            expected = [2, *prefixes[row].tolist()]
            assert batch.tokens[place, : int(batch.columns[place]) + 1].tolist() == expected
            seen.append(row)
    assert sorted(seen) == list(range(7))


def check_predictions(model: LanguageModel, found: SampleRecord, row: int) -> None:
    tokens = torch.cat([torch.tensor([model.bos]), found.sample.prefix_tokens(row)])[None]
    readings = record(model, tokens, "hrxamyo")
    said = model.model(tokens).logits[0, -1, : model.vocab_size]
    assert_best(found.output[row], said)
    for predictions in found.predictions:
        lens, name = predictions.convention.lens, predictions.convention.name
        for place, reading in enumerate(readings):
            r, y, o = (vector[0, -1] for vector in (reading.r, reading.y, reading.o))
            if name == "block_input":
                r, o = reading.h[0, -1], reading.h[0, -1] + y
            if name == "sum":
                o = r + y
            states = [logits(model, h, "residual", lens) for h in (r, o)]
            piece = logits(model, y, "direction", lens)
            old, new = (int(t[row, place]) for t in (predictions.residual, predictions.output))
            assert_best(old, states[0])
            assert_best(new, states[1])
            assert_best(predictions.feedforward[row, place], piece)
            last = int(predictions.last[row])
            expected = float(states[0].softmax(0)[last])
            assert float(predictions.probability[row, place]) == pytest.approx(expected, rel=1e-3)
            assert_rank(predictions.old_rank_in_layer[row, place], old, piece)
            assert_rank(predictions.new_rank_in_residual[row, place], new, states[0])
            for found_change, token in (
                (predictions.old_change, old),
                (predictions.new_change, new),
            ):
                moved = float(states[1][token] - states[0][token])
                assert float(found_change[row, place]) == pytest.approx(moved, rel=1e-3, abs=1e-4)


def check_coefficients(model: LanguageModel, found: SampleRecord, row: int) -> None:
    tokens = torch.cat([torch.tensor([model.bos]), found.sample.prefix_tokens(row)])[None]
    for place, reading in enumerate(record(model, tokens, "ramyo")):
        m, values = reading.m[0, -1], value_vectors(reading.layer)
        scores = reading.a.reshape(1, -1, len(m))[0, -1]  # OPT's have no axis for the batch
        on, may_be_on = scores > NEAR_ZERO, scores > -NEAR_ZERO
        signs = torch.where(m < 0, -1.0, 1.0) if reading.layer.gated else torch.ones_like(m)
        says = int(found.predictions[0].feedforward[row, place])
        tops = logits(model, signs[:, None] * values, "direction")
        agree, may_agree = is_surely_best(says, tops), may_be_best(says, tops)
        counts = found.coefficients
        assert on.sum() <= counts.active[row, place] <= may_be_on.sum()
        assert agree.sum() <= counts.matches_y[row, place] <= may_agree.sum()
        active = int(counts.matches_y_active[row, place])
        assert (agree & on).sum() <= active <= (may_agree & may_be_on).sum()
        strength = sorted((m.abs() * values.norm(dim=1)).tolist(), reverse=True)
        needed, reached = 0, 0.0
        while reached < 0.9 * sum(strength) * (1 - 1e-6):
            reached += strength[needed]
            needed += 1
        assert abs(int(counts.for_90[row, place]) - needed) <= 1
        ratio = sum(strength) ** 2 / sum(c * c for c in strength)
        assert float(counts.participation[row, place]) == pytest.approx(ratio, rel=1e-3)


def test_every_number_is_that_of_the_slow_obvious_way(scanned_toy: Scanned) -> None:
    model, _ = scanned_toy
    found = record_sample(model, sample_for(model), budget=100)
    assert len(found.sample) == 24
    for row in range(0, 24, 5):
        check_predictions(model, found, row)
        check_coefficients(model, found, row)


def test_batches_do_not_change_the_reading(scanned_toy: Scanned) -> None:
    model, _ = scanned_toy
    one, other = (record_sample(model, sample_for(model), budget=b) for b in (40, 2000))
    assert torch.equal(one.sample.numbers, other.sample.numbers)
    for a, b in zip(one.predictions, other.predictions, strict=True):
        differ = (a.output != b.output).any(dim=1)
        for row in differ.nonzero().flatten().tolist():  # a tie, or one of them is wrong
            check_predictions(model, one, row)
            check_predictions(model, other, row)
        same = a.last == b.last
        torch.testing.assert_close(a.probability[same], b.probability[same], rtol=1e-3, atol=1e-6)


def test_layers_add_up_and_pass_on_what_they_add_up_to(scanned_toy: Scanned) -> None:
    """Invariants 1 and 2: o = r + y, the next block reads o, y is the sum of values."""
    model, _ = scanned_toy
    readings = record(model, "river stone", "hrxamyo").layers
    for one, following in zip(readings, [*readings[1:], None], strict=True):
        if one.layer.form != "post-norm":
            torch.testing.assert_close(one.r + one.y, one.o, rtol=1e-4, atol=1e-5)
        if following is not None:
            torch.testing.assert_close(following.h, one.o)
        bias = one.layer.value_bias
        total = one.m @ value_vectors(one.layer) + (0 if bias is None else bias)
        torch.testing.assert_close(total, one.y, rtol=1e-4, atol=1e-5)


def test_conventions_are_those_that_make_a_difference(scanned_toy: Scanned) -> None:
    model, _ = scanned_toy
    expected = {
        "opt": ["default", "no final norm"],
        "gpt2": ["default", "no final norm"],
        "llama": ["default", "no final norm"],
        "gpt_neox": ["default", "block_input", "no final norm"],
        "post-norm": ["default", "sum"],
    }
    assert [c.name for c in conventions_of(model)] == expected[model.name]
    assert conventions_of(model)[0].lens == Lens()


def test_rank_counts_ties_in_order_of_the_ids() -> None:
    scores = torch.tensor([[1.0, 2.0, 2.0, 0.0]])
    assert [int(ranks(scores, torch.tensor([t]))) for t in range(4)] == [2, 0, 1, 3]
    many = torch.randint(-3, 4, (20, 30), generator=torch.Generator().manual_seed(0)).float()
    wanted = torch.arange(20)
    orders = many.argsort(dim=1, descending=True, stable=True).tolist()
    expected = [order.index(token) for order, token in zip(orders, wanted.tolist(), strict=True)]
    assert ranks(many, wanted).tolist() == expected
    assert best(many).tolist() == [order[0] for order in orders]
