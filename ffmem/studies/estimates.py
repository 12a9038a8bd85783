"""Estimated time and memory of a study, from a probe of a second or two."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch

from ffmem.corpus.compression import Meter
from ffmem.corpus.sentences import tokenise
from ffmem.corpus.shards import shards
from ffmem.corpus.sources import documents
from ffmem.execution.plan import ScanPlan, scan_key, sentence_settings
from ffmem.locations import location
from ffmem.memories.projection import CHUNK_BYTES, logits
from ffmem.models.device_placement import own_parameters
from ffmem.models.language_model import LanguageModel
from ffmem.store.folder import StudyFolder
from ffmem.store.manifest import read_manifest
from ffmem.store.scan_store import ScanStore
from ffmem.studies.inputs import Sizes, StudyInputs
from ffmem.studies.registry import ANALYSES, Cost, Workload, sample_cost, scan_cost
from ffmem.studies.runner import is_current

LONG_ENOUGH = 0.15  # seconds that a probe must take to be believed
SCAN, REPORT = "scan", "report"
STANDARD_INPUT = "-"
GUESSED_TOKENS = 25  # per sentence, where the text cannot be looked at twice


@dataclass(frozen=True)
class CorpusSize:
    """The size of a corpus, guessed from its first shard; no total where nothing says how far."""

    tokens: int | None
    tokens_per_sentence: float


@dataclass(frozen=True)
class ModelSpeed:
    """What the machine does with this model in a second."""

    tokens: float  # read in a forward pass
    projections: float  # vectors brought to the vocabulary


@dataclass(frozen=True)
class Estimate:
    """Seconds by analysis, the scan first, and bytes of memory."""

    text: CorpusSize
    seconds: dict[str, float]
    memory: int
    there: tuple[str, ...] = ()  # what need not be made again

    @property
    def total(self) -> float:
        """Seconds of all parts whose length is known."""
        return sum(self.seconds.values())


def estimate(
    model: LanguageModel,
    plan: ScanPlan,
    sizes: Sizes,
    only: Collection[str] = tuple(ANALYSES),
    there: Collection[str] = (),
    twin: Collection[str] = (),
) -> Estimate:
    """Probe the model and the text, and say what a study of this size will cost.

    `only` names the analyses that are wanted, `there` those that are there already, and `twin`
    those that an untrained model of the same shape goes through too, after a scan of its own.
    """
    text, speed = text_size(model, plan), probe(model)
    wanted = [name for name in (SCAN, *ANALYSES, REPORT) if name in (SCAN, REPORT, *only)]
    missing = [name for name in wanted if name not in there]
    seconds = {
        name: cost.tokens / speed.tokens + cost.projections / speed.projections + cost.seconds
        for name, cost in costs(model, plan, sizes, text, missing).items()
    }
    if twin:
        again = sum(took for name, took in seconds.items() if name in {SCAN, *twin})
        seconds["untrained twin"] = again
    kept = tuple(name for name in wanted if name in there)
    return Estimate(text, seconds, memory(model, plan, copies=2 if twin else 1), kept)


def results_there(
    model: LanguageModel, plan: ScanPlan, out: Path, inputs: Callable[[ScanStore], StudyInputs]
) -> tuple[str, ...]:
    """The scan, analyses and report of a plan that a folder has already."""
    folder = StudyFolder(location(out))
    if not folder.manifest.exists():
        return ()
    if read_manifest(folder).key.digest != scan_key(model, plan).digest:
        return ()
    subject = inputs(ScanStore.open(out))
    current = [name for name in ANALYSES if is_current(folder.root, name, subject)]
    results = [name for name in ANALYSES if folder.result(name).exists()]
    has_report = folder.report_page.exists() and results == current
    return (SCAN, *current, *([REPORT] if has_report else []))


def text_size(model: LanguageModel, plan: ScanPlan) -> CorpusSize:
    """Read the first shard of the corpus and how much of it that is."""
    if plan.source.path == STANDARD_INPUT:
        return CorpusSize(None, GUESSED_TOKENS)
    meter = Meter()
    shard = next(shards(documents(plan.source, meter)))
    sentences = tokenise(shard, model.tokenizer, sentence_settings(model, plan))
    tokens = int(sentences.lengths.sum())
    each = tokens / max(len(sentences), 1)
    whole = round(tokens / meter.share) if meter.share else None
    if plan.max_sentences is not None:
        most = round(plan.max_sentences * each)
        whole = most if whole is None else min(whole, most)
    return CorpusSize(whole, each)


@torch.no_grad()
def probe(model: LanguageModel) -> ModelSpeed:
    """Time a forward pass and a projection, each made larger until it takes long enough."""
    some = torch.arange(32, device=model.device) % model.vocab_size

    def read(rows: int) -> None:
        model.block_stack(input_ids=some.expand(rows, -1), use_cache=False)

    def project(rows: int) -> None:
        vectors = torch.ones(rows, model.hidden_size, dtype=model.dtype, device=model.device)
        logits(model, vectors, "state")

    most = max(1, CHUNK_BYTES // (4 * model.vocab_size))
    return ModelSpeed(32 * rate(read, model, 512), rate(project, model, most))


def rate(work: Callable[[int], None], model: LanguageModel, most: int) -> float:
    """Rows per second."""
    rows = 1
    work(rows)  # the first call pays for what is set up once
    while True:
        began = time.monotonic()
        work(rows)
        for device in model.devices:
            if device.type == "cuda":
                torch.cuda.synchronize(device)
        took = time.monotonic() - began
        if took >= LONG_ENOUGH or rows >= most:
            return rows / max(took, 1e-9)
        rows = min(most, rows * 4)


def costs(
    model: LanguageModel, plan: ScanPlan, sizes: Sizes, text: CorpusSize, names: Sequence[str]
) -> dict[str, Cost]:
    """The cost of some of scan, analyses and report, in their order.

    What several analyses read once, the validation prefixes, is paid for by the first of them.
    """
    layers = model.layers if plan.layers is None else [model.layer(n) for n in set(plan.layers)]
    work = Workload(
        layers=len(layers),
        memories=sum(layer.memories for layer in layers),
        tokens=text.tokens or 0,
        tokens_per_sentence=text.tokens_per_sentence,
        sizes=sizes,
        whole=(len(model.layers), model.memories),
        signs=2 if plan.settings.signed else 1,
        top=plan.settings.top,
    )
    found = {name: cost_of(name, work) for name in names}
    readers = [name for name in names if name in ANALYSES and "sample" in ANALYSES[name].arrays]
    for first in readers[:1]:
        found[first] += sample_cost(work)
    return found


def cost_of(name: str, work: Workload) -> Cost:
    """The cost of the scan, of an analysis or of the report."""
    if name == SCAN:
        return scan_cost(work)
    return Cost(seconds=28) if name == REPORT else ANALYSES[name].cost(work)


def memory(model: LanguageModel, plan: ScanPlan, copies: int = 1) -> int:
    """Bytes: the weights, the scan's state, one batch of one layer, and chunks of logits.

    `copies` of the weights are there at once.
    """
    weights = sum(one.numel() * one.element_size() for _, one in own_parameters(model.model))
    cells = model.memories * (2 if plan.settings.signed else 1)
    state = cells * (12 * (plan.settings.top + plan.settings.sample) + 32)
    widest = max(layer.memories for layer in model.layers)
    budget = plan.budget or 4096
    return copies * weights + 3 * state + 4 * budget * widest * 4 + 6 * CHUNK_BYTES
