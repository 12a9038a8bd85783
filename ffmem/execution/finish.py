"""From the last state to a finished store."""

from __future__ import annotations

import platform
from collections.abc import Iterator
from concurrent.futures import Future
from dataclasses import dataclass
from functools import partial
from importlib.metadata import version

from ffmem.execution.checkpoint import ScanProgress
from ffmem.models.language_model import LanguageModel
from ffmem.scan.scanner import ScanState
from ffmem.store.folder import StudyFolder
from ffmem.store.kept_sentences import KeptSentences
from ffmem.store.manifest import Manifest, ScanKey
from ffmem.store.scan_writer import (
    load_parquet,
    write_endings,
    write_histograms,
    write_sentences,
    write_state,
    write_together,
    write_vocabulary,
)
from ffmem.version import VERSION


@dataclass(frozen=True)
class FinishedScan:
    """The result of a scan after the whole corpus is read."""

    key: ScanKey
    state: ScanState
    keeping: Future[KeptSentences]  # may be under way
    progress: ScanProgress

    @property
    def kept_sentences(self) -> KeptSentences:
        """The sentences that the state points at; waits for them."""
        return self.keeping.result()


def write_store(model: LanguageModel, found: FinishedScan, folder: StudyFolder) -> None:
    """Write the store; the manifest last, so that a folder which has one is complete.

    Its values are ranked later, by `rank_values`.
    """
    state, settings = found.state, found.key.scan_settings()
    activations = {number: model.layer(number).activation for number in state}
    files = write_together(
        [
            partial(write_state, folder, state),
            partial(write_histograms, folder, state, activations, settings.signed),
            lambda: write_sentences(folder, found.kept_sentences),
            lambda: write_endings(folder, state, found.kept_sentences),
            lambda: write_vocabulary(folder, model.token_texts),
        ]
    )
    manifest = Manifest(
        key=found.key,
        layers=[(number, model.layer(number).memories) for number in sorted(state)],
        signed=settings.signed,
        counts=_scan_counts(found),
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


def prepare_store(model: LanguageModel) -> Iterator[None]:
    """What writing a store needs beside the text, a part at each step."""
    load_parquet()
    yield
    _ = model.token_texts  # which the model keeps
    yield


def _scan_counts(found: FinishedScan) -> dict[str, int]:
    """How much was read, kept, and never filled."""
    layers, top = list(found.state.values()), found.key.settings["top"]
    return {
        "sentences": found.progress.sentences,
        "tokens": found.progress.tokens,
        "prefixes": layers[0].tallies.prefixes,
        "sentences_kept": len(found.kept_sentences),
        "sentences_cut": found.progress.cut,
        "dead": sum(int((layer.tallies.fires == 0).sum()) for layer in layers),
        "unfilled": sum(int((layer.triggers.slot_counts < top).sum()) for layer in layers),
    }


def versions() -> dict[str, str]:
    """The versions of the software that wrote a store."""
    names = ("torch", "transformers", "tokenizers", "numpy")
    return {
        "ffmem": VERSION,
        "python": platform.python_version(),
        **{name: version(name) for name in names},
    }
