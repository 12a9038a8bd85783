"""The inputs of a study: a model and its scan, with what several analyses share."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import torch

from ffmem import demo
from ffmem.analyses.controls import random_keys, untrained_model
from ffmem.analyses.inputs.layer_readings import SampleRecord, record_sample
from ffmem.analyses.inputs.prefix_sample import PrefixSample, draw_sample
from ffmem.analyses.inputs.sentence_coefficients import (
    SentenceCoefficients,
    first_cells,
    read_page_coefficients,
)
from ffmem.analyses.inputs.value_rankings import LayerValueRankings, rank_values
from ffmem.analyses.weights import WeightSummary, weight_table
from ffmem.corpus.sentences import Sentences
from ffmem.corpus.sources import Source, digest
from ffmem.errors import StoreError
from ffmem.execution.run import ScanPlan, run_scan
from ffmem.execution.single_process import tokenised_shards
from ffmem.models.fingerprint import weights_digest
from ffmem.models.language_model import LanguageModel
from ffmem.models.loading import DTYPES, load, resolve_device
from ffmem.models.wrapping import float32_copy
from ffmem.patterns.analysis import PURPOSE
from ffmem.scan.settings import ScanSettings
from ffmem.store.scan_store import ScanStore
from ffmem.store.weight_columns import next_token_ranks

OWN_SHARDS = 16  # of the scanned corpus, where there is no validation text


@dataclass(frozen=True)
class Sizes:
    """How much each analysis measures. The defaults are the paper's, or ours where it has none."""

    sample: int = 4000  # validation prefixes
    pattern_keys: int = 10  # per layer
    removal_keys: int = 100  # per layer
    removal_triggers: int = 50  # per key
    lens_memories: int = 50  # per layer
    causal_memories: int = 8  # per layer


PAPER_SIZES = Sizes()
SMALL_SIZES = Sizes(
    sample=1000,
    pattern_keys=5,
    removal_keys=6,
    removal_triggers=20,
    lens_memories=6,
    causal_memories=4,
)
SIZES = {"paper": PAPER_SIZES, "small": SMALL_SIZES}


class StudyInputs:
    """A model and its scan; what several analyses need is made when first asked for."""

    def __init__(
        self,
        model: LanguageModel,
        store: ScanStore,
        sizes: Sizes = PAPER_SIZES,
        valid: Source | None = None,
        seed: int = 0,
    ) -> None:
        self.model = model.with_experts(store.manifest.key.settings.get("experts"))
        self.store, self.sizes, self.seed = store, sizes, seed
        self.valid = valid or demo_validation(store)

    @property
    def generator(self) -> torch.Generator:
        """Fresh for every question, so that none depends on which were asked before."""
        return torch.Generator().manual_seed(self.seed)

    @cached_property
    def text_digest(self) -> str:
        """A digest of the validation text, or in words that it is the scanned text itself."""
        return "the scanned corpus" if self.valid is None else digest(self.valid)

    @cached_property
    def values(self) -> tuple[LayerValueRankings, ...]:
        """Every value through the vocabulary."""
        return tuple(rank_values(self.model, self.store, self.generator))

    @cached_property
    def weights(self) -> WeightSummary:
        """Every memory's weights in numbers; tokens are as frequent as in the stored text."""
        tokens = torch.from_numpy(np.array(self.store.sentences.tokens, dtype=np.int64))
        counts = torch.bincount(tokens, minlength=self.model.vocab_size)
        layers = list(self.store.memories)
        return weight_table(self.model, self.generator, counts, "the stored text", layers)

    @cached_property
    def coefficients(self) -> SentenceCoefficients:
        """Coefficients along the triggers of the memories that pages show first."""
        drawn = random_keys(self.store, self.sizes.pattern_keys, self.seed, PURPOSE)
        keys = [key for keys in drawn.values() for key in keys]
        ranks = next_token_ranks(self.store.folder)
        if "values" in self.__dict__:  # of this run, which are not written yet
            ranks = np.concatenate([part.ranks.numpy() for part in self.values])
        cells = first_cells(self.store, keys, ranks)
        return read_page_coefficients(self.model, self.store, cells)

    @cached_property
    def sample(self) -> PrefixSample:
        """The validation prefixes."""
        return draw_sample(self._sentences(), self.sizes.sample, self.seed)

    @cached_property
    def reading(self) -> SampleRecord:
        """All layers at the validation prefixes; in 32 bits, because 16 change some top tokens."""
        return record_sample(float32_copy(self.model), self.sample)

    def _sentences(self) -> Iterator[Sentences]:
        key = self.store.manifest.key
        plan = ScanPlan(self.valid or key.source(), ScanSettings(), key.sentence_settings())
        shards = tokenised_shards(self.model, plan)
        for shard in islice(shards, None if self.valid else OWN_SHARDS):
            yield shard.sentences


def value_arrays(inputs: StudyInputs) -> dict[str, Any]:
    """The numbers of every cell's value."""
    parts = inputs.values
    tokens = {
        "top": [part.top for part in parts],
        "ranks": [part.ranks for part in parts],
        "next": [part.triggers.next for part in parts],
    }
    return {
        "layer": np.concatenate([np.full(len(part.top), part.layer, np.int32) for part in parts]),
        "probability": torch.cat([part.probability for part in parts]).numpy(),
        **{name: torch.cat([t.int() for t in found]).numpy() for name, found in tokens.items()},
    }


def sample_arrays(inputs: StudyInputs) -> dict[str, Any]:
    """The numbers of every sampled place."""
    reading = inputs.reading
    found, counts = reading.predictions[0], reading.coefficients
    tensors = {
        **{name: getattr(reading.sample, name) for name in ("numbers", "positions", "gold")},
        **{field.name: getattr(counts, field.name) for field in fields(counts)},
        **{
            field.name: getattr(found, field.name)
            for field in fields(found)
            if field.name != "convention"
        },
        "model_output": reading.output,
        "entropy": reading.entropy,
        "strongest_last_layer": reading.strongest,
    }
    return {name: tensor.numpy() for name, tensor in tensors.items()}


def demo_validation(store: ScanStore) -> Source | None:
    """The demo's validation text; other models have none of their own."""
    of_demo = store.manifest.key.model["name"].split()[0] == "demo"
    return Source(str(demo.VALID)) if of_demo else None


def untrained_inputs(
    subject: StudyInputs, folder: Path, source: Source | None = None
) -> StudyInputs:
    """The untrained twin: a model of the same shape, with a scan of the same text in `folder`.

    `source` is the text, where the store cannot say it.
    """
    key = subject.store.manifest.key
    plan = ScanPlan(
        source=source or key.source(),
        settings=key.scan_settings(),
        sentences=key.sentence_settings(),
        layers=key.settings["layers"],
        experts=key.settings.get("experts"),
        max_sentences=key.corpus["max_sentences"],
    )
    model = untrained_model(subject.model, subject.seed)
    return StudyInputs(
        model, run_scan(model, plan, folder), subject.sizes, subject.valid, subject.seed
    )


def scanned_model(
    store: ScanStore,
    device: str = "auto",
    name: str | None = None,
    *,
    revision: str | None = None,
    dtype: str = "auto",
    trust_remote_code: bool = False,
) -> LanguageModel:
    """Load the model that a store was made with; refuses one whose weights are different.

    `name` says where it is found now, if not under its own name; under its own name it is loaded
    at the scan's revision, unless another is given. `dtype` auto is the scan's own on a GPU. On a
    CPU a model that was scanned in 16 bits runs in float32, which is faster there and holds the
    same weights.
    """
    key = store.manifest.key.model
    if dtype == "auto":
        dtype = "float32" if resolve_device(device).type == "cpu" else key["dtype"]
    if revision is None and name in (None, key["name"]):
        revision = key["revision"]
    model = load(
        name or key["name"],
        revision=revision,
        dtype=dtype,
        device=device,
        trust_remote_code=trust_remote_code,
    )
    refuse_other_weights(store, model, dtype)
    return model.with_experts(store.manifest.key.settings.get("experts"))


def refuse_other_weights(store: ScanStore, model: LanguageModel, dtype: str) -> None:
    """Refuse a model, loaded in `dtype`, whose weights are not those that a store was made with."""
    key = store.manifest.key.model
    if weights_digest(model.model, DTYPES[key["dtype"]]) != key["weights"]:
        raise StoreError(
            f"the weights of {model.name} ({dtype}) are not those that {store.folder.root} was "
            f"scanned with ({key['dtype']}); give the model that was scanned, or scan again"
        )
