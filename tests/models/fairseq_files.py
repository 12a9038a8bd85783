"""Toy checkpoints in fairseq's file format, and their logits step by step from the tensors."""

from __future__ import annotations

import math
from argparse import Namespace
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

WORDS, WIDTH, MEMORIES, LAYERS, HEADS = 60, 16, 24, 2, 2
BANDS = ((20, 16), (30, 8), (10, 4))
PIECE = 24  # positions


@dataclass(frozen=True)
class Variant:
    """What a file can be like."""

    adaptive: bool = True  # else one matrix at each end
    tied: bool = True  # input and output share their rows
    tied_projections: bool = True
    final_norm: bool = False
    old_names: bool = False  # one map for q, k, v; numbered norms; no output projection
    settings: str = "args"  # or cfg: where they are stored
    square: bool = False  # every band has rows as wide as states, as with a factor of 1
    changes: dict[str, Any] = field(default_factory=dict)  # of the settings
    ignored: dict[str, Any] = field(default_factory=dict)  # changes that mean nothing

    @property
    def bands(self) -> tuple[tuple[int, int], ...]:
        """(words, width of a row) of each band."""
        return tuple((words, WIDTH if self.square else narrow) for words, narrow in BANDS)


def random(*shape: int, seed: int) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, generator=generator) * shape[-1] ** -0.5


def toy_tensors(variant: Variant) -> dict[str, Tensor]:
    """The weights by fairseq's names, in the newest form."""
    found: dict[str, Tensor] = {"version": torch.tensor([3.0])}
    seed = 0

    def add(name: str, *shape: int, around: float = 0.0) -> Tensor:
        nonlocal seed
        seed += 1
        found[name] = around + random(*shape, seed=seed)
        return found[name]

    for layer in range(LAYERS):
        add_block(f"layers.{layer}", add)
    if variant.final_norm:
        add("layer_norm.weight", WIDTH, around=1.0)
        add("layer_norm.bias", WIDTH)
    found["embed_positions._float_tensor"] = torch.zeros(1)
    if not variant.adaptive:
        rows = add("embed_tokens.weight", WORDS, WIDTH)
        found["output_projection.weight"] = rows
        if not variant.tied:
            add("output_projection.weight", WORDS, WIDTH)
        return found
    for number, (words, narrow) in enumerate(variant.bands):
        add(f"embed_tokens.embeddings.{number}.0.weight", words, narrow)
        add(f"embed_tokens.embeddings.{number}.1.weight", WIDTH, narrow)
    found["adaptive_softmax.version"] = torch.tensor([3.0])
    add_softmax(found, variant, add)
    return found


def add_block(place: str, add: Any) -> None:
    """One layer: attention, its norm, and the memories with theirs."""
    for part in ("q", "k", "v", "out"):
        add(f"{place}.self_attn.{part}_proj.weight", WIDTH, WIDTH)
        add(f"{place}.self_attn.{part}_proj.bias", WIDTH)
    for norm in ("self_attn_layer_norm", "final_layer_norm"):
        add(f"{place}.{norm}.weight", WIDTH, around=1.0)
        add(f"{place}.{norm}.bias", WIDTH)
    add(f"{place}.fc1.weight", MEMORIES, WIDTH)
    add(f"{place}.fc1.bias", MEMORIES)
    add(f"{place}.fc2.weight", WIDTH, MEMORIES)
    add(f"{place}.fc2.bias", WIDTH)


def add_softmax(found: dict[str, Tensor], variant: Variant, add: Any) -> None:
    """The output end, tied to the input or of its own."""
    rows = {n: found[f"embed_tokens.embeddings.{n}.0.weight"] for n in range(len(BANDS))}
    if variant.tied:
        found["adaptive_softmax.head.word_proj.weight"] = rows[0]
        add("adaptive_softmax.head.class_proj.weight", len(BANDS) - 1, WIDTH)
    else:
        add("adaptive_softmax.head.weight", BANDS[0][0] + len(BANDS) - 1, WIDTH)
    for number, (words, narrow) in enumerate(variant.bands[1:]):
        place = f"adaptive_softmax.tail.{number}"
        if variant.tied_projections:
            found[f"{place}.0.weight"] = found[f"embed_tokens.embeddings.{number + 1}.1.weight"]
        else:
            add(f"{place}.0.weight", narrow, WIDTH)
        found[f"{place}.2.weight"] = rows[number + 1]
        if not variant.tied:
            add(f"{place}.2.weight", words, narrow)


def with_old_names(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """The same as files before the end of 2019 have them."""
    found = dict(tensors)
    found.pop("output_projection.weight", None)
    for layer in range(LAYERS):
        for kind in ("weight", "bias"):
            place = f"layers.{layer}.self_attn"
            parts = [found.pop(f"{place}.{part}_proj.{kind}") for part in "qkv"]
            found[f"{place}.in_proj_{kind}"] = torch.cat(parts)
            for number, norm in (("0", "self_attn_layer_norm"), ("2", "final_layer_norm")):
                moved = found.pop(f"layers.{layer}.{norm}.{kind}")
                found[f"layers.{layer}.layer_norms.{number}.{kind}"] = moved
    return found


def toy_settings(variant: Variant) -> dict[str, Any]:
    """What fairseq stores beside the weights."""
    return {
        "arch": "transformer_lm_wiki103" if variant.adaptive else "transformer_lm",
        "decoder_attention_heads": HEADS,
        "activation_fn": "relu",
        "tokens_per_sample": PIECE,
        "dropout": 0.3,
        "attention_dropout": 0.1,
        "tie_adaptive_weights": variant.adaptive and variant.tied,
        "tie_adaptive_proj": variant.adaptive and variant.tied_projections,
        **variant.changes,
        **variant.ignored,
    }


def write_toy(folder: Path, variant: Variant = Variant(), zipped: bool = True) -> dict[str, Tensor]:  # noqa: B008
    """Write model.pt and dict.txt; the weights by fairseq's newest names come back."""
    folder.mkdir(parents=True, exist_ok=True)
    tensors = toy_tensors(variant)
    stored = with_old_names(tensors) if variant.old_names else tensors
    settings = Namespace(**toy_settings(variant))
    whole: dict[str, Any] = {"model": {f"decoder.{name}": t for name, t in stored.items()}}
    whole["extra_state"] = {"epoch": 1}
    if variant.settings == "args":
        whole["args"] = settings
    else:
        whole["args"], whole["cfg"] = None, {"_name": None, "model": settings}
    torch.save(whole, folder / "model.pt", _use_new_zipfile_serialization=zipped)
    write_words(folder, WORDS - 4)
    return tensors


def write_words(folder: Path, count: int) -> None:
    """A dict.txt of so many words."""
    lines = [f"word{number} {1000 - number}\n" for number in range(count)]
    (folder / "dict.txt").write_text("".join(lines))


def expected_logits(tensors: dict[str, Tensor], variant: Variant, ids: Tensor) -> Tensor:
    """Logits [position, word] by hand: log-probabilities where the softmax is adaptive."""
    scale = 1.0 if variant.changes.get("no_scale_embedding") else math.sqrt(WIDTH)
    activation = getattr(nn.functional, variant.changes.get("activation_fn", "relu"))
    h = embed_words(tensors, ids) * scale + positions(len(ids))
    for layer in range(LAYERS):
        h = block(tensors, f"layers.{layer}", h, activation)
    if variant.final_norm:
        h = norm(tensors, "layer_norm", h)
    if not variant.adaptive:
        return h @ tensors["output_projection.weight"].double().T
    return torch.stack([adaptive(tensors, variant, row) for row in h])


def embed_words(tensors: dict[str, Tensor], ids: Tensor) -> Tensor:
    if "embed_tokens.weight" in tensors:
        return tensors["embed_tokens.weight"].double()[ids]
    found, start = [], 0
    for number, (words, _) in enumerate(BANDS):
        rows, projection = (
            tensors[f"embed_tokens.embeddings.{number}.{part}.weight"].double() for part in (0, 1)
        )
        found.append(rows @ projection.T)
        start += words
    return torch.cat(found)[ids]


def positions(count: int) -> Tensor:
    places = torch.arange(2, 2 + count)
    half = WIDTH // 2
    angle = torch.exp(torch.arange(half).double() * -math.log(10000) / (half - 1))
    turned = places[:, None].double() * angle
    return torch.cat([turned.sin(), turned.cos()], dim=1)


def norm(tensors: dict[str, Tensor], place: str, h: Tensor) -> Tensor:
    gain, shift = (tensors[f"{place}.{kind}"].double() for kind in ("weight", "bias"))
    centred = h - h.mean(dim=-1, keepdim=True)
    return centred / (centred.pow(2).mean(dim=-1, keepdim=True) + 1e-5).sqrt() * gain + shift


def linear(tensors: dict[str, Tensor], place: str, h: Tensor) -> Tensor:
    return h @ tensors[f"{place}.weight"].double().T + tensors[f"{place}.bias"].double()


def block(tensors: dict[str, Tensor], place: str, h: Tensor, activation: Any) -> Tensor:
    x = norm(tensors, f"{place}.self_attn_layer_norm", h)
    r = h + attention(tensors, f"{place}.self_attn", x)
    x = norm(tensors, f"{place}.final_layer_norm", r)
    return r + linear(tensors, f"{place}.fc2", activation(linear(tensors, f"{place}.fc1", x)))


def attention(tensors: dict[str, Tensor], place: str, x: Tensor) -> Tensor:
    q, k, v = (linear(tensors, f"{place}.{part}_proj", x) for part in "qkv")
    size, read = WIDTH // HEADS, []
    for head in range(HEADS):
        mine = slice(head * size, (head + 1) * size)
        scores = q[:, mine] @ k[:, mine].T * size**-0.5
        ahead = torch.ones_like(scores).triu(1).bool()
        read.append(scores.masked_fill(ahead, -torch.inf).softmax(dim=-1) @ v[:, mine])
    return linear(tensors, f"{place}.out_proj", torch.cat(read, dim=-1))


def adaptive(tensors: dict[str, Tensor], variant: Variant, h: Tensor) -> Tensor:
    """Log-probabilities [word] of one state, as fairseq's adaptive softmax says."""
    place = "adaptive_softmax"
    if variant.tied:
        names = [f"{place}.head.word_proj.weight", f"{place}.head.class_proj.weight"]
        first = torch.cat([tensors[name].double() for name in names])
    else:
        first = tensors[f"{place}.head.weight"].double()
    choice, words = (first @ h).log_softmax(dim=0), BANDS[0][0]
    parts = [choice[:words]]
    for number in range(len(BANDS) - 1):
        projection = tensors[f"{place}.tail.{number}.0.weight"].double()
        narrow = h @ projection if variant.tied_projections else projection @ h
        inside = (tensors[f"{place}.tail.{number}.2.weight"].double() @ narrow).log_softmax(dim=0)
        parts.append(choice[words + number] + inside)
    return torch.cat(parts)
