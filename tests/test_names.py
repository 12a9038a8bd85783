"""Names, held by tests: modules that can be told apart, and nothing named by a past participle."""

from __future__ import annotations

import ast
import re
from collections import Counter, defaultdict
from functools import cache
from pathlib import Path

import ffmem

PACKAGE = Path(ffmem.__file__).parent
MODULES = sorted(path for path in PACKAGE.rglob("*.py") if path.stem != "__init__")
MOST_MODULES = 12  # in one folder
# One question has a file in each of these: its numbers, its figures, its command, its page.
MIRRORS = {
    "analyses",
    "annotations",
    "cli/commands",
    "explorer/pages",
    "explorer/queries",
    "figures",
}
SLICES = {"record", "measure", "charts", "claims"}  # of one analysis, in a folder each
PARTICIPLES = set(  # of irregular verbs; others end in -ed
    """made kept seen told shown said known taken drawn found asked given held left met begun done
    gone written chosen spoken worth""".split()  # noqa: SIM905 - a list of words reads as words
)
NOT_PARTICIPLES = {"seed", "feed", "embed", "need", "speed", "exceed"}
# Adjectives that say what a thing is for good, not what was once done to it.
ADJECTIVES = {"gated", "signed", "shared", "nested", "sorted", "distributed"}
EXCEPTIONS = {
    "most_triggers_are_covered": "a claim's name in every result file",
    "edited": "the public context manager: `with ffmem.edited(model, ...)` reads as English",
}


def is_participle(word: str) -> bool:
    """Whether a name made of this one word says what was done instead of what it is."""
    if word in NOT_PARTICIPLES | ADJECTIVES:
        return False
    return word in PARTICIPLES or bool(re.fullmatch(r"[a-z]{3,}ed", word))


@cache
def public_functions() -> list[tuple[str, str]]:
    """(file, name) of every function and method that does not begin with an underscore."""
    return [
        (path.relative_to(PACKAGE).as_posix(), node.name)
        for path in MODULES
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and not node.name.startswith("_")
    ]


def test_no_module_is_named_by_a_participle() -> None:
    wrong = [path for path in MODULES if is_participle(path.stem.split("_")[-1])]
    assert not wrong


def test_no_public_function_is_named_by_a_participle() -> None:
    wrong = [
        f"{file}: {name}"
        for file, name in public_functions()
        if is_participle(name.split("_")[-1]) and name not in EXCEPTIONS
    ]
    assert not wrong, "\n".join(wrong)


def test_the_rule_knows_a_participle() -> None:
    """The rule above can fail: these were names in ffmem once."""
    assert all(map(is_participle, ("made", "kept", "shown", "prefetched", "pooled", "joined")))
    assert not any(map(is_participle, ("seed", "embed", "gated", "record", "values")))


def test_every_exception_is_in_use() -> None:
    assert set(EXCEPTIONS) <= {name for _, name in public_functions()}


def test_modules_can_be_told_apart_by_name() -> None:
    homes: dict[str, list[str]] = defaultdict(list)
    for path in MODULES:
        homes[path.stem].append(path.parent.relative_to(PACKAGE).as_posix())
    wrong = {
        stem: folders
        for stem, folders in homes.items()
        if len(folders) > 1 and stem not in SLICES and not set(folders) <= MIRRORS
    }
    assert not wrong, wrong


def test_a_folder_has_few_modules() -> None:
    named = [path for path in MODULES if path.stem != "__main__"]
    counts = Counter(path.parent.relative_to(PACKAGE).as_posix() for path in named)
    assert {folder for folder, n in counts.items() if n > MOST_MODULES} == set()
