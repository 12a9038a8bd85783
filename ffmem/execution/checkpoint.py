"""The state of a scan under way, in one file that is whole or absent."""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, astuple, dataclass, field, replace
from pathlib import Path
from zlib import crc32

import numpy as np
import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from ffmem.errors import StoreError
from ffmem.files.whole_files import write_whole
from ffmem.locations import local_copy
from ffmem.scan.layer_scan import LayerState
from ffmem.scan.scanner import ScanState
from ffmem.scan.tallies import Tallies
from ffmem.scan.triggers import Sample, Triggers
from ffmem.store.kept_sentences import ARRAYS, KeptSentences
from ffmem.store.manifest import ScanKey

CHECKSUM = "checksum"  # its name among the notes


@dataclass(frozen=True)
class ScanProgress:
    """How far a scan has come: whole shards, then batches of the next ones."""

    shards: int = 0
    batches: int = 0
    sentences: int = 0
    tokens: int = 0
    cut: int = 0
    settled: int = 0  # sentences of whole shards
    budget: int = 0  # tokens per batch, so that a resumed scan makes the same batches
    together: int = 1  # shards that batches are made of, at most, for the same reason
    seconds: float = 0.0


@dataclass(frozen=True)
class ShardCounts:
    """What one whole shard had."""

    sentences: int
    tokens: int
    cut: int


@dataclass(frozen=True)
class Checkpoint:
    """A scan under way: what it has found, the sentences that points at, and how far it is.

    Several processes read whole shards in any order, and name those that each has read.
    """

    key: ScanKey
    progress: ScanProgress
    state: ScanState
    kept: KeptSentences
    shards: dict[int, ShardCounts] = field(default_factory=dict)


def save_checkpoint(path: Path, checkpoint: Checkpoint) -> None:
    """Put a checkpoint at `path` in one step, in the place of one that is there."""
    tensors = {f"kept.{name}": torch.from_numpy(getattr(checkpoint.kept, name)) for name in ARRAYS}
    counts = {}
    for number, layer in checkpoint.state.items():
        tensors |= {f"{number}.{name}": tensor for name, tensor in _layer_tensors(layer).items()}
        counts[number] = [layer.tallies.prefixes]  # files may hold further numbers, unread
    notes = {
        "scan": json.dumps(asdict(checkpoint.key)),
        "progress": json.dumps(asdict(checkpoint.progress)),
        "counts": json.dumps(counts),
        "shards": json.dumps({number: astuple(c) for number, c in checkpoint.shards.items()}),
    }
    apart = {name: tensor.cpu().contiguous().clone() for name, tensor in tensors.items()}
    notes[CHECKSUM] = _checksum(apart, notes)
    write_whole(path, lambda part: _write(part, apart, notes))


def _checksum(tensors: Mapping[str, Tensor], notes: Mapping[str, str]) -> str:
    """A sum of everything in a checkpoint, which one changed bit makes another one."""
    texts = {name: text for name, text in notes.items() if name != CHECKSUM}
    found = crc32(json.dumps(texts, sort_keys=True).encode())
    for name in sorted(tensors):
        found = crc32(tensors[name].numpy().data, crc32(name.encode(), found))
    return f"{found:08x}"


def _write(part: Path, tensors: dict[str, Tensor], notes: dict[str, str]) -> None:
    try:
        save_file(tensors, part, metadata=notes)
    except SafetensorError as error:  # what the disk says, under another name
        raise OSError(str(error)) from error


def _layer_tensors(layer: LayerState) -> dict[str, Tensor]:
    """Everything of one layer's state that is a tensor, by name."""
    parts = {
        "coefficients": layer.triggers.coefficients,
        "places": layer.triggers.places,
        "groups": layer.triggers.groups,
        "router": layer.triggers.weights,
        "fires": layer.tallies.fires,
        "totals": layer.tallies.totals,
        "largest": layer.tallies.largest,
        "routed": layer.tallies.routed,
        "weights": layer.tallies.weights,
        "histogram": layer.tallies.histogram,
        "sample.coefficients": layer.sample.coefficients,
        "sample.places": layer.sample.places,
        "sample.priorities": layer.sample.priorities,
    }
    return {name: tensor for name, tensor in parts.items() if tensor is not None}


def read_checkpoint(path: Path) -> Checkpoint:
    """All of a checkpoint."""
    with (
        damaged_file_errors(path),
        local_copy(path) as here,
        safe_open(here, framework="pt") as file,
    ):
        notes = file.metadata()
        tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        if notes[CHECKSUM] != _checksum(tensors, notes):
            raise ValueError("something in it has changed since it was written")
        counts = {int(number): some for number, some in json.loads(notes["counts"]).items()}
        kept = KeptSentences(*(np.asarray(tensors[f"kept.{name}"]) for name in ARRAYS))
        state = {number: _layer(tensors, number, counts[number][0]) for number in sorted(counts)}
        return replace(_parse_notes(notes), state=state, kept=kept)


def read_notes(path: Path) -> Checkpoint:
    """A checkpoint without its state and sentences: quick, whatever its size."""
    with damaged_file_errors(path), path.open("rb") as file:
        (size,) = struct.unpack("<Q", file.read(8))  # the safetensors format begins with its header
        return _parse_notes(json.loads(file.read(size))["__metadata__"])


def _parse_notes(notes: dict[str, str]) -> Checkpoint:
    shards = json.loads(notes["shards"])
    return Checkpoint(
        ScanKey(**json.loads(notes["scan"])),
        ScanProgress(**json.loads(notes["progress"])),
        {},
        KeptSentences.empty(),
        {int(number): ShardCounts(*counts) for number, counts in shards.items()},
    )


@contextmanager
def damaged_file_errors(path: Path) -> Iterator[None]:
    """Turn what a broken file raises into one sentence."""
    try:
        yield
    except (SafetensorError, KeyError, ValueError, TypeError, struct.error) as error:
        raise StoreError(
            f"{path} is damaged ({error}); delete it to start the scan again"
        ) from None


def _layer(tensors: dict[str, Tensor], number: int, prefixes: int) -> LayerState:
    def part(name: str) -> Tensor:
        return tensors[f"{number}.{name}"]

    return LayerState(
        Triggers(
            part("coefficients"),
            part("places"),
            tensors.get(f"{number}.groups"),
            tensors.get(f"{number}.router"),
        ),
        Tallies(
            part("fires"),
            part("totals"),
            part("largest"),
            prefixes,
            part("histogram"),
            tensors.get(f"{number}.routed"),
            tensors.get(f"{number}.weights"),
        ),
        Sample(part("sample.coefficients"), part("sample.places"), part("sample.priorities")),
    )
