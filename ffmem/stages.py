"""The stage behind a scan: analyses of a store and its model, as files of numbers and figures."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields, is_dataclass, replace
from functools import cached_property
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ffmem import demo
from ffmem.address import Address
from ffmem.analyses.causal import causal
from ffmem.analyses.composition import composition
from ffmem.analyses.controls import untrained
from ffmem.analyses.last_layer import last_layer
from ffmem.analyses.lenses import lenses
from ffmem.analyses.refinement import refinement
from ffmem.analyses.sample import PrefixSample, draw_sample
from ffmem.analyses.sample_reading import SampleReading, read_sample
from ffmem.analyses.value_reading import LayerValues, read_values
from ffmem.analyses.values import summarise
from ffmem.corpus.sentences import Sentences, SentenceSettings, tokenise
from ffmem.corpus.shards import shards
from ffmem.corpus.sources import Source, documents
from ffmem.errors import CorpusError, FfmemError, StoreError
from ffmem.models.digest import weights_digest
from ffmem.models.language_model import LanguageModel
from ffmem.models.loading import load
from ffmem.pipeline import ScanPlan, scan, sentence_settings
from ffmem.scan.settings import ScanSettings
from ffmem.store.folder import write_whole
from ffmem.store.scan_store import ScanStore
from ffmem.version import VERSION

CONTROL = "control-random-weights"  # the folder of the untrained model's results
CONTROL_SENTENCES = 500  # of the scan of an untrained model, at most
SENTENCES = ("splitter", "max_tokens", "drop_headings", "wikitext_detok")


@dataclass(frozen=True)
class AnalysisPlan:
    """What to analyse: which questions, on how many prefixes of which validation text."""

    valid: Source | None = None  # None takes the embedded text, for the embedded model
    only: tuple[str, ...] = ()  # none means all
    sample: int = 4000
    seed: int = 0


class Subject:
    """A model and its scan, with what several analyses share, made when first asked for."""

    def __init__(self, model: LanguageModel, store: ScanStore, plan: AnalysisPlan) -> None:
        self.model, self.store, self.plan = model, store, plan

    @property
    def generator(self) -> torch.Generator:
        """Fresh for every question, so that none depends on which were asked before."""
        return torch.Generator().manual_seed(self.plan.seed)

    @cached_property
    def values(self) -> tuple[LayerValues, ...]:
        """Every value through the vocabulary."""
        return tuple(read_values(self.model, self.store, self.generator))

    @cached_property
    def sample(self) -> PrefixSample:
        """The validation prefixes."""
        return draw_sample(self._sentences(), self.plan.sample, self.plan.seed)

    @cached_property
    def reading(self) -> SampleReading:
        """All layers at the validation prefixes."""
        return read_sample(self.model, self.sample)

    def _sentences(self) -> Iterator[Sentences]:
        corpus = self.store.manifest.key.corpus
        settings = SentenceSettings(**{name: corpus[name] for name in SENTENCES})
        source = self.plan.valid or embedded_validation(self.store)
        plan = ScanPlan(source, ScanSettings(), settings)
        for shard in shards(documents(source)):
            yield tokenise(shard, self.model.tokenizer, sentence_settings(self.model, plan))


def embedded_validation(store: ScanStore) -> Source:
    """The demo's validation text; other models have none of their own."""
    if store.manifest.key.model["name"].split()[0] != "demo":
        raise CorpusError(
            "the scan's model brings no validation text; name one with --valid, as you named the "
            "corpus of the scan"
        )
    return Source(str(demo.VALID))


RUNS: dict[str, Callable[[Subject], Any]] = {
    "values": lambda s: summarise(s.model, s.store, s.values, s.generator),
    "composition": lambda s: composition(s.model, s.reading, s.generator),
    "refinement": lambda s: refinement(s.reading, s.model.words, s.generator),
    "last-layer": lambda s: last_layer(s.model, s.reading, s.generator),
    "lenses": lambda s: lenses(s.model, s.store, s.sample, s.generator),
    "causal": lambda s: causal(s.model, s.store, s.sample, s.generator),
}
NO_FIGURE = {"last-layer"}


def chosen(text: str | None) -> tuple[str, ...]:
    """Read `values,composition`; nothing means every analysis."""
    names = tuple(RUNS) if text is None else tuple(part.strip() for part in text.split(","))
    unknown = [name for name in names if name not in RUNS]
    if unknown:
        raise FfmemError(f"there is no analysis {unknown[0]!r}; choose among {', '.join(RUNS)}")
    return names


def analyse(
    model: LanguageModel,
    store: ScanStore,
    plan: AnalysisPlan,
    out: Path,
    watch: Callable[[str, float], None] = lambda _name, _seconds: None,
) -> dict[str, Any]:
    """Run analyses and write `analyses/<name>.json` and `figures/` under `out`.

    Returns the results by name; `watch` is told of each with its seconds.
    """
    subject = Subject(model, store, plan)
    results = {}
    for name in plan.only or tuple(RUNS):
        began = time.monotonic()
        results[name] = RUNS[name](subject)
        write_result(out / "analyses" / f"{name}.json", name, results[name], subject)
        if name not in NO_FIGURE:
            draw(name, results[name], out / "figures")
        watch(name, time.monotonic() - began)
    write_arrays(out / "analyses", subject)
    return results


def draw(name: str, result: Any, folder: Path) -> None:
    """Save every figure of one analysis."""
    save = import_module("ffmem.figures.saving").save  # here: charts are slow to import
    for figure, chart in import_module(f"ffmem.figures.{name}").charts(result).items():
        save(chart, folder, figure)


def analyse_untrained(
    model: LanguageModel,
    store: ScanStore,
    plan: AnalysisPlan,
    out: Path,
    watch: Callable[[str, float], None] = lambda _name, _seconds: None,
) -> dict[str, Any]:
    """The same analyses of an untrained model of the same shape, with a small scan of its own."""
    key = store.manifest.key
    fresh = untrained(model, plan.seed)
    settings = {name: value for name, value in key.settings.items() if name != "layers"}
    most = key.corpus["max_sentences"]
    again = ScanPlan(
        source=Source(*(key.corpus[name] for name in ("path", "column", "split", "errors"))),
        settings=ScanSettings(**settings),
        sentences=SentenceSettings(**{name: key.corpus[name] for name in SENTENCES}),
        layers=key.settings["layers"],
        max_sentences=CONTROL_SENTENCES if most is None else min(most, CONTROL_SENTENCES),
    )
    folder = out / CONTROL
    began = time.monotonic()
    control = scan(fresh, again, folder)
    watch("scan", time.monotonic() - began)
    return analyse(fresh, control, replace(plan, valid=plan.valid), folder, watch)


def model_of(store: ScanStore, device: str = "auto") -> LanguageModel:
    """Load the model that a store was made with; refuses one whose weights have changed."""
    key = store.manifest.key.model
    model = load(key["name"], revision=key["revision"], dtype=key["dtype"], device=device)
    if weights_digest(model.model) != key["weights"]:
        raise StoreError(
            f"the weights of {key['name']} are not those that {store.folder.root} was scanned "
            "with; scan again"
        )
    return model


def write_result(path: Path, name: str, result: Any, subject: Subject) -> None:
    """One analysis as JSON, with what it was made from."""
    head = {
        "analysis": name,
        "model": subject.model.name,
        "scan": subject.store.manifest.key.digest,
        "scanned_sentences": subject.store.manifest.counts["sentences"],
        "seed": subject.plan.seed,
        "sample": subject.plan.sample,
        "ffmem": VERSION,
    }
    text = json.dumps({**head, "result": plain(result)}, indent=1, ensure_ascii=False) + "\n"
    write_whole(path, lambda part: part.write_text(text, encoding="utf-8"))


def plain(value: Any) -> Any:
    """Any result as what JSON knows: NaN becomes null, an address its name."""
    if isinstance(value, Address):
        return str(value)
    if is_dataclass(value):
        return {field.name: plain(getattr(value, field.name)) for field in fields(value)}
    if isinstance(value, Tensor):
        return plain(value.tolist())
    if isinstance(value, dict):
        return {str(name): plain(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value


def write_arrays(folder: Path, subject: Subject) -> None:
    """The numbers of every cell and of every sampled place, where they were made."""
    made = vars(subject)
    if "values" in made:
        parts = subject.values
        arrays = {
            "layer": np.concatenate([np.full(len(part.top), part.layer) for part in parts]),
            **{
                name: torch.cat([getattr(part, name) for part in parts]).numpy()
                for name in ("top", "probability", "ranks")
            },
            "next": torch.cat([part.triggers.next for part in parts]).numpy(),
        }
        write_npz(folder / "values.npz", arrays)
    if "reading" in made:
        reading = subject.reading
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
        }
        write_npz(folder / "sample.npz", {name: t.numpy() for name, t in tensors.items()})


def write_npz(path: Path, arrays: dict[str, Any]) -> None:
    """Compressed arrays, whole or not at all."""

    def save(part: Path) -> None:
        with part.open("wb") as file:
            np.savez_compressed(file, **arrays)

    write_whole(path, save)
