"""Run the stages of a study: what is there already is kept, what fails leaves the others."""

from __future__ import annotations

import time
import traceback
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch

from ffmem.errors import FfmemError
from ffmem.store.digests import write_noted
from ffmem.store.folder import write_whole
from ffmem.store.ranges import refuse_damage
from ffmem.store.records import Record, read_record, write_record
from ffmem.studies.stages import STAGES, made_from
from ffmem.studies.subject import Subject

State = Literal["begun", "made", "kept", "failed"]


@dataclass(frozen=True)
class Event:
    """What happens to a stage: begun, then made, kept or failed, with its seconds or the reason."""

    stage: str
    state: State
    seconds: float = 0.0
    reason: str = ""


Watch = Callable[[Event], None]


def result_path(folder: Path, name: str) -> Path:
    """Where the result of a stage lies."""
    return folder / "analyses" / f"{name}.json"


def failure_path(folder: Path, name: str) -> Path:
    """Where the traceback of a stage that failed lies."""
    return folder / "failures" / f"{name}.txt"


def run_stages(
    subject: Subject,
    names: Sequence[str],
    folder: Path,
    again: Collection[str] = (),
    watch: Watch = lambda _event: None,
) -> list[Event]:
    """Make the results that `folder` lacks, or has for other settings, and those of `again`.

    A stage that fails is reported and the next one runs; Ctrl-C stops all, and what was made
    stays. Returns how each stage ended.
    """
    ended: list[Event] = []
    for name in names:
        if name not in again and is_current(folder, name, subject):
            event = Event(name, "kept")
        else:
            watch(Event(name, "begun"))
            if all(one.state == "kept" for one in ended):  # this is the first one to run
                refuse_damage(subject.store)  # a result from damaged files would look right
            event = run_stage(subject, name, folder)
        watch(event)
        ended.append(event)
    write_arrays(folder / "analyses", subject)
    return ended


def is_current(folder: Path, name: str, subject: Subject) -> bool:
    """Whether the stage's result is there, made from the same things."""
    path = result_path(folder, name)
    try:
        return path.exists() and read_record(path).made_from == made_from(name, subject)
    except FfmemError:  # damaged: make it again
        return False


def run_stage(subject: Subject, name: str, folder: Path) -> Event:
    """Run one stage and write its result; a failure is kept as a file with the traceback."""
    began = time.monotonic()
    failure = failure_path(folder, name)
    try:
        make_result(subject, name, folder)
    except FfmemError as error:
        return Event(name, "failed", time.monotonic() - began, str(error))
    except Exception as error:  # a bug, or out of memory: the other stages still have a right
        text = traceback.format_exc()
        write_whole(failure, lambda part: part.write_text(text, encoding="utf-8"))
        reason = f"{type(error).__name__}; the traceback is in {failure}"
        return Event(name, "failed", time.monotonic() - began, reason)
    failure.unlink(missing_ok=True)
    return Event(name, "made", time.monotonic() - began)


def make_result(subject: Subject, name: str, folder: Path) -> Any:
    """Run one stage, write its result and return it."""
    began = time.monotonic()
    result = STAGES[name].run(subject)
    seconds = round(time.monotonic() - began, 2)
    record = Record(name, made_from(name, subject), seconds, result)
    write_record(result_path(folder, name), record)
    return result


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
            "strongest_last_layer": reading.strongest,
        }
        write_npz(folder / "sample.npz", {name: t.numpy() for name, t in tensors.items()})


def write_npz(path: Path, arrays: dict[str, Any]) -> None:
    """Compressed arrays, whole or not at all."""

    def save(part: Path) -> None:
        with part.open("wb") as file:
            np.savez_compressed(file, **arrays)

    write_noted(path, save)
