"""What is studied: a model and its scan, with what several analyses share."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import islice
from pathlib import Path

import torch

from ffmem import demo
from ffmem.analyses.controls import untrained_model
from ffmem.analyses.inputs.layer_readings import SampleRecord, record_sample
from ffmem.analyses.inputs.prefix_sample import PrefixSample, draw_sample
from ffmem.analyses.inputs.value_rankings import LayerValueRankings, rank_values
from ffmem.corpus.sentences import Sentences, SentenceSettings, tokenise
from ffmem.corpus.shards import shards
from ffmem.corpus.sources import STREAM, Source, documents
from ffmem.errors import CorpusError
from ffmem.execution.run import ScanPlan, run_scan, sentence_settings
from ffmem.models.language_model import LanguageModel
from ffmem.scan.settings import ScanSettings
from ffmem.store.scan_store import ScanStore

SENTENCES = ("splitter", "max_tokens", "drop_headings", "wikitext_detok")
SOURCE = ("path", "column", "split", "errors")
OWN_SHARDS = 16  # of the scanned corpus, where there is no validation text


@dataclass(frozen=True)
class Sizes:
    """How much each analysis measures. The defaults are the paper's, or ours where it has none."""

    sample: int = 4000  # validation prefixes
    pattern_keys: int = 10  # a layer
    removal_keys: int = 100  # a layer
    removal_triggers: int = 50  # a key
    lens_memories: int = 50  # a layer
    causal_memories: int = 8  # a layer


PAPER = Sizes()
SMALL = Sizes(
    sample=1000,
    pattern_keys=5,
    removal_keys=6,
    removal_triggers=20,
    lens_memories=6,
    causal_memories=4,
)
SIZES = {"paper": PAPER, "small": SMALL}


class StudyInputs:
    """A model and its scan; what several analyses need is made when first asked for."""

    def __init__(
        self,
        model: LanguageModel,
        store: ScanStore,
        sizes: Sizes = PAPER,
        valid: Source | None = None,
        seed: int = 0,
    ) -> None:
        self.model, self.store, self.sizes, self.seed = model, store, sizes, seed
        self.valid = valid or demo_validation(store)

    @property
    def generator(self) -> torch.Generator:
        """Fresh for every question, so that none depends on which were asked before."""
        return torch.Generator().manual_seed(self.seed)

    @cached_property
    def values(self) -> tuple[LayerValueRankings, ...]:
        """Every value through the vocabulary."""
        return tuple(rank_values(self.model, self.store, self.generator))

    @cached_property
    def sample(self) -> PrefixSample:
        """The validation prefixes."""
        return draw_sample(self._sentences(), self.sizes.sample, self.seed)

    @cached_property
    def reading(self) -> SampleRecord:
        """All layers at the validation prefixes."""
        return record_sample(self.model, self.sample)

    def _sentences(self) -> Iterator[Sentences]:
        corpus = self.store.manifest.key.corpus
        settings = SentenceSettings(**{name: corpus[name] for name in SENTENCES})
        source = self.valid or corpus_source(self.store)
        cut = sentence_settings(self.model, ScanPlan(source, ScanSettings(), settings))
        for shard in islice(shards(documents(source)), None if self.valid else OWN_SHARDS):
            yield tokenise(shard, self.model.tokenizer, cut)


def corpus_source(store: ScanStore) -> Source:
    """The text that was scanned."""
    corpus = store.manifest.key.corpus
    if corpus["digest"] == STREAM:
        raise CorpusError(
            f"the text of {store.folder.root} came through a pipe and cannot be read again; name a "
            "text with --valid"
        )
    return Source(*(corpus[name] for name in SOURCE))


def demo_validation(store: ScanStore) -> Source | None:
    """The demo's validation text; other models have none of their own."""
    of_demo = store.manifest.key.model["name"].split()[0] == "demo"
    return Source(str(demo.VALID)) if of_demo else None


MOST_SENTENCES = 500  # that an untrained model scans


def untrained_inputs(subject: StudyInputs, folder: Path) -> StudyInputs:
    """An untrained model of the same shape, with a small scan of its own in `folder`."""
    key = subject.store.manifest.key
    settings = {name: value for name, value in key.settings.items() if name != "layers"}
    most = key.corpus["max_sentences"] or MOST_SENTENCES
    plan = ScanPlan(
        source=corpus_source(subject.store),
        settings=ScanSettings(**settings),
        sentences=SentenceSettings(**{name: key.corpus[name] for name in SENTENCES}),
        layers=key.settings["layers"],
        max_sentences=min(most, MOST_SENTENCES),
    )
    model = untrained_model(subject.model, subject.seed)
    return StudyInputs(
        model, run_scan(model, plan, folder), subject.sizes, subject.valid, subject.seed
    )
