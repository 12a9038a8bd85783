"""Questions to a store's Parquet tables, answered by DuckDB."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ffmem.address import Address
from ffmem.errors import StoreError
from ffmem.store.scan_store import ScanStore


@dataclass(frozen=True)
class TokenPush:
    """A token that a value promotes or suppresses: the logit that a coefficient of 1 adds."""

    token: int
    text: str
    logit: float


@dataclass(frozen=True)
class Promoter:
    """A cell whose value has a token near the top: rank 0 is its strongest."""

    address: Address
    rank: int
    probability: float


@dataclass(frozen=True)
class Ender:
    """A cell of whose triggers so many end in a token."""

    address: Address
    triggers: int


class Search:
    """One connection to a store's tables; cheap to make, closed with the process."""

    def __init__(self, store: ScanStore) -> None:
        import duckdb

        self.store = store
        self._database = duckdb.connect()
        self._broken = (duckdb.IOException, duckdb.InvalidInputException)

    def _rows(self, question: str, table: str, *values: Any) -> list[tuple[Any, ...]]:
        path = self.store.folder.table(table)
        try:
            asked = question.format(table="read_parquet($1)")
            return self._database.execute(asked, [str(path), *values]).fetchall()
        except self._broken as error:
            reason = str(error).splitlines()[0]
            raise StoreError(f"{path} cannot be read ({reason}); scan again") from None

    def token_ids(self, text: str) -> list[int]:
        """The tokens whose text is exactly this, space in front included."""
        rows = self._rows("select id from {table} where text = $2", "vocabulary", text)
        return [token for (token,) in rows]

    def texts(self, tokens: list[int]) -> dict[int, str]:
        """The text of some tokens."""
        wanted = "select id, text from {table} where list_contains($2, id)"
        return dict(self._rows(wanted, "vocabulary", tokens))

    def pushes(self, cell: Address, kind: str = "promoted") -> list[TokenPush]:
        """The tokens that a cell's value promotes most, or `suppressed`; strongest first."""
        if cell.sign == "-":
            kind = "suppressed" if kind == "promoted" else "promoted"
        question = f"select {kind}, {kind}_logits from {{table}} where layer = $2 and memory = $3"  # noqa: S608
        rows = self._rows(question, "values", cell.layer, cell.index)
        if not rows:
            return []
        tokens, logits = rows[0]
        texts = self.texts(tokens)
        sign = -1 if cell.sign == "-" else 1
        return [
            TokenPush(token, texts.get(token, f"<{token}>"), sign * logit)
            for token, logit in zip(tokens, logits, strict=True)
        ]

    def promoters(self, token: int, limit: int = 20) -> list[Promoter]:
        """The cells whose value has this token nearest to the top, then the most certain."""
        question = """
            select layer, memory, list_position(promoted, $2) - 1 as rank, probability, '+'
            from {table} where list_contains(promoted, $2)
        """
        if self.store.manifest.signed:
            question += """
                union all select layer, memory, list_position(suppressed, $2) - 1, 0.0, '-'
                from {table} where list_contains(suppressed, $2)
            """
        rows = self._rows(
            f"{question} order by rank, probability desc, layer desc, memory limit $3",
            "values",
            token,
            limit,
        )
        signed = self.store.manifest.signed
        return [
            Promoter(Address(layer, memory, sign if signed else ""), rank, probability)
            for layer, memory, rank, probability, sign in rows
        ]

    def enders(self, token: int, limit: int = 20) -> list[Ender]:
        """The cells with most triggers that end in this token."""
        question = (
            "select layer, cell, count from {table} where token = $2 "
            "order by count desc, layer, cell limit $3"
        )
        rows = self._rows(question, "endings", token, limit)
        return [Ender(self.store.address(layer, cell), count) for layer, cell, count in rows]
