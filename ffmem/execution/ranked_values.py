"""The last stage of a scan: both ends of every value's ranking, which need the model alone."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from ffmem.memories.value_vectors import ValueEnds, rank_once
from ffmem.models.language_model import LanguageModel
from ffmem.steps import sized_steps, tell
from ffmem.store.folder import StudyFolder
from ffmem.store.manifest import read_manifest
from ffmem.store.scan_writer import write_table

ENDS = 20  # tokens kept at either end of every value's ranking


def rank_values(model: LanguageModel, folder: StudyFolder) -> None:
    """Rank the values of a finished scan, unless they are ranked; it can be read meanwhile.

    Every layer that is done is cached, so that a later call goes on behind it.
    """
    manifest = read_manifest(folder)
    if manifest.has_rankings:
        return
    sizes = dict(manifest.layers)
    memories = sum(sizes.values())
    what = f"ranking {memories:,} values over {model.vocab_size:,} tokens"
    tell(what, 0.0)
    ranked = sized_steps(
        rank_once(model, list(sizes), ENDS), memories, what, lambda item: len(item[1].probability)
    )
    found = ValueEnds.join([ends for _, ends in ranked])
    table = write_table(folder, "values", columns(found, sizes), 8192)
    replace(manifest, files=manifest.files | table).write(folder)


def columns(found: ValueEnds, sizes: Mapping[int, int]) -> dict[str, Any]:
    """The ends of all layers as columns of a table."""
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
