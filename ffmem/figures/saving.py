"""A chart as a page, two pictures and the numbers behind it."""

from __future__ import annotations

import csv
import io
import json
from contextlib import AbstractContextManager
from functools import cache, partial
from html import escape
from pathlib import Path
from typing import Any

import altair as alt
import vl_convert
from altair.utils.schemapi import debug_mode

from ffmem.address_space import FIGURES, check_address_space
from ffmem.errors import FfmemError
from ffmem.figures.style import Row
from ffmem.files import disk_cache
from ffmem.files.disk_cache import address_of
from ffmem.files.whole_files import write_whole
from ffmem.locations import is_remote
from ffmem.records import csv_cell

PAGE = """<!DOCTYPE html>
<html>
<head><meta charset="UTF-8"><title>{name}</title></head>
<body>
<div id="figure"></div>
<script type="module">{library}
window.vegaEmbed("#figure", {spec}, {{"mode": "vega-lite", "actions": true}});
</script>
</body>
</html>
"""


EMBED = "window.vegaEmbed = vegaEmbed;"  # what the library does when it is loaded
RENDERER = "ffmem"  # of charts in a notebook
LIBRARY, SCRIPT = "charts", "library.js"  # in the cache


def save(chart: alt.TopLevelMixin, folder: Path, name: str) -> list[Path]:
    """Write name.html (no network needed), .svg, .png, and the data as .csv and .json.

    Page and SVG have no background, so that they suit light and dark; the PNG is on white.
    """
    spec = spec_of(chart)
    rows, svg = rows_of(spec), svg_of(spec)
    contents: dict[str, bytes] = {
        "html": page(spec, name).encode(),
        "svg": svg.encode(),
        "png": vl_convert.svg_to_png(on_white(svg), scale=2),
        "csv": as_csv(rows).encode(),
        "json": (json.dumps(rows, indent=1, ensure_ascii=False) + "\n").encode(),
    }
    written = []
    for ending, content in contents.items():
        path = folder / f"{name}.{ending}"
        write_whole(path, partial(Path.write_bytes, data=content))
        written.append(path)
    return written


def without_schema() -> AbstractContextManager[None]:
    """Charts made in it are not held against the schema, which takes most of the time.

    Tests check every chart against it.
    """
    return debug_mode(False)


def spec_of(chart: alt.TopLevelMixin) -> dict[str, Any]:
    """A chart as Vega-Lite, unchecked too."""
    found: dict[str, Any] = chart.to_dict(validate=False)
    return found


def page(spec: dict[str, Any], name: str) -> str:
    """A chart as a page that opens offline."""
    text = json.dumps(spec).replace("</", "<\\/")  # the end of a script only ends the script
    return PAGE.format(name=escape(name), library=chart_script(), spec=text)


def svg_of(spec: dict[str, Any]) -> str:
    """A chart as SVG."""
    check_address_space(FIGURES, "a figure")
    svg: str = vl_convert.vegalite_to_svg(spec)
    return svg


def on_white(svg: str) -> str:
    """The picture on white; drawing it again with a background takes as long as drawing it."""
    start = svg.index(">", svg.index("<svg")) + 1
    return f'{svg[:start]}<rect width="100%" height="100%" fill="white"/>{svg[start:]}'


def save_picture(chart: alt.TopLevelMixin, path: Path) -> None:
    """Write one picture, SVG without ground or PNG on white, by the ending of its name."""
    if path.suffix not in (".svg", ".png"):
        raise FfmemError(f"a picture is a .svg or a .png file, and {path.name!r} is neither")
    if not is_remote(path) and not path.parent.exists():
        raise FfmemError(f"there is no folder {path.parent}; make it, or choose another place")
    svg = svg_of(spec_of(chart))
    content = svg.encode() if path.suffix == ".svg" else vl_convert.svg_to_png(on_white(svg), 2)
    write_whole(path, partial(Path.write_bytes, data=content))


def rows_of(spec: dict[str, Any]) -> list[Row]:
    """The rows that a chart draws, whichever way they are kept in it."""
    found: list[Row] = []
    for rows in spec.get("datasets", {}).values():
        found += rows
    return found or _inline(spec)


def _inline(part: Any) -> list[Row]:
    if isinstance(part, dict):
        values = part.get("data", {}).get("values") if isinstance(part.get("data"), dict) else None
        if values is not None:
            return list(values)
        return next((rows for inner in part.values() if (rows := _inline(inner))), [])
    if isinstance(part, list):
        return next((rows for inner in part if (rows := _inline(inner))), [])
    return []


def as_csv(rows: list[Row]) -> str:
    """The rows as CSV, with every column that occurs."""
    columns = list(dict.fromkeys(name for row in rows for name in row))
    text = io.StringIO()
    writer = csv.DictWriter(text, columns, lineterminator="\n")
    writer.writeheader()
    writer.writerows({name: csv_cell(value) for name, value in row.items()} for row in rows)
    return text.getvalue()


def picture(spec: dict[str, Any]) -> str:
    """A chart as SVG for inside a page: what is seen before, and without, any script."""
    svg = svg_of(spec)
    return svg[svg.index("<svg") :]


def show_as_pictures() -> None:
    """Let a notebook show charts as pictures, unless somebody has chosen another renderer.

    Altair's own loads a script from the network.
    """
    if alt.renderers.active == "default":
        alt.renderers.register(RENDERER, _as_picture)
        alt.renderers.enable(RENDERER)


def _as_picture(spec: dict[str, Any], **_options: Any) -> dict[str, str]:
    return {"image/svg+xml": svg_of(spec), "text/plain": "a chart"}


@cache
def chart_script() -> str:
    """The library that draws charts, whole, so that no request leaves the page.

    It is a module that sets `window.vegaEmbed`, and may stand inside a `<script type="module">`.
    Putting it together takes seconds, so the cache keeps it for the next process.
    """
    version = vl_convert.__version__  # type: ignore[attr-defined]  # its stub leaves it out
    address = address_of(version, EMBED)
    entry = disk_cache.find(LIBRARY, address)
    if entry is not None:
        return (entry / SCRIPT).read_text(encoding="utf-8")
    bundle = vl_convert.javascript_bundle(EMBED).replace("</script", "<\\/script")
    about = f"the library that draws charts, of vl-convert {version}"
    disk_cache.keep(
        LIBRARY, address, about, lambda part: (part / SCRIPT).write_text(bundle, encoding="utf-8")
    )
    return bundle
