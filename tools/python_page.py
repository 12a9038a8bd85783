"""Write docs/reference/python.md from the docstrings of the public names.

python -m tools.python_page
"""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import Any

import ffmem

PAGE = Path(__file__).parent.parent / "docs" / "reference" / "python.md"
WIDTH = 96
INTRODUCTION = """# Python

Made by `python -m tools.python_page` from the docstrings of `import ffmem`.

```
import ffmem

model = ffmem.load("demo")
first = ffmem.record(model, "The river runs", kinds=("coefficients", "residual"))[0]
study = ffmem.run_scan(model, "demo", "out/scan", max_sentences=2000)
study.memory("L1.0")
```
"""


def page() -> str:
    """The whole page: functions, then classes, then errors."""
    names = sorted(ffmem.__all__, key=lambda name: (group(getattr(ffmem, name)), name))
    return "\n".join([INTRODUCTION, *(section(name, getattr(ffmem, name)) for name in names)])


def group(value: Any) -> int:
    """Functions first, errors last."""
    if not inspect.isclass(value):
        return 0
    return 2 if issubclass(value, Exception) else 1


def section(name: str, value: Any) -> str:
    """One public name: how it is called, and what its docstring says."""
    text = inspect.getdoc(value) or ""
    if group(value) == 2:
        return f"## {name}\n\n{text}\n"
    return f"## {name}\n\n```\n{call(name, value)}\n```\n\n{text}\n"


def call(name: str, value: Any) -> str:
    """The signature, on a line for each parameter where one line is too short."""
    signature = inspect.signature(value)
    parts: list[str] = []
    for one in signature.parameters.values():
        if one.kind is one.KEYWORD_ONLY and "*" not in parts:
            parts.append("*")
        parts.append(parameter(one))
    answer = "" if inspect.isclass(value) else f" -> {signature.return_annotation}"
    line = f"{name}({', '.join(parts)}){answer}"
    if len(line) <= WIDTH:
        return line
    inner = "".join(f"    {part},\n" for part in parts)
    return f"{name}(\n{inner}){answer}"


def parameter(one: inspect.Parameter) -> str:
    """A parameter as it stands in the source."""
    stars = "**" if one.kind is one.VAR_KEYWORD else ""
    default = "" if one.default is one.empty else f" = {one.default!r}"
    return f"{stars}{one.name}: {one.annotation}{default}"


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
