"""A corpus as tokenised shards, one after the other or every n-th of them."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from ffmem.corpus.compression import Meter
from ffmem.corpus.sentences import Sentences, SentenceSettings, tokenise
from ffmem.corpus.shards import shards
from ffmem.corpus.sources import Source, documents


@dataclass(frozen=True)
class Reading:
    """Which text becomes which sentences, from which shard on; plain enough for any process."""

    source: Source
    settings: SentenceSettings
    first: int = 0  # shards before this one are passed over


@dataclass(frozen=True)
class Tokenised:
    """One shard's sentences, and the share of the corpus up to its end if that is known."""

    sentences: Sentences
    share: float | None


def tokenised(reading: Reading, tokenizer: Any, turn: int = 0, of: int = 1) -> Iterator[Tokenised]:
    """The shards in order; with `of` > 1 only every so-manieth, those whose turn it is.

    All of the text is read in any case, but only the wanted shards are split and tokenised, which
    is most of the work: several processes can share it without a word between them.
    """
    meter = Meter()
    for shard in shards(documents(reading.source, meter)):
        if shard.number >= reading.first and (shard.number - reading.first) % of == turn:
            yield Tokenised(tokenise(shard, tokenizer, reading.settings), meter.share)
