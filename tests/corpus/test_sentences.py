import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import normalizers
from transformers import PreTrainedTokenizerFast

from ffmem.corpus import token_ends
from ffmem.corpus.sentences import Sentences, SentenceSettings, tokenise
from ffmem.corpus.shards import Shard
from ffmem.corpus.token_ends import ends_by_offsets, tokens_and_ends
from ffmem.errors import CorpusError

ANY_TEXT = st.one_of(st.text(), st.text(st.sampled_from("aé日🎉👩‍🚀 ñ\u0301.\n<unk>"), max_size=40))
DOCUMENTS = st.lists(ANY_TEXT, max_size=5)


def tokenised(
    documents: list[str], tokenizer: PreTrainedTokenizerFast, number: int = 0, **settings: object
) -> Sentences:
    return tokenise(Shard(number, documents), tokenizer, SentenceSettings(**settings))


def check_offsets(found: Sentences) -> None:
    """Prefixes are beginnings of the sentence, the last one all of it."""
    for row, text in enumerate(found.texts):
        length = int(found.lengths[row])
        ends = [0, *found.ends(row).tolist()]
        assert ends == sorted(ends)
        assert ends[-1] == len(text)
        prefixes = [found.prefix(row, position) for position in range(length + 1)]
        assert prefixes == [text[:end] for end in ends]


def test_i_love_dogs_has_the_prefixes_of_the_paper(
    tokenizer: PreTrainedTokenizerFast,
) -> None:
    found = tokenised(["I love dogs"], tokenizer)
    assert [found.prefix(0, p) for p in range(4)] == ["", "I", "I love", "I love dogs"]
    assert tokenizer.convert_ids_to_tokens(found.token_ids(0)) == ["I", "Ġlove", "Ġdogs"]


@given(documents=DOCUMENTS)
def test_prefixes_are_beginnings_of_the_sentence(
    tokenizer: PreTrainedTokenizerFast, documents: list[str]
) -> None:
    check_offsets(tokenised(documents, tokenizer))


@given(documents=DOCUMENTS)
def test_they_do_when_a_tokenizer_drops_white_space(
    word_tokenizer: PreTrainedTokenizerFast, documents: list[str]
) -> None:
    check_offsets(tokenised(documents, word_tokenizer))


@given(documents=DOCUMENTS, most=st.integers(1, 5))
def test_they_do_when_sentences_are_cut(
    tokenizer: PreTrainedTokenizerFast, documents: list[str], most: int
) -> None:
    whole = tokenised(documents, tokenizer)
    cut = tokenised(documents, tokenizer, max_tokens=most)
    check_offsets(cut)
    assert "".join(cut.texts) == "".join(whole.texts)
    assert cut.tokens.tolist() == whole.tokens.tolist()
    assert cut.cut.sum() == sum(length > most for length in whole.lengths)
    assert (cut.lengths >= 1).all()
    assert (cut.lengths <= most).all()


@given(documents=DOCUMENTS, longest=st.integers(1, 5), most=st.integers(1, 6))
def test_the_first_sentences_are_the_same_when_only_they_are_tokenised(
    word_tokenizer: PreTrainedTokenizerFast, documents: list[str], longest: int, most: int
) -> None:
    """Also where a text has no tokens, or becomes several sentences."""
    shard, settings = Shard(0, documents), SentenceSettings(max_tokens=longest)
    whole = tokenise(shard, word_tokenizer, settings)
    few = tokenise(shard, word_tokenizer, settings, most)
    for name in ("numbers", "texts", "tokens", "starts", "token_ends", "cut"):
        found, expected = (list(getattr(one.first(most), name)) for one in (few, whole))
        assert found == expected, name


def test_what_is_not_wanted_is_not_tokenised(tokenizer: PreTrainedTokenizerFast) -> None:
    shard = Shard(0, ["One river runs.", "", "Two.", "Three.", "Four."])
    assert len(tokenise(shard, tokenizer, SentenceSettings(), 2)) < 4


@given(text=ANY_TEXT)
def test_a_token_ends_after_the_last_character_that_its_bytes_complete(
    tokenizer: PreTrainedTokenizerFast, text: str
) -> None:
    """Against the slow way: add up the bytes of each token, and decode what is whole."""
    backend = tokenizer.backend_tokenizer
    if any(token in text for token in ("</s>", "<pad>", "<unk>")):
        return
    found = tokenised([text], tokenizer, splitter="none")
    data, read = text.strip().encode(), 0
    for position, token in enumerate(found.tokens.tolist(), 1):
        read += len(backend.id_to_token(token))
        assert found.prefix(0, position) == data[:read].decode(errors="ignore")


@given(texts=st.lists(ANY_TEXT, max_size=5))
def test_counting_bytes_and_asking_for_offsets_agree(
    tokenizer: PreTrainedTokenizerFast, texts: list[str]
) -> None:
    backend = tokenizer.backend_tokenizer
    _, _, found = tokens_and_ends(texts, backend)
    encodings = backend.encode_batch(texts, add_special_tokens=False)
    expected = ends_by_offsets(encodings, np.array([len(text) for text in texts], np.int64))
    assert found.tolist() == expected.tolist()


@given(texts=st.lists(ANY_TEXT, max_size=5))
def test_they_agree_where_a_tokenizer_puts_a_space_before_the_text(
    spacing_tokenizer: PreTrainedTokenizerFast, texts: list[str]
) -> None:
    test_counting_bytes_and_asking_for_offsets_agree.hypothesis.inner_test(spacing_tokenizer, texts)


def test_a_space_before_the_text_does_not_need_offsets(
    spacing_tokenizer: PreTrainedTokenizerFast, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(token_ends, "ends_by_offsets", lambda *_: pytest.fail("offsets were read"))
    texts = ["Zoë sat.", " the dog", "", "日本語です"]
    sizes = tokens_and_ends(texts, spacing_tokenizer.backend_tokenizer)[1]
    assert (sizes > 0).tolist() == [True, True, False, True]


@given(texts=st.lists(ANY_TEXT, max_size=5))
def test_offsets_that_leave_out_white_space_make_no_difference(
    tokenizer: PreTrainedTokenizerFast,
    trimming_tokenizer: PreTrainedTokenizerFast,
    texts: list[str],
) -> None:
    expected = tokens_and_ends(texts, tokenizer.backend_tokenizer)[2]
    found = tokens_and_ends(texts, trimming_tokenizer.backend_tokenizer)[2]
    assert found.tolist() == expected.tolist()


def test_a_normaliser_that_changes_the_text_loses_nothing(
    trimming_tokenizer: PreTrainedTokenizerFast,
) -> None:
    changed = PreTrainedTokenizerFast(
        tokenizer_object=type(trimming_tokenizer.backend_tokenizer).from_str(
            trimming_tokenizer.backend_tokenizer.to_str()
        )
    )
    changed.backend_tokenizer.normalizer = normalizers.NFKC()
    found = tokenised(["the ﬁrst e\u0301 ½ ﷺ. A plain one."], changed)
    check_offsets(found)
    assert found.texts == ["the ﬁrst e\u0301 ½ ﷺ.", "A plain one."]


@given(
    documents=st.lists(st.sampled_from(["A cat. A dog.", "  ", "Rain"])), number=st.integers(0, 99)
)
def test_numbers_name_the_shard_and_the_row(
    tokenizer: PreTrainedTokenizerFast, documents: list[str], number: int
) -> None:
    found = tokenised(documents, tokenizer, number=number)
    assert found.numbers.tolist() == [number * 65_536 + row for row in range(len(found))]
    assert len(found.starts) == len(found) + 1


def test_truncation_and_padding_of_the_tokenizer_are_not_used(
    trimming_tokenizer: PreTrainedTokenizerFast,
) -> None:
    expected = tokenised(["the cat sat on the mat. Yes."], trimming_tokenizer)
    trimming_tokenizer.backend_tokenizer.enable_truncation(2)
    trimming_tokenizer.backend_tokenizer.enable_padding()
    found = tokenised(["the cat sat on the mat. Yes."], trimming_tokenizer)
    assert found.tokens.tolist() == expected.tokens.tolist()


def test_headings_can_be_left_out_and_wikitext_undone(tokenizer: PreTrainedTokenizerFast) -> None:
    documents = [" = Title = ", " It is 2 @.@ 5 m . It <unk> . "]
    kept = tokenised(documents, tokenizer)
    assert kept.texts == ["= Title =", "It is 2 @.@ 5 m .", "It <unk> ."]
    found = tokenised(documents, tokenizer, drop_headings=True, wikitext_detok=True)
    assert found.texts == ["It is 2.5 m.", "It <unk>."]
    check_offsets(found)


def test_more_sentences_than_a_shard_can_number_are_refused(
    tokenizer: PreTrainedTokenizerFast,
) -> None:
    with pytest.raises(CorpusError, match="shard 3 has 70000 sentences"):
        tokenised(["a\n" * 70_000], tokenizer, number=3, splitter="line")


def test_a_tokenizer_without_offsets_is_refused() -> None:
    with pytest.raises(CorpusError, match="the tokenizer object .*fast tokenizer"):
        tokenise(Shard(0, ["a"]), object(), SentenceSettings())


@pytest.mark.parametrize("most", [0, -1, 65_536])
def test_max_tokens_that_no_place_could_hold_are_refused(most: int) -> None:
    with pytest.raises(CorpusError, match="max_tokens"):
        SentenceSettings(max_tokens=most)


def test_a_corpus_of_more_sentences_than_a_store_can_number_is_refused(
    tokenizer: PreTrainedTokenizerFast,
) -> None:
    """A store has 4 bytes for the number of a sentence, and the last number says there is none."""
    last = tokenised(["one line"], tokenizer, 65_535)
    assert int(last.numbers[-1]) < 2**32 - 1
    with pytest.raises(
        CorpusError, match=r"more sentences than a scan can number .*--max-sentences"
    ):
        tokenised(["one line"], tokenizer, 65_536)
