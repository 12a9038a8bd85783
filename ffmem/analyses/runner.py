"""Run the analyses of a study: what is there already is kept, what fails leaves the others."""

from __future__ import annotations

import time
import traceback
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Literal
from zipfile import ZIP_DEFLATED, ZipFile

import numpy as np

from ffmem.analyses.catalogue import ANALYSES, applicable, result_key
from ffmem.analyses.inputs.study_inputs import StudyInputs
from ffmem.analyses.result_files import (
    ResultFile,
    read_result,
    refuse_other_settings,
    write_result,
)
from ffmem.errors import FfmemError
from ffmem.files.whole_files import write_text, write_whole
from ffmem.steps import listen
from ffmem.store.folder import StudyFolder
from ffmem.store.search.columns import write_columns
from ffmem.store.verification import refuse_damage

AnalysisState = Literal["begun", "running", "made", "kept", "failed"]


@dataclass(frozen=True)
class AnalysisEvent:
    """What happens to an analysis: begun, then made, kept or failed, and the seconds or the reason.

    While it is running, `reason` says what it does now and `share` how much of that is done; of a
    report that is made it is the page.
    """

    analysis: str
    state: AnalysisState
    seconds: float = 0.0
    reason: str = ""
    share: float = 0.0


AnalysisWatch = Callable[[AnalysisEvent], None]


def run_analyses(
    subject: StudyInputs,
    names: Sequence[str],
    folder: Path,
    again: Collection[str] = (),
    watch: AnalysisWatch = lambda _event: None,
) -> list[AnalysisEvent]:
    """Make the results that `folder` lacks, and those of `again` whether they are there or not.

    Nothing runs where a result of other settings would be replaced that `again` does not name. An
    analysis that fails is reported and the next one runs; Ctrl-C stops all, and what was made
    stays. Returns how each analysis ended.
    """
    ended: list[AnalysisEvent] = []
    chosen = refuse_to_replace(subject, names, folder, again)
    for name in chosen:
        if name not in again and is_current(folder, name, subject):
            ended.append(AnalysisEvent(name, "kept"))
        else:
            watch(AnalysisEvent(name, "begun"))
            if all(one.state == "kept" for one in ended):  # this is the first one to run
                refuse_damage(subject.store)  # a result from damaged files would look right
            with listen(partial(_tell_share, watch, name)):
                ended.append(_run_analysis(subject, name, folder))
        watch(ended[-1])
    return ended


def refuse_to_replace(
    subject: StudyInputs, names: Sequence[str], folder: Path, again: Collection[str]
) -> tuple[str, ...]:
    """The analyses to run; refuses those that would replace a result that nobody wants again."""
    chosen = names_for(subject, [*names, *(name for name in again if name not in names)])
    keys: dict[str, dict[str, Any]] = {}
    for name in chosen:
        if name not in again:
            with suppress(FfmemError):  # such as a text that is gone: the analysis says so
                keys[name] = result_key(name, subject)
    refuse_other_settings(folder, keys)
    return chosen


def names_for(subject: StudyInputs, names: Sequence[str]) -> tuple[str, ...]:
    """The analyses without those of experts where there are none; refuses to be left with none."""
    found = applicable(names, bool(subject.store.manifest.mixtures))
    if names and not found:
        raise FfmemError(
            f"{subject.model.name} has no experts in the scanned layers, so there is nothing for "
            f"{names[0]!r} to measure; choose another analysis"
        )
    return found


def _tell_share(watch: AnalysisWatch, name: str, what: str, share: float) -> None:
    """How far an analysis is."""
    watch(AnalysisEvent(name, "running", reason=what, share=share))


def is_current(folder: Path, name: str, subject: StudyInputs) -> bool:
    """Whether the analysis' result is there, made from the same things."""
    path = StudyFolder(folder).result(name)
    try:
        return path.exists() and read_result(path).made_from == result_key(name, subject)
    except FfmemError:  # damaged: make it again
        return False


def _run_analysis(subject: StudyInputs, name: str, folder: Path) -> AnalysisEvent:
    """Run one analysis and write its result; a failure is kept as a file with the traceback."""
    began = time.monotonic()
    failure = StudyFolder(folder).failure(name)
    try:
        make_result(subject, name, folder)
    except FfmemError as error:
        return AnalysisEvent(name, "failed", time.monotonic() - began, str(error))
    except Exception as error:  # a bug, or out of memory: the remaining analyses should still run
        text = traceback.format_exc()
        write_text(failure, text)
        reason = f"{type(error).__name__}; the traceback is in {failure}"
        return AnalysisEvent(name, "failed", time.monotonic() - began, reason)
    failure.unlink(missing_ok=True)
    return AnalysisEvent(name, "made", time.monotonic() - began)


def make_result(subject: StudyInputs, name: str, folder: Path) -> None:
    """Run one analysis and write its arrays, then its result: where that is, all is there."""
    began, row, study = time.monotonic(), ANALYSES[name], StudyFolder(folder)
    result = row.measure(subject)
    seconds = round(time.monotonic() - began, 2)
    for file, arrays in row.arrays.items():
        path = study.numbers(file)
        write = write_columns if path.suffix == ".parquet" else write_npz
        write(path, arrays(subject))
    write_result(study.result(name), ResultFile(name, result_key(name, subject), seconds, result))


def write_npz(path: Path, arrays: dict[str, Any]) -> None:
    """Compressed arrays, whole or not at all.

    Lightly: numpy's own way takes seven times as long for files that are hardly smaller.
    """

    def save(part: Path) -> None:
        with ZipFile(part, "w", ZIP_DEFLATED, compresslevel=1) as file:
            for name, array in arrays.items():
                with file.open(f"{name}.npy", "w", force_zip64=True) as member:
                    np.lib.format.write_array(member, array, allow_pickle=False)

    write_whole(path, save)
