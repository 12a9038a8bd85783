from typing import Any

import pytest
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers
from transformers import PreTrainedTokenizerFast

TEXT = [
    "I love dogs and the river runs to the sea.",
    "the cat sat on the mat, and the dog sat on the log",
    "Zoë möchte Brötchen; les élèves sont là. 日本語です。",
]


def byte_level(add_prefix_space: bool = False, **options: Any) -> PreTrainedTokenizerFast:
    """A tiny byte-level BPE tokenizer, made here."""
    found = Tokenizer(models.BPE())
    found.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=add_prefix_space)
    found.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=330,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        special_tokens=["</s>", "<pad>", "<unk>"],
        show_progress=False,
    )
    found.train_from_iterator(TEXT * 3, trainer)
    assert found.get_vocab_size() <= 330
    return PreTrainedTokenizerFast(tokenizer_object=found, **options)


@pytest.fixture(scope="session")
def tokenizer() -> PreTrainedTokenizerFast:
    return byte_level(eos_token="</s>", pad_token="<pad>", unk_token="<unk>")


@pytest.fixture(scope="session")
def spacing_tokenizer() -> PreTrainedTokenizerFast:
    """The same with a space put before texts that have none, as the embedded model's does."""
    return byte_level(add_prefix_space=True, eos_token="</s>")


@pytest.fixture(scope="session")
def trimming_tokenizer() -> PreTrainedTokenizerFast:
    """The same with offsets that leave out white space, as GPT-2's do."""
    found = byte_level(eos_token="</s>")
    found.backend_tokenizer.post_processor = processors.ByteLevel(trim_offsets=True)
    return found


@pytest.fixture(scope="session")
def word_tokenizer() -> PreTrainedTokenizerFast:
    """Not byte-level: whole words, white space dropped, unknown words as one token."""
    words = sorted({word for text in TEXT for word in text.split()})
    vocabulary = {word: i for i, word in enumerate(["[UNK]", *words])}
    found = Tokenizer(models.WordLevel(vocabulary, unk_token="[UNK]"))
    found.pre_tokenizer = pre_tokenizers.Whitespace()
    return PreTrainedTokenizerFast(tokenizer_object=found, unk_token="[UNK]")
