"""Write docs/reference/python.md from the docstrings of the public names.

python -m tools.python_page
"""

from __future__ import annotations

import inspect
import textwrap
from collections.abc import Iterator
from functools import cached_property
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
records = ffmem.record(model, "The river runs", kinds=("coefficients", "residual"))
records["L7"].residual, records["L7.1034"]
with ffmem.edited(model, "L7.1034=0"):
    ffmem.explain_prompt(model, "The river runs")
study = ffmem.run_scan(model, "demo", "out/scan", max_sentences=2000)
study.memory("L1.0")
```
"""


GROUPS = {  # every public name once, in the order of use
    "Models": "load wrap LanguageModel Address",
    "Reading": "record Records LayerRecord explain_prompt PromptExplanation why Why "
    "check_coefficients CoefficientCheck",
    "Projection": "contributions Contributions value_tokens value_vectors logits top_tokens "
    "TopTokens neural_memory",
    "Edits": "edited Edit read_set apply_patch remove_patch",
    "Scans and studies": "run_scan run_study open_study Study MemoryPage FfmemError",
}


BUILT_BY_USERS = {"Address", "Edit"}
INTERNAL = {  # what ffmem's own folders use of a model or a study
    *("places_of", "memories_of", "check_tokens", "check_tokenizer", "on_device", "text_behind"),
    *("block_stack", "run_blocks", "layer_of", "index_of", "unk"),
    *("failures", "scanned_controls", "controls", "draw"),
}


def page() -> str:
    """The whole page, group by group."""
    parts = [INTRODUCTION]
    for title, names in GROUPS.items():
        parts.append(f"## {title}\n")
        parts += [section(name, getattr(ffmem, name)) for name in names.split()]
    return "\n".join(parts)


def section(name: str, value: Any) -> str:
    """One public name: how it is called, and what its docstring says."""
    text = inspect.getdoc(value) or ""
    if inspect.isclass(value) and issubclass(value, Exception):
        return f"### {name}\n\n{text}\n"
    parts = "".join(members(value)) if inspect.isclass(value) else ""
    return f"### {name}\n\n```\n{call(name, value)}\n```\n\n{text}\n{parts and chr(10)}{parts}"


def members(value: type) -> Iterator[str]:
    """A line for every attribute and method of a class that has a docstring of its own.

    Two names of one thing, such as `m` and `coefficients`, have one line.
    """
    names: dict[int, list[str]] = {}
    for name, member in vars(value).items():
        if not name.startswith("_") and name not in INTERNAL and hasattr(member, "__doc__"):
            names.setdefault(id(member), []).append(name)
    for same in names.values():
        member = inspect.getattr_static(value, same[0])
        function = getattr(member, "__func__", member)
        if isinstance(member, property | cached_property):
            words = same
        elif inspect.isfunction(function):
            words = [f"{name}{arguments(function)}" for name in same]
        else:
            continue
        first = (inspect.getdoc(member) or "").split("\n\n")[0].replace("\n", " ")
        yield f"- {', '.join(f'`{word}`' for word in words)}: {first}\n"


def arguments(function: Any) -> str:
    """The names of a method's parameters, without the object or class itself."""
    names = list(inspect.signature(function).parameters)[1:]
    return f"({', '.join(names)})"


def call(name: str, value: Any) -> str:
    """The signature, on a line for each parameter where one line is too short.

    Of a class that ffmem builds, only what its objects hold.
    """
    signature = inspect.signature(value)
    if inspect.isclass(value) and name not in BUILT_BY_USERS:
        return textwrap.fill(f"{name}({', '.join(signature.parameters)})", WIDTH)
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
