"""What a study read, with which settings, what its figures leave out, and whose methods it uses."""

from __future__ import annotations

import re
from collections.abc import Sequence
from importlib import resources
from itertools import chain
from pathlib import Path
from typing import Any

from ffmem.analyses.catalogue import ANALYSES, results_with_judgements
from ffmem.analyses.study import Study
from ffmem.records import to_plain
from ffmem.store.people.annotators import is_language_model, is_person

PAPER = "geva2021"
BIBTEX = re.compile(r"^@\w+\{(\w+),\n.*?^\}$", re.MULTILINE | re.DOTALL)
READ_BLIND = {"patterns": "the keys", "last-layer": "the last layer’s cases"}
STATISTICS = ("wilson1927", "efron1979", "holm1979")  # of every study's intervals and verdicts


def about(study: Study) -> dict[str, str]:
    """Model and corpus of the study, for display."""
    manifest = study.store.manifest
    counts, model = manifest.counts, manifest.key.model
    revision = f", revision {model['revision']}" if model["revision"] else ""
    sizes = " or ".join(f"{size:,}" for size in sorted(set(study.store.memories.values())))
    readings = read_by_models(study)
    return {
        "Model": f"{model['name']}{revision} ({model['type']}, {model['dtype']})",
        "Layers": f"{len(manifest.layers)} of {sizes} memories",
        "Memories": f"{sum(study.store.memories.values()):,}"
        + (", each with two signs" if study.store.cells.signed else ""),
        "Text": f"{counts['sentences']:,} sentences, {counts['tokens']:,} tokens",
        "Triggers kept": f"{manifest.key.settings['top']} per memory",
        "Scan": f"{manifest.seconds:,.0f} s, scan {manifest.key.digest}",
        "ffmem": ", ".join(f"{name} {version}" for name, version in manifest.versions.items()),
        **({"Readings": readings} if readings else {}),
    }


def what_was_read(study: Study) -> dict[str, str]:
    """Model, text, memories, version and digest: the head of a report."""
    manifest, every = study.store.manifest, about(study)
    text = Path(str(manifest.key.corpus["path"])).name
    return {
        "Model": every["Model"],
        "Text": f"{text}: {every['Text']}",
        "Memories": f"{every['Memories']}, in {len(manifest.layers)} layers",
        "Made by": f"ffmem {manifest.versions['ffmem']}, scan {manifest.key.digest[:12]}",
    }


def read_by_models(study: Study) -> str:
    """What language models read in the place of people, as a sentence; empty where none did."""
    results = results_with_judgements(study)
    judges = {
        name: [one.annotator for one in getattr(results.get(name), "judges", ())]
        for name in READ_BLIND
    }
    read = [
        words
        for name, words in READ_BLIND.items()
        if any(map(is_language_model, judges[name]))
        or (name in results and study.result(name).readings is not None)
    ]
    if not read:
        return ""
    alone = not any(map(is_person, chain(*judges.values())))
    return f"A language model has read {' and '.join(read)} of this study blind" + (
        ", and no person." if alone else "."
    )


def settings(study: Study) -> dict[str, str]:
    """Every choice that decided the scan."""
    key = to_plain(study.store.manifest.key)
    return {
        f"{part}.{name}": str(value)
        for part in ("model", "corpus", "settings")
        for name, value in key[part].items()
    }


def left_out(study: Study, results: dict[str, Any]) -> dict[str, int]:
    """Counts of dead, empty or skipped items, under readable names."""
    counts = study.store.manifest.counts
    found = {
        "memories that nothing in the text fires": counts["dead"],
        "memories with fewer triggers than asked for": counts["unfilled"],
        "sentences that were cut to the longest length": counts["sentences_cut"],
    }
    for name, result in results.items():
        found |= ANALYSES[name].left_out(result)
    return found


def references(names: Sequence[str]) -> tuple[str, ...]:
    """BibTeX of the paper and of the methods that some analyses used."""
    text = resources.files(__package__).joinpath("templates", "references.bib").read_text("utf-8")
    entries = {found[1]: found[0].strip() for found in re.finditer(BIBTEX, text)}
    used = [key for name in names for key in ANALYSES[name].cites]
    return tuple(entries[key] for key in dict.fromkeys((PAPER, *STATISTICS, *used)))
