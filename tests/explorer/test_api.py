"""The API holds what its own description promises, whatever it is asked."""

from __future__ import annotations

import schemathesis
from fastapi.testclient import TestClient
from hypothesis import HealthCheck, given, settings
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
)

from ffmem.explorer.app import create_app
from ffmem.explorer.explored import Explored, explore
from ffmem.store.scan_store import ScanStore

HOST = {"host": "127.0.0.1"}
CHECKS = [not_a_server_error, content_type_conformance, response_schema_conformance]


def test_whatever_is_asked_is_answered_as_described(study: ScanStore) -> None:
    app = create_app(explore(study.folder.root))
    described = schemathesis.openapi.from_asgi("/api/openapi.json", app, headers=HOST)
    operations = [found.ok() for found in described.get_all_operations()]
    assert len(operations) >= 6
    for operation in operations:

        @settings(max_examples=12, deadline=None, database=None, suppress_health_check=HealthCheck)
        @given(case=operation.as_strategy())
        def holds(case: schemathesis.Case) -> None:
            case.validate_response(case.call(headers=HOST), checks=CHECKS)

        holds()


def test_every_route_of_the_api_has_a_sentence(client: TestClient) -> None:
    paths = client.get("/api/openapi.json").json()["paths"]
    assert {"/api/overview", "/api/search", "/api/memories/{address}"} <= set(paths)
    for path, methods in paths.items():
        for method, what in methods.items():
            assert what.get("description", "").endswith("."), f"{method} {path}"
    page = client.get("/api").text
    assert all(path in page for path in paths)


def test_a_memory_in_json_is_the_memory_in_the_store(
    client: TestClient, explored: Explored
) -> None:
    cell = explored.lookup.one(5)
    found = client.get(f"/api/memories/{cell}", params={"triggers": 3}).json()
    expected = explored.store.triggers(cell)
    assert found["stored_triggers"] == len(expected)
    assert [one["last"] for one in found["triggers"]] == [one.last for one in expected[:3]]
    assert found["fires"] == explored.store.counts(cell).fires
    assert sum(bar["count"] for bar in found["distribution"]) == len(
        explored.store.triggers(cell, "sample")
    )
