"""The whole tool on one page: a model and a corpus in, a store out."""

from __future__ import annotations

import platform
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

from ffmem.corpus.apart import can_be_apart, tokenised_apart
from ffmem.corpus.batches import Batch, batches
from ffmem.corpus.kept import KeptSentences
from ffmem.corpus.places import sentence_and_position
from ffmem.corpus.prefetch import prefetched
from ffmem.corpus.sentences import Sentences, SentenceSettings
from ffmem.corpus.sources import Source, digest
from ffmem.corpus.tokenised import Reading, Tokenised, tokenised
from ffmem.errors import ScanError, StoreError
from ffmem.memories.values import value_ends
from ffmem.models.digest import tokenizer_digest, weights_digest
from ffmem.models.language_model import LanguageModel
from ffmem.scan.places import EMPTY
from ffmem.scan.scanner import Scanner, ScanState
from ffmem.scan.settings import ScanSettings
from ffmem.store.checkpoint import Checkpoint, Progress, load_checkpoint, save_checkpoint
from ffmem.store.folder import ScanFolder
from ffmem.store.manifest import Manifest, ScanKey, read_manifest
from ffmem.store.scan_store import ScanStore
from ffmem.store.writing import (
    write_endings,
    write_kept,
    write_state,
    write_table,
    write_vocabulary,
)
from ffmem.version import VERSION

MOST_SHARDS = 1 << 16  # sentence numbers are stored in 32 bits
SAVE_EVERY = 60.0  # seconds between checkpoints, at least
SAVE_SHARE = 50  # a checkpoint's own seconds count so many times towards the next one
HELD_SHARDS = 32  # shards whose whole text is held before any of it is dropped
Watch = Callable[[Progress, float | None], None]
ENDS = 20  # tokens kept at either end of every value's ranking


@dataclass(frozen=True)
class ScanPlan:
    """What to scan, and how; all but `budget` decides the answer."""

    source: Source
    settings: ScanSettings
    sentences: SentenceSettings
    layers: Sequence[int] | None = None
    max_sentences: int | None = None
    budget: int | None = None  # tokens a batch; None takes what suits the device


def scan(
    model: LanguageModel,
    plan: ScanPlan,
    out: Path,
    watch: Watch = lambda _progress, _share: None,
) -> ScanStore:
    """Find the strongest triggers of every key and keep them in the folder `out`.

    A folder with the same scan, finished, is opened as it is; unfinished, the scan goes on where
    it was; a folder with another scan is refused. `watch` is told of every batch, and which share
    of the work is done if that is known. Stopping with Ctrl-C saves what was found.
    """
    folder, key = ScanFolder(out), scan_key(model, plan)
    if folder.manifest.exists():
        refuse_another(folder, read_manifest(folder).key, key)
        return ScanStore.open(out)
    start = load_checkpoint(folder)
    if start is not None and start.key != key.digest:
        raise StoreError(
            f"{out} holds an unfinished scan of something else; choose another folder or delete it"
        )
    with Scanner(model, plan.settings, plan.layers) as scanner:
        run = ScanRun(scanner, folder, key, start or fresh(key, token_budget(model, plan)))
        try:
            run.read(work(model, plan, run.progress), watch)
        except KeyboardInterrupt:
            run.save()
            raise
        finish(model, run)
    return ScanStore.open(out)


def token_budget(model: LanguageModel, plan: ScanPlan) -> int:
    """Tokens a batch: what was asked for, or what suits the device."""
    return plan.budget or (65_536 if model.device.type == "cuda" else 4_096)


class ScanRun:
    """A scan under way: reads, and saves itself now and then so that it can be resumed."""

    def __init__(
        self, scanner: Scanner, folder: ScanFolder, key: ScanKey, start: Checkpoint
    ) -> None:
        self.scanner, self.folder, self.key = scanner, folder, key
        self.progress, self.kept = start.progress, start.kept
        if start.state:
            scanner.resume(start.state)
        self._recent: list[Sentences] = []
        self._began = time.monotonic() - start.progress.seconds
        self._next_save = time.monotonic() + SAVE_EVERY

    def read(self, shards_of_work: Iterator[Work], watch: Watch) -> None:
        """Read all the work there is."""
        for shard in shards_of_work:
            self._recent.append(shard.sentences)
            for batch in shard.batches:
                self.scanner.read(batch)
                self._advance(
                    batches=1, tokens=int(batch.lengths.sum()), sentences=len(batch.lengths)
                )
                watch(self.progress, shard.share)
                if time.monotonic() > self._next_save:
                    self.save()
            self._advance(shards=1, batches=-self.progress.batches, cut=shard.sentences.cut)
            self.progress = replace(self.progress, settled=self.progress.sentences)
            if self._holds_much():
                self.keep(self.scanner.state())

    def _holds_much(self) -> bool:
        """Whether whole shards weigh as much as what was kept of earlier ones, and are many.

        So the work of keeping grows with the corpus and no faster, and memory is bounded by a
        few times what the state can point at.
        """
        held = sum(len(sentences.tokens) for sentences in self._recent)
        return len(self._recent) >= HELD_SHARDS and held >= len(self.kept.tokens)

    def _advance(self, **steps: int) -> None:
        counts = {name: getattr(self.progress, name) + step for name, step in steps.items()}
        seconds = time.monotonic() - self._began
        self.progress = replace(self.progress, seconds=seconds, **counts)

    def save(self) -> None:
        """Write a checkpoint that holds all that was read so far."""
        began = time.monotonic()
        state = self.scanner.state()
        self.keep(state)
        save_checkpoint(self.folder, Checkpoint(self.key.digest, self.progress, state, self.kept))
        took = time.monotonic() - began
        self._next_save = time.monotonic() + max(SAVE_EVERY, SAVE_SHARE * took)

    def keep(self, state: ScanState) -> None:
        """Keep the sentences that a state points at, of those kept before and those just read.

        The latest shard stays at hand: the rest of it may still be read.
        """
        wanted = sentences_in(state)
        kept = self.kept.only(wanted)
        new = np.setdiff1d(wanted, kept.numbers, assume_unique=True)
        read = [KeptSentences.of(sentences).only(new) for sentences in self._recent]
        self.kept = KeptSentences.joined([kept, *read])
        self._recent = self._recent[-1:]


@dataclass(frozen=True)
class Work:
    """One shard, ready to be read."""

    sentences: Sentences
    batches: list[Batch]
    share: float | None  # of the corpus, up to this shard


def work(model: LanguageModel, plan: ScanPlan, done: Progress) -> Iterator[Work]:
    """Shard after shard of the corpus that is not done yet, made ready in the background."""
    return prefetched(made_ready(model, plan, done))


def shards_left(model: LanguageModel, plan: ScanPlan, done: Progress) -> Iterator[Tokenised]:
    """The tokenised shards that are not done yet; for a GPU, from processes of their own."""
    reading = Reading(plan.source, sentence_settings(model, plan), done.shards)
    if model.device.type == "cuda" and can_be_apart(reading, model.tokenizer):
        return tokenised_apart(reading, model.tokenizer)
    return tokenised(reading, model.tokenizer)


def made_ready(model: LanguageModel, plan: ScanPlan, done: Progress) -> Iterator[Work]:
    """Split, tokenise and batch what is left of the corpus."""
    left = None if plan.max_sentences is None else plan.max_sentences - done.settled
    if left is not None and left <= 0:
        return
    for number, shard in enumerate(shards_left(model, plan, done), done.shards):
        if number >= MOST_SHARDS:
            raise ScanError("the corpus is larger than one scan can number; scan it in parts")
        sentences, share = shard.sentences, shard.share
        if plan.max_sentences is not None and left is not None:
            sentences = sentences.first(left)
            left -= len(sentences)
            share = max(share or 0.0, 1 - left / plan.max_sentences)
        ready = list(batches(sentences, model.bos, model.bos or 0, done.budget))
        yield Work(sentences, ready[done.batches if number == done.shards else 0 :], share)
        if left is not None and left <= 0:
            return


def sentence_settings(model: LanguageModel, plan: ScanPlan) -> SentenceSettings:
    """The plan's settings with no sentence longer than the model can read."""
    room = model.longest - (0 if model.bos is None else 1)
    return replace(plan.sentences, max_tokens=min(plan.sentences.max_tokens, room))


def scan_key(model: LanguageModel, plan: ScanPlan) -> ScanKey:
    """All that decides what this scan finds, as plain values."""
    return ScanKey(
        model={
            "name": model.name,
            "revision": model.revision,
            "type": model.kind,
            "dtype": str(model.dtype).removeprefix("torch."),
            "weights": weights_digest(model.model),
            "tokenizer": tokenizer_digest(model.tokenizer),
            "bos": model.bos,
        },
        corpus={
            **asdict(plan.source),
            "digest": digest(plan.source),
            **asdict(sentence_settings(model, plan)),
            "max_sentences": plan.max_sentences,
        },
        settings={
            **asdict(plan.settings),
            "layers": None if plan.layers is None else sorted(plan.layers),
        },
    )


def refuse_another(folder: ScanFolder, found: ScanKey, wanted: ScanKey) -> None:
    """Never write one scan over another."""
    if found.digest != wanted.digest:
        where = ", ".join(found.differences(wanted)) or "something"
        raise StoreError(
            f"{folder.root} holds another scan (it differs in {where}); choose another folder"
        )


def fresh(key: ScanKey, budget: int) -> Checkpoint:
    """Where a scan starts."""
    return Checkpoint(key.digest, Progress(budget=budget), {}, KeptSentences.empty())


def sentences_in(state: ScanState) -> np.ndarray[Any, np.dtype[np.int64]]:
    """The numbers of all sentences that a state points at, in order, each once."""
    found = [
        sentence_and_position(part.places[part.places != EMPTY])[0].unique().cpu().numpy()
        for layer in state.values()
        for part in (layer.triggers, layer.sample)
    ]
    return np.unique(np.concatenate(found))


def finish(model: LanguageModel, run: ScanRun) -> None:
    """Write the store; the manifest last, so that a folder which has one is complete."""
    state, folder = run.scanner.state(), run.folder
    run.keep(state)
    kept = run.kept
    write_state(folder, state)
    write_kept(folder, kept)
    write_endings(folder, state, kept)
    write_vocabulary(folder, [model.token(token) for token in range(model.words)])
    write_table(folder, "values", value_columns(model, sorted(state)), 8192)
    any_layer = next(iter(state.values()))
    progress = run.progress
    manifest = Manifest(
        key=run.key,
        layers=[(number, model.layer(number).memories) for number in sorted(state)],
        signed=run.scanner.settings.signed,
        counts={
            "sentences": progress.sentences,
            "tokens": progress.tokens,
            "prefixes": any_layer.tallies.prefixes,
            "sentences_kept": len(kept),
            "sentences_cut": progress.cut,
            "dead": sum(int((layer.tallies.fires == 0).sum()) for layer in state.values()),
            "unfilled": sum(
                int((layer.triggers.filled < run.scanner.settings.top).sum())
                for layer in state.values()
            ),
        },
        seconds=round(progress.seconds, 3),
        versions=versions(),
    )
    manifest.write(folder)
    folder.checkpoint.unlink(missing_ok=True)


def value_columns(model: LanguageModel, layers: Sequence[int]) -> dict[str, Any]:
    """Both ends of every value's ranking, as columns of a table."""
    parts = [(number, value_ends(model, model.layer(number), ENDS)) for number in layers]
    ends = {
        name: np.concatenate([getattr(found, name).numpy() for _, found in parts])
        for name in ("promoted", "promoted_logits", "suppressed", "suppressed_logits")
    }
    certain = {
        name: np.concatenate([getattr(found, name).numpy() for _, found in parts])
        for name in ("probability", "suppressed_probability")
    }
    sizes = [(number, len(found.probability)) for number, found in parts]
    return {
        "layer": np.concatenate([np.full(size, number, np.int32) for number, size in sizes]),
        "memory": np.concatenate([np.arange(size, dtype=np.int32) for _, size in sizes]),
        **{name: list(rows) for name, rows in ends.items()},
        **certain,
    }


def versions() -> dict[str, str]:
    """What made a store."""
    names = ("torch", "transformers", "tokenizers", "numpy")
    return {
        "ffmem": VERSION,
        "python": platform.python_version(),
        **{name: version(name) for name in names},
    }
