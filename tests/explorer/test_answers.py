"""What a route answers is the record as `--json` prints it, and OpenAPI describes it so."""

from __future__ import annotations

import ast
import json
import math
from dataclasses import dataclass
from pathlib import Path

from fastapi import FastAPI
from fastapi.testclient import TestClient

import ffmem
from ffmem.address import Address
from ffmem.explorer.answers import Answer, Api
from ffmem.records import json_text


@dataclass(frozen=True)
class Part:
    cell: Address
    share: float
    some: tuple[float | None, ...]


@dataclass(frozen=True)
class Whole:
    parts: tuple[Part, ...]
    by_name: dict[str, float]
    count: int


WHOLE = Whole((Part(Address(7, 3, "+"), math.nan, (1.5, None)),), {"é": math.inf, "b": 0.1}, 2)


def api() -> FastAPI:
    app = Api()

    @app.get("/api/whole", response_model=Whole)
    def whole() -> Answer:
        return Answer(WHOLE)

    return app


def test_an_answer_is_what_a_command_prints() -> None:
    answer = TestClient(api()).get("/api/whole")
    assert answer.headers["content-type"] == "application/json"
    assert answer.json() == json.loads(json_text(WHOLE))
    assert b" " not in answer.content


def test_numbers_of_answers_may_be_null_and_addresses_are_text() -> None:
    app = api()
    schemas = app.openapi()["components"]["schemas"]
    part = schemas["Part"]["properties"]
    assert part["cell"]["type"] == "string"
    number = ["number", "null"]
    assert part["share"]["type"] == number
    assert schemas["Whole"]["properties"]["by_name"]["additionalProperties"]["type"] == number
    assert schemas["Whole"]["properties"]["count"]["type"] == "integer"
    assert app.openapi()["components"]["schemas"] == schemas  # asked again


def test_every_route_of_the_api_answers_so() -> None:
    """A route returns an `Answer`, never a record that somebody else would encode."""
    folder = Path(ffmem.__file__).parent / "explorer" / "pages"
    trees = [ast.parse(path.read_text()) for path in folder.glob("*.py")]
    routes = {
        node.name: ast.unparse(node.returns) if node.returns else ""
        for tree in trees
        for node in tree.body
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and any(
            "route" in words or "live." in words for words in map(ast.unparse, node.decorator_list)
        )
        and not any("include_in_schema=False" in ast.unparse(one) for one in node.decorator_list)
    }
    assert routes.pop("search_data") == "Response"  # from a helper process, text already
    assert len(routes) > 20
    assert set(routes.values()) == {"Answer"}
