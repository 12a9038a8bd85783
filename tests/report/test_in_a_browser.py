"""The pages in a real browser: charts drawn, nothing fetched, no complaint, fit for everybody."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ffmem.analyses.study import Study
from ffmem.report.comparison import summarise, write_comparison
from tests.small_study import drawing_few_figures


@pytest.fixture(scope="module")
def pages(
    toy_study: Study, gated_study: Study, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, Path]:
    both = tmp_path_factory.mktemp("both") / "both.html"
    with drawing_few_figures():
        write_comparison([summarise(toy_study), summarise(gated_study)], both)
    return {
        "report": toy_study.folder / "report.html",
        "values": toy_study.folder / "report" / "values.html",
        "gated": gated_study.folder / "report.html",
        "weights": gated_study.folder / "report" / "weights.html",
        "compare": both,
    }


HIGHEST, PRINTED = 2400, 2  # pixels at 1,280 wide, and A4 pages, of a report
BEYOND_THE_EDGE = """width => [...document.querySelectorAll("main td, main svg, main p, nav a")]
    .filter((one) => one.getBoundingClientRect().right > width + 1)
    .map((one) => one.outerHTML.slice(0, 80))"""


def wait_for_charts(page: Any) -> int:
    """Wait until all charts are drawn that are not folded; how many there are."""
    charts = page.locator("[data-chart]:visible").count()
    assert charts >= 1
    page.wait_for_function(
        "count => document.querySelectorAll('[data-chart] .vega-embed').length === count",
        arg=charts,
    )
    return int(charts)


@pytest.mark.parametrize(
    ("name", "scheme", "width"),
    [
        ("report", "light", 1280),
        ("gated", "dark", 390),
        ("values", "dark", 1100),
        ("weights", "light", 390),
        ("compare", "dark", 1100),
    ],
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
    wait_for_charts(page)
    assert complaints == []
    assert page.evaluate("document.documentElement.scrollWidth") <= width  # no sideways scrolling
    assert page.evaluate(BEYOND_THE_EDGE, width) == []
    violations = Axe().run(page, options={"resultTypes": ["violations"]}).response["violations"]
    serious = [v for v in violations if v["impact"] in ("serious", "critical")]
    assert [(v["id"], v["nodes"][0]["html"]) for v in serious] == []
    context.close()


@pytest.mark.parametrize("name", ["report", "gated"])
def test_a_report_is_two_printed_pages(browser: Any, pages: dict[str, Path], name: str) -> None:
    context = browser.new_context(viewport={"width": 1280, "height": 900})
    page = context.new_page()
    page.goto(pages[name].as_uri())
    wait_for_charts(page)
    assert page.evaluate("document.documentElement.scrollHeight") <= HIGHEST
    printed = page.pdf(format="A4", prefer_css_page_size=True)
    assert 1 <= len(re.findall(rb"/Type\s*/Page\b", printed)) <= PRINTED
    context.close()


@pytest.fixture(scope="module")
def report_page(browser: Any, pages: dict[str, Path]) -> Iterator[Any]:
    """A chapter with its charts drawn, which takes seconds."""
    context = browser.new_context(viewport={"width": 1100, "height": 900})
    page = context.new_page()
    page.goto(pages["values"].as_uri())
    wait_for_charts(page)
    yield page
    context.close()


def test_charts_fill_their_place_and_can_be_saved(report_page: Any) -> None:
    page, charts = report_page, wait_for_charts(report_page)
    shares = page.evaluate(
        """[...document.querySelectorAll("[data-chart]")]
        .filter((place) => place.checkVisibility())
        .map((place) => place.querySelector("svg").getBoundingClientRect().width
            / place.clientWidth)"""
    )
    assert len(shares) == charts
    assert min(shares) > 0.7  # several panels leave room for their axes
    first = page.locator("#figure-values-agreement")
    for kind, start in (("SVG", b"<svg"), ("PNG", b"\x89PNG"), ("CSV", b"layer,")):
        with page.expect_download() as saving:
            first.get_by_role("button", name=f"Save the chart as {kind}").click()
        assert saving.value.suggested_filename == f"values-agreement.{kind.lower()}"
        assert start in Path(saving.value.path()).read_bytes()[:200]


HIDE_AND_LOOK = """async () => {
    const main = document.querySelector("main");
    const frames = async () => {
        for (let n = 0; n < 3; n++) await new Promise(requestAnimationFrame);
    };
    main.style.display = "none";
    await frames();
    main.style.display = "";
    const charts = [...document.querySelectorAll("[data-chart]")];
    const seen = charts.filter((one) => one.checkVisibility());
    const widths = seen.map((one) => one.dataset.width);
    await frames();
    return widths;
}"""


def test_a_chart_without_a_place_is_not_drawn(report_page: Any) -> None:
    """Vega would warn of a width that is none; it is drawn again when its place has another."""
    complaints: list[str] = []
    report_page.on("console", lambda said: complaints.append(said.text))
    widths = report_page.evaluate(HIDE_AND_LOOK)
    assert len(widths) == wait_for_charts(report_page)
    assert "0" not in widths
    assert complaints == []


def test_a_claim_leads_to_its_figure_and_opens_what_is_folded(report_page: Any) -> None:
    page = report_page
    page.evaluate("for (const one of document.querySelectorAll('details')) one.open = false")
    page.evaluate("location.hash = '#figure-values-mass'")  # no claim is about it
    figure = page.locator("#figure-values-mass .vega-embed")
    figure.wait_for()
    place, sections = figure.bounding_box(), page.locator("nav").bounding_box()
    assert sections["y"] == 0
    assert sections["height"] <= place["y"] < 400
