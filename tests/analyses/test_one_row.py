"""An analysis is one row: whoever lists, runs, draws, plans, reports or explores needs no more.

The row is the example of docs/how-to/add-an-analysis.md.
"""

from __future__ import annotations

import importlib
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient

from ffmem import analyses
from ffmem.analyses import catalogue
from ffmem.analyses.analysis import SMALL_SIZES, Analysis
from ffmem.analyses.catalogue import ANALYSES
from ffmem.analyses.estimate import estimate
from ffmem.analyses.study import open_study
from ffmem.cli import main as cli
from ffmem.corpus.sentences import SentenceSettings
from ffmem.corpus.sources import Source
from ffmem.execution.plan import ScanPlan
from ffmem.explorer.app import create_app
from ffmem.explorer.context import open_context
from ffmem.models.language_model import LanguageModel
from ffmem.report.build import write_report
from ffmem.scan.settings import ScanSettings
from tests.analyses.conftest import lines

PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "add-an-analysis.md"
FILE = re.compile(r"^```python\n# punctuation/(\w+\.py)\n(.*?)^```", re.MULTILINE | re.DOTALL)
HEADING = "Triggers that end in punctuation"


@pytest.fixture
def row(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Analysis[Any]]:
    """The page's files as a folder of `ffmem.analyses`, and their row in the catalogue."""
    home = tmp_path / "analyses" / "punctuation"
    home.mkdir(parents=True)
    for name, text in FILE.findall(PAGE.read_text(encoding="utf-8")):
        (home / name).write_text(text, encoding="utf-8")
    monkeypatch.setattr(analyses, "__path__", [*analyses.__path__, str(home.parent)])
    found: Analysis[Any] = importlib.import_module("ffmem.analyses.punctuation").ANALYSIS
    monkeypatch.setitem(ANALYSES, found.name, found)
    monkeypatch.setattr(catalogue, "CLAIMS", (*catalogue.CLAIMS, *found.claims))
    yield found
    del analyses.punctuation  # type: ignore[attr-defined] # as the import has put it there
    for name in [one for one in sys.modules if one.startswith("ffmem.analyses.punctuation")]:
        del sys.modules[name]


def test_the_page_has_every_file_of_an_analysis() -> None:
    names = {name for name, _ in FILE.findall(PAGE.read_text(encoding="utf-8"))}
    assert names == {"__init__.py", "record.py", "measure.py", "charts.py", "claims.py"}


def test_one_row_is_all_that_an_analysis_needs(
    row: Analysis[Any],
    relu: LanguageModel,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    text, folder = tmp_path / "text.txt", tmp_path / "scan"
    text.write_text("\n".join(line.replace(" ", ", ") for line in lines(40, 1)) + "\n")
    assert cli.run(["scan", "tiny:opt", str(text), "-o", str(folder), "-k", "4"]) == 0

    assert cli.run(["analyse", str(folder), "--only", "punctuation"]) == 0
    assert "punctuation" in capsys.readouterr().out
    study = open_study(folder)
    assert study.names == ("punctuation",)
    result = study.result("punctuation")
    assert isinstance(result, row.record)
    assert (folder / "figures/punctuation.svg").exists()
    assert "punctuation" in repr(study)
    assert {"layer", "share", "text"} <= set(study.frame("punctuation").columns)

    # its numbers, the slow way
    slots = [
        trigger.last.strip()
        for cell in study.store.cells.addresses(range(study.store.cells.count))
        for trigger in study.store.triggers(cell)
        if trigger.last
    ]
    share = sum(last in (",", ".") for last in slots) / len(slots)
    assert result.share.estimate == pytest.approx(share)
    assert 0 < share < 1
    (said,) = [one for one in catalogue.judge(study) if one.name == "triggers-end-in-punctuation"]
    assert said.finding is not None
    assert said.finding.number == result.share

    plan = ScanPlan(Source(str(text)), ScanSettings(top=4), SentenceSettings())
    assert estimate(relu, plan, SMALL_SIZES, ("punctuation",)).seconds["punctuation"] == 1
    write_report(study)
    chapter = study.store.folder.report_chapter(row.chapter).read_text()
    assert HEADING in chapter
    assert said.says in chapter
    with TestClient(create_app(open_context(folder)), base_url="http://127.0.0.1") as client:
        assert HEADING in client.get("/figure/punctuation").text
        assert "punctuation" in client.get("/").text
        assert "punctuation" in client.get("/api/overview").json()["analyses"]
