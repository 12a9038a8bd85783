"""A file is written whole or not at all, whoever else writes it."""

from __future__ import annotations

import os
from pathlib import Path

from ffmem.files.whole_files import write_whole


def test_two_writers_of_one_file_leave_one_of_the_two_whole(tmp_path: Path) -> None:
    path = tmp_path / "result"

    def write_both(part: Path) -> None:
        with part.open("w") as file:
            file.write("fir")
            file.flush()
            write_whole(path, lambda other: other.write_text("second"))
            file.write("st")
            file.flush()
            assert path.read_text() == "second"

    write_whole(path, write_both)
    assert path.read_text() == "first"
    assert list(tmp_path.iterdir()) == [path]


def test_what_a_killed_writer_left_is_removed_when_it_is_old(tmp_path: Path) -> None:
    names = ("a.00000000.part", "a.00000001.part", "b.00000000.part")
    old, young, other = (tmp_path / name for name in names)
    for part in (old, young, other):
        part.touch()
    for part in (old, other):
        os.utime(part, (0, 0))
    write_whole(tmp_path / "a", lambda part: part.write_text("x"))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a", *names[1:]]
