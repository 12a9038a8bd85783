"""The API holds what its own description promises, whatever it is asked."""

from __future__ import annotations

import re
from typing import Any

import pytest
import schemathesis
from fastapi.testclient import TestClient
from hypothesis import HealthCheck, given, settings
from hypothesis.errors import Unsatisfiable
from schemathesis import GenerationMode
from schemathesis.checks import CheckContext, not_a_server_error
from schemathesis.core.transport import Response
from schemathesis.specs.openapi.checks import (
    allow_header_conformance,
    content_type_conformance,
    negative_data_rejection,
    positive_data_acceptance,
    response_headers_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from ffmem.errors import EditError
from ffmem.explorer.app import create_app
from ffmem.explorer.context import StudyContext
from ffmem.memories.edits import EDIT_PATTERN, Edit
from ffmem.records import to_plain
from ffmem.store.memory_page import memory_page
from ffmem.store.scan_store import ScanStore
from tests.explorer.conftest import context_of

HOST = {"host": "127.0.0.1"}
EXAMPLES = 3  # of right and of wrong requests to each route
METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS")
# What a schema cannot say, because it depends on the study, the model or other parts of a request.
REASONS = (
    "triggers, and a pattern needs",
    "this description was given before",
    "is not a description",
    "is not among the prefixes",
    "tokens; give between",
    "the text has positions",
    "there is no token",
    "is not one token of",
    "does not begin with a token",
    "is too large",
    "make numbers overflow",
    "no language model is there",
    "has no chat template",
    "does not bring text into WikiText's form",
)


def acceptance(context: CheckContext, response: Response, case: schemathesis.Case) -> bool | None:
    """What the schema allows is accepted, or refused for a reason that no schema can state."""
    if response.status_code == 400 and any(why in response.text for why in REASONS):
        return None
    return positive_data_acceptance(context, response, case)


def rejection(context: CheckContext, response: Response, case: schemathesis.Case) -> bool | None:
    """What the schema forbids is refused; a text that is far too long by the guard."""
    return None if response.status_code == 413 else negative_data_rejection(context, response, case)


CHECKS = [
    not_a_server_error,
    acceptance,
    allow_header_conformance,
    content_type_conformance,
    rejection,
    response_headers_conformance,
    response_schema_conformance,
    status_code_conformance,
]


@pytest.mark.usefixtures("few_calibration_keys")
def test_whatever_is_asked_is_answered_as_described(gated_study: ScanStore) -> None:
    assert ask_all(context_of(gated_study), list(GenerationMode), EXAMPLES) >= 6


@pytest.mark.usefixtures("few_calibration_keys")
def test_so_it_is_where_memories_have_no_sign(study: ScanStore) -> None:
    """A few right requests; what is wrong does not depend on the study."""
    assert ask_all(context_of(study), [GenerationMode.POSITIVE], 2) >= 6


def ask_all(explored: StudyContext, modes: list[GenerationMode], examples: int) -> int:
    """Ask every operation; how many there are."""
    app = create_app(explored)
    described = schemathesis.openapi.from_asgi("/api/openapi.json", app, headers=HOST)
    operations = [found.ok() for found in described.get_all_operations()]
    for operation in operations:
        for mode in modes:
            ask_many(operation, mode, examples)
            explored.jobs.stop()  # searches that were asked for
    return len(operations)


def ask_many(operation: Any, mode: GenerationMode, examples: int) -> None:
    """Send the same requests in every run."""

    @settings(
        max_examples=examples,
        deadline=None,
        database=None,
        derandomize=True,
        suppress_health_check=list(HealthCheck),
    )
    @given(case=operation.as_strategy(generation_mode=mode))
    def holds(case: schemathesis.Case) -> None:
        case.validate_response(case.call(headers=HOST), checks=CHECKS)

    try:
        holds()
    except Unsatisfiable:
        assert mode is GenerationMode.NEGATIVE  # nothing can be wrong in a request without parts


@pytest.mark.parametrize(
    ("path", "allowed"),
    [
        ("/api/sheets", "HEAD, GET, POST, DELETE"),
        ("/api/sheets/abc/answer", "HEAD, GET, PUT"),
        ("/api/memories/L1.0/answer", "HEAD, GET, PUT"),
        ("/api/overview", "HEAD, GET"),
        ("/api/openapi.json", "HEAD, GET"),
        ("/search", "HEAD, GET"),
        ("/static/style.css", "HEAD, GET"),
    ],
)
def test_allow_names_every_method_of_the_path(client: TestClient, path: str, allowed: str) -> None:
    for method in set(METHODS) - set(allowed.split(", ")):
        answer = client.request(method, path)
        assert (answer.status_code, answer.headers["allow"]) == (405, allowed), method
        assert f"does not answer {method}, only {allowed}" in answer.text
    for method in allowed.split(", "):
        assert client.request(method, path).status_code != 405


def test_head_is_get_without_its_body(client: TestClient) -> None:
    for path in ("/", "/memory/L1.0", "/api/overview", "/static/style.css", "/nothing"):
        whole, head = client.get(path), client.head(path)
        assert (head.status_code, head.content) == (whole.status_code, b"")
        assert head.headers["content-length"] == str(len(whole.content))


@pytest.mark.parametrize("seed", [False, "1", None, 1.5])
def test_only_an_integer_is_a_seed(client: TestClient, seed: object) -> None:
    answer = client.post("/api/sheets", json={"keys": 1, "seed": seed})
    assert (answer.status_code, answer.json()["detail"][:5]) == (422, "seed:")


def test_limits_of_numbers_stand_in_the_description(client: TestClient) -> None:
    described = client.get("/api/openapi.json").json()
    schemas, paths = described["components"]["schemas"], described["paths"]
    seed, ranks = (
        schemas["Draw"]["properties"]["seed"],
        schemas["PatternInput"]["properties"]["ranks"],
    )
    assert (seed["minimum"], seed["maximum"]) == (0, 2**31 - 1)
    assert (ranks["uniqueItems"], ranks["minItems"], ranks["items"]["minimum"]) == (True, 3, 1)
    parameters = {
        one["name"]: one["schema"]
        for path in ("/api/search", "/api/prompt")
        for one in paths[path]["get"]["parameters"]
    }
    layer = {"type": "integer", "minimum": 1, "maximum": 10_000}
    assert parameters["layer"]["anyOf"] == [layer, {"const": ""}]
    assert parameters["position"]["not"] == {"const": 0}


@pytest.mark.parametrize(
    "text",
    [
        "L1.0=0",
        "L1.0*2",
        " L1.0 = -.5 ",
        "L1.0*1e-3",
        "L1.0=1e300",
        "L1.0=1_0",
        "L1.0",
        "=1",
        "L1.0=x",
        "L0.1=1",
    ],
)
def test_edits_are_read_as_described(text: str) -> None:
    try:
        Edit.parse(text)
    except EditError:
        assert re.fullmatch(EDIT_PATTERN, text) is None
    else:
        assert re.fullmatch(EDIT_PATTERN, text)


def test_every_route_of_the_api_has_a_sentence(client: TestClient) -> None:
    paths = client.get("/api/openapi.json").json()["paths"]
    assert {"/api/overview", "/api/search", "/api/memories/{address}"} <= set(paths)
    for path, methods in paths.items():
        for method, what in methods.items():
            assert what.get("description", "").endswith("."), f"{method} {path}"
    page = client.get("/api").text
    assert all(path in page for path in paths)


def test_a_memory_in_json_is_the_memory_in_the_store(
    client: TestClient, explored: StudyContext
) -> None:
    cell = explored.lookup.store.cells.address(5)
    found = client.get(f"/api/memories/{cell}", params={"triggers": 3}).json()
    expected = explored.store.triggers(cell)
    page = found["page"]
    assert page == to_plain(memory_page(explored.lookup, cell, 3))
    assert page["stored"] == len(expected)
    assert [one["last"] for one in page["triggers"]] == [one.last for one in expected[:3]]
    assert page["counts"]["fires"] == explored.store.counts(cell).fires
