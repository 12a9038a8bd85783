from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import pytest
import vl_convert

from ffmem.analyses.composition.charts import active_chart
from ffmem.analyses.composition.record import (
    ActivityEffects,
    AgreeingCases,
    CaseEffects,
    Composition,
    CompositionEffects,
    LayerActivity,
)
from ffmem.analyses.statistics import Interval
from ffmem.figures import style
from ffmem.figures.saving import EMBED, chart_script, picture, rows_of, save, save_picture

ROWS = [{"layer": 1, "share": 0.25}, {"layer": 2, "share": float("nan"), "n": 3}]


def test_a_figure_is_a_page_two_pictures_and_its_numbers(tmp_path: Path) -> None:
    chart = style.base(ROWS).mark_bar().encode(x=style.layer_axis(), y="share:Q")
    written = save(style.with_caption(style.with_size(chart), "Title", "caption"), tmp_path, "one")
    assert [path.name for path in written] == [
        f"one.{end}" for end in ("html", "svg", "png", "csv", "json")
    ]
    page = (tmp_path / "one.html").read_text()
    assert "cdn." not in page.split("</script>")[0]
    assert "Title" in (tmp_path / "one.svg").read_text()
    assert (tmp_path / "one.png").read_bytes()[:4] == b"\x89PNG"
    assert json.loads((tmp_path / "one.json").read_text()) == [
        {"layer": 1, "share": 0.25},
        {"layer": 2, "share": None, "n": 3},
    ]
    rows = list(csv.DictReader((tmp_path / "one.csv").read_text().splitlines()))
    assert rows[0] == {"layer": "1", "share": "0.25", "n": ""}


def test_no_text_of_a_figure_runs_as_a_formula_in_a_spreadsheet(tmp_path: Path) -> None:
    rows = [{"token": "=1+1", "share": -0.25}, {"token": "river", "share": 0.5}]
    save(style.base(rows).mark_bar().encode(x="token:N", y="share:Q"), tmp_path, "one")
    found = list(csv.DictReader((tmp_path / "one.csv").read_text().splitlines()))
    assert found == [{"token": "'=1+1", "share": "-0.25"}, {"token": "river", "share": "0.5"}]


def test_the_library_is_put_together_once_and_again_where_the_cache_is_damaged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The cache outlives the process; here the memory of this one is left out."""
    monkeypatch.setenv("FFMEM_CACHE", str(tmp_path))
    bundles: list[str] = []

    def bundle(snippet: str) -> str:
        bundles.append(snippet)
        return f"{snippet} </script>"

    monkeypatch.setattr(vl_convert, "javascript_bundle", bundle)
    read = chart_script.__wrapped__
    assert read() == read() == f"{EMBED} <\\/script>"
    assert bundles == [EMBED]
    (script,) = tmp_path.rglob("*.js")
    script.write_text("nonsense")
    assert read() == f"{EMBED} <\\/script>"
    assert bundles == [EMBED] * 2
    monkeypatch.setattr(vl_convert, "__version__", "another")
    read()
    assert bundles == [EMBED] * 3


def test_captions_are_cut_between_words() -> None:
    assert style.wrap_text("one two three four", 8) == ["one two", "three", "four"]


def test_what_has_too_few_cases_is_kept_and_not_drawn() -> None:
    """A share of 29 cases is in the numbers and not in the picture."""
    few = style.LEAST_SHARE - 1
    rows = [{"layer": layer, "share": 0.5, "n": n} for layer, n in ((1, few), (2, few + 1))]
    chart = style.base(rows, style.enough_cases()).mark_bar()
    drawn = style.with_size(chart.encode(x=style.layer_axis(), y="share:Q")).to_dict()
    assert rows_of(drawn) == rows
    svg = picture(drawn)
    assert svg.count('aria-roledescription="bar"') == 1
    assert "layer: 2" in svg
    assert style.few_cases_note(rows).startswith(" 1 of the 2 points have fewer than 30 cases")
    assert style.few_cases_note(rows[1:]) == ""


def test_a_legend_has_as_many_columns_as_fit() -> None:
    short = style.series("series", ["one", "two", "three"]).to_dict()
    assert short["legend"]["columns"] == 3
    long = style.series("series", ["x" * 80, "y"]).to_dict()
    assert long["legend"]["columns"] == 1


def test_gates_are_not_called_coefficients() -> None:
    interval = (0.0,) * 5
    row = LayerActivity(1, 4, interval, interval, interval, interval, 0.0)
    words = {}
    nothing = Interval(0.0, 0.0, 0.0, 0)
    effects = CompositionEffects(
        ActivityEffects(nothing, nothing), nothing, CaseEffects(nothing, nothing)
    )
    cases = AgreeingCases(*[nothing] * 6)
    for gated in (False, True):
        result = Composition((row,), (), cases, 3, 3, gated, effects)
        words[gated] = " ".join(active_chart(result).to_dict()["title"]["subtitle"])
    assert "coefficient above zero" in words[False]
    assert "gate is on" in words[True]
    assert "coefficient" not in words[True]


def test_the_page_of_a_figure_draws_it_offline(tmp_path: Path, browser: Any) -> None:
    """Also one whose rows hold the end of a script."""
    rows = [{"layer": 1, "share": 0.25, "word": "</script><script>window.bad = 1</script>"}]
    chart = style.base(rows).mark_bar().encode(x=style.layer_axis(), y="share:Q", tooltip="word:N")
    save(style.with_size(chart), tmp_path, "one")
    tab = browser.new_page()
    tab.set_default_timeout(120_000)
    tab.route("http*://**", lambda route: route.abort())
    tab.goto((tmp_path / "one.html").as_uri())
    tab.wait_for_selector("#figure canvas, #figure svg")
    assert tab.evaluate("window.bad") is None
    assert tab.title() == "one"
    tab.close()


def test_a_png_is_on_white_and_of_the_size_of_the_chart(tmp_path: Path) -> None:
    chart = style.with_size(style.base(ROWS).mark_bar().encode(x=style.layer_axis(), y="share:Q"))
    save(chart, tmp_path, "one")
    ours, own = (
        (tmp_path / "one.png").read_bytes(),
        vl_convert.vegalite_to_png({**chart.to_dict(), "background": "white"}, scale=2),
    )
    assert ours[16:24] == own[16:24]  # width and height
    assert ours == own


def test_tokens_that_are_control_characters_can_be_drawn(tmp_path: Path) -> None:
    rows = [{"row": row, "token": token} for row, token in enumerate(("\x17\0", "\uffff"))]
    chart = style.with_size(style.base(rows).mark_text().encode(y="row:O", text="token:N"))
    for ending in ("svg", "png"):
        save_picture(chart, tmp_path / f"memory.{ending}")
        assert (tmp_path / f"memory.{ending}").stat().st_size > 0
    assert "\u2417" in (tmp_path / "memory.svg").read_text()
