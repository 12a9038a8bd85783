"""Charts inside a page of ours: a picture at once, and the script that makes it interactive."""

from __future__ import annotations

from functools import cache
from typing import Any

import vl_convert


def picture(spec: dict[str, Any]) -> str:
    """A chart as SVG for inside a page: what is seen before, and without, any script."""
    svg: str = vl_convert.vegalite_to_svg(spec)
    return svg[svg.index("<svg") :]


@cache
def chart_script() -> str:
    """The library that draws charts, whole, so that no request leaves the page.

    It sets `window.vegaEmbed`, and may stand inside a `<script type="module">`.
    """
    bundle: str = vl_convert.javascript_bundle("window.vegaEmbed = vegaEmbed;")
    return bundle.replace("</script", "<\\/script")
