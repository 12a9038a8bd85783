import gzip
import io
import json
import lzma
import re
import sys
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow
import pyarrow.parquet
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ffmem.corpus import file_formats, shards
from ffmem.corpus.file_formats import _zstd
from ffmem.corpus.shards import pieces
from ffmem.corpus.sources import Source, digest, documents, has_fixed_width
from ffmem.errors import CorpusError

TEXTS = ["The first line.", "Zoë 日本語 🎉", " padded ", "last"]
COMPRESS: dict[str, Callable[[bytes], bytes]] = {
    "": lambda data: data,
    ".gz": gzip.compress,
    ".xz": lzma.compress,
    ".zst": _zstd().compress,
}


def read(path: Path | str, **options: Any) -> list[str]:
    return list(documents(Source(str(path), **options)))


def complaint(path: Path | str, **options: str) -> str:
    """The one sentence that reading a bad corpus gives."""
    with pytest.raises(CorpusError) as caught:
        read(path, **options)
    message = str(caught.value)
    assert "\n" not in message
    return message


@pytest.mark.parametrize("suffix", COMPRESS)
def test_lines_come_back_whatever_the_compression(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"a.txt{suffix}"
    path.write_bytes(COMPRESS[suffix]("\ufeff\n".encode() + "\r\n \n".join(TEXTS).encode()))
    assert read(path) == TEXTS


@pytest.mark.parametrize("suffix", COMPRESS)
def test_json_lines_come_back_whatever_the_compression(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"a.jsonl{suffix}"
    rows = [{"id": i, "body": text} for i, text in enumerate([*TEXTS, "", None, "two\nlines"])]
    path.write_bytes(COMPRESS[suffix]("\n".join(map(json.dumps, rows)).encode()))
    assert read(path, column="body") == [*TEXTS, "two\nlines"]


@given(st.lists(st.text(st.characters(exclude_characters="\n\r\0", exclude_categories=["Cs"]))))
def test_any_line_of_unicode_comes_back(tmp_path_factory: pytest.TempPathFactory, texts) -> None:
    path = tmp_path_factory.mktemp("any") / "a.txt"
    path.write_bytes("\n".join(["first", *texts]).encode())
    assert read(path) == ["first", *(text for text in texts if text and not text.isspace())]


def test_zstandard_frames_one_after_the_other_are_all_read(tmp_path: Path) -> None:
    path = tmp_path / "a.txt.zst"
    path.write_bytes(COMPRESS[".zst"](b"one\n" * 50_000) + COMPRESS[".zst"](b"two\n"))
    assert read(path) == ["one"] * 50_000 + ["two"]


def write_parquet(path: Path, columns: dict[str, list[object]]) -> Path:
    pyarrow.parquet.write_table(pyarrow.table(columns), path, row_group_size=2)
    return path


def test_a_parquet_column_comes_back_without_empty_rows(tmp_path: Path) -> None:
    path = write_parquet(tmp_path / "a.parquet", {"n": [1, 2, 3, 4], "text": ["a", None, " ", "b"]})
    assert read(path) == ["a", "b"]


def test_folders_and_globs_are_read_in_order_of_their_names(tmp_path: Path) -> None:
    for name in ("b.txt", "a/z.txt", "a/.hidden", ".git/x.txt", "c.jsonl"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(json.dumps({"text": name}) if "json" in name else name)
    assert read(tmp_path) == ["a/z.txt", "b.txt", "c.jsonl"]
    assert read(f"{tmp_path}/**/*.txt") == ["a/z.txt", "b.txt"]
    assert read(f"{tmp_path}/*.jsonl") == ["c.jsonl"]


def test_standard_input_is_read_as_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO("één\n\ntwo".encode())))
    assert read("-") == ["één", "two"]


def test_a_large_file_is_never_held(tmp_path: Path) -> None:
    path = tmp_path / "large.txt"
    with path.open("w") as file:
        file.writelines(f"{i} {'word ' * 30}\n" for i in range(100_000))
    tracemalloc.start()
    count = sum(1 for _ in documents(Source(str(path))))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert count == 100_000
    assert path.stat().st_size > 15_000_000
    assert peak < 1_000_000


def test_a_text_without_line_breaks_is_never_held(tmp_path: Path) -> None:
    path = tmp_path / "a.txt.gz"
    path.write_bytes(gzip.compress(b"one word more " * 1_500_000))
    tracemalloc.start()
    found = sum(map(len, documents(Source(str(path)))))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert found == 21_000_000
    assert peak < 16_000_000


@given(st.text("ab. \nü日", max_size=400), st.integers(1, 9))
def test_pieces_are_those_of_the_whole_line(
    tmp_path_factory: pytest.TempPathFactory, text: str, part: int
) -> None:
    path = tmp_path_factory.mktemp("any") / "a.txt"
    path.write_bytes(text.encode())
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(file_formats, "PART", part)
        patch.setattr(shards, "SHARD_BYTES", 16)
        expected = [one for line in text.split("\n") for one in pieces(line) if one.strip()]
        assert (read(path) if expected else []) == expected
        joined = re.split(r"\n(?: *\n)+", text)
        lines = [[one.strip() for one in text.split("\n") if one.strip()] for text in joined]
        expected = [one for text in lines for one in pieces(" ".join(text))]
        assert (read(path, paragraphs=True) if expected else []) == expected


@pytest.mark.parametrize("name", ["a.jsonl", "a.csv", "quotes.csv", "fields.csv", "a.parquet"])
def test_a_row_that_is_too_long_is_refused_with_its_number(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setattr(file_formats, "PART", 1000)
    monkeypatch.setattr(file_formats, "LONGEST", 4000)
    rows = {
        "a.jsonl": '{"text": "one"}\n{"text": "%s"}\n' % ("a" * 5000),
        "a.csv": "text\n" + "a" * 5000 + "\n",
        "quotes.csv": 'text\none\n"' + "a\n" * 3000,
        "fields.csv": "text\none\n" + '"a\n",' * 3000,
    }
    if name == "a.parquet":
        pyarrow.parquet.write_table(pyarrow.table({"text": ["one", "a" * 5000]}), tmp_path / name)
    else:
        (tmp_path / name).write_text(rows[name])
    where = {"quotes.csv": "line 3", "fields.csv": "line 3", "a.parquet": "row 2"}
    expected = f"{name} {where.get(name, 'line 2')} is longer than"
    assert expected in complaint(tmp_path / name)


def test_a_small_table_of_large_rows_is_never_held(tmp_path: Path) -> None:
    """One text, to which a thousand rows refer."""
    rows = pyarrow.DictionaryArray.from_arrays(np.zeros(1000, "i4"), ["a b" * 100_000])
    pyarrow.parquet.write_table(
        pyarrow.table({"text": rows}), tmp_path / "a.parquet", compression="zstd"
    )
    assert (tmp_path / "a.parquet").stat().st_size < 4000
    found = documents(Source(str(tmp_path / "a.parquet")))
    tracemalloc.start()
    assert len(next(found)) == 300_000
    peak = tracemalloc.get_traced_memory()[1] + pyarrow.total_allocated_bytes()
    tracemalloc.stop()
    assert peak < 20_000_000


def test_a_missing_file_is_refused_at_once(tmp_path: Path) -> None:
    for missing in (tmp_path / "no.txt", f"{tmp_path}/*.txt", tmp_path):
        with pytest.raises(CorpusError, match="no such file"):
            documents(Source(str(missing)))


@pytest.mark.parametrize("name", ["a.txt", "a.jsonl", "a.txt.gz", "a.txt.xz"])
def test_an_empty_corpus_is_refused(tmp_path: Path, name: str) -> None:
    suffix = Path(name).suffix
    (tmp_path / name).write_bytes(COMPRESS.get(suffix, bytes)(b"\n \n"))
    assert "is empty" in complaint(tmp_path / name)


def test_a_binary_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a.bin").write_bytes(b"text\nab\0cd\n")
    assert "a.bin is not UTF-8 text: line 2 holds a NUL byte" in complaint(tmp_path / "a.bin")


def test_invalid_utf8_is_refused_with_its_line_or_replaced(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_bytes(b"good\n\nb\xffd\n")
    found = complaint(path)
    assert "a.txt line 3 is not valid UTF-8" in found
    assert "--errors replace" in found
    assert read(path, errors="replace") == ["good", "b\ufffdd"]


def test_half_a_surrogate_pair_is_an_encoding_error_too(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text('{"text": "a\\ud800b \\ud83c\\udf89"}')
    assert "line 1 holds half a surrogate pair" in complaint(path)
    assert read(path, errors="replace") == ["a\ufffdb 🎉"]


def test_a_column_that_is_not_there_is_named_with_those_that_are(tmp_path: Path) -> None:
    rows = tmp_path / "a.jsonl"
    rows.write_text('{"id": 1, "body": "x"}')
    table = write_parquet(tmp_path / "a.parquet", {"id": [1], "body": ["x"]})
    for path in (rows, table):
        assert "no column 'text' (there are: id, body)" in complaint(path)
        assert "column 'id' holds int, not text" in complaint(path, column="id")


@pytest.mark.parametrize("suffix", [".gz", ".xz", ".zst"])
@pytest.mark.parametrize("part", ["cut", "other"])
def test_a_damaged_file_is_refused(tmp_path: Path, suffix: str, part: str) -> None:
    lines = b"".join(b"%d some words\n" % (i * i) for i in range(9_000))
    whole = COMPRESS[suffix](lines)
    path = tmp_path / f"a.txt{suffix}"
    path.write_bytes(whole[: len(whole) // 2] if part == "cut" else b"not compressed at all")
    assert "is corrupt or cut short" in complaint(path)


def test_a_damaged_parquet_file_is_refused(tmp_path: Path) -> None:
    path = write_parquet(tmp_path / "a.parquet", {"text": ["a", "b"]})
    path.write_bytes(path.read_bytes()[:-20])
    assert "is not a whole Parquet file" in complaint(path)


@pytest.mark.parametrize(
    ("line", "expected"), [("{bad", "line 2 is not JSON"), ("[1]", "line 2 is JSON but not")]
)
def test_a_line_that_is_no_json_object_is_refused(tmp_path: Path, line: str, expected: str) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text('{"text": "x"}\n' + line)
    assert expected in complaint(path)


def test_a_split_is_for_datasets(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("x")
    assert "leave `--split` out" in complaint(tmp_path / "a.txt", split="train")


def test_a_dataset_needs_its_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "datasets", None)
    assert "pip install datasets" in complaint("owner/no-such-name:config")


def test_the_digest_is_of_names_and_content_and_not_of_the_folder(tmp_path: Path) -> None:
    def made(folder: str, name: str, text: str) -> str:
        (tmp_path / folder).mkdir()
        (tmp_path / folder / name).write_text(text)
        return digest(Source(str(tmp_path / folder)))

    long = "x" * 3_000_000
    same = made("one", "a.txt", long)
    assert same == made("two", "a.txt", long)
    assert same == digest(Source(str(tmp_path / "one" / "a.txt")))
    others = [
        made("three", "b.txt", long),
        made("four", "a.txt", long + "x"),
        made("five", "a.txt", long[:-1] + "y"),
        made("six", "a.txt", "y" + long[1:]),
    ]
    assert len({same, *others}) == 5


def test_the_digest_knows_the_column_where_there_are_columns(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("x")
    (tmp_path / "a.jsonl").write_text('{"a": "x", "b": "y"}')
    for name, differs in [("a.txt", False), ("a.jsonl", True)]:
        found = {digest(Source(str(tmp_path / name), column=column)) for column in "ab"}
        assert len(found) == 1 + differs


def test_a_dataset_is_streamed_by_the_library_itself(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only the name is looked up elsewhere: there is no hub here, so it stands for local files."""
    datasets = pytest.importorskip("datasets", reason="the package datasets is not installed")
    files = {split: str(tmp_path / f"{split}.jsonl") for split in ("train", "validation")}
    for split, path in files.items():
        rows = [{"body": f"{split} {word}", "year": 1} for word in ("één", "東京", " ")]
        Path(path).write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    real, asked = datasets.load_dataset, []

    def from_files(name: str, config: str | None, **options: Any) -> Any:
        asked.append((name, config))
        return real("json", data_files=files, **options)

    monkeypatch.setattr(datasets, "load_dataset", from_files)
    source = Source("owner/name:plain", column="body", split="validation")
    assert list(documents(source))[:2] == ["validation één", "validation 東京"]
    assert list(documents(Source("owner/name", column="body")))[0] == "train één"
    assert asked == [("owner/name", "plain"), ("owner/name", None)]
    with pytest.raises(CorpusError, match=r"no column 'text' \(there are: body, year\)"):
        list(documents(Source("owner/name")))
    with pytest.raises(CorpusError, match=r"check the path, or the id, configuration, split"):
        list(documents(Source("owner/name", column="body", split="nowhere")))


def test_a_path_that_is_misspelt_asks_a_silent_hub_once(silent_hub: list[str]) -> None:
    pytest.importorskip("datasets", reason="the package datasets is not installed")
    with pytest.raises(CorpusError, match="not a file or folder here and cannot be read"):
        list(documents(Source("mytext")))
    assert len(silent_hub) == 1


WRAPPED = [
    "The river runs through the valley and turns the wheels of",
    "three old mills, of which one is still at work in summer when",
    "the water is high enough. Nobody lives there now.",
    "",
] * 10


def test_lines_of_a_fixed_width_are_noticed(tmp_path: Path) -> None:
    wrapped, lines = tmp_path / "wrapped.txt", tmp_path / "lines.txt"
    wrapped.write_text("\n".join(WRAPPED))
    lines.write_text("\n".join(["The river runs to the sea.", "nobody lives there."] * 20))
    assert has_fixed_width(Source(str(wrapped)))
    assert not has_fixed_width(Source(str(lines)))
    assert not has_fixed_width(Source(str(wrapped), paragraphs=True))


def test_a_paragraph_is_its_lines_joined(tmp_path: Path) -> None:
    path = tmp_path / "wrapped.txt"
    path.write_text("\n".join(WRAPPED))
    found = list(documents(Source(str(path), paragraphs=True)))
    assert found == [" ".join(WRAPPED[:3])] * 10


@pytest.mark.parametrize(("suffix", "mark"), [(".csv", ","), (".tsv", "\t")])
def test_a_table_is_read_by_its_column(tmp_path: Path, suffix: str, mark: str) -> None:
    path = tmp_path / f"table{suffix}"
    rows = [["id", "body"], ["1", '"two\nlines, ""quoted"""'], ["2", ""], ["3", "plain"]]
    path.write_text("\n".join(mark.join(row) for row in rows) + "\n")
    assert list(documents(Source(str(path), "body"))) == ['two\nlines, "quoted"', "plain"]
    with pytest.raises(CorpusError, match="no column 'text' .there are: id, body."):
        list(documents(Source(str(path))))
    path.write_text(f'id{mark}body\n1{mark}"never closed\n')
    with pytest.raises(CorpusError, match="is not a row of a table"):
        list(documents(Source(str(path), "body")))
    assert digest(Source(str(path), "id")) != digest(Source(str(path), "body"))
