"""The rows of a batch: admissible prefixes, places and priorities, computed once per batch.

The experts of a layer have rows of their own: each has only the places routed to it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Protocol

import torch
from torch import Tensor

from ffmem.corpus.shards import POSITIONS
from ffmem.errors import ScanError
from ffmem.scan.hashing import census_factors, mix_bits, prefix_hashes, small_sentences
from ffmem.scan.settings import ScanSettings
from ffmem.scan.triggers import place_priorities


class PaddedBatch(Protocol):
    """Sentences side by side, right-padded; after `bos` (1 or 0) columns come a row's tokens."""

    @property
    def tokens(self) -> Tensor:
        """Token ids: [b, width]."""

    @property
    def lengths(self) -> Tensor:
        """How many tokens each sentence has, BOS not counted: [b]."""

    @property
    def sentences(self) -> Tensor:
        """Each row's sentence number: [b]."""

    @property
    def bos(self) -> int:
        """How many columns stand before the first token: 1 or 0."""

    @property
    def content(self) -> Tensor | None:
        """Whether a prefix may end with a token, where not all may: [b, width - bos]."""


@dataclass(frozen=True)
class LineIndex:
    """Where the prefixes of rows are that do not stand in columns, but in lines.

    A row is an expert's share of a sentence, or what is content of a conversation: lines from
    `starts` [row] on, as many as it counts. All content belongs to one expert.
    """

    starts: Tensor  # [row]
    experts: Tensor  # [row]
    places: Tensor  # [line]
    groups: Tensor | None  # [line]
    admissible: Tensor  # the lines of all rows, in order
    weights: Tensor  # [line], float16: the router's

    def to(self, device: torch.device) -> LineIndex:
        """The same on another device, without waiting for the copy."""
        return LineIndex(
            _send(self.starts, device),
            _send(self.experts, device),
            _send(self.places, device),
            None if self.groups is None else _send(self.groups, device),
            _send(self.admissible, device),
            _send(self.weights, device),
        )


@dataclass(frozen=True)
class BatchRows:
    """The admissible prefixes of each row: `counts[r]` columns from column `first` on.

    `places` [b] are those of the first of them, so the i-th has places + i; `priorities` [b]
    (int32) the smallest that anything of the row has in the sample; `groups` [b, most] what each
    prefix counts as the same with, where there is a dedupe. `census` [n] are the rows whose
    coefficients are counted in bins and `factors` [n] how many sentences each stands for there.
    All on one device. Rows of experts have a `routing` that says where their prefixes are and what
    they count as the same with. Where some tokens are not content, `lines` are the columns of all
    rows that are, counted through, and the routing is that of these alone.
    """

    first: int
    counts: Tensor
    places: Tensor
    priorities: Tensor
    groups: Tensor | None
    census: Tensor
    factors: Tensor
    routing: LineIndex | None = None
    lines: Tensor | None = None

    @classmethod
    def of(cls, batch: PaddedBatch, settings: ScanSettings) -> BatchRows:
        """The rows of a batch, on the CPU."""
        lengths = torch.as_tensor(batch.lengths).to("cpu", torch.int64)
        sentences = torch.as_tensor(batch.sentences).to("cpu", torch.int64)
        if lengths.numel() and int(lengths.max()) >= POSITIONS:
            longest = int(lengths.argmax())
            raise ScanError(
                f"sentence {int(sentences[longest])} has {int(lengths[longest])} tokens and a scan "
                f"can number {POSITIONS - 1}; cut the sentences shorter"
            )
        shortest = max(settings.min_prefix, 1 - batch.bos)  # without BOS nothing reads 0 tokens
        longest_prefix = lengths if settings.include_final else lengths - 1
        counts = (longest_prefix - shortest + 1).clamp_min(0)
        places = sentences * POSITIONS + shortest
        groups = None
        if settings.dedupe != "none":
            groups = _groups(batch, settings, shortest, int(counts.max()) if len(counts) else 0)
        smallest = _smallest_priorities(places, counts, settings)
        factors = census_factors(sentences).where(counts > 0, 0)
        census = factors.nonzero()[:, 0]
        first = shortest - 1 + batch.bos
        rows = cls(first, counts, places, smallest, groups, census, factors[census])
        if batch.content is None:
            return rows
        return rows.only(torch.as_tensor(batch.content).cpu(), batch.bos, settings)

    def only(self, content: Tensor, bos: int, settings: ScanSettings) -> BatchRows:
        """The rows with those of their prefixes that end with content: [b, width - bos]."""
        width = content.shape[1] + bos
        step = torch.arange(width) - self.first
        admissible = (step >= 0) & (step < self.counts[:, None])
        admissible[:, :bos] = False
        admissible[:, bos:] &= content
        row, column = admissible.nonzero(as_tuple=True)
        counts = admissible.sum(1)
        places = self.places[row] + step[column]
        groups = None if self.groups is None else self.groups[row, step[column]]
        starts = counts.cumsum(0) - counts
        smallest = self.priorities
        if settings.per_sentence == "all":
            each = place_priorities(places, settings)
            highest = torch.full_like(smallest, torch.iinfo(smallest.dtype).max)
            smallest = highest.scatter_reduce(0, row, each, "amin")
        firsts = self.places.clone()
        firsts[counts > 0] = places[starts[counts > 0]]
        some = counts[self.census] > 0
        weights = torch.zeros(len(places), dtype=torch.float16)
        routing = LineIndex(
            starts, torch.zeros_like(starts), places, groups, torch.arange(len(places)), weights
        )
        return BatchRows(
            0,
            counts,
            firsts,
            smallest,
            None,
            self.census[some],
            self.factors[some],
            routing,
            row * width + column,
        )

    def __len__(self) -> int:
        return self.counts.shape[0]

    @cached_property
    def columns(self) -> list[int]:
        """`counts` as plain numbers."""
        counts: list[int] = self.counts.tolist()
        return counts

    @cached_property
    def prefixes(self) -> int:
        """How many admissible prefixes there are."""
        return sum(self.columns)

    @cached_property
    def small_sentences(self) -> Tensor:
        """Each row's sentence number as int32, cut off at the largest: [b]."""
        return small_sentences(self.places)

    def starts(self, width: int) -> Tensor:
        """The line of each row's first admissible prefix, where a row has `width` lines: [b]."""
        if self.routing is not None:
            return self.routing.starts
        return torch.arange(len(self), device=self.counts.device) * width + self.first

    def select(self, m: Tensor) -> Tensor:
        """The coefficients [b, width, memories] as rows and routing find them."""
        return m if self.lines is None else m.flatten(0, 1)[self.lines]

    def chunks(self, most: int) -> list[tuple[int, int, int]]:
        """Runs of rows (start, stop, widest) with at most `most` columns in all, or one row."""
        chunks: list[tuple[int, int, int]] = []
        start, widest = 0, 0
        for row, count in enumerate(self.columns):
            wider = max(widest, count)
            if row > start and wider * (row + 1 - start) > most:
                chunks.append((start, row, widest))
                start, wider = row, count
            widest = wider
        if len(self):
            chunks.append((start, len(self), widest))
        return [chunk for chunk in chunks if chunk[2]]

    def to(self, device: torch.device) -> BatchRows:
        """The same rows on another device, without waiting for the copy."""
        moved = replace(
            self,
            counts=_send(self.counts, device),
            places=_send(self.places, device),
            priorities=_send(self.priorities, device),
            groups=None if self.groups is None else _send(self.groups, device),
            census=_send(self.census, device),
            factors=_send(self.factors, device),
            routing=None if self.routing is None else self.routing.to(device),
            lines=None if self.lines is None else _send(self.lines, device),
        )
        moved.__dict__["columns"] = self.columns  # known already; asking the device would wait
        return moved


def _send(field: Tensor, device: torch.device) -> Tensor:
    if device.type == "cpu":
        return field
    return field.pin_memory().to(device, non_blocking=True)


def _smallest_priorities(places: Tensor, counts: Tensor, settings: ScanSettings) -> Tensor:
    if settings.per_sentence == "max" or not len(places):
        return place_priorities(places, settings)
    steps = torch.arange(max(int(counts.max()), 1))
    each = place_priorities(places[:, None] + steps, settings)
    return each.masked_fill(
        steps >= counts[:, None].clamp_min(1), torch.iinfo(each.dtype).max
    ).amin(1)


def _groups(batch: PaddedBatch, settings: ScanSettings, shortest: int, most: int) -> Tensor:
    """The hash of each admissible prefix's tokens, or of its whole sentence's: [b, most]."""
    tokens = torch.as_tensor(batch.tokens).to("cpu", torch.int64)[:, batch.bos :]
    none_read = mix_bits(torch.full((len(tokens), 1), -1))
    hashes = torch.cat([none_read, prefix_hashes(tokens)], dim=1)  # column p: p tokens read
    lengths = torch.as_tensor(batch.lengths).to("cpu", torch.int64)
    if settings.dedupe == "sentence":
        return hashes.gather(1, lengths[:, None]).expand(-1, most).contiguous()
    return hashes[:, shortest : shortest + most].contiguous()
