"""The tables of a database of annotations: what is shown, and what is said of it."""

from __future__ import annotations

from sqlalchemy import (
    Column,
    DateTime,
    ForeignKey,
    Integer,
    MetaData,
    String,
    Table,
    Text,
    UniqueConstraint,
)

TABLES = MetaData()


def _answers_to(sheets: str, name: str) -> Table:
    """Answers to the sheets of one table."""
    return Table(
        name,
        TABLES,
        Column("id", Integer, primary_key=True),
        Column("sheet", String(16), ForeignKey(f"{sheets}.name"), nullable=False),
        Column("annotator", String(200), nullable=False),
        Column("revision", Integer, nullable=False),  # from 1; the highest counts
        Column("made", DateTime(timezone=True), nullable=False),
        Column("digest", String(64), nullable=False),  # of what was said
        Column("said", Text, nullable=False),  # JSON
        UniqueConstraint("sheet", "annotator", "revision"),
    )


SHEETS = Table(
    "sheets",
    TABLES,
    Column("name", String(16), primary_key=True),
    Column("scan", String(64), nullable=False),
    Column("layer", Integer, nullable=False),
    Column("key", String(32)),
    Column("control", String(16)),
    Column("prefixes", Text, nullable=False),  # JSON
)
ANSWERS = _answers_to("sheets", "answers")

CASE_SHEETS = Table(
    "case_sheets",
    TABLES,
    Column("name", String(16), primary_key=True),
    Column("scan", String(64), nullable=False),
    Column("cases", Text, nullable=False),  # JSON
)
JUDGEMENTS = _answers_to("case_sheets", "judgements")
