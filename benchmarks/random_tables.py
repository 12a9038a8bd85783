"""Models that have learned nothing, judged as if they were trained: how often does a claim hold?

    python -m benchmarks.random_tables                    # on one core
    python -m benchmarks.random_tables --workers 16       # the same tables, in so many processes

A table is a study of a model without structure, with controls of its own, through every analysis
that a claim rests on. Its weights are those of a toy (larger than the architecture's
initialisation), fresh ones of the architecture, or permuted ones of the toy or of the demo. Its
text is the demo's, one in which each word depends on the one before (Markov), or random words.
Printed are the claims that hold in each table, and how many tables have any. Claims that their
bar alone decides, facts of the shape and of absence, are no tests of training and are not counted.
"""

from __future__ import annotations

import argparse
import json
import random
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass
from itertools import islice, product
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import torch

from ffmem import demo
from ffmem.analyses.analysis import sizes_of
from ffmem.analyses.catalogue import ANALYSES, CLAIMS, PREFIX_ANALYSES
from ffmem.analyses.controls import permuted_model, untrained_model
from ffmem.analyses.inputs.study_inputs import (
    StudyInputs,
    prefix_control_inputs,
    scanned_control_inputs,
)
from ffmem.analyses.statistics import wilson
from ffmem.analyses.verdicts import Verdict, judge_claims
from ffmem.corpus.sentences import SentenceSettings
from ffmem.corpus.sources import Source, documents
from ffmem.execution.plan import ScanPlan
from ffmem.execution.run import run_scan
from ffmem.models.language_model import LanguageModel
from ffmem.models.loading import load
from ffmem.models.tiny import tiny_model, tiny_tokenizer
from ffmem.models.wrapping import wrap
from ffmem.scan.settings import ScanSettings
from ffmem.store.folder import PREFIX_CONTROLS, SCANNED_CONTROLS
from ffmem.workflows import control_analyses

TOYS, TEXTS = ("llama", "gpt2", "opt"), ("demo", "markov", "words")
WEIGHTS = ("own", "fresh", "permuted")
WORDS = 300  # different ones in the invented texts
NEXT = 4  # words that may follow one in a Markov text


@dataclass(frozen=True)
class Table:
    """A model without structure, its text, and the seed of both."""

    model: str
    weights: str
    text: str
    seed: int


@dataclass(frozen=True)
class Judgement:
    """What came out of a table: the outcomes of all claims, and the tests of training that hold."""

    table: Table
    outcomes: dict[str, int]
    holds: tuple[str, ...]
    seconds: float


def every_table(seeds: int) -> list[Table]:
    """All kinds with so many seeds each; the demo's, which take longest, first."""
    numbers = range(seeds)
    found = [Table("demo", *parts) for parts in product(("permuted", "fresh"), ("demo",), numbers)]
    return found + [Table(*parts) for parts in product(TOYS, WEIGHTS, TEXTS, numbers)]


def model_of(table: Table) -> LanguageModel:
    """The model to judge."""
    if table.model == "demo":
        model = load("demo", device="cpu")
    else:
        toy = tiny_model(table.model, seed=table.seed)
        model = wrap(toy, tiny_tokenizer(), f"tiny:{table.model}")
    make = {"own": lambda own, _seed: own, "fresh": untrained_model, "permuted": permuted_model}
    return make[table.weights](model, 1000 + table.seed)  # no seed of its controls


def lines(table: Table, count: int) -> Iterator[str]:
    """The text, a sentence in a line."""
    draw = random.Random(table.seed)
    if table.text == "demo":
        every = list(islice(documents(Source(str(demo.VALID))), 20 * count))
        yield from draw.sample(every, min(count, len(every)))
        return
    words = ["".join(draw.choices("etaoinshrdlu", k=draw.randint(1, 7))) for _ in range(WORDS)]
    follow = {word: draw.choices(words, k=NEXT) for word in words}
    for _ in range(count):
        line = [draw.choice(words)]
        for _ in range(draw.randint(3, 12)):
            line.append(draw.choice(follow[line[-1]] if table.text == "markov" else words))
        yield " ".join(line).capitalize() + "."


def judge_table(table: Table, sentences: int) -> Judgement:
    """Study a table's model and its controls in a folder that is gone afterwards."""
    torch.set_num_threads(1)
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        text = Path(folder, "text.txt")
        text.write_text("\n".join(lines(table, sentences)) + "\n")
        study = study_of(model_of(table), text, table.seed, Path(folder, "study"))
        judged = [name for name in ANALYSES if any(name in claim.analyses for claim in CLAIMS)]
        verdicts = judge_study(study, judged, Path(folder, "control"))
    tests = [one for one in verdicts if one.finding is None or not one.finding.alone]
    holds = tuple(one.name for one in tests if one.word == "holds")
    outcomes = Counter(one.word for one in tests)
    return Judgement(table, dict(outcomes), holds, time.monotonic() - began)


def study_of(model: LanguageModel, text: Path, seed: int, folder: Path) -> StudyInputs:
    """A model and its scan of a text."""
    settings = ScanSettings(top=25, sample=8, signed=model.gated)
    plan = ScanPlan(Source(str(text)), settings, SentenceSettings())
    store = run_scan(model, plan, folder)
    return StudyInputs(model, store, sizes_of("small", len(store.memories)), plan.source, seed)


def judge_study(study: StudyInputs, judged: Sequence[str], folder: Path) -> list[Verdict]:
    """The verdicts that rest on some analyses, beside a study's controls, scanned in `folder`."""
    control = scanned_control_inputs(study, SCANNED_CONTROLS[0], folder)
    controls: dict[str, list[dict[str, Any]]] = {
        "permuted weights": [measure(control, control_analyses(judged))],
        "random weights": [],
    }
    for name in PREFIX_CONTROLS:
        found = measure(prefix_control_inputs(study, name), PREFIX_ANALYSES)
        controls[name.rstrip("-0123456789").replace("-", " ")].append(found)
    results, layers = measure(study, judged), len(study.store.memories)
    return judge_claims(CLAIMS, results, controls, layers=layers)


def measure(subject: StudyInputs, names: Sequence[str]) -> dict[str, Any]:
    """The results of some analyses."""
    return {name: ANALYSES[name].measure(subject) for name in names}


def name_of(table: Table) -> str:
    """A table's parts in a line."""
    return " ".join(map(str, asdict(table).values()))


def judge_tables(tables: list[Table], sentences: int, workers: int) -> Iterator[Judgement]:
    """The judgement of every table, printed as soon as it is there."""
    with ProcessPoolExecutor(workers, get_context("spawn")) as pool:
        for one in pool.map(judge_table, tables, [sentences] * len(tables)):
            counts = ", ".join(f"{count} {word}" for word, count in sorted(one.outcomes.items()))
            holds = ", ".join(one.holds) or "-"
            print(
                f"{name_of(one.table):<24} {one.seconds:4.0f} s  {counts}; holds: {holds}",
                flush=True,
            )
            yield one


def main() -> None:
    """Judge every table and print what holds."""
    how = argparse.RawTextHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=how)
    parser.add_argument("--workers", type=int, default=1, help="processes")
    parser.add_argument("--seeds", type=int, default=2, help="tables of each of the 29 kinds")
    parser.add_argument("--sentences", type=int, default=500, help="of each text")
    parser.add_argument("--only", default="", help="tables whose name has this in it")
    parser.add_argument("--json", type=Path, help="file for all outcomes")
    options = parser.parse_args()
    tables = [one for one in every_table(options.seeds) if options.only in name_of(one)]
    found = list(judge_tables(tables, options.sentences, options.workers))
    wrong = sum(bool(one.holds) for one in found)
    share = wilson(wrong, len(found))
    reach = f"{100 * share.low:.1f} .. {100 * share.high:.1f} %"
    print(f"{wrong} of {len(found)} tables have a claim that holds ({reach})")
    if options.json is not None:
        options.json.write_text(json.dumps([asdict(one) for one in found], indent=1))


if __name__ == "__main__":
    main()
