"""Run the cells of a notebook and write what they give into it.

python -m tools.notebook docs/notebooks/tour.ipynb

The cells run in one namespace and in an empty folder, as plain Python: no kernel is needed. A cell
gives what it prints, and what its last line is.
"""

from __future__ import annotations

import argparse
import ast
import base64
import contextlib
import io
import json
import os
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

Output = dict[str, Any]
SIZE_OF_CHART = 1.0  # pixels of a picture per pixel of the chart


def run_cell(source: str, names: dict[str, Any]) -> list[Output]:
    """Run one cell; what it prints, then what its last line is."""
    body = ast.parse(source).body
    last = body.pop() if body and isinstance(body[-1], ast.Expr) else None
    printed, value = io.StringIO(), None
    with contextlib.redirect_stdout(printed):
        exec(compile(ast.Module(body, []), "<cell>", "exec"), names)
        if isinstance(last, ast.Expr):
            value = eval(compile(ast.Expression(last.value), "<cell>", "eval"), names)
    outputs: list[Output] = []
    if printed.getvalue():
        outputs.append({"output_type": "stream", "name": "stdout", "text": lines(printed)})
    if value is not None:
        outputs.append({"output_type": "display_data", "metadata": {}, "data": forms(value)})
    return outputs


def lines(text: io.StringIO | str) -> list[str]:
    """A text as notebooks keep it."""
    whole = text if isinstance(text, str) else text.getvalue()
    return whole.splitlines(keepends=True)


def forms(value: Any) -> dict[str, Any]:
    """A value as a notebook shows it: a chart as a picture, anything else as text and HTML."""
    if hasattr(value, "to_dict") and hasattr(value, "mark_bar") or hasattr(value, "resolve_scale"):
        return {"image/png": chart_picture(value)}
    found = {"text/plain": lines(repr(value))}
    if hasattr(value, "_repr_html_"):
        found["text/html"] = lines(value._repr_html_())
    return found


def chart_picture(chart: Any) -> str:
    """An Altair chart as a PNG, in the letters of JSON."""
    import vl_convert

    spec = {**chart.to_dict(), "background": "white"}
    picture: bytes = vl_convert.vegalite_to_png(spec, scale=SIZE_OF_CHART)
    return base64.b64encode(picture).decode()


def run_cells(notebook: dict[str, Any]) -> Iterator[tuple[dict[str, Any], list[Output]]]:
    """Every code cell with what it gives, run in an empty folder."""
    here, names = Path.cwd(), {"__name__": "__main__"}
    with tempfile.TemporaryDirectory(prefix="ffmem-notebook-") as folder:
        os.chdir(folder)
        try:
            for cell in notebook["cells"]:
                if cell["cell_type"] == "code":
                    yield cell, run_cell("".join(cell["source"]), names)
        finally:
            os.chdir(here)


def main() -> int:
    """Run the notebooks that are named and write them again."""
    parser = argparse.ArgumentParser(prog="python -m tools.notebook", description=main.__doc__)
    parser.add_argument("notebooks", nargs="+", type=Path, help="files to run and write again")
    for path in parser.parse_args().notebooks:
        notebook = json.loads(path.read_text(encoding="utf-8"))
        for count, (cell, outputs) in enumerate(run_cells(notebook), 1):
            cell["execution_count"], cell["outputs"] = count, outputs
        text = json.dumps(notebook, indent=1, ensure_ascii=False) + "\n"
        path.write_text(text, encoding="utf-8")
        print(path)
    return 0


if __name__ == "__main__":
    sys.exit(main())
