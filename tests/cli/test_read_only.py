"""Commands that only read a store do not wait for torch, transformers or pandas to be imported."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

from ffmem.report.build import write_report
from ffmem.studies.study import open_study

STUDIES = Path(__file__).parent.parent / "fixtures" / "studies.tar.xz"
SLOW = {"torch", "transformers", "pandas"}
CODE = f"""
import sys
from ffmem.cli.main import main
try:
    main()
finally:
    print("SLOW", sorted({SLOW} & set(sys.modules)), file=sys.stderr)
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished study, made by another version."""
    place = tmp_path_factory.mktemp("studies")
    with tarfile.open(STUDIES) as archive:
        archive.extractall(place, filter="data")
    return next(path.parent for path in sorted(place.rglob("manifest.json")))


def test_a_comparison_of_reports_imports_nothing_slow(folder: Path, tmp_path: Path) -> None:
    """The page is made from what reports have left; they must not be older than the results."""
    study = tmp_path / "study"
    shutil.copytree(folder, study)
    write_report(open_study(study))
    words = ["compare", str(study), str(study), "-o", str(tmp_path / "both.html")]
    done = subprocess.run([sys.executable, "-c", CODE, *words], capture_output=True, text=True)
    assert "SLOW []" in done.stderr
    assert done.returncode == 0, done.stderr
    assert "<figure>" in (tmp_path / "both.html").read_text()


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (["--help"], 0),
        (["show", "FOLDER", "L1.3"], 0),
        (["show", "FOLDER", "L99.3"], 2),
        (["show", "FOLDER", "nonsense"], 2),
        (["show", "FOLDER/nowhere", "L1.3"], 2),
        (["search", "FOLDER", "--token", "a"], 0),
        (["search", "FOLDER", "--token", "no token at all"], 2),
        (["compare", "FOLDER", "FOLDER", "--memories", "--json"], 0),
        (["compare", "FOLDER", "FOLDER", "--memories", "--match"], 0),
        (["compare", "FOLDER"], 2),
        (["compare", "FOLDER", "FOLDER/nowhere"], 2),
        (["explore", "FOLDER/nowhere"], 2),
        (["report", "FOLDER/nowhere"], 2),
        (["verify", "FOLDER"], 0),
        (["models"], 0),
        (["cache", "list"], 0),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else str(value),
)
def test_reading_imports_nothing_slow(folder: Path, words: list[str], code: int) -> None:
    command = [word.replace("FOLDER", str(folder)) for word in words]
    done = subprocess.run([sys.executable, "-c", CODE, *command], capture_output=True, text=True)
    assert "SLOW []" in done.stderr
    assert done.returncode == code, done.stderr
