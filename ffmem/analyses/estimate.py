"""Estimated time, memory and disk of a study, from a probe of a second or two."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch

from ffmem.analyses.analysis import Cost, Sizes, Workload
from ffmem.analyses.catalogue import ANALYSES, PREFIX_ANALYSES, STANDARD, applicable
from ffmem.analyses.inputs.layer_readings import conventions_of
from ffmem.analyses.inputs.study_inputs import StudyInputs, control_sizes
from ffmem.analyses.open_claims.forecast import open_claims, open_claims_text
from ffmem.analyses.runner import is_current
from ffmem.corpus.file_formats import Meter
from ffmem.corpus.sentences import tokenise
from ffmem.corpus.shards import shards
from ffmem.corpus.sources import documents, is_stream
from ffmem.execution.plan import (
    ScanPlan,
    memory,
    plan_layers,
    scan_key,
    sentence_settings,
)
from ffmem.locations import location
from ffmem.memories.projection import CHUNK_BYTES, logits
from ffmem.models.language_model import LanguageModel
from ffmem.store.folder import PREFIX_CONTROLS, StudyFolder
from ffmem.store.manifest import read_manifest
from ffmem.store.scan_store import ScanStore

# Projections of a place in a layer, and half as much again for reading the logits: four for
# verdicts, two for the layer with a softmax, three for every other convention.
FOR_VERDICTS, OF_A_SOFTMAX, OF_A_CONVENTION = 6.0, 3.0, 4.5
LONG_ENOUGH = 0.15  # seconds that a probe must take to be believed
SCAN, RANKING, REPORT = "scan", "ranking", "report"
DEMO = "demo"  # whose keys and cases a language model has read
DISK_PER_SLOT, DISK_PER_CELL, DISK_PER_TOKEN = 9, 350, 12  # bytes, as of the embedded model
LIBRARIES = 1200 << 20  # bytes on a CPU: libraries, loading, drawing; seen on the demo
DISK_OF_FIGURES = 45 << 20  # bytes, with the report: each page has the library that draws it
TOKENS_PER_SENTENCE = 25  # per sentence, where the text cannot be looked at twice


@dataclass(frozen=True)
class CorpusSize:
    """The size of a corpus, guessed from its first shard; no total where nothing says how far."""

    tokens: int | None
    tokens_per_sentence: float


@dataclass(frozen=True)
class ModelSpeed:
    """The speed of this machine with this model, per second."""

    tokens: float  # read in a forward pass
    projections: float  # vectors brought to the vocabulary

    def seconds(self, cost: Cost) -> float:
        """The seconds that something takes."""
        return cost.tokens / self.tokens + cost.projections / self.projections + cost.seconds


@dataclass(frozen=True)
class Estimate:
    """Seconds by analysis, the scan first, and bytes of memory and of disk."""

    text: CorpusSize
    seconds: dict[str, float]
    memory: int
    disk: int
    there: tuple[str, ...] = ()  # what need not be made again
    undecided: str = ""  # which claims it will probably leave so

    @property
    def total(self) -> float:
        """Seconds of all parts whose length is known."""
        return sum(self.seconds.values())


def estimate(
    model: LanguageModel,
    plan: ScanPlan,
    sizes: Sizes,
    only: Collection[str] = STANDARD,
    there: Collection[str] = (),
    controls: Collection[str] = (),
) -> Estimate:
    """Probe the model and the text, and say what a study of this size will cost.

    `only` names the analyses that are wanted, `there` those that are there already, and
    `controls` those that models without what was learned go through too, one after its own scan.
    """
    text, speed = _text_size(model, plan), probe(model)
    mixtures = any(layer.mixture is not None for layer in plan_layers(model, plan))
    only = applicable(only, mixtures)
    wanted = [SCAN, RANKING, *(name for name in ANALYSES if name in only), REPORT]
    missing = [name for name in wanted if name not in there]
    work = workload(model, plan, sizes, text)
    every = costs(work, missing, projections_of_a_place(model))
    seconds = {name: speed.seconds(cost) for name, cost in every.items()}
    if controls:
        again = [name for name in missing if name in {SCAN, RANKING, *controls}]
        seconds["controls"] = sum(map(speed.seconds, costs(work, again).values()))
        if set(controls) & set(PREFIX_ANALYSES):
            few = workload(model, plan, control_sizes(sizes), text)
            seconds["controls"] += len(PREFIX_CONTROLS) * speed.seconds(
                _sample_cost(few, FOR_VERDICTS)
            )
    kept = tuple(name for name in wanted if name in there)
    is_whole = set(only) <= set(there)  # its verdicts are printed at once
    left = {} if is_whole else open_claims(work, only, has_readings=model.name == DEMO)
    copies = 2 if controls else 1
    needed = memory(model, plan, copies) + (LIBRARIES if model.device.type == "cpu" else 0)
    on_disk = disk(model, plan, text, copies)
    return Estimate(text, seconds, needed, on_disk, kept, open_claims_text(left))


def disk(model: LanguageModel, plan: ScanPlan, text: CorpusSize, copies: int = 1) -> int:
    """Bytes of a study's folder: scans and results, the sentences that they show, figures."""
    settings = plan.settings
    cells = sum(settings.cells(layer.memories) for layer in plan_layers(model, plan))
    slots = cells * (settings.top + settings.sample)
    shown = slots * text.tokens_per_sentence
    kept = shown if text.tokens is None else min(shown, text.tokens)
    scan = DISK_PER_SLOT * slots + DISK_PER_CELL * cells + DISK_PER_TOKEN * kept
    return int(copies * scan) + DISK_OF_FIGURES


def results_there(
    model: LanguageModel, plan: ScanPlan, out: Path, inputs: Callable[[ScanStore], StudyInputs]
) -> tuple[str, ...]:
    """The scan, analyses and report of a plan that a folder has already."""
    folder = StudyFolder(location(out))
    if not folder.manifest.exists():
        return ()
    manifest = read_manifest(folder)
    if manifest.key.digest != scan_key(model, plan).digest:
        return ()
    subject = inputs(ScanStore.open(out))
    current = [name for name in ANALYSES if is_current(folder.root, name, subject)]
    results = [name for name in ANALYSES if folder.result(name).exists()]
    has_report = folder.report_page.exists() and results == current
    scanned = (SCAN, RANKING) if manifest.has_rankings else (SCAN,)
    return (*scanned, *current, *([REPORT] if has_report else []))


def _text_size(model: LanguageModel, plan: ScanPlan) -> CorpusSize:
    """Read the first shard of the corpus and how much of it that is."""
    if is_stream(plan.source):
        return CorpusSize(None, TOKENS_PER_SENTENCE)
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
        logits(model, vectors, "residual")

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
    work: Workload, names: Sequence[str], of_a_place: float = FOR_VERDICTS
) -> dict[str, Cost]:
    """The cost of some of scan, analyses and report, in their order.

    What several analyses read once, the validation prefixes, is paid for by the first of them, with
    so many projections `of_a_place` in a layer.
    """
    found = {name: _cost_of(name, work) for name in names}
    readers = [name for name in names if name in ANALYSES and "places" in ANALYSES[name].sizes]
    for first in readers[:1]:
        found[first] += _sample_cost(work, of_a_place)
    return found


def workload(model: LanguageModel, plan: ScanPlan, sizes: Sizes, text: CorpusSize) -> Workload:
    """The shape of model and text that costs depend on."""
    layers = plan_layers(model, plan)
    return Workload(
        layers=len(layers),
        memories=sum(layer.memories for layer in layers),
        tokens=text.tokens or 0,
        tokens_per_sentence=text.tokens_per_sentence,
        sizes=sizes,
        whole=(len(model.layers), model.memories),
        signs=2 if plan.settings.signed else 1,
        top=plan.settings.top,
    )


def _cost_of(name: str, work: Workload) -> Cost:
    """The cost of reading the text, of ranking all values, of an analysis or of the report."""
    fixed = {
        SCAN: Cost(work.tokens, 0, 2),
        RANKING: Cost(0, 2 * work.memories),
        REPORT: Cost(seconds=9),
    }
    return fixed[name] if name in fixed else ANALYSES[name].cost(work)


def projections_of_a_place(model: LanguageModel) -> float:
    """Of a study, which reads more than verdicts rest on."""
    return FOR_VERDICTS + OF_A_SOFTMAX + OF_A_CONVENTION * (len(conventions_of(model)) - 1)


def _sample_cost(work: Workload, of_a_place: float) -> Cost:
    """The cost of reading the validation prefixes in all layers of the model."""
    (layers, memories), sizes = work.whole, work.sizes
    longest = 1 + work.tokens_per_sentence * sizes.places / (sizes.places + 1)  # read up to there
    projections = of_a_place * layers * sizes.sample * sizes.places + work.signs * memories
    return Cost(sizes.sample * longest, projections)
