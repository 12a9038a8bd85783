"""Text as one long row of token ids, with the sentence marks that training and evaluation need.

The mark is `</s>`. It stands before every paragraph and, in training, before a random share of the
other sentences as well: all analyses feed single sentences after `</s>`, so the model must know
sentences that begin there.
"""

import array
import functools
import itertools
import multiprocessing
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import torch
from tokenizers import Tokenizer
from torch import Tensor

from making.sentences import sentences


@dataclass(frozen=True)
class Tokens:
    """Sentences one after the other, each with the mark before it."""

    ids: Tensor  # [token], int32
    starts: Tensor  # [sentence], where each sentence's mark stands
    opens: Tensor  # [sentence], whether it is the first of its paragraph

    @property
    def lengths(self) -> Tensor:
        """Tokens of each sentence, mark included."""
        return torch.diff(self.starts, append=self.starts.new_tensor([len(self.ids)]))

    def to(self, device: str) -> "Tokens":
        """The same on another device."""
        return Tokens(self.ids.to(device), self.starts.to(device), self.opens.to(device))


def encode(lines: Iterable[str], tokenizer: Tokenizer, mark: int, processes: int = 1) -> Tokens:
    """Read paragraphs, one per line, without empty lines; processes do not change the order."""
    rest = (line for line in lines if line.strip())
    chunks = iter(lambda: list(itertools.islice(rest, 20_000)), [])
    if processes == 1:
        parts = [_encoded(chunk, tokenizer, mark) for chunk in chunks]
    else:
        read = functools.partial(_encoded, tokenizer=tokenizer, mark=mark)
        with multiprocessing.get_context("fork").Pool(processes) as pool:
            parts = list(pool.imap(read, chunks))
    if not parts:
        raise SystemExit("the text has no lines; give a file with one paragraph a line")
    ids, lengths, opens = (np.concatenate(arrays) for arrays in zip(*parts, strict=True))
    sizes = torch.from_numpy(lengths)
    return Tokens(torch.from_numpy(ids), sizes.cumsum(0) - sizes, torch.from_numpy(opens))


def _encoded(
    lines: list[str], tokenizer: Tokenizer, mark: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Ids with marks, length of every sentence, whether it opens a paragraph."""
    split = [sentences(" ".join(line.split())) for line in lines]
    flat = [sentence for paragraph in split for sentence in paragraph]
    ids, lengths = array.array("i"), []
    for encoding in tokenizer.encode_batch_fast(flat, add_special_tokens=False):
        ids.append(mark)
        ids.extend(encoding.ids)
        lengths.append(1 + len(encoding.ids))
    opens = [number == 0 for paragraph in split for number in range(len(paragraph))]
    return np.array(ids, np.int32), np.array(lengths, np.int64), np.array(opens)


def stream(tokens: Tokens, share: float, generator: torch.Generator) -> Tensor:
    """All paragraphs in a random order, with a `share` of the marks inside paragraphs kept."""
    device = tokens.ids.device
    paragraph_starts = tokens.starts[tokens.opens]
    sizes = torch.diff(paragraph_starts, append=paragraph_starts.new_tensor([len(tokens.ids)]))
    order = torch.randperm(len(sizes), generator=generator, device=device)
    sizes, begins = sizes[order], paragraph_starts[order]
    offsets = begins - (sizes.cumsum(0) - sizes)
    places = torch.arange(len(tokens.ids), device=device) + offsets.repeat_interleave(sizes)
    kept = torch.ones(len(tokens.ids), dtype=torch.bool, device=device)
    drawn = torch.rand(len(tokens.starts), generator=generator, device=device)
    kept[tokens.starts] = tokens.opens | (drawn < share)
    return tokens.ids[places[kept[places]]]


def block_starts(row: Tensor, mark: int, size: int) -> Tensor:
    """Where blocks of `size` + 1 tokens begin: always at a mark, so no block begins mid-sentence.

    The next block begins at the last mark inside the block before, so that a sentence cut by the
    end of a block is whole in the next one; a sentence longer than a block goes on where it was
    cut.
    """
    places = torch.arange(len(row), device=row.device)
    last_mark = torch.where(row == mark, places, 0).cummax(0).values.cpu().numpy()
    starts = []
    start = 0
    while start + size < len(row):
        starts.append(start)
        following = int(last_mark[start + size])
        start = following if following > start else start + size
    return torch.tensor(starts, dtype=torch.long, device=row.device)


def paragraphs(tokens: Tokens, longest: int) -> list[Tensor]:
    """Each paragraph alone: one mark, then its tokens, cut at `longest`."""
    kept = torch.ones(len(tokens.ids), dtype=torch.bool, device=tokens.ids.device)
    kept[tokens.starts[~tokens.opens]] = False
    shifts = kept.long().cumsum(0) - 1
    starts = shifts[tokens.starts[tokens.opens]]
    ids = tokens.ids[kept]
    ends = torch.cat([starts[1:], starts.new_tensor([len(ids)])])
    return [
        ids[a : min(b, a + longest)] for a, b in zip(starts.tolist(), ends.tolist(), strict=True)
    ]


def single_sentences(tokens: Tokens, longest: int) -> list[Tensor]:
    """Each sentence alone: one mark, then its tokens, cut at `longest`."""
    return [piece[:longest] for piece in tokens.ids.split(tokens.lengths.tolist())]
