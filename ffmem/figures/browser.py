"""Figures in a browser: the drawing library and a chart's description, nothing from elsewhere."""

from __future__ import annotations

from functools import cache


@cache
def javascript() -> str:
    """Vega, Vega-Lite and Vega-Embed as one script that sets `window.vegaEmbed`."""
    import vl_convert  # here: only a page with a chart needs it

    return str(vl_convert.javascript_bundle())  # type: ignore[call-arg]  # its stub wants a snippet
