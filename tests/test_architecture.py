"""The layout, held by tests: which part may import which, and one door for each library."""

import ast
import re
import subprocess
import sys
from functools import cache
from pathlib import Path

import ffmem
import ffmem.errors
from ffmem.version import VERSION

PACKAGE = Path(ffmem.__file__).parent
MODULE_FILES = sorted(PACKAGE.rglob("*.py"))
FOUNDATIONS = {
    "address",
    "address_space",
    "demo",
    "errors",
    "files",
    "interrupts",
    "loops",
    "locations",
    "records",
    "steps",
    "text",
    "version",
}
MAY_IMPORT: dict[str, set[str]] = {
    "models": set(),
    "corpus": set(),
    "memories": {"models", "corpus"},
    "scan": {"memories", "models", "corpus"},
    "store": {"scan", "corpus"},
    "execution": {"models", "memories", "corpus", "scan", "store"},
    "analyses": {"models", "memories", "corpus", "scan", "store", "execution", "figures"},
    "annotations": {"analyses", "models", "memories", "corpus", "store"},
    "figures": {"memories", "store"},
    "workflows": {
        "corpus",
        "models",
        "scan",
        "store",
        "execution",
        "analyses",
        "report",
    },
    "report": {"analyses", "figures", "store"},
    "explorer": {
        "models",
        "memories",
        "corpus",
        "store",
        "analyses",
        "annotations",
        "figures",
        "report",
    },
    "cli": {
        "models",
        "memories",
        "corpus",
        "scan",
        "store",
        "execution",
        "workflows",
        "report",
        "analyses",
        "annotations",
        "figures",
        "explorer",
    },
}
MODEL_SIDE = {"models", "corpus", "memories", "scan", "execution", "analyses", "annotations"}
DOORS = {
    "torch": MODEL_SIDE,  # stores, commands, pages and reports measure nothing
    "transformers": {"models", "corpus"},  # corpus: what fills in its chat templates
    "accelerate": {"models"},
    "click": {"cli"},
    "rich": {"cli"},
    "triton": {"scan"},
    "numba": set(),  # loops alone
    "sqlalchemy": {"store"},
    "ray": {"execution"},
    "upath": set(),  # locations.py alone
    "openai": {"annotations"},
    "pyarrow": {"store", "corpus"},
    "altair": {"figures", "analyses"},
    "vl_convert": {"figures"},
    "fastapi": {"explorer"},
    "starlette": {"explorer"},
    "uvicorn": {"explorer"},
    "jinja2": {"explorer", "report"},
    # a command and a route print records, by records.py
    "json": {
        "models",
        "corpus",
        "store",
        "execution",
        "annotations",
        "figures",
        "report",
        "analyses",
    },
}


@cache
def tree_of(path: Path) -> ast.Module:
    return ast.parse(path.read_text())


@cache
def imported_names(path: Path) -> set[str]:
    """Every module a file imports, in either form, wherever in the file; types-only left out."""
    tree = ast.parse(path.read_text())  # of its own: it is changed here
    for node in ast.walk(tree):
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            node.body = [ast.Pass()]
    names: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            names |= {f"{node.module}.{alias.name}" for alias in node.names}
    return names


def files_of(part: str) -> list[Path]:
    """The files of a folder, or the root module of that name."""
    module = PACKAGE / f"{part}.py"
    return [module] if module.exists() else sorted((PACKAGE / part).rglob("*.py"))


def test_each_part_imports_only_what_lies_upstream() -> None:
    wrong = [
        f"{path.relative_to(PACKAGE)} imports {name}"
        for part, allowed in MAY_IMPORT.items()
        for path in files_of(part)
        for name in sorted(imported_names(path))
        if name.startswith("ffmem.") and name.split(".")[1] not in allowed | FOUNDATIONS | {part}
    ]
    assert not wrong, "\n".join(wrong)


def test_every_part_has_a_rule() -> None:
    folders = {path.name for path in PACKAGE.iterdir() if (path / "__init__.py").exists()}
    modules = {path.stem for path in PACKAGE.glob("*.py")} - {"__init__", "__main__"}
    assert folders | modules == set(MAY_IMPORT) | FOUNDATIONS


def test_the_map_for_contributors_is_this_one() -> None:
    text = (Path(__file__).parent.parent / "CONTRIBUTING.md").read_text()
    rows = re.findall(r"^\| `(\w+)(?:/|\.py)` \| .* \| (.*) \|$", text, re.MULTILINE)
    parts = {part: set(re.findall(r"\w+", names)) for part, names in rows}
    assert parts.pop("cli") == {"everything"}
    assert parts == {part: names for part, names in MAY_IMPORT.items() if part != "cli"}
    assert MAY_IMPORT["cli"] == set(MAY_IMPORT) - {"cli"}
    roots = text.split("root modules ")[1].split(";")[0]
    assert set(re.findall(r"\w+", roots)) - {"and"} == FOUNDATIONS


def test_each_library_has_one_door() -> None:
    wrong = [
        f"{path.relative_to(PACKAGE)} imports {name}"
        for part in MAY_IMPORT
        for path in files_of(part)
        for name in sorted(imported_names(path))
        if part not in DOORS.get(name.split(".")[0], {part})
    ]
    assert not wrong, "\n".join(wrong)


def test_every_public_name_can_be_had() -> None:
    assert ffmem.__all__
    assert ffmem.__version__ == VERSION
    for name in ffmem.__all__:
        assert getattr(ffmem, name) is not None


def test_only_the_front_door_imports_by_the_text_of_a_name() -> None:
    """Its table is what type checkers read as imports, so that no edge is hidden from them."""
    by_text = {"importlib", "importlib.import_module", "runpy", "pkgutil"}
    users = [
        path.relative_to(PACKAGE).as_posix()
        for path in MODULE_FILES
        if by_text & imported_names(path) or "__import__(" in path.read_text()
    ]
    assert users == ["__init__.py"]
    tree = tree_of(PACKAGE / "__init__.py")
    (block,) = (node for node in tree.body if isinstance(node, ast.If))
    imports = [node for node in block.body if isinstance(node, ast.ImportFrom)]
    typed = {alias.name: node.module for node in imports for alias in node.names}
    assert typed == {name: f"ffmem.{home}" for name, home in ffmem._HOME.items()}


def test_the_front_door_is_light() -> None:
    code = "import sys, ffmem.cli.main; print({'torch', 'transformers', 'rich'} & set(sys.modules))"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "set()"


def test_no_file_is_called_by_what_it_is_not() -> None:
    vague = {"utils", "helpers", "common", "misc", "base"}
    assert not [path for path in PACKAGE.rglob("*.py") if path.stem in vague]


def test_the_store_alone_knows_signs_and_unfilled_slots() -> None:
    """To all others they are `store.cells` and `store.slots`."""
    inside = ("manifest.signed", "NO_SENTENCE")
    uses = {
        word: {
            path.relative_to(PACKAGE).parts[0] for path in MODULE_FILES if word in path.read_text()
        }
        for word in inside
    }
    assert uses == {word: {"store"} for word in inside}


FILES = {  # of a study
    "analyses",
    "annotations.sqlite",
    "arrays",
    "checkpoint.safetensors",
    "control-random-weights",
    "failures",
    "figures",
    "made.json",
    "manifest.json",
    "numbers.json",
    "parts",
    "prepared",
    "report.html",
    "report.md",
    "values.npz",
}


def file_names(path: Path) -> set[str]:
    """The files of a study that code names: whole, or as a part of a path."""
    tree = list(ast.walk(tree_of(path)))
    parts = [(node.left, node.right) for node in tree if isinstance(node, ast.BinOp)]
    beside = {one.value for pair in parts for one in pair if isinstance(one, ast.Constant)}
    every = {node.value for node in tree if isinstance(node, ast.Constant)}
    return FILES & (beside | {word for word in every if "." in str(word)})


def test_one_module_alone_knows_the_files_of_a_study() -> None:
    found = {path.relative_to(PACKAGE).as_posix(): file_names(path) for path in MODULE_FILES}
    home = found.pop("store/folder.py")
    assert home >= {"manifest.json", "analyses", "report.html"}  # the search can find them
    wrong = {file: names for file, names in found.items() if names}
    assert not wrong, wrong


def top_level_imports(path: Path) -> set[str]:
    """The modules of ffmem that a file imports when it is imported itself."""
    names = set()
    for node in tree_of(path).body:
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("ffmem"):
            names |= {node.module or ""} | {f"{node.module}.{alias.name}" for alias in node.names}
    return names


def test_no_module_imports_itself_on_the_way() -> None:
    """Modules can be taken away one by one, each after all that import it."""
    paths = {
        ".".join(path.relative_to(PACKAGE.parent).with_suffix("").parts): path
        for path in PACKAGE.rglob("*.py")
    }
    needs = {name: top_level_imports(path) & set(paths) for name, path in paths.items()}
    while free := [name for name, wanted in needs.items() if not wanted]:
        needs = {name: wanted - set(free) for name, wanted in needs.items() if name not in free}
    assert not needs, f"a cycle among {sorted(needs)}"
