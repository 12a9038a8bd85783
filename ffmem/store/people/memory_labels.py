"""Labels, notes and lists of memories: rows are added and never changed, the newest counts.

A list is a set of memories, the same as a text file of addresses on the command line. A star is
a place on the list `starred`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from sqlalchemy import (
    Boolean,
    Column,
    DateTime,
    Integer,
    String,
    Table,
    Text,
    UniqueConstraint,
    insert,
    select,
)
from sqlalchemy.exc import IntegrityError

from ffmem.errors import FfmemError, StoreError, shorten
from ffmem.store.people.connection import TABLES, Database
from ffmem.store.people.revisions import WRITE_TRIES
from ffmem.store.scan_store import ScanStore
from ffmem.text import UNSEEN

STAR_LIST = "starred"
LONGEST_LABEL = 200  # characters
LONGEST_NOTE = 5_000
LONGEST_LIST_NAME = 60
MOST_MEMBERS = 10_000  # memories that are added at once

LABELS = Table(
    "labels",
    TABLES,
    Column("id", Integer, primary_key=True),
    Column("scan", String(64), nullable=False),
    Column("key", String(40), nullable=False),
    Column("revision", Integer, nullable=False),  # from 1; the highest counts
    Column("made", DateTime(timezone=True), nullable=False),
    Column("label", String(LONGEST_LABEL), nullable=False),
    Column("note", Text, nullable=False),
    UniqueConstraint("scan", "key", "revision"),
)
MEMBERS = Table(
    "list_members",
    TABLES,
    Column("id", Integer, primary_key=True),
    Column("scan", String(64), nullable=False),
    Column("list", String(LONGEST_LIST_NAME), nullable=False),
    Column("key", String(40), nullable=False),
    Column("revision", Integer, nullable=False),
    Column("made", DateTime(timezone=True), nullable=False),
    Column("member", Boolean, nullable=False),
    UniqueConstraint("scan", "list", "key", "revision"),
)


@dataclass(frozen=True)
class Label:
    """A person's label and note for a memory; either may be empty."""

    label: str = ""
    note: str = ""


def parse_label(label: str, note: str) -> Label:
    """A label and note as they are saved; refuses what a page could not show."""
    label, note = label.strip(), note.strip()
    if len(label) > LONGEST_LABEL or re.search(f"[{UNSEEN}]", label):
        raise FfmemError(
            f"{shorten(label)!r} is no label; give one line of at most {LONGEST_LABEL} characters"
        )
    if len(note) > LONGEST_NOTE or "\0" in note:
        raise FfmemError(f"a note is text of at most {LONGEST_NOTE:,} characters; shorten it")
    return Label(label, note)


@contextmanager
def study_labels(store: ScanStore) -> Iterator[MemoryLabels]:
    """The labels in the database of a study's own folder, which is made where there is none."""
    database = Database.open(str(store.folder.annotations))
    try:
        yield MemoryLabels(database, store.manifest.key.digest)
    finally:
        database.close()


def label_texts(store: ScanStore) -> dict[str, str]:
    """People's labels by address, where the study has a database of them."""
    if not store.folder.annotations.exists():
        return {}
    with study_labels(store) as labels:
        return {key: one.label for key, one in labels.labels().items() if one.label}


class MemoryLabels:
    """The labels and lists of one scan."""

    def __init__(self, database: Database, scan: str) -> None:
        self._database, self._scan = database, scan

    def label(self, key: str) -> Label:
        """The newest label of a memory; an empty one where there is none."""
        return self.labels(key).get(key, Label())

    def labels(self, key: str | None = None) -> dict[str, Label]:
        """Every memory that has a label or a note, or the one asked for."""
        newest = self._newest(LABELS, key=key)
        found = {row["key"]: Label(row["label"], row["note"]) for row in newest.values()}
        return {key: label for key, label in found.items() if label != Label()}

    def set_label(self, key: str, label: Label) -> bool:
        """Save a label as the newest; False where it is the one already there."""
        if self.label(key) == label:
            return False
        self._add(LABELS, [{"key": key, "label": label.label, "note": label.note}], ("key",))
        return True

    def lists(self, key: str | None = None) -> dict[str, tuple[str, ...]]:
        """The memories of every list, in the order in which they were added; `starred` first.

        With `key` only the lists that it is on. A list without memories is not there.
        """
        newest = self._newest(MEMBERS, key=key)
        found: dict[str, list[str]] = {}
        for row in sorted(newest.values(), key=lambda row: int(row["id"])):
            if row["member"]:
                found.setdefault(row["list"], []).append(row["key"])
        order = sorted(found, key=lambda name: (name != STAR_LIST, name.casefold()))
        return {name: tuple(found[name]) for name in order}

    def add(self, name: str, keys: Iterable[str]) -> int:
        """Put memories on a list; how many were not on it."""
        return self._put(name, keys, member=True)

    def remove(self, name: str, keys: Iterable[str]) -> int:
        """Take memories off a list; how many were on it."""
        return self._put(name, keys, member=False)

    def _put(self, name: str, keys: Iterable[str], member: bool) -> int:
        on_it = set(self.lists().get(name, ()))
        changed = [key for key in dict.fromkeys(keys) if (key in on_it) != member]
        rows = [{"list": name, "key": key, "member": member} for key in changed]
        self._add(MEMBERS, rows, ("list", "key"))
        return len(changed)

    def _add(self, table: Table, rows: Sequence[dict[str, Any]], names: tuple[str, ...]) -> None:
        """Add rows as the newest revisions of what their columns `names` name."""
        for _ in range(WRITE_TRIES if rows else 0):
            newest, now = self._newest(table), datetime.now(UTC)
            new = []
            for row in rows:
                latest = newest.get(tuple(row[name] for name in names))
                revision = 1 if latest is None else int(latest["revision"]) + 1
                new.append({"scan": self._scan, "made": now, "revision": revision, **row})
            try:
                with self._database.writing() as connection:
                    connection.execute(insert(table), new)
            except IntegrityError:
                continue  # somebody saved this revision meanwhile: look again
            return
        if rows:
            raise StoreError("others are changing the same labels; do it once more")

    def _newest(self, table: Table, key: str | None = None) -> dict[tuple[str, ...], Any]:
        """The newest rows of this scan, by list (where there are any) and key."""
        question = select(table).where(table.c.scan == self._scan).order_by(table.c.revision)
        question = question if key is None else question.where(table.c.key == key)
        with self._database.parsing(), self._database.reading() as connection:
            rows = [row._mapping for row in connection.execute(question).all()]
        names = ("list", "key") if "list" in table.c else ("key",)
        return {tuple(str(row[name]) for name in names): row for row in rows}
