"""The control by random weights: the same study of an untrained model of the same shape."""

from __future__ import annotations

from pathlib import Path

from ffmem.analyses.controls import untrained
from ffmem.corpus.sentences import SentenceSettings
from ffmem.execution.run import ScanPlan, scan
from ffmem.scan.settings import ScanSettings
from ffmem.studies.inputs import SENTENCES, Subject, scanned_source

FOLDER = "control-random-weights"  # inside the study that it is the control of
MOST_SENTENCES = 500  # of its scan


def untrained_subject(subject: Subject, folder: Path) -> Subject:
    """An untrained model of the same shape, with a small scan of its own in `folder`."""
    key = subject.store.manifest.key
    settings = {name: value for name, value in key.settings.items() if name != "layers"}
    most = key.corpus["max_sentences"] or MOST_SENTENCES
    plan = ScanPlan(
        source=scanned_source(subject.store),
        settings=ScanSettings(**settings),
        sentences=SentenceSettings(**{name: key.corpus[name] for name in SENTENCES}),
        layers=key.settings["layers"],
        max_sentences=min(most, MOST_SENTENCES),
    )
    model = untrained(subject.model, subject.seed)
    return Subject(model, scan(model, plan, folder), subject.sizes, subject.valid, subject.seed)
