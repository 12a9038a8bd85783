"""Tokens of many texts, and the character where each ends in its text.

Two ways, and where both can be taken they agree. A byte-level vocabulary says how many bytes each
token stands for, so the ends are a running sum: a few numpy calls per shard. Where that sum misses
the text (another kind of vocabulary, a normaliser that changed something) the tokenizer is asked
for its offsets, which costs a Python object per token.
"""

from functools import lru_cache
from itertools import chain
from typing import Any

import numpy as np
from numpy.typing import NDArray

Whole32 = NDArray[np.int32]
Whole64 = NDArray[np.int64]


def tokens_and_ends(texts: list[str], backend: Any) -> tuple[Whole32, Whole64, Whole32]:
    """Tokens laid end to end, tokens per text, and each token's end in its text.

    `backend` is a tokenizer of the tokenizers library. No character is lost, shared or out of
    order, and the last token of a text ends where the text does.
    """
    encodings = backend.encode_batch_fast(texts, add_special_tokens=False)
    tokens, sizes = _ids(encodings)
    bytes_of = _bytes_of_tokens(backend, backend.get_vocab_size(with_added_tokens=True))
    if bytes_of is None:
        rows, ends = np.flatnonzero(sizes), np.zeros(len(tokens), dtype=np.int32)
    else:
        rows, ends = _ends_by_bytes(texts, sizes, bytes_of[tokens])
    if len(rows):
        again = backend.encode_batch([texts[row] for row in rows], add_special_tokens=False)
        chosen = np.repeat(np.isin(np.arange(len(texts)), rows), sizes)
        lengths = np.array([len(texts[row]) for row in rows], dtype=np.int64)
        ends[chosen] = ends_by_offsets(again, lengths)
    return tokens, sizes, ends


def _ids(encodings: list[Any]) -> tuple[Whole32, Whole64]:
    ids = [found.ids for found in encodings]
    sizes = np.array([len(row) for row in ids], dtype=np.int64)
    return np.fromiter(chain.from_iterable(ids), np.int32, int(sizes.sum())), sizes


@lru_cache(maxsize=2)
def _bytes_of_tokens(backend: Any, size: int) -> Whole64 | None:
    """How many bytes of text each token stands for; None if the vocabulary is not of bytes."""
    if type(backend.decoder).__name__ != "ByteLevel":
        return None
    vocabulary = backend.get_vocab(with_added_tokens=True)
    found = np.zeros(max(size, max(vocabulary.values(), default=0) + 1), dtype=np.int64)
    for token, number in vocabulary.items():
        found[number] = len(token)  # such a vocabulary writes every byte as one character
    for number, added in backend.get_added_tokens_decoder().items():
        found[number] = len(added.content.encode())
    return found


def _ends_by_bytes(texts: list[str], sizes: Whole64, widths: Whole64) -> tuple[Whole64, Whole32]:
    """The rows whose bytes do not add up, and the ends, right for all other rows."""
    data = np.frombuffer("".join(texts).encode(), dtype=np.uint8)
    begins = np.append((data & 0xC0) != 0x80, True)  # [byte], whether it begins a character
    begun = _running(begins)  # [byte], characters begun before it
    characters = _running(np.array([len(text) for text in texts], dtype=np.int64))
    texts_at = np.flatnonzero(begins)[characters]  # [text], its first byte

    read = _running(widths)  # [token], bytes of all tokens before it
    tokens_at = _running(sizes)  # [text], its first token
    wrong = (np.diff(read[tokens_at]) != np.diff(texts_at)) & (sizes > 0)

    shift = texts_at[:-1] - read[tokens_at[:-1]]  # not 0 after a row that does not add up
    at = np.clip(read[1:] + np.repeat(shift, sizes), 0, len(data))  # [token], where it ends
    ends = begun[at] - ~begins[at]  # a character cut in two is not there yet
    return np.flatnonzero(wrong), (ends - np.repeat(characters[:-1], sizes)).astype(np.int32)


def _running(numbers: NDArray[Any]) -> Whole64:
    """The sum before each number, and at last the sum of all."""
    return np.concatenate([[0], np.cumsum(numbers)]).astype(np.int64)


def ends_by_offsets(encodings: list[Any], lengths: Whole64) -> Whole32:
    """Where each token ends, from the tokenizer's own offsets.

    Tokenizers give every token of a multi-byte character that whole character, leave white space
    out of some tokens and drop characters they do not know; the last token takes what is left.
    """
    sizes = np.array([len(found) for found in encodings], dtype=np.int64)
    pairs = chain.from_iterable(found.offsets for found in encodings)
    flat = np.fromiter(chain.from_iterable(pairs), np.int64, 2 * int(sizes.sum()))
    offsets = flat.reshape(-1, 2)
    ends = offsets[:, 1].copy()
    ends[:-1] = np.minimum(ends[:-1], offsets[1:, 0])
    some = sizes > 0
    ends[np.cumsum(sizes)[some] - 1] = lengths[some]
    before = np.repeat(np.cumsum(lengths) - lengths, sizes)  # characters of the texts before
    in_order = np.maximum.accumulate(ends + before) - before
    return np.clip(in_order, 0, np.repeat(lengths, sizes)).astype(np.int32)
