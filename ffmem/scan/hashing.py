"""Hashes that depend on nothing but a place, a seed or tokens."""

from __future__ import annotations

import torch
from torch import Tensor

from ffmem.corpus.shards import POSITIONS
from ffmem.scan.settings import ALL, RAREST

NO_PRIORITY = 2**31 - 1  # larger than any real priority
BEYOND_TOKENS = 1 << 40  # else a factor and a token mixed from one number could cancel out
CENSUS_KEY = 0x68697374  # so that a sentence's place in the census says nothing of its priority


def mix_bits(numbers: Tensor) -> Tensor:
    """Int64 numbers scattered over all 64 bits, one to one (the finaliser of splitmix64)."""
    x = numbers + -7046029254386353131
    x = (x ^ _shift_right(x, 30)) * -4658895280553007687
    x = (x ^ _shift_right(x, 27)) * -7723592293110705685
    return x ^ _shift_right(x, 31)


def priorities(drawn: Tensor, seed: int) -> Tensor:
    """The random rank of what is drawn (sentence numbers or places): int32 below NO_PRIORITY.

    A number's priority depends on the seed alone, so any machine that meets it agrees.
    """
    key = int(mix_bits(torch.tensor(seed)))
    return (mix_bits(drawn ^ key) & NO_PRIORITY).clamp_max_(NO_PRIORITY - 1).to(torch.int32)


def census_factors(sentences: Tensor) -> Tensor:
    """How many sentences each stands for where coefficients are counted in bins; 0: it is left out.

    All of the first ALL, half of as many again, a quarter of twice as many, and so on down to one
    of RAREST: which ones, a hash of the sentence's number says.
    """
    halvings = torch.log2((sentences * 2 // ALL).clamp(1, RAREST).double()).floor().long()
    factors = torch.ones_like(sentences) << halvings
    return factors.where(mix_bits(sentences ^ CENSUS_KEY) & (factors - 1) == 0, 0)


def prefix_hashes(tokens: Tensor) -> Tensor:
    """A hash of the first 1, 2, ... tokens of each row [b, width]: equal prefixes, equal hash."""
    columns = torch.arange(tokens.shape[1], device=tokens.device)
    odd_factors = mix_bits(columns + BEYOND_TOKENS) | 1
    rolling = (mix_bits(tokens) * odd_factors).cumsum(1)
    return mix_bits(rolling ^ columns)


def _shift_right(x: Tensor, bits: int) -> Tensor:
    """The logical right shift; torch's own keeps the sign."""
    return (x >> bits) & ((1 << (64 - bits)) - 1)


def small_sentences(places: Tensor) -> Tensor:
    """The sentences of places as int32; what is cut off at the top keeps `<=` true."""
    return (places // POSITIONS).clamp_max_(2**31 - 1).to(torch.int32)
