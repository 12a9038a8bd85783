"""The pages in a real browser: charts drawn, nothing fetched, no complaint, fit for everybody."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from ffmem.report.comparison import write_comparison
from ffmem.studies.study import Study


@pytest.fixture(scope="module")
def pages(
    toy_study: Study, gated_study: Study, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, Path]:
    both = tmp_path_factory.mktemp("both") / "both.html"
    return {
        "report": toy_study.folder / "report.html",
        "gated": gated_study.folder / "report.html",
        "compare": write_comparison([toy_study, gated_study], both),
    }


@pytest.mark.parametrize(
    ("name", "scheme", "width"),
    [("report", "light", 1100), ("gated", "dark", 390), ("compare", "dark", 1100)],
)
def test_a_page_opens_offline(
    browser: Any, pages: dict[str, Path], name: str, scheme: str, width: int
) -> None:
    from axe_playwright_python.sync_playwright import Axe

    context = browser.new_context(color_scheme=scheme, viewport={"width": width, "height": 900})
    page = context.new_page()
    complaints: list[str] = []
    page.on("console", lambda said: complaints.append(said.text))
    page.on("pageerror", lambda error: complaints.append(str(error)))
    page.on("request", lambda asked: complaints.append(asked.url) if "http" in asked.url else None)
    page.goto(pages[name].as_uri())
    charts = page.locator("[data-chart]").count()
    assert charts > 10
    page.wait_for_function(
        "count => document.querySelectorAll('[data-chart] .vega-embed').length === count",
        arg=charts,
    )
    assert complaints == []
    assert page.evaluate("document.documentElement.scrollWidth") <= width  # no sideways scrolling
    violations = Axe().run(page).response["violations"]
    serious = [v for v in violations if v["impact"] in ("serious", "critical")]
    assert [(v["id"], v["nodes"][0]["html"]) for v in serious] == []
    context.close()
