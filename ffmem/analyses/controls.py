"""Controls for every number: shuffles, random memories, word frequency, untrained models."""

from __future__ import annotations

import zlib

import numpy as np
import torch
from torch import Tensor

from ffmem.address import Address
from ffmem.analyses.statistics import Interval
from ffmem.models.blocks.trace import torch_seed
from ffmem.models.device_placement import own_parameters, place_like, tensor_of
from ffmem.models.language_model import LanguageModel
from ffmem.models.wrapping import wrap
from ffmem.store.scan_store import ScanStore

SHUFFLES = 200  # of pairs, for what chance gives


def shuffle_rows(numbers: Tensor, generator: torch.Generator) -> Tensor:
    """The same rows in a random order."""
    return numbers[torch.randperm(len(numbers), generator=generator)]


def agreement_of_shuffles(found: Tensor, wanted: Tensor, generator: torch.Generator) -> Interval:
    """How often `found` equals `wanted` (both [cell]) when the pairs are shuffled.

    The estimate is the mean of many shuffles; 95 % of them lie between low and high. A `wanted`
    below zero is missing and agrees with nothing.
    """
    if not len(found):
        return Interval(float("nan"), float("nan"), float("nan"), 0)
    said = found.masked_fill(found < 0, -1).int().numpy()  # side by side in memory, which a
    other = wanted.masked_fill(wanted < 0, -2).int().numpy()  # column of a table is not
    orders = (torch.randperm(len(other), generator=generator).numpy() for _ in range(SHUFFLES))
    counts = [int(np.count_nonzero(said == other.take(order))) for order in orders]
    shares = torch.tensor(counts, dtype=torch.double) / len(found)
    low, high = shares.quantile(torch.tensor([0.025, 0.975], dtype=torch.double)).tolist()
    return Interval(float(shares.mean()), low, high, len(found))


def unigram_match(found: Tensor, text: Tensor, words: int) -> float:
    """How often `found` [cell] would equal a random token of `text`: sum of p(w) q(w)."""
    if not len(found) or not len(text):
        return float("nan")
    one = torch.bincount(found, minlength=words).double() / len(found)
    other = torch.bincount(text, minlength=words).double() / len(text)
    return float((one * other[:words]).sum())


def random_rows(rows: int, count: int, generator: torch.Generator) -> Tensor:
    """`count` different row numbers below `rows`, or all of them if there are fewer."""
    return torch.randperm(rows, generator=generator)[:count]


def random_rows_like(groups: Tensor, chosen: Tensor, generator: torch.Generator) -> Tensor:
    """Random rows with as many per group as `chosen` has; `groups` [row] is each row's group."""
    found = []
    for group in groups[chosen].unique().tolist():
        members = (groups == group).nonzero().flatten()
        wanted = int((groups[chosen] == group).sum())
        found.append(members[random_rows(len(members), wanted, generator)])
    return torch.cat(found) if found else chosen


def untrained_model(model: LanguageModel, seed: int = 0) -> LanguageModel:
    """A model of the same shape with untrained weights.

    The architecture's own initialisation, drawn with `seed`; tokenizer, devices and precision are
    those of `model`.
    """
    fresh = place_like(_fresh(model, seed), model.model)
    return wrap(fresh, model.tokenizer, f"{model.name} with random weights")


def _fresh(model: LanguageModel, seed: int) -> torch.nn.Module:
    with torch_seed(seed):
        fresh: torch.nn.Module = type(model.model)(model.model.config)
    return fresh.to(model.dtype)


@torch.no_grad()
def permuted_model(model: LanguageModel, seed: int = 0) -> LanguageModel:
    """The model itself with the entries of each weight matrix and vector in random order.

    Its weights have the trained sizes and no structure. The tensors are permuted in the order of
    their names, all from one generator.
    """
    permuted, generator = _fresh(model, seed), torch.Generator().manual_seed(seed)
    there = dict(permuted.named_buffers())
    for name, buffer in model.model.named_buffers():
        there[name].copy_(buffer)
    target = dict(permuted.named_parameters())
    for name in sorted(name for name, _ in own_parameters(model.model)):
        weights = tensor_of(model.model, name)
        assert weights is not None  # noqa: S101 - the model names it
        order = torch.randperm(weights.numel(), generator=generator)
        target[name].copy_(weights.cpu().flatten()[order].view_as(weights))
    placed = place_like(permuted, model.model)
    return wrap(placed, model.tokenizer, f"{model.name} with permuted weights")


def random_keys(
    store: ScanStore, per_layer: int, seed: int, purpose: str
) -> dict[int, list[Address]]:
    """`per_layer` random cells of every layer, without repeats, or all if a layer has fewer.

    Draws for two purposes are independent of each other. Dead cells can be drawn like any other.
    """
    found: dict[int, list[Address]] = {}
    for layer in store.memories:
        rows = store.cells.rows_of(layer)
        generator = np.random.default_rng([seed, layer, zlib.crc32(purpose.encode())])
        drawn = generator.permutation(rows.stop - rows.start)[:per_layer]
        found[layer] = store.cells.in_layer(layer, drawn)
    return found
