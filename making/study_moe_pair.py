"""Scan and study a mixture and a dense model of the same active size, and their untrained twins.

    python -m making.study_moe_pair out/pair text.txt --into out/pair-study

`out/pair` is what `making.train_moe_pair` left. All models read the same sentences; `dense-eighth`
is the dense model on the first of them alone, as many places as an expert reads. Analyses are of
the paper's size, with more keys per layer for patterns. `--only moe` does one of them, so that they
can run side by side. Leaves in the folder a study for each and, once all are there,
`numbers.json.xz`: every result without the texts, for `python -m tools.moe_study_page`.
"""

import argparse
import json
import lzma
from argparse import Namespace
from dataclasses import replace
from pathlib import Path
from typing import Any

from ffmem.corpus.sentences import SentenceSettings
from ffmem.corpus.sources import Source
from ffmem.execution.run import ScanPlan, run_scan
from ffmem.models.loading import load
from ffmem.scan.settings import ScanSettings
from ffmem.store.folder import StudyFolder
from ffmem.studies.inputs import SIZES, StudyInputs, untrained_inputs
from ffmem.studies.registry import ANALYSES
from ffmem.studies.runner import AnalysisEvent, run_analyses
from ffmem.workflows import twin_analyses

from making.files import write_whole

STUDIES = ("moe", "dense", "dense-eighth")
NUMBERS = "numbers.json.xz"
DONE = "done"  # a file in the folder of each study that is whole
TEXTS = ("records", "prefix", "before", "examples")  # fields of results with words of the corpus


def study(name: str, given: Namespace) -> None:
    """Scan and analyse one model, then its untrained twin; what is there already is kept."""
    folder, of, eighth = given.into / name, name.split("-")[0], name.endswith("-eighth")
    model = load(str(given.pair / of), device=given.device)
    plan = ScanPlan(
        Source(str(given.text)),
        ScanSettings(signed=model.gated),
        SentenceSettings(),
        max_sentences=given.sentences // (8 if eighth else 1),
    )
    sizes = replace(SIZES[given.size], pattern_keys=given.keys)
    valid = Source(str(given.pair / "valid.txt"))
    inputs = StudyInputs(model, run_scan(model, plan, folder), sizes, valid, given.seed)
    if eighth:
        run_analyses(inputs, ["patterns"], folder, watch=tell)
    else:
        every = tuple(one for one in ANALYSES if one != "coefficients")
        run_analyses(inputs, every, folder, watch=tell)
        control = StudyFolder(folder).control.root
        twin = untrained_inputs(inputs, control)
        some = (*twin_analyses(every), *(["experts"] if of == "moe" else []))
        run_analyses(twin, some, control, watch=tell)
    (folder / DONE).touch()


def tell(event: AnalysisEvent) -> None:
    """Print how an analysis ended."""
    if event.state not in ("begun", "running"):
        print(event.analysis, event.state, f"{event.seconds:.1f} s", event.reason, flush=True)


def numbers_of(folder: Path) -> dict[str, Any]:
    """Every result of a study and of its twin, with the seconds and what was scanned."""
    found: dict[str, Any] = {}
    parts = {"": folder, " of the twin": StudyFolder(folder).control.root}
    for part, root in parts.items():
        if not root.exists():
            continue
        files = [json.loads(one.read_text("utf-8")) for one in (root / "analyses").glob("*.json")]
        results = {one["name"]: without_texts(one["result"]) for one in files}
        found["untrained twin" if part else "results"] = results
        found[f"seconds{part}"] = {one["name"]: one["seconds"] for one in files}
        found[f"scan{part}"] = json.loads((root / "manifest.json").read_text())["counts"]
    return found


def without_texts(value: Any) -> Any:
    """A result without the words of the corpus, in the same form."""
    if isinstance(value, list):
        return [without_texts(one) for one in value]
    if not isinstance(value, dict):
        return value
    return {
        name: type(inner)() if name in TEXTS else without_texts(inner)
        for name, inner in value.items()
    }


def numbers(given: Namespace) -> dict[str, Any]:
    """Everything that was measured."""
    curves = {name: given.pair / name / "curve.json" for name in STUDIES[:2]}
    return {
        "training": {name: json.loads(path.read_text()) for name, path in curves.items()},
        **{name: numbers_of(given.into / name) for name in STUDIES},
    }


def parse(words: list[str] | None = None) -> Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("pair", type=Path, help="the folder of making.train_moe_pair")
    parser.add_argument("text", type=Path, help="text to scan, one paragraph per line")
    parser.add_argument("--into", type=Path, required=True)
    parser.add_argument("--only", choices=STUDIES, nargs="*", default=STUDIES)
    parser.add_argument("--sentences", type=int, default=120_000)
    parser.add_argument("--keys", type=int, default=40, help="per layer, for patterns")
    parser.add_argument("--size", choices=list(SIZES), default="paper")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--device", default="auto")
    return parser.parse_args(words)


def main(words: list[str] | None = None) -> None:
    """Study those that were asked for; once all are there, gather the numbers."""
    given = parse(words)
    for name in given.only:
        study(name, given)
    if all((given.into / name / DONE).exists() for name in STUDIES):
        write_whole(given.into / NUMBERS, lzma.compress(json.dumps(numbers(given)).encode()))
        print(given.into / NUMBERS, flush=True)


if __name__ == "__main__":
    main()
