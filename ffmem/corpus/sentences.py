"""The sentences of a shard as tokens, with the place in the text where each token ends."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ffmem.corpus.conversations import ChatText, chat_text, is_content, read_conversation
from ffmem.corpus.file_formats import Meter
from ffmem.corpus.shards import (
    POSITIONS,
    SENTENCES,
    SHARD_SENTENCES,
    Shard,
    sentence_number,
    shards,
)
from ffmem.corpus.sources import Source, documents
from ffmem.corpus.splitters import DEFAULT, splitter
from ffmem.corpus.token_ends import tokens_and_ends
from ffmem.corpus.wikitext import detokenise, is_heading
from ffmem.errors import CorpusError


@dataclass(frozen=True)
class SentenceSettings:
    """The settings that decide how a shard is cut into sentences."""

    splitter: str = DEFAULT
    max_tokens: int = 512  # longer sentences are cut into consecutive pieces
    drop_headings: bool = False  # leave out WikiText's `= Title =` lines
    wikitext_detok: bool = False  # undo WikiText's tokenised form first
    chat: bool = False  # documents are conversations, each of them one sentence

    def __post_init__(self) -> None:
        splitter(self.splitter)
        if not 1 <= self.max_tokens < POSITIONS:
            raise CorpusError(
                f"max_tokens is {self.max_tokens}; choose a number from 1 to {POSITIONS - 1}"
            )


@dataclass(frozen=True)
class Sentences:
    """The sentences of one shard, or of consecutive shards, in order, as flat arrays.

    Sentence i has the tokens `tokens[starts[i]:starts[i + 1]]`, without a BOS, and the exact text
    `texts[i]`. `token_ends` has for every token the character of that text where it ends: the
    prefix of p tokens is the text up to the end of token p - 1, and what each token adds, joined,
    is the text. A character of several tokens belongs to the last of them. `cut` is true where a
    sentence longer than `max_tokens` begins; each of its pieces is a sentence here. `content` is
    true for the tokens that a prefix may end with; None means all. In a conversation the tokens of
    the chat template are not content.
    """

    numbers: NDArray[np.int64]
    texts: list[str]
    tokens: NDArray[np.int32]
    starts: NDArray[np.int64]
    token_ends: NDArray[np.int32]
    cut: NDArray[np.bool_]
    content: NDArray[np.bool_] | None = None

    def __len__(self) -> int:
        """Number of sentences."""
        return len(self.texts)

    @property
    def lengths(self) -> NDArray[np.int64]:
        """Tokens in each sentence."""
        return np.diff(self.starts)

    @classmethod
    def join(cls, parts: Sequence[Sentences]) -> Sentences:
        """The sentences of all parts, one after the other."""
        if len(parts) == 1:
            return parts[0]
        sizes = np.concatenate([part.lengths for part in parts])
        return cls(
            np.concatenate([part.numbers for part in parts]),
            [text for part in parts for text in part.texts],
            np.concatenate([part.tokens for part in parts]),
            np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64),
            np.concatenate([part.token_ends for part in parts]),
            np.concatenate([part.cut for part in parts]),
            _join_content([part.content for part in parts]),
        )

    def first(self, count: int) -> Sentences:
        """The first `count` sentences, or all if there are fewer."""
        if count >= len(self):
            return self
        end = int(self.starts[count])
        return Sentences(
            self.numbers[:count],
            self.texts[:count],
            self.tokens[:end],
            self.starts[: count + 1],
            self.token_ends[:end],
            self.cut[:count],
            None if self.content is None else self.content[:end],
        )

    def token_ids(self, row: int) -> NDArray[np.int32]:
        """The tokens of the sentence in that row."""
        return self.tokens[self.starts[row] : self.starts[row + 1]]

    def ends(self, row: int) -> NDArray[np.int32]:
        """The character after each token of the sentence in that row."""
        return self.token_ends[self.starts[row] : self.starts[row + 1]]

    def prefix(self, row: int, position: int) -> str:
        """The text of the first `position` tokens of the sentence in that row."""
        return self.texts[row][: _end(self.ends(row), position)]


def _join_content(parts: Sequence[NDArray[np.bool_] | None]) -> NDArray[np.bool_] | None:
    """The content flags of all parts; within one corpus all parts have them, or none."""
    flags = [part for part in parts if part is not None]
    return np.concatenate(flags) if flags else None


def _end(ends: NDArray[np.int32], position: int) -> int:
    return int(ends[position - 1]) if position else 0


def tokenise(
    shard: Shard, tokenizer: Any, settings: SentenceSettings, most: int | None = None
) -> Sentences:
    """Split a shard into sentences and tokenise them with a fast tokenizer.

    Where only the first `most` are wanted, hardly more than these are tokenised. Runs in the
    tokenizer's own threads without blocking other Python threads. Turns off truncation and padding
    in the tokenizer.
    """
    chats = [
        chat_text(read_conversation(document), tokenizer)
        for document in (shard.documents if settings.chat else ())
    ]
    texts = [chat.text for chat in chats] or sentence_texts(shard.documents, settings)
    found = _tokenise(shard.number, texts[:most], chats[:most], tokenizer, settings.max_tokens)
    if most is None or len(found) >= most or most >= len(texts):
        return found
    return _tokenise(shard.number, texts, chats, tokenizer, settings.max_tokens)  # some were empty


def _tokenise(
    shard: int, texts: list[str], chats: list[ChatText], tokenizer: Any, max_tokens: int
) -> Sentences:
    """The sentences that some texts of a shard make; those without tokens are left out."""
    tokens, sizes, ends = tokens_and_ends(texts, backend_of(tokenizer))
    kept = [text for text, size in zip(texts, sizes, strict=True) if size]
    found, cut = _cut(_Whole(kept, tokens, sizes[sizes > 0], ends), max_tokens)
    return Sentences(
        numbers=_shard_numbers(shard, len(found.texts)),
        texts=found.texts,
        tokens=found.tokens,
        starts=np.concatenate([[0], np.cumsum(found.sizes)]).astype(np.int64),
        token_ends=found.token_ends,
        cut=cut,
        content=_content(chats, sizes, ends) if chats else None,
    )


def _shard_numbers(shard: int, count: int) -> NDArray[np.int64]:
    """The numbers of a shard's sentences; refuses more sentences than can be numbered."""
    if count > SHARD_SENTENCES:
        raise CorpusError(
            f"shard {shard} has {count} sentences and {SHARD_SENTENCES} is the most; "
            "choose a larger max_tokens or the splitter 'rule'"
        )
    first = sentence_number(shard, 0)
    if first + count > SENTENCES:
        raise CorpusError(
            f"the corpus has more sentences than a scan can number (shard {shard:,} is too "
            "many); stop earlier with --max-sentences, or scan it in parts"
        )
    return np.arange(first, first + count, dtype=np.int64)


def _content(
    chats: list[ChatText], sizes: NDArray[np.int64], ends: NDArray[np.int32]
) -> NDArray[np.bool_]:
    """Whether each token is content, for concatenated conversations."""
    rows = np.split(ends, np.cumsum(sizes)[:-1])
    return np.concatenate(
        [is_content(chat.spans, row) for chat, row in zip(chats, rows, strict=True)]
    )


def sentence_texts(documents: Sequence[str], settings: SentenceSettings) -> list[str]:
    """The sentences of some documents, in order, none of them blank."""
    split = splitter(settings.splitter)
    found: list[str] = []
    for document in documents:
        text = document
        if settings.drop_headings:
            text = "\n".join(line for line in text.split("\n") if not is_heading(line))
        if settings.wikitext_detok:
            text = detokenise(text)
        found += [text[start:end] for start, end in split(text)]
    return found


def backend_of(tokenizer: Any) -> Any:
    """The tokenizers-library object inside (or itself), set to drop no token and add none."""
    itself = tokenizer if hasattr(tokenizer, "encode_batch_fast") else None
    backend = getattr(tokenizer, "backend_tokenizer", itself)
    if backend is None:
        raise CorpusError(
            f"the tokenizer {type(tokenizer).__name__} does not say which characters a token "
            "covers; use a model that has a fast tokenizer (a tokenizer.json)"
        )
    backend.no_truncation()
    backend.no_padding()
    return backend


@dataclass(frozen=True)
class _Whole:
    """Texts with their tokens concatenated; `sizes` has the number of tokens of each text."""

    texts: list[str]
    tokens: NDArray[np.int32]
    sizes: NDArray[np.int64]
    token_ends: NDArray[np.int32]


def _cut(whole: _Whole, max_tokens: int) -> tuple[_Whole, NDArray[np.bool_]]:
    """The same tokens in sentences of at most `max_tokens`, and where a longer one begins."""
    longer = whole.sizes > max_tokens
    if not longer.any():
        return whole, longer
    texts, sizes, token_ends = [], [], whole.token_ends.copy()
    stops = np.cumsum(whole.sizes)
    for text, first, stop in zip(whole.texts, stops - whole.sizes, stops, strict=True):
        begin = 0
        for start in range(first, stop, max_tokens):
            end = min(start + max_tokens, stop)
            until = int(whole.token_ends[end - 1])
            texts.append(text[begin:until])
            sizes.append(end - start)
            token_ends[start:end] -= begin
            begin = until
    pieces = -(-whole.sizes // max_tokens)
    begins = np.zeros(len(texts), np.bool_)
    begins[(np.cumsum(pieces) - pieces)[longer]] = True
    return _Whole(texts, whole.tokens, np.array(sizes, dtype=np.int64), token_ends), begins


@dataclass(frozen=True)
class CorpusRequest:
    """Source, settings and first shard of a corpus to tokenise; can be sent to any process."""

    source: Source
    settings: SentenceSettings
    first: int = 0  # shards before this one are passed over
    most: int | None = None  # sentences that are wanted; a shard may have more


@dataclass(frozen=True)
class TokenisedShard:
    """One shard's sentences, and the share of the corpus up to its end if that is known."""

    sentences: Sentences
    share: float | None


def tokenise_corpus(
    reading: CorpusRequest, tokenizer: Any, turn: int = 0, of: int = 1
) -> Iterator[TokenisedShard]:
    """The shards in order; with `of` > 1 the part of one process, whose number is `turn`.

    That is a part of the first shard, for which the scan waits (`join_parts` puts it together),
    and then every `of`-th shard. All of the text is read in any case, but only the requested
    shards are split and tokenised, which is most of the work: several processes can share it
    without communication.
    """
    meter = Meter()
    for shard in shards(documents(reading.source, meter)):
        later = shard.number - reading.first
        if later == 0 or (later > 0 and (later - 1) % of == turn):
            wanted = shard if later else shard.part(turn, of)
            yield TokenisedShard(
                tokenise(wanted, tokenizer, reading.settings, reading.most), meter.share
            )


def join_parts(shard: int, parts: Sequence[TokenisedShard]) -> TokenisedShard:
    """A shard of which several processes have tokenised parts."""
    whole = Sentences.join([part.sentences for part in parts])
    numbers = _shard_numbers(shard, len(whole))
    return TokenisedShard(replace(whole, numbers=numbers), parts[-1].share)
