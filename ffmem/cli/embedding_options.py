"""How commands compare meanings: by the scanned model's own states, or by a sentence embedding."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import click

from ffmem.cli.options import ModelOptions, model_options

if TYPE_CHECKING:
    from ffmem.models.language_model import LanguageModel
    from ffmem.patterns.clusters import Embedding
    from ffmem.patterns.surface_rules import Background
    from ffmem.store.scan_store import ScanStore


class EmbeddingOptions(ModelOptions):
    """How a command was told to compare meanings."""

    embedding: str | None
    model: str | None


def embedding_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add --embedding, --model and how to load it to a command."""
    command = model_options(command)
    command = click.option(
        "--model", help="The scanned model, where it is not found under its own name."
    )(command)
    return click.option(
        "--embedding",
        help="A sentence-transformers model (name or folder) that compares meanings, instead of "
        "the scanned model's own states.",
    )(command)


def model_for(store: ScanStore, options: EmbeddingOptions) -> LanguageModel:
    """The model that was scanned, loaded as a command was told to."""
    from ffmem.studies.scanned_model import scanned_model  # here: torch is slow to import

    how = ModelOptions(
        revision=options["revision"],
        dtype=options["dtype"],
        device=options["device"],
        trust_remote_code=options["trust_remote_code"],
    )
    return scanned_model(store, name=options["model"], **how)


def embedder(store: ScanStore, options: EmbeddingOptions) -> Callable[[Background], Embedding]:
    """The embedding a command was asked for, once the corpus has been counted."""
    from ffmem.patterns.embeddings import WordStates, sentence_embedding

    if options["embedding"]:
        meaning = sentence_embedding(options["embedding"])
        return lambda _: meaning
    model = model_for(store, options)
    return lambda counted: WordStates(model, counted)
