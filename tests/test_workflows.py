"""A scan and a study in one call each, from files, lists and datasets."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ffmem
from ffmem.errors import CorpusError, FfmemError, StoreError
from tests.analyses.conftest import lines

TEXTS = lines(60, 1)


def same_triggers(one: ffmem.Study, other: ffmem.Study) -> None:
    for name in ("fires", "totals", "largest"):
        np.testing.assert_array_equal(one.store.array(name), other.store.array(name))


def scan(texts: Any, out: Path, **settings: Any) -> ffmem.Study:
    return ffmem.run_scan("tiny:opt", texts, out, top=5, sample=2, splitter="line", **settings)


def test_a_list_a_file_and_a_dataset_are_the_same_scan(tmp_path: Path) -> None:
    datasets = pytest.importorskip("datasets", reason="`pip install datasets`")
    (tmp_path / "text.txt").write_text("\n".join(TEXTS) + "\n")
    of_file = scan(tmp_path / "text.txt", tmp_path / "file")
    same_triggers(of_file, scan(iter(TEXTS), tmp_path / "list"))
    rows = datasets.Dataset.from_dict({"line": TEXTS})
    same_triggers(of_file, scan(rows, tmp_path / "dataset", column="line"))
    with pytest.raises(CorpusError, match=r"no column 'text' \(there are: line\); pass column="):
        scan(rows, tmp_path / "other")
    with pytest.raises(CorpusError, match=r"splits train; choose one"):
        scan(datasets.DatasetDict(train=rows), tmp_path / "other")


def test_a_scan_of_a_list_is_opened_again_and_another_list_is_refused(tmp_path: Path) -> None:
    first = scan(TEXTS, tmp_path / "scan")
    stamp = first.store.folder.manifest.stat().st_mtime_ns
    assert scan(list(TEXTS), tmp_path / "scan").store.folder.manifest.stat().st_mtime_ns == stamp
    with pytest.raises(StoreError, match=r"differs in corpus\.digest"):
        scan([*TEXTS[:-1], "another river."], tmp_path / "scan")
    with pytest.raises(StoreError, match=r"differs in .*settings\.top"):
        ffmem.run_scan("tiny:opt", TEXTS, tmp_path / "scan", top=6, sample=2, splitter="line")


def test_texts_in_memory_cannot_be_read_again(tmp_path: Path) -> None:
    study = scan(TEXTS, tmp_path / "scan", layers=[2], max_sentences=10)
    assert list(study.store.memories) == [2]
    assert study.store.manifest.counts["sentences"] == 10
    with pytest.raises(CorpusError, match=r"cannot be read again; name a text with valid="):
        study.store.manifest.key.source()


@pytest.mark.parametrize(
    ("texts", "message"),
    [
        ([], "is empty"),
        (["river", 5], "text 2 of the corpus is of the type int"),
        (["\ud800"], "text 1 of the corpus holds half a character"),
        (7, "int is not a text corpus"),
        ("no such file.txt", "no such file"),
    ],
)
def test_a_bad_corpus_is_refused(tmp_path: Path, texts: Any, message: str) -> None:
    with pytest.raises(CorpusError, match=message):
        scan(texts, tmp_path / "scan")
    assert not (tmp_path / "scan" / "manifest.json").exists()


@pytest.mark.usefixtures("few_figures")
def test_a_study_of_a_list(tmp_path: Path) -> None:
    model = ffmem.load("tiny:opt")
    settings: dict[str, Any] = {"only": ["values", "refinement"], "top": 5, "splitter": "line"}
    study = ffmem.run_study(model, TEXTS, tmp_path / "study", **settings)
    assert study.names == ("values", "refinement")
    assert study.store.folder.report_page.exists()
    stamp = study.store.folder.result("refinement").stat().st_mtime_ns
    ffmem.run_study(model, TEXTS, tmp_path / "study", **settings)
    assert study.store.folder.result("refinement").stat().st_mtime_ns == stamp
    with pytest.raises(FfmemError, match="no size 'huge'; choose among paper, small"):
        ffmem.run_study(model, TEXTS, tmp_path / "study", size="huge")  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="tops"):
        ffmem.run_study(model, TEXTS, tmp_path / "study", tops=4)


def test_one_item_needs_no_list(tmp_path: Path) -> None:
    model = ffmem.load("tiny:opt")
    study = ffmem.run_scan(model, TEXTS[:5], tmp_path / "scan", layers=2)
    assert study.store.manifest.layers == [(2, 64)]
    both = ffmem.value_tokens(model, ["L2.7", ffmem.Address(1, 3)], k=4)
    for row, address in enumerate(("L2.7", "L1.3")):
        one = ffmem.value_tokens(model, address, k=4)
        assert one.tokens[0].tolist() == both.tokens[row].tolist()
    with pytest.raises(FfmemError, match="no analysis 'guesses'; choose among"):
        ffmem.run_study(model, TEXTS, tmp_path / "study", only="guesses")


def test_wrong_arguments_get_one_sentence() -> None:
    model = ffmem.load("tiny:opt")
    wrong: list[tuple[Callable[[], Any], str]] = [
        (lambda: ffmem.load(None), "load takes the name or folder of a model, not None"),  # type: ignore[arg-type]
        (lambda: ffmem.open_study(None), "None is not a folder"),  # type: ignore[arg-type]
        (lambda: ffmem.record(model, 5), "int is not a prompt"),  # type: ignore[arg-type]
        (lambda: ffmem.record(model, "the river", "actvations"), "activation 'actvations'"),
        (lambda: ffmem.value_tokens(model, 7), "'7' is not a memory address"),  # type: ignore[arg-type]
        (lambda: ffmem.value_tokens(model, []), "there is no address"),
        (lambda: ffmem.value_tokens(model, "L1.3", k=0), "k is 0; give a whole number from 1"),
    ]
    for call, message in wrong:
        with pytest.raises(FfmemError, match=message):
            call()


def test_a_scan_needs_no_figures_no_server_and_no_database() -> None:
    """And nothing waits for transformers before there is a model, the explorer neither."""
    code = (
        "import sys, ffmem.workflows; "
        "print({'altair', 'fastapi', 'sqlalchemy', 'pandas', 'ray'} & set(sys.modules)); "
        "import ffmem.explorer.app; print('transformers' in sys.modules)"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.split() == ["set()", "False"]
