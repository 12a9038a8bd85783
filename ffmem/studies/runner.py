"""Run the analyses of a study: what is there already is kept, what fails leaves the others."""

from __future__ import annotations

import time
import traceback
from collections.abc import Callable, Collection, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Literal
from zipfile import ZIP_DEFLATED, ZipFile

import numpy as np

from ffmem.errors import FfmemError
from ffmem.steps import listen
from ffmem.store.digests import write_and_note
from ffmem.store.folder import StudyFolder, write_whole
from ffmem.store.range_checks import refuse_damage
from ffmem.store.result_files import (
    ResultFile,
    move_to_other_settings,
    place_for,
    read_result,
    write_result,
)
from ffmem.store.weight_columns import write_columns
from ffmem.studies.inputs import StudyInputs
from ffmem.studies.registry import ANALYSES, applicable, result_key

AnalysisState = Literal["begun", "running", "made", "kept", "failed"]


@dataclass(frozen=True)
class AnalysisEvent:
    """What happens to an analysis: begun, then made, kept or failed, and the seconds or the reason.

    While it is running, `reason` says what it does now and `share` how much of that is done.
    `beside` is the folder of a result whose settings are not those of the study's own, and
    `earlier` that of a result whose place this one took.
    """

    analysis: str
    state: AnalysisState
    seconds: float = 0.0
    reason: str = ""
    beside: Path | None = None
    earlier: Path | None = None
    share: float = 0.0


AnalysisWatch = Callable[[AnalysisEvent], None]


def run_analyses(
    subject: StudyInputs,
    names: Sequence[str],
    folder: Path,
    again: Collection[str] = (),
    watch: AnalysisWatch = lambda _event: None,
    take_over: Collection[str] = (),
) -> list[AnalysisEvent]:
    """Make the results that `folder` lacks, or has for other settings, and those of `again`.

    A result with other settings than the study's own is left beside it; those of `take_over`
    become the study's own, and the earlier ones are moved beside. An analysis that fails is
    reported and the next one runs; Ctrl-C stops all, and what was made stays. Arrays are compressed
    in a second thread while the next analysis runs. Returns how each analysis ended.
    """
    ended: list[AnalysisEvent] = []
    chosen = list(names_for(subject, names))
    with ThreadPoolExecutor(1) as writer:
        writes = []
        for number, name in enumerate(chosen, 1):
            place = folder if name in take_over else place_of_result(folder, name, subject)
            if name not in again and is_current(place, name, subject):
                event = AnalysisEvent(name, "kept")
            else:
                watch(AnalysisEvent(name, "begun"))
                if all(one.state == "kept" for one in ended):  # this is the first one to run
                    refuse_damage(subject.store)  # a result from damaged files would look right
                with listen(partial(tell_share, watch, name)):
                    event = run_analysis(subject, name, place)
            ended.append(replace(event, beside=None if place == folder else place))
            watch(ended[-1])
            for file in complete_arrays(name, chosen[number:]):
                writes.append(writer.submit(write_arrays, subject, file, tuple(ended), folder))
        for write in writes:
            write.result()
    return ended


def names_for(subject: StudyInputs, names: Sequence[str]) -> tuple[str, ...]:
    """The analyses without those of experts where there are none; refuses to be left with none."""
    found = applicable(names, bool(subject.store.manifest.mixtures))
    if names and not found:
        raise FfmemError(
            f"{subject.model.name} has no experts in the scanned layers, so there is nothing for "
            f"{names[0]!r} to measure; choose another analysis"
        )
    return found


def tell_share(watch: AnalysisWatch, name: str, what: str, share: float) -> None:
    """How far an analysis is."""
    watch(AnalysisEvent(name, "running", reason=what, share=share))


def place_of_result(folder: Path, name: str, subject: StudyInputs) -> Path:
    """The folder for an analysis's result: beside the study's own if its settings are others."""
    try:
        return place_for(folder, name, result_key(name, subject))
    except FfmemError:  # such as a text that is gone: the analysis fails and says why
        return folder


def is_current(folder: Path, name: str, subject: StudyInputs) -> bool:
    """Whether the analysis' result is there, made from the same things."""
    path = StudyFolder(folder).result(name)
    try:
        return path.exists() and read_result(path).made_from == result_key(name, subject)
    except FfmemError:  # damaged: make it again
        return False


def run_analysis(subject: StudyInputs, name: str, folder: Path) -> AnalysisEvent:
    """Run one analysis and write its result; a failure is kept as a file with the traceback."""
    began = time.monotonic()
    failure = StudyFolder(folder).failure(name)
    try:
        _, earlier = make_result(subject, name, folder)
    except FfmemError as error:
        return AnalysisEvent(name, "failed", time.monotonic() - began, str(error))
    except Exception as error:  # a bug, or out of memory: the remaining analyses should still run
        text = traceback.format_exc()
        write_whole(failure, lambda part: part.write_text(text, encoding="utf-8"))
        reason = f"{type(error).__name__}; the traceback is in {failure}"
        return AnalysisEvent(name, "failed", time.monotonic() - began, reason)
    failure.unlink(missing_ok=True)
    return AnalysisEvent(name, "made", time.monotonic() - began, earlier=earlier)


def make_result(subject: StudyInputs, name: str, folder: Path) -> tuple[Any, Path | None]:
    """Run one analysis, write its result and return it.

    A result of other settings that was in its place is moved first: the second answer says where.
    """
    began = time.monotonic()
    result = ANALYSES[name].run(subject)
    seconds = round(time.monotonic() - began, 2)
    key = result_key(name, subject)
    earlier = move_to_other_settings(folder, name, key, ANALYSES[name].arrays)
    write_result(StudyFolder(folder).result(name), ResultFile(name, key, seconds, result))
    return result, earlier


def complete_arrays(name: str, later: Sequence[str]) -> list[str]:
    """The files of an analysis that none of the later ones adds to."""
    return [
        file
        for file in ANALYSES[name].arrays
        if not any(file in ANALYSES[other].arrays for other in later)
    ]


def write_arrays(
    subject: StudyInputs, file: str, events: Sequence[AnalysisEvent], folder: Path
) -> None:
    """A file with the numbers of every cell or sampled place, if a result was made from them.

    Where several results were made from one file and one of them has other settings than the
    study's own, the file lies with that one.
    """
    results = [
        one for one in events if one.state == "made" and file in ANALYSES[one.analysis].arrays
    ]
    beside = [event.beside for event in results if event.beside is not None]
    if results:
        path = StudyFolder(beside[0] if beside else folder).numbers(file)
        write = write_columns if path.suffix == ".parquet" else write_npz
        write(path, ANALYSES[results[0].analysis].arrays[file](subject))


def write_npz(path: Path, arrays: dict[str, Any]) -> None:
    """Compressed arrays, whole or not at all.

    Lightly: numpy's own way takes seven times as long for files that are hardly smaller.
    """

    def save(part: Path) -> None:
        with ZipFile(part, "w", ZIP_DEFLATED, compresslevel=1) as file:
            for name, array in arrays.items():
                with file.open(f"{name}.npy", "w", force_zip64=True) as member:
                    np.lib.format.write_array(member, array, allow_pickle=False)

    write_and_note(path, save)
