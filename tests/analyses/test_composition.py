from __future__ import annotations

import pytest
import torch
from tokenizers import Tokenizer, decoders, models
from transformers import PreTrainedTokenizerFast

from ffmem.analyses.composition.measure import measure
from ffmem.analyses.inputs.english import punctuation_ids, stop_word_ids, word_starts
from ffmem.analyses.inputs.layer_readings import SampleRecord, record_sample, tops
from ffmem.memories.value_vectors import value_vectors
from ffmem.models.language_model import LanguageModel
from ffmem.models.tiny import tiny_model, tiny_tokenizer
from ffmem.models.wrapping import wrap
from ffmem.store.scan_store import ScanStore
from tests.analyses.test_prefix_sample import sample_for

Scanned = tuple[LanguageModel, ScanStore]


@pytest.fixture(scope="module")
def read_toy(scanned_toy: Scanned) -> tuple[LanguageModel, SampleRecord]:
    model, _ = scanned_toy
    return model, record_sample(model, sample_for(model, 40))


def draw() -> torch.Generator:
    return torch.Generator().manual_seed(0)


def test_fewer_memories_can_only_agree_less(read_toy: tuple[LanguageModel, SampleRecord]) -> None:
    for row in measure(*read_toy, draw()).zero_agreement:
        assert row.active.estimate >= row.all.estimate


def test_zero_agreement_is_the_share_of_tokens_that_no_value_promotes(
    read_toy: tuple[LanguageModel, SampleRecord],
) -> None:
    model, reading = read_toy
    if model.gated:
        pytest.skip("the sign of the coefficient decides there; the reading's own test has it")
    for place, row in enumerate(measure(model, reading, draw()).zero_agreement):
        promoted = set(tops(model, value_vectors(model.layers[place])).tolist())
        said = reading.predictions[0].feedforward[:, place].tolist()
        expected = sum(token not in promoted for token in said) / len(said)
        assert row.all.estimate == pytest.approx(expected)


def test_active_shares_are_those_of_the_counts(
    read_toy: tuple[LanguageModel, SampleRecord],
) -> None:
    model, reading = read_toy
    for place, row in enumerate(measure(model, reading, draw()).activity):
        shares = sorted((100 * reading.coefficients.active[:, place] / row.memories).tolist())
        assert shares[0] <= row.active[0] <= row.active[2] <= row.active[4] <= shares[-1]
        assert row.mean_active == pytest.approx(sum(shares) / len(shares) / 100 * row.memories)


def test_percentages_come_with_their_base_rates(
    read_toy: tuple[LanguageModel, SampleRecord],
) -> None:
    model, reading = read_toy
    found = measure(model, reading, draw())
    agree = reading.coefficients.matches_y > 0
    short = (reading.sample.positions < 5)[:, None].expand_as(agree)
    mine = found.agreeing
    assert mine.short.n == int(agree.any(dim=1).sum())  # sentences, whose layers are alike
    assert mine.short_base.n == len(agree)
    assert mine.short_base.estimate == pytest.approx(float(short.double().mean()))
    if agree.any():
        assert mine.short.estimate == pytest.approx(float(short[agree].double().mean()))


class Words:
    """A tokenizer of four tokens, enough to ask which are stop words."""

    vocab_size = 6
    tokenizer = None
    token_texts = (" the", "the", " river", ".", " Of", " 'n")


def test_stop_words_begin_a_word_and_ignore_capitals() -> None:
    assert stop_word_ids(Words()).tolist() == [True, False, False, False, True, False]  # type: ignore[arg-type]
    assert punctuation_ids(Words()).tolist() == [False, False, False, True, False, False]  # type: ignore[arg-type]


PIECES = {  # the same five pieces as each kind of vocabulary writes them
    "sentencepiece": ["<unk>", "\u2581the", "the", "\u2581river", "re", "\u2581Of"],
    "byte-level": ["<unk>", "\u0120the", "the", "\u0120river", "re", "\u0120Of"],
    "wordpiece": ["[UNK]", "the", "##the", "river", "##re", "Of"],
}


def tokenizer_of(style: str) -> PreTrainedTokenizerFast:
    """A real tokenizer of that kind, whose decoder treats spaces as such tokenizers do."""
    words = {piece: number for number, piece in enumerate(PIECES[style])}
    kinds = {
        "sentencepiece": (models.BPE(words, []), decoders.Metaspace()),
        "byte-level": (models.BPE(words, []), decoders.ByteLevel()),
        "wordpiece": (models.WordPiece(words, unk_token="[UNK]"), decoders.WordPiece()),
    }
    inner = Tokenizer(kinds[style][0])
    inner.decoder = kinds[style][1]
    return PreTrainedTokenizerFast(tokenizer_object=inner, unk_token=PIECES[style][0])


@pytest.mark.parametrize("style", PIECES)
def test_word_starts_are_the_marks_of_the_vocabulary(style: str) -> None:
    """A piece inside a word ('the' in 'bathed', 're' in 'hundred') is not a stop word."""
    model = wrap(tiny_model("opt"), tokenizer_of(style))
    assert model.vocab_size == 6
    found = stop_word_ids(model).tolist()
    assert found == [False, True, False, False, False, True]
    starts = word_starts(model).tolist()
    assert starts[1:] == [True, False, True, False, True]


def test_where_no_token_has_a_mark_every_token_begins_a_word() -> None:
    model = wrap(tiny_model("opt"), tiny_tokenizer())  # one token a byte
    assert word_starts(model).all()
