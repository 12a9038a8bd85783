"""The numbers of a study that go into a page: all that verdicts need, and no text."""

import json
import lzma
from pathlib import Path

import pytest

from making import spread
from tools import spread_page
from tools.study_numbers import study_numbers, write_numbers

SECRET = "the words of somebody else"


@pytest.fixture
def study(tmp_path: Path) -> Path:
    """A study's folder with two results, and its twin."""
    results = {
        "suppression": {"examples": [{"prefix": SECRET}], "lost": {"estimate": 0.25}},
        "last-layer": {"cases": [{"prefix": SECRET, "gold": "a"}], "found": 3},
    }
    key = {"model": {"name": "/home/me/model"}, "corpus": {"path": "/home/me/text.txt"}}
    for root in (tmp_path, tmp_path / "control-random-weights"):
        (root / "analyses").mkdir(parents=True)
        manifest = {"key": key, "counts": {"sentences": 7}, "seconds": 1.5}
        (root / "manifest.json").write_text(json.dumps(manifest))
        for name, result in results.items():
            record = {"name": name, "made_from": {}, "seconds": 2.0, "result": result}
            (root / "analyses" / f"{name}.json").write_text(json.dumps(record))
    return tmp_path


def test_numbers_have_no_text_and_no_folder(study: Path, tmp_path: Path) -> None:
    write_numbers(study_numbers(study), tmp_path / "out" / "numbers.json.xz")
    text = lzma.decompress((tmp_path / "out" / "numbers.json.xz").read_bytes()).decode()
    assert SECRET not in text
    assert "/home" not in text
    found = json.loads(text)
    assert found["results"]["suppression"] == {"examples": [], "lost": {"estimate": 0.25}}
    assert found["untrained twin"]["last-layer"]["cases"] == [{"prefix": "", "gold": "a"}]
    assert found["scan of the twin"] == {"sentences": 7, "seconds": 1.5}


def test_shorter_numbers_keep_six_digits_and_the_form() -> None:
    value = {"rows": [1, 2], "drawn": {"1": ["L1.2"]}, "share": 1 / 3, "n": 12345678, "word": "a"}
    assert spread_page.shorten([value]) == [
        {"rows": [], "drawn": {}, "share": 0.333333, "n": 12345678, "word": "a"}
    ]


def test_blocks_of_source_are_paragraphs_each_only_once(tmp_path: Path) -> None:
    long = "def area(width, height):\n    return width * height  # of a rectangle"
    (tmp_path / "a.py").write_text(f"{long}\n\nx = 1\n\n{long}\n")
    assert list(spread.source_blocks([tmp_path])) == [" ".join(long.split())]


def test_every_size_is_studied_on_the_first_corpus_and_the_largest_on_the_second() -> None:
    given = spread.parse(["text.txt", "--into", "out", "--sizes", "10", "20", "--seeds", "4"])
    names = [one.name for one in spread.studies("wiki", 4, given)]
    assert names == ["wiki-4-20-none", "wiki-4-10-none", "wiki-4-20-prefix", "wiki-4-10-prefix"]
    assert [one.name for one in spread.studies("code", 4, given)] == ["code-4-20-none"]
    assert {spread_page.group_of(name) for name in names} == {
        ("wiki", size, dedupe) for size in (10, 20) for dedupe in ("none", "prefix")
    }
