"""The plan of a scan: text, settings, layers; and the key that tells two scans apart."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from ffmem.corpus.conversations import template_digest
from ffmem.corpus.sentences import SentenceSettings
from ffmem.corpus.sources import Source, digest
from ffmem.corpus.splitters import splitter_version
from ffmem.errors import StoreError
from ffmem.models.fingerprint import tokenizer_digest, weights_digest
from ffmem.models.language_model import LanguageModel
from ffmem.scan.settings import ScanSettings
from ffmem.store.manifest import ScanKey


@dataclass(frozen=True)
class ScanPlan:
    """Model, corpus and settings of a scan; all but `budget` decide the result."""

    source: Source
    settings: ScanSettings
    sentences: SentenceSettings
    layers: Sequence[int] | None = None
    experts: Sequence[int] | None = None  # of every mixture layer; None means all
    max_sentences: int | None = None
    budget: int | None = None  # tokens per batch; None takes what suits the device


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
            "bos": model.bos,
        },
        corpus={
            **plan.source.plain(),
            "digest": corpus_digest or digest(plan.source),
            **sentence_key(sentence_settings(model, plan)),
            **chat_key(model, plan),
            "max_sentences": plan.max_sentences,
        },
        settings={
            **asdict(plan.settings),
            "layers": None if plan.layers is None else sorted(plan.layers),
            **({} if plan.experts is None else {"experts": sorted(set(plan.experts))}),
        },
    )


def sentence_key(settings: SentenceSettings) -> dict[str, Any]:
    """Everything that decides where sentences begin and end.

    Version 1 of a splitter is left out: scans from before versions were recorded have no entry.
    """
    version = splitter_version(settings.splitter)
    values = asdict(settings) | ({} if version == 1 else {"splitter_version": version})
    del values["chat"]  # the source says it
    return values


def chat_key(model: LanguageModel, plan: ScanPlan) -> dict[str, Any]:
    """The template that writes the text of conversations; refuses a model without one."""
    if not plan.source.chat:
        return {}
    return {"chat_template": template_digest(model.tokenizer, model.name)}


def refuse_other_checkpoint(root: Path, digest: str, key: ScanKey | None, wanted: ScanKey) -> None:
    """Never go on with an unfinished scan of another key.

    `key` is None where only its digest was saved.
    """
    if digest == wanted.digest:
        return
    where = "" if key is None else f" (it differs in {', '.join(key.differences(wanted))})"
    raise StoreError(
        f"{root} holds an unfinished scan of something else{where}; choose another folder or "
        "delete it"
    )
