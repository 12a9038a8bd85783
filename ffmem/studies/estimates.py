"""Estimated time and memory of a study, from a probe of a second or two."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import torch

from ffmem.corpus.file_formats import Meter
from ffmem.corpus.sentences import tokenise
from ffmem.corpus.shards import shards
from ffmem.corpus.sources import documents
from ffmem.execution.plan import ScanPlan, scan_key, sentence_settings, token_budget
from ffmem.locations import location
from ffmem.memories.projection import CHUNK_BYTES, GPU_CHUNKS, logits
from ffmem.models.device_placement import own_parameters
from ffmem.models.feedforward import FeedForward
from ffmem.models.language_model import LanguageModel
from ffmem.scan.settings import (
    BINS,
    CANDIDATE_BYTES,
    CANDIDATE_SLOTS,
    ROOM_OF_EXPERTS,
    SLOT_BYTES,
)
from ffmem.store.folder import StudyFolder
from ffmem.store.manifest import read_manifest
from ffmem.store.scan_store import ScanStore
from ffmem.studies.inputs import Sizes, StudyInputs
from ffmem.studies.registry import (
    ANALYSES,
    Cost,
    Workload,
    applicable,
    sample_cost,
    scan_cost,
)
from ffmem.studies.runner import is_current

LONG_ENOUGH = 0.15  # seconds that a probe must take to be believed
SCAN, REPORT = "scan", "report"
STANDARD_INPUT = "-"
MEMINFO = Path("/proc/meminfo")
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
    mixtures = any(layer.mixture is not None for layer in plan_layers(model, plan))
    only = applicable(only, mixtures)
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
    layers = plan_layers(model, plan)
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


def plan_layers(model: LanguageModel, plan: ScanPlan) -> list[FeedForward]:
    """The layers of a plan, with its experts."""
    model = model.with_experts(plan.experts)
    numbers = range(1, len(model.layers) + 1) if plan.layers is None else sorted(set(plan.layers))
    return [model.layer(number) for number in numbers]


def memory(model: LanguageModel, plan: ScanPlan, copies: int = 1) -> int:
    """Bytes: the weights, the scan's state, one batch of one layer, and chunks of logits.

    `copies` of the weights are there at once.
    """
    layers, settings = plan_layers(model, plan), plan.settings
    slots = settings.top + settings.sample
    cells = sum(settings.cells(layer.memories) for layer in layers)
    state = cells * (12 * slots + 32 + 8 * BINS)
    widest = max(layer.memories_per_place for layer in layers)
    batch = 4 * token_budget(model, plan) * widest * model.dtype.itemsize
    if model.device.type == "cuda":  # where candidates wait; those of a mixture for every layer
        experts = [layer.memories for layer in layers if layer.mixture is not None]
        room = ROOM_OF_EXPERTS * slots * CANDIDATE_BYTES
        batch += CANDIDATE_SLOTS * SLOT_BYTES + room * sum(settings.cells(size) for size in experts)
    return (
        copies * weight_bytes(model)
        + 3 * state
        + batch
        + 6 * CHUNK_BYTES * (GPU_CHUNKS if model.device.type == "cuda" else 1)
    )


def weight_bytes(model: LanguageModel) -> int:
    """Bytes of a model's weights."""
    return sum(one.numel() * one.element_size() for _, one in own_parameters(model.model))


def shortage(model: LanguageModel, plan: ScanPlan, room: int | None = None) -> str | None:
    """One sentence on what to lower where a scan does not fit beside the model, else None.

    `room` is how many bytes are free, by default as the device says.
    """
    free = free_bytes(model.device) if room is None else room
    need = memory(model, plan) - weight_bytes(model)
    if free is None or need <= free:
        return None
    settings = plan.settings
    less = replace(settings, top=min(settings.top, 20), sample=0)
    smaller = memory(model, replace(plan, settings=less)) - weight_bytes(model)
    if plan.budget is not None and smaller > free:
        return (
            f"the scan needs about {gibibytes(need)} beside the model and {gibibytes(free)} are "
            f"free; leave --budget ({plan.budget:,} tokens per batch) out, or lower it"
        )
    choices = "--layers"
    if any(layer.mixture is not None for layer in model.layers):
        choices += " or --experts"
    return (
        f"the scan needs about {gibibytes(need)} beside the model and {gibibytes(free)} are free; "
        f"lower --top ({settings.top}) and --sample ({settings.sample}), as --top {less.top} "
        f"--sample 0 needs {gibibytes(smaller)}, or scan some at a time with {choices}"
    )


def gibibytes(count: int) -> str:
    """A number of bytes for people."""
    return f"{count / 2**30:.1f} GiB"


def free_bytes(device: torch.device) -> int | None:
    """Bytes that are free on a device; None where it does not say."""
    if device.type == "cuda":
        return int(torch.cuda.mem_get_info(device)[0])
    if device.type != "cpu" or not MEMINFO.exists():
        return None
    found = re.search(r"^MemAvailable:\s+(\d+) kB", MEMINFO.read_text(), flags=re.MULTILINE)
    return None if found is None else 1024 * int(found[1])
