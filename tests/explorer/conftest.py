"""A small study of a toy model, explored; a client that asks as a browser on this machine does."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from fastapi import FastAPI
from fastapi.testclient import TestClient

from ffmem.analyses.analysis import SMALL_SIZES
from ffmem.analyses.inputs.study_inputs import StudyInputs
from ffmem.analyses.runner import run_analyses
from ffmem.analyses.study import open_study, save_charts
from ffmem.explorer.app import create_app
from ffmem.explorer.context import StudyContext, open_context
from ffmem.models.loading import load
from ffmem.store.scan_store import ScanStore
from tests.analyses.conftest import FEW_LINES, lines, scanned_lines
from tests.shared_folders import folder_once

HOSTILE = "<script>alert(1)</script> & 'quotes' \"too\""  # text of the corpus that is HTML
DRAWN = ("values-agreement", "weights-classes")  # a figure of each analysis; each takes 0.3 s
TEXTS = [*FEW_LINES, *lines(60, 1), HOSTILE, "the river and the stone and the river"]


def small_study(folder: Path, name: str = "tiny:opt", texts: list[str] = TEXTS) -> ScanStore:
    """A scan of a toy with the analysis of its values, as `ffmem scan` and `analyse` leave it.

    Of its figures only some are drawn.
    """
    model = load(name)
    store = scanned_lines(model, folder, texts, top=30, sample=8)
    run_analyses(StudyInputs(model, store, SMALL_SIZES), ("values", "weights"), folder)
    study = open_study(folder)
    save_charts(folder, {name: study.chart(name) for name in DRAWN})
    return store


def shared_study(
    files: pytest.TempPathFactory, name: str, model: str, texts: list[str] = TEXTS
) -> ScanStore:
    """A copy of it: what the tests of one file leave in the folder, those of another never see."""
    folder = folder_once(files, name, lambda root: small_study(root / "study", model, texts))
    return ScanStore.open(folder / "study")


@pytest.fixture(scope="module")
def study(tmp_path_factory: pytest.TempPathFactory) -> ScanStore:
    return shared_study(tmp_path_factory, "explorer", "tiny:opt")


@pytest.fixture(scope="module")
def gated_study(tmp_path_factory: pytest.TempPathFactory) -> ScanStore:
    return shared_study(tmp_path_factory, "explorer-gated", "tiny:llama")


@pytest.fixture(scope="module")
def wordy_study(tmp_path_factory: pytest.TempPathFactory) -> ScanStore:
    """A study with enough sentences to tell patterns from chance."""
    texts = list(dict.fromkeys(lines(400, 3)))
    return shared_study(tmp_path_factory, "explorer-wordy", "tiny:opt", texts)


@pytest.fixture(scope="module", params=["study", "gated_study"])
def explored(request: pytest.FixtureRequest) -> StudyContext:
    """First a model without gates, then one whose memories are two cells each."""
    return context_of(request.getfixturevalue(request.param))


def context_of(store: ScanStore) -> StudyContext:
    return open_context(store.folder.root, str(store.manifest.key.model["name"]))


@pytest.fixture(scope="module")
def app(explored: StudyContext) -> FastAPI:
    """One app for all clients of a file, because its first answers take longer than the rest."""
    return create_app(explored)


@pytest.fixture
def client(app: FastAPI) -> Iterator[TestClient]:
    with TestClient(app, base_url="http://127.0.0.1:8600") as asking:
        yield asking


@contextmanager
def client_for(app: FastAPI, context: StudyContext) -> Iterator[TestClient]:
    """A client of the app while it shows another context of the same study."""
    before = app.state.context
    app.state.context = context
    try:
        with TestClient(app, base_url="http://127.0.0.1:8600") as asking:
            yield asking
    finally:
        app.state.context = before
