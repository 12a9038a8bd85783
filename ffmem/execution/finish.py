"""From the last state to a finished store."""

from __future__ import annotations

import platform
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from importlib.metadata import version
from typing import Any

import numpy as np

from ffmem.corpus.kept_sentences import KeptSentences
from ffmem.memories.value_vectors import ValueEnds, rank_once
from ffmem.models.language_model import LanguageModel
from ffmem.scan.scanner import ScanState
from ffmem.scan.settings import ScanSettings
from ffmem.steps import sized_steps
from ffmem.store.checkpoint import ScanProgress
from ffmem.store.folder import StudyFolder
from ffmem.store.manifest import Manifest, ScanKey
from ffmem.store.scan_writer import (
    load_parquet,
    write_endings,
    write_histograms,
    write_sentences,
    write_state,
    write_table,
    write_vocabulary,
)
from ffmem.version import VERSION

ENDS = 20  # tokens kept at either end of every value's ranking


@dataclass(frozen=True)
class FinishedScan:
    """The result of a scan after the whole corpus is read."""

    key: ScanKey
    settings: ScanSettings
    state: ScanState
    keeping: Future[KeptSentences]  # may be under way
    progress: ScanProgress

    @property
    def kept_sentences(self) -> KeptSentences:
        """The sentences that the state points at; waits for them."""
        return self.keeping.result()


def write_store(
    model: LanguageModel,
    found: FinishedScan,
    folder: StudyFolder,
    ranking: ValueRanking | None = None,
) -> None:
    """Write the store; the manifest last, so that a folder which has one is complete.

    `ranking` may have been begun before; what it lacks is ranked here.
    """
    state = found.state
    ranking = ranking or ValueRanking(model, sorted(state))
    activations = {number: model.layer(number).activation for number in state}
    with ThreadPoolExecutor() as pool:  # values here, for they may need the model's device
        parts = [
            pool.submit(write_state, folder, state),
            pool.submit(write_histograms, folder, state, activations, found.settings.signed),
            pool.submit(lambda: write_sentences(folder, found.kept_sentences)),
            pool.submit(lambda: write_endings(folder, state, found.kept_sentences)),
            pool.submit(lambda: write_vocabulary(folder, model.token_texts)),
        ]
        values = write_table(folder, "values", ranking.columns(), 8192)
        files = {name: digest for part in parts for name, digest in part.result().items()}
    files |= values
    manifest = Manifest(
        key=found.key,
        layers=[(number, model.layer(number).memories) for number in sorted(state)],
        signed=found.settings.signed,
        counts=scan_counts(found),
        seconds=round(found.progress.seconds, 3),
        versions=versions(),
        files=files,
        mixtures={
            number: model.layer(number).parts
            for number in sorted(state)
            if model.layer(number).mixture is not None
        },
    )
    manifest.write(folder)


def prepare_store(model: LanguageModel, ranking: ValueRanking) -> Iterator[None]:
    """What writing a store needs beside the text, a part at each step."""
    load_parquet()
    yield
    _ = model.token_texts  # which the model keeps
    yield
    yield from ranking.advance()


def scan_counts(found: FinishedScan) -> dict[str, int]:
    """How much was read, kept, and never filled."""
    layers = list(found.state.values())
    return {
        "sentences": found.progress.sentences,
        "tokens": found.progress.tokens,
        "prefixes": layers[0].tallies.prefixes,
        "sentences_kept": len(found.kept_sentences),
        "sentences_cut": found.progress.cut,
        "dead": sum(int((layer.tallies.fires == 0).sum()) for layer in layers),
        "unfilled": sum(
            int((layer.triggers.slot_counts < found.settings.top).sum()) for layer in layers
        ),
    }


class ValueRanking:
    """Both ends of every value's ranking, which depend on the model alone: ranked bit by bit."""

    def __init__(self, model: LanguageModel, layers: Sequence[int]) -> None:
        self._sizes = {number: model.layer(number).memories for number in layers}
        self._parts: list[ValueEnds] = []
        self._ranked = sized_steps(
            rank_once(model, list(layers), ENDS),
            sum(self._sizes.values()),
            "ranking values",
            lambda item: len(item[1].probability),
        )

    def advance(self) -> Iterator[None]:
        """Rank some values at each step, until all are."""
        for _, ends in self._ranked:
            self._parts.append(ends)
            yield

    def columns(self) -> dict[str, Any]:
        """All of them as columns of a table."""
        for _ in self.advance():
            pass
        found, sizes = ValueEnds.join(self._parts), self._sizes
        return {
            "layer": np.repeat(np.array(list(sizes), np.int32), list(sizes.values())),
            "memory": np.concatenate([np.arange(size, dtype=np.int32) for size in sizes.values()]),
            "promoted": found.promoted.int().numpy(),
            "promoted_logits": found.promoted_logits.numpy(),
            "suppressed": found.suppressed.int().numpy(),
            "suppressed_logits": found.suppressed_logits.numpy(),
            "probability": found.probability.numpy(),
            "suppressed_probability": found.suppressed_probability.numpy(),
        }


def versions() -> dict[str, str]:
    """The versions of the software that wrote a store."""
    names = ("torch", "transformers", "tokenizers", "numpy")
    return {
        "ffmem": VERSION,
        "python": platform.python_version(),
        **{name: version(name) for name in names},
    }
