"""The plan of a scan: text, settings, layers; its key; the memory that it needs."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import torch

from ffmem.address_space import with_threads
from ffmem.corpus.conversations import template_digest
from ffmem.corpus.sentences import SentenceSettings
from ffmem.corpus.sources import Source, digest
from ffmem.corpus.splitters import splitter_version
from ffmem.errors import StoreError
from ffmem.memories.projection import CHUNK_BYTES, GPU_CHUNKS
from ffmem.models.device_placement import parameter_bytes
from ffmem.models.feedforward import FeedForward
from ffmem.models.fingerprint import tokenizer_digest, weights_digest
from ffmem.models.language_model import LanguageModel
from ffmem.scan.settings import (
    BINS,
    CANDIDATE_BYTES,
    CANDIDATE_SLOTS,
    ROOM_OF_EXPERTS,
    SLOT_BYTES,
    ScanSettings,
)
from ffmem.store.manifest import ScanKey
from ffmem.text import size_text

MEMINFO = Path("/proc/meminfo")


@dataclass(frozen=True)
class ScanPlan:
    """Corpus and settings of a scan; the last two do not decide what it finds."""

    source: Source
    settings: ScanSettings
    sentences: SentenceSettings
    layers: Sequence[int] | None = None
    experts: Sequence[int] | None = None  # of every mixture layer; None means all
    max_sentences: int | None = None
    budget: int | None = None  # tokens per batch; None takes what suits the device
    values: bool = True  # whether they are ranked when the text is read


def token_budget(model: LanguageModel, plan: ScanPlan) -> int:
    """Tokens per batch: what was asked for, or what suits the device."""
    return plan.budget or (65_536 if model.device.type == "cuda" else 4_096)


def sentence_settings(model: LanguageModel, plan: ScanPlan) -> SentenceSettings:
    """The plan's settings for its text, with no sentence longer than the model can read."""
    room = model.context_length - (0 if model.bos is None else 1)
    longest = min(plan.sentences.max_tokens, room)
    return replace(plan.sentences, max_tokens=longest, chat=plan.source.chat)


def scan_key(model: LanguageModel, plan: ScanPlan, corpus_digest: str | None = None) -> ScanKey:
    """Everything that decides the result of this scan, as plain values.

    A process that cannot reach the corpus is told its digest.
    """
    return ScanKey(
        model={
            "name": model.name,
            "revision": model.revision,
            "type": model.architecture,
            "dtype": str(model.dtype).removeprefix("torch."),
            "weights": weights_digest(model.model),
            "tokenizer": tokenizer_digest(model.tokenizer),
            **({"tokenizer_name": model.tokenizer_name} if model.tokenizer_name else {}),
            "bos": model.bos,
        },
        corpus={
            **plan.source.plain(),
            "digest": corpus_digest or digest(plan.source),
            **_sentence_key(sentence_settings(model, plan)),
            **_chat_key(model, plan),
            "max_sentences": plan.max_sentences,
        },
        settings={
            **asdict(plan.settings),
            "layers": None if plan.layers is None else sorted(plan.layers),
            **({} if plan.experts is None else {"experts": sorted(set(plan.experts))}),
        },
    )


def _sentence_key(settings: SentenceSettings) -> dict[str, Any]:
    """Everything that decides where sentences begin and end."""
    values = asdict(settings) | {"splitter_version": splitter_version(settings.splitter)}
    del values["chat"]  # the source says it
    return values


def _chat_key(model: LanguageModel, plan: ScanPlan) -> dict[str, Any]:
    """The template that writes the text of conversations; refuses a model without one."""
    if not plan.source.chat:
        return {}
    return {"chat_template": template_digest(model.tokenizer, model.name)}


def refuse_other_checkpoint(root: Path, key: ScanKey, wanted: ScanKey) -> None:
    """Never go on with an unfinished scan of another key."""
    if key.digest == wanted.digest:
        return
    raise StoreError(
        f"{root} holds an unfinished scan of something else (it differs in "
        f"{', '.join(key.differences(wanted))}); choose another folder or delete it"
    )


def plan_layers(model: LanguageModel, plan: ScanPlan) -> list[FeedForward]:
    """The layers of a plan, with its experts."""
    model = model.with_experts(plan.experts)
    numbers = range(1, len(model.layers) + 1) if plan.layers is None else sorted(set(plan.layers))
    return [model.layer(number) for number in numbers]


def memory(model: LanguageModel, plan: ScanPlan, copies: int = 1) -> int:
    """Bytes: the weights, the scan's state, one batch of one layer, and chunks of logits.

    `copies` of the weights are there at once.
    """
    layers, settings = plan_layers(model, plan), plan.settings
    slots = settings.top + settings.sample
    cells = sum(settings.cells(layer.memories) for layer in layers)
    state = cells * (12 * slots + 32 + 8 * BINS)
    widest = max(layer.memories_per_place for layer in layers)
    batch = 4 * token_budget(model, plan) * widest * model.dtype.itemsize
    if model.device.type == "cuda":  # where candidates wait; those of a mixture for every layer
        experts = [layer.memories for layer in layers if layer.mixture is not None]
        room = ROOM_OF_EXPERTS * slots * CANDIDATE_BYTES
        batch += CANDIDATE_SLOTS * SLOT_BYTES + room * sum(settings.cells(size) for size in experts)
    return (
        copies * parameter_bytes(model.model)
        + 3 * state
        + batch
        + 6 * CHUNK_BYTES * (GPU_CHUNKS if model.device.type == "cuda" else 1)
    )


def scan_address_space(model: LanguageModel, plan: ScanPlan) -> int:
    """Bytes of address space that a scan needs, with its libraries and threads."""
    return with_threads() + memory(model, plan, copies=2)


def shortage(model: LanguageModel, plan: ScanPlan, room: int | None = None) -> str | None:
    """One sentence on what to lower where a scan does not fit beside the model, else None.

    `room` is how many bytes are free, by default as the device says.
    """
    free = _free_bytes(model.device) if room is None else room
    weights = parameter_bytes(model.model)
    need = memory(model, plan) - weights
    if free is None or need <= free:
        return None
    settings = plan.settings
    less = replace(settings, top=min(settings.top, 20), sample=0)
    smaller = memory(model, replace(plan, settings=less)) - weights
    if plan.budget is not None and smaller > free:
        return (
            f"the scan needs about {size_text(need)} beside the model and {size_text(free)} are "
            f"free; leave --budget ({plan.budget:,} tokens per batch) out, or lower it"
        )
    choices = "--layers"
    if any(layer.mixture is not None for layer in model.layers):
        choices += " or --experts"
    return (
        f"the scan needs about {size_text(need)} beside the model and {size_text(free)} are "
        f"free; lower --top ({settings.top}) and --sample ({settings.sample}), as --top {less.top} "
        f"--sample 0 needs {size_text(smaller)}, or scan some at a time with {choices}"
    )


def _free_bytes(device: torch.device) -> int | None:
    """Bytes that are free on a device; None where it does not say."""
    if device.type == "cuda":
        return int(torch.cuda.mem_get_info(device)[0])
    if device.type != "cpu" or not MEMINFO.exists():
        return None
    found = re.search(r"^MemAvailable:\s+(\d+) kB", MEMINFO.read_text(), flags=re.MULTILINE)
    return None if found is None else 1024 * int(found[1])
