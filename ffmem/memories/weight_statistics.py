"""Numbers of every memory from the weights alone, a layer at a time, in blocks of bounded size.

Definitions, for key k, gate g, value v with all norms folded in and E the output embedding behind
the final norm, without its mean over the vocabulary (which no softmax sees):

| column                          | what                                                          |
|---------------------------------|---------------------------------------------------------------|
| key_norm, gate_norm, value_norm | lengths                                                       |
| key_bias, gate_bias             | what is added before the activation                           |
| key_value, gate_value, gate_key | cosines                                                       |
| class                           | what the cosines say at ±0.5 (CLASSES)                        |
| logit_mean, logit_variance, ... | moments of the value's logits over the vocabulary; a normal   |
|                                 | distribution has a kurtosis of 3                              |
| cosine_variance                 | variance over tokens of cos(v, E_token)                       |
| weak_share                      | share of |v|² in the weakest twentieth of E's directions      |
| frequency                       | correlation of the logits with the log frequency of tokens    |
| twin, twin_cosine               | the memory of the layer most like it in key, gate and value,  |
|                                 | and the smallest of the cosines between the two               |
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from ffmem.memories.folded_weights import FoldedWeights, folded_weights, paired_cosines
from ffmem.memories.projection import (
    CHUNK_BYTES,
    PAPER_LENS,
    additive,
    before_embedding,
    in_chunks,
)
from ffmem.models.feedforward import FeedForward
from ffmem.models.language_model import LanguageModel

THRESHOLD = 0.5  # of a cosine that counts
TILES = {
    "cpu": (512, 2048),
    "cuda": (4096, 8192),
}  # values x tokens whose logits are held at a time
WEAK = 20  # one direction in so many is called weak
PLAIN_CLASSES = ("strengthening", "orthogonal output", "weakening")
GATED_CLASSES = (
    "strengthening",
    "atypical strengthening",
    "conditional strengthening",
    "atypical conditional strengthening",
    "proportional change",
    "atypical proportional change",
    "orthogonal output",
    "weakening",
    "atypical weakening",
    "conditional weakening",
    "atypical conditional weakening",
)
# (sign of cos(k, v), whether g is along v, whether cos(g, k) is what those two make it)
COMBINATIONS = (
    *((1, 1, 1), (1, 1, 0), (1, 0, 1), (1, 0, 0)),
    *((0, 1, 1), (0, 1, 0), (0, 0, 1)),
    *((-1, 1, 1), (-1, 1, 0), (-1, 0, 1), (-1, 0, 0)),
)


def class_names(gated: bool) -> tuple[str, ...]:
    """The classes of a layer's memories: eleven of gated ones, three of plain ones."""
    return GATED_CLASSES if gated else PLAIN_CLASSES


def classify(
    key_value: Tensor, gate_value: Tensor | None = None, gate_key: Tensor | None = None
) -> Tensor:
    """Which class each memory is of, as a place in `class_names`, from its cosines."""
    along = _side(key_value)
    if gate_value is None or gate_key is None:
        return 1 - along
    gate_along = _side(gate_value)
    usual = (_side(gate_key) == along * gate_along) | ((along == 0) & (gate_along == 0))
    found = torch.zeros_like(along)
    for place, (sign, gate, typical) in enumerate(COMBINATIONS):
        found[(along == sign) & (gate_along.abs() == gate) & (usual == bool(typical))] = place
    return found


def _side(cosine: Tensor) -> Tensor:
    return (cosine > THRESHOLD).long() - (cosine < -THRESHOLD).long()


@dataclass(frozen=True)
class Unembedding:
    """The output embedding as the values see it; all float32 on the head's device.

    A band is a map [width, narrow], or None, and a column [narrow] for each of its tokens: the
    direction of a token is its column behind the map, less `mean` [width], the mean over the
    vocabulary. An adaptive softmax has several bands, and its directions are never held all at
    once. `weak` [width, some] are the directions that move logits least; `frequency` [token] is the
    log frequency of each token, without its mean, of length 1.
    """

    bands: tuple[tuple[Tensor | None, Tensor], ...]
    mean: Tensor
    weak: Tensor
    frequency: Tensor

    @property
    def words(self) -> int:
        """How many tokens there are."""
        return len(self.frequency)

    def tiles(self, size: int) -> Iterator[tuple[slice, Tensor]]:
        """Some tokens at a time with their directions [width, token]."""
        start = 0
        for part in _columns(self.bands, size):
            yield slice(start, start + part.shape[1]), part - self.mean[:, None]
            start += part.shape[1]


def _columns(bands: tuple[tuple[Tensor | None, Tensor], ...], size: int) -> Iterator[Tensor]:
    for into, columns in bands:
        for part in columns.split(size, dim=1):
            yield part.float() if into is None else into @ part.float()


@torch.no_grad()
def unembedding(model: LanguageModel, counts: Tensor | None = None) -> Unembedding:
    """The map from a value to its logits; `counts` [token] are those of tokens.

    Without counts the order of token ids stands for frequency: vocabularies are made by merging the
    most frequent pair first.
    """
    unit, linear = torch.eye(model.hidden_size), additive(PAPER_LENS)
    vectors = model.on_device().head.vectors().first(model.vocab_size)
    bands: tuple[tuple[Tensor | None, Tensor], ...]
    if len(vectors.bands) == 1:
        every = torch.cat([part for _, part in in_chunks(model, unit, "direction", linear)])
        bands = ((None, every),)
    else:
        front = before_embedding(model, unit)
        bands = tuple(
            (front if band.projection is None else front @ band.projection.float(), band.rows.T)
            for band in vectors.bands
        )
    frequency = _log_frequency(model.vocab_size, counts).to(vectors.device)
    size = TILES["cuda" if vectors.device.type == "cuda" else "cpu"][1]
    mean, squares = (
        torch.zeros(model.hidden_size, *other, dtype=torch.float64, device=vectors.device)
        for other in ((), (model.hidden_size,))
    )
    for part in _columns(bands, size):
        mean += part.sum(dim=1, dtype=torch.float64)
    mean /= model.vocab_size
    found = Unembedding(bands, mean.float(), torch.empty(0), frequency)
    for _, part in found.tiles(size):
        squares += part @ part.T
    _, axes = torch.linalg.eigh(squares.float())  # in rising order
    return replace(found, weak=axes[:, : -(-model.hidden_size // WEAK)])


def _log_frequency(words: int, counts: Tensor | None) -> Tensor:
    """Log frequency of every token (by its id where there are no counts), centred, of length 1."""
    if counts is None:
        found = -torch.log(torch.arange(words) + 1.0)
    else:
        found = torch.log1p(counts[:words].float())
    found = found - found.mean()
    return found / found.norm().clamp(min=1e-12)


@torch.no_grad()
def layer_statistics(
    model: LanguageModel, layer: FeedForward, head: Unembedding
) -> tuple[dict[str, Tensor], FoldedWeights]:
    """Every column of one layer's memories [memory] on the CPU, and the weights they are from."""
    weights = folded_weights(model, layer)
    columns = {
        "key_norm": weights.keys.norm(dim=1),
        "value_norm": weights.values.norm(dim=1),
        "key_bias": weights.key_bias,
        "key_value": paired_cosines(weights.keys, weights.values),
    }
    if weights.gates is not None and weights.gate_bias is not None:
        columns |= {
            "gate_norm": weights.gates.norm(dim=1),
            "gate_bias": weights.gate_bias,
            "gate_value": paired_cosines(weights.gates, weights.values),
            "gate_key": paired_cosines(weights.gates, weights.keys),
        }
    columns["class"] = classify(
        columns["key_value"], columns.get("gate_value"), columns.get("gate_key")
    )
    columns |= vocabulary_moments(weights.values, head)
    columns |= twins(weights)
    return {name: column.cpu() for name, column in columns.items()}, weights


def _blocks(rows: int, width: int) -> Iterator[slice]:
    """Rows in runs that hold a bounded number of floats of that width."""
    step = max(1, CHUNK_BYTES // (4 * width))
    for start in range(0, rows, step):
        yield slice(start, min(start + step, rows))


@torch.no_grad()
def vocabulary_moments(values: Tensor, head: Unembedding) -> dict[str, Tensor]:
    """Moments over the vocabulary of what each vector [vector, width] does to the logits."""
    device = head.mean.device
    rows, columns = TILES["cuda" if device.type == "cuda" else "cpu"]
    blocks = values.to(device).split(rows)
    sums = [torch.zeros(6, len(block), dtype=torch.float64, device=device) for block in blocks]
    for tokens, directions in head.tiles(columns):
        sizes = directions.norm(dim=0).clamp(min=1e-12)
        for block, total in zip(blocks, sums, strict=True):
            total += _tile_sums(block @ directions, sizes, head.frequency[tokens])
    parts: dict[str, list[Tensor]] = {}
    for block, total in zip(blocks, sums, strict=True):
        for name, column in _moments(block, total, head).items():
            parts.setdefault(name, []).append(column.float())
    return {name: torch.cat(found) for name, found in parts.items()}


def _tile_sums(scores: Tensor, sizes: Tensor, frequency: Tensor) -> Tensor:
    """Sums over some tokens [sum, vector]: powers 2, 3, 4 of logits, 1, 2 of cosines, along."""
    squares = scores.square()
    cosines = scores / sizes
    return torch.stack(
        [
            squares.sum(dim=1),
            (squares * scores).sum(dim=1),
            squares.square_().sum(dim=1),
            cosines.sum(dim=1),
            cosines.square_().sum(dim=1),
            scores @ frequency,
        ]
    ).double()


def _moments(values: Tensor, sums: Tensor, head: Unembedding) -> dict[str, Tensor]:
    length = values.norm(dim=1).clamp(min=1e-12)
    variance, third, fourth, cosine, cosine_square, along = sums / head.words
    safe = variance.clamp(min=1e-30)
    return {
        "logit_mean": values @ head.mean,
        "logit_variance": variance,
        "logit_skew": third / safe**1.5,
        "logit_kurtosis": fourth / safe**2,
        "cosine_variance": (cosine_square - cosine.square()).clamp(min=0) / length**2,
        "weak_share": (values @ head.weak).square().sum(dim=1) / length**2,
        "frequency": along * head.words**0.5 / safe.sqrt(),
    }


@torch.no_grad()
def twins(weights: FoldedWeights) -> dict[str, Tensor]:
    """The memory of the same layer that is most like each one, and how much."""
    sides = [side for side in (weights.keys, weights.gates, weights.values) if side is not None]
    units = [torch.nn.functional.normalize(side, dim=1) for side in sides]
    best, which = [], []
    for block in _blocks(len(units[0]), len(units[0])):
        alike = units[0][block] @ units[0].T
        for unit in units[1:]:
            torch.minimum(alike, unit[block] @ unit.T, out=alike)
        alike[:, block].fill_diagonal_(-2.0)
        found = alike.max(dim=1)
        best.append(found.values)
        which.append(found.indices)
    return {"twin": torch.cat(which), "twin_cosine": torch.cat(best)}
