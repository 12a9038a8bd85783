"""The inputs of a study: a model and its scan, with what several analyses share."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import cached_property
from itertools import islice
from pathlib import Path

import numpy as np
import torch

from ffmem import demo
from ffmem.analyses.analysis import PAPER_SIZES, Sizes
from ffmem.analyses.coefficients.measure import (
    SentenceCoefficients,
    first_cells,
    read_page_coefficients,
)
from ffmem.analyses.controls import permuted_model, random_keys, untrained_model
from ffmem.analyses.inputs.layer_readings import SampleRecord, record_sample
from ffmem.analyses.inputs.prefix_sample import PrefixSample, draw_sample
from ffmem.analyses.inputs.value_rankings import LayerValueRankings, rank_values
from ffmem.analyses.patterns.measure import PURPOSE
from ffmem.analyses.weights.measure import WeightSummary, weight_table
from ffmem.corpus.sentences import CorpusRequest, Sentences
from ffmem.corpus.sources import Source, digest
from ffmem.corpus.tokeniser_processes import tokenised_shards
from ffmem.errors import StoreError
from ffmem.execution.plan import ScanPlan, sentence_settings
from ffmem.execution.run import run_scan
from ffmem.models.fingerprint import weights_digest
from ffmem.models.language_model import LanguageModel
from ffmem.models.loading import DTYPES, load, resolve_device
from ffmem.models.wrapping import float32_copy
from ffmem.scan.settings import ScanSettings
from ffmem.store.scan_store import ScanStore
from ffmem.store.search.columns import next_token_ranks

OWN_SHARDS = 16  # of the scanned corpus, where there is no validation text
FEWEST_SENTENCES = 100  # that a control reads


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
        self.valid = valid or _demo_validation(store)

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
        cells = first_cells(self.store, keys, next_token_ranks(self.store.folder))
        return read_page_coefficients(self.model, self.store, cells)

    @cached_property
    def places(self) -> PrefixSample:
        """The validation prefixes, several of each sentence."""
        return draw_sample(self._sentences(), self.sizes.sample, self.seed, self.sizes.places)

    @cached_property
    def sample(self) -> PrefixSample:
        """One of each sentence."""
        return self.places.rows(torch.arange(self.places.count))

    @cached_property
    def reading(self) -> SampleRecord:
        """All layers at the validation prefixes; in 32 bits, because 16 change some top tokens."""
        return record_sample(float32_copy(self.model), self.places)

    def _sentences(self) -> Iterator[Sentences]:
        key = self.store.manifest.key
        plan = ScanPlan(self.valid or key.source(), ScanSettings(), key.sentence_settings())
        request = CorpusRequest(plan.source, sentence_settings(self.model, plan))
        shards = tokenised_shards(
            request, self.model.tokenizer, elsewhere=self.model.device.type == "cuda"
        )
        for shard in islice(shards, None if self.valid else OWN_SHARDS):
            yield shard.sentences


class VerdictInputs(StudyInputs):
    """The same where only verdicts are wanted."""

    @cached_property
    def reading(self) -> SampleRecord:
        """All layers at the validation prefixes, as far as claims rest on them."""
        return record_sample(float32_copy(self.model), self.places, for_verdicts=True)


def _demo_validation(store: ScanStore) -> Source | None:
    """The demo's validation text; other models have none of their own."""
    of_demo = store.manifest.key.model["name"].split()[0] == "demo"
    return Source(str(demo.VALID)) if of_demo else None


def _control_model(subject: StudyInputs, name: str) -> LanguageModel:
    """The model of the control of that name; the number in it is added to the study's seed."""
    kind, _, number = name.partition("-weights")
    make = {"permuted": permuted_model, "random": untrained_model}[kind]
    return make(subject.model, subject.seed + int(number.removeprefix("-") or 0))


def prefix_control_inputs(subject: StudyInputs, name: str) -> StudyInputs:
    """A control that reads validation prefixes alone, fewer than the study does."""
    model, sizes = _control_model(subject, name), control_sizes(subject.sizes)
    return VerdictInputs(model, subject.store, sizes, subject.valid, subject.seed)


def control_sizes(sizes: Sizes) -> Sizes:
    """Of a control that reads prefixes alone: there are several, so each reads a quarter."""
    return replace(sizes, sample=min(sizes.sample, max(FEWEST_SENTENCES, sizes.sample // 4)))


def scanned_control_inputs(
    subject: StudyInputs, name: str, folder: Path, source: Source | None = None
) -> StudyInputs:
    """A control with a scan of the same text in `folder`.

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
    model = _control_model(subject, name)
    store = run_scan(model, plan, folder)
    return VerdictInputs(model, store, subject.sizes, subject.valid, subject.seed)


def scanned_model(store: ScanStore, device: str = "auto", name: str | None = None) -> LanguageModel:
    """Load the model that a store was made with; refuses one whose weights are different.

    `name` says where it is found now, if not under its own name; under its own name it is loaded
    at the scan's revision. On a GPU it has the scan's dtype. On a CPU a model that was scanned in
    16 bits runs in float32, which is faster there and holds the same weights.
    """
    key = store.manifest.key.model
    dtype = "float32" if resolve_device(device).type == "cpu" else key["dtype"]
    revision = key["revision"] if name in (None, key["name"]) else None
    model = load(
        name or key["name"],
        revision=revision,
        dtype=dtype,
        device=device,
        tokenizer=key.get("tokenizer_name"),
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
