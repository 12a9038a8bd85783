"""An analysis is one row: whoever lists, runs, draws, plans, reports or explores needs no more."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fastapi.testclient import TestClient

from ffmem.cli import main as cli
from ffmem.corpus.sentences import SentenceSettings
from ffmem.corpus.sources import Source
from ffmem.execution.plan import ScanPlan
from ffmem.explorer.app import create_app
from ffmem.explorer.context import open_context
from ffmem.figures import style
from ffmem.models.language_model import LanguageModel
from ffmem.report.build import write_report
from ffmem.scan.settings import ScanSettings
from ffmem.studies.estimates import estimate
from ffmem.studies.inputs import SMALL_SIZES, StudyInputs
from ffmem.studies.registry import ANALYSES, Analysis, Cost, Figures
from ffmem.studies.study import open_study, remedy
from tests.analyses.conftest import lines

HEADING = "Length of the keys in each layer"


@dataclass(frozen=True)
class KeyLengths:
    """A result: the mean length of a key in each layer."""

    layers: tuple[float, ...]


def lengths(inputs: StudyInputs) -> dict[str, Any]:
    """Of every key."""
    return {
        "length": np.concatenate(
            [one.keys.detach().norm(dim=1).numpy() for one in inputs.model.layers]
        )
    }


def key_lengths(inputs: StudyInputs) -> KeyLengths:
    """The analysis."""
    return KeyLengths(
        tuple(float(one.keys.detach().norm(dim=1).mean()) for one in inputs.model.layers)
    )


def charts(result: KeyLengths) -> dict[str, Any]:
    """Its one figure."""
    data = style.base([{"layer": at, "length": one} for at, one in enumerate(result.layers, 1)])
    chart = data.mark_line(point=True).encode(x=style.layer_axis(), y="length:Q")
    return {"key-lengths": style.with_caption(style.with_size(chart), HEADING, "A toy.")}


ROW = Analysis(
    KeyLengths,
    key_lengths,
    "keys",
    lambda _: Cost(seconds=3),
    figures=lambda: Figures(
        (style.FigureText("key-lengths", "How long keys are.", "Not in the paper."),), charts
    ),
    arrays={"key-lengths": lengths},
)


def test_one_row_is_all_that_an_analysis_needs(
    relu: LanguageModel,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    text, folder = tmp_path / "text.txt", tmp_path / "scan"
    text.write_text("\n".join(lines(40, 1)) + "\n")
    assert cli.run(["scan", "tiny:opt", str(text), "-o", str(folder), "-k", "4"]) == 0
    monkeypatch.setitem(ANALYSES, "key-lengths", ROW)

    assert cli.run(["analyse", str(folder), "--only", "key-lengths"]) == 0
    assert "key-lengths" in capsys.readouterr().out
    study = open_study(folder)
    assert study.names == ("key-lengths",)
    assert isinstance(study.result("key-lengths"), KeyLengths)
    with np.load(folder / "analyses/key-lengths.npz") as arrays:
        assert len(arrays["length"]) == relu.memories
    assert "--only key-lengths --again" in remedy(folder, "analyses/key-lengths.npz")
    assert (folder / "figures/key-lengths.svg").exists()
    assert "key-lengths" in repr(study)
    assert list(study.frame("key-lengths").columns) == ["layer", "length"]

    plan = ScanPlan(Source(str(text)), ScanSettings(top=4), SentenceSettings())
    assert estimate(relu, plan, SMALL_SIZES, ("key-lengths",)).seconds["key-lengths"] == 3
    assert HEADING in write_report(study).read_text()
    with TestClient(create_app(open_context(folder)), base_url="http://127.0.0.1") as client:
        assert HEADING in client.get("/figure/key-lengths").text
        assert "key-lengths" in client.get("/").text
        assert "key-lengths" in client.get("/api/overview").json()["analyses"]
