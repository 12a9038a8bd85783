"""The tokens of texts, and the character of the text where each of them ends."""

from __future__ import annotations

from functools import lru_cache
from itertools import chain
from typing import Any

import numpy as np
from numpy.typing import NDArray

Whole32 = NDArray[np.int32]
Whole64 = NDArray[np.int64]


def tokens_and_ends(texts: list[str], backend: Any) -> tuple[Whole32, Whole64, Whole32]:
    """Concatenated tokens, tokens per text, and each token's end in its text.

    `backend` is a tokenizer of the tokenizers library. No character is lost, shared or out of
    order, and the last token of a text ends where the text does.

    There are two ways, which agree where both apply. In a byte-level vocabulary the number of bytes
    of each token is known, so the ends are a running sum: a few numpy calls per shard. Where that
    sum does not match the text (another kind of vocabulary, a normaliser that changed something),
    the ends come from the tokenizer's offsets, which cost a Python object per token.
    """
    encodings = backend.encode_batch_fast(texts, add_special_tokens=False)
    tokens, sizes = _ids(encodings)
    bytes_of = _bytes_of_tokens(backend, backend.get_vocab_size(with_added_tokens=True))
    if bytes_of is None:
        rows, ends = np.flatnonzero(sizes), np.zeros(len(tokens), dtype=np.int32)
    else:
        added = getattr(backend.pre_tokenizer, "add_prefix_space", False)
        rows, ends = _ends_by_bytes(texts, sizes, bytes_of[tokens], added)
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
    """The number of bytes of each token; None if the vocabulary is not byte-level."""
    if type(backend.decoder).__name__ != "ByteLevel":
        return None
    vocabulary = backend.get_vocab(with_added_tokens=True)
    found = np.zeros(max(size, max(vocabulary.values(), default=0) + 1), dtype=np.int64)
    for token, number in vocabulary.items():
        found[number] = len(token)  # such a vocabulary writes every byte as one character
    for number, added in backend.get_added_tokens_decoder().items():
        found[number] = len(added.content.encode())
    return found


def _ends_by_bytes(
    texts: list[str], sizes: Whole64, widths: Whole64, added_space: bool
) -> tuple[Whole64, Whole32]:
    """The rows whose bytes do not add up, and the ends, correct for all other rows.

    `widths` has the bytes of every token. With `added_space` the tokenizer puts a space before each
    text that does not begin with one; that space is not in the text, so the first token is one byte
    shorter there.
    """
    data = np.frombuffer("".join(texts).encode(), dtype=np.uint8)
    begins = np.append((data & 0xC0) != 0x80, True)  # [byte], whether it begins a character
    before = _running(begins)  # [byte], characters that begin before it
    characters = _running(np.array([len(text) for text in texts], dtype=np.int64))
    texts_at = np.flatnonzero(begins)[characters]  # [text], its first byte

    tokens_at = _running(sizes)  # [text], its first token
    if added_space:
        bare = [bool(size) and text[0] != " " for text, size in zip(texts, sizes, strict=True)]
        widths[tokens_at[:-1][bare]] -= 1
    read = _running(widths)  # [token], bytes of all tokens before it
    wrong = (np.diff(read[tokens_at]) != np.diff(texts_at)) & (sizes > 0)

    shift = texts_at[:-1] - read[tokens_at[:-1]]  # not 0 after a row that does not add up
    at = np.clip(read[1:] + np.repeat(shift, sizes), 0, len(data))  # [token], where it ends
    ends = before[at] - ~begins[at]  # a character cut in two is not there yet
    return np.flatnonzero(wrong), (ends - np.repeat(characters[:-1], sizes)).astype(np.int32)


def _running(numbers: NDArray[Any]) -> Whole64:
    """The running sum before each number, then the total."""
    return np.concatenate([[0], np.cumsum(numbers)]).astype(np.int64)


def ends_by_offsets(encodings: list[Any], lengths: Whole64) -> Whole32:
    """Where each token ends, from the tokenizer's own offsets.

    Tokenizers assign the whole of a multi-byte character to each of its tokens, leave white space
    out of some tokens and drop unknown characters; the last token takes the remainder.
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
