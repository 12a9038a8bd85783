"""Documentation that cannot drift: its code runs, its links lead somewhere, its lists are whole."""

import json
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import pytest

from ffmem import demo
from ffmem.cli.main import ffmem
from ffmem.corpus.sources import Source, documents
from tools import cli_page, notebook, python_page, results_page
from tools.stored_studies import STRONGEST, judge_random_weights, read_studies

ROOT = Path(__file__).parent.parent
PAGES = sorted([ROOT / "README.md", *(ROOT / "docs").rglob("*.md")])
BLOCK = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)
CODE = [(page, code) for page in PAGES for code in BLOCK.findall(page.read_text(encoding="utf-8"))]
STUDIES = read_studies()
RESULTS = results_page.Results(STUDIES)
RUN_ELSEWHERE = {  # by tests of their own
    "add-a-family.md",
    "add-an-analysis.md",
    "first-questions.md",
    "memories.md",
}


@pytest.fixture(scope="module", autouse=True)
def short_shards() -> Iterator[None]:
    """For scans of the first few sentences: the shard that they are in is split and tokenised."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("ffmem.corpus.shards.SHARD_BYTES", 100_000)
        yield


def test_there_is_code_to_run() -> None:
    assert {"README.md", "debug-a-prompt.md", "store.md"} <= {page.name for page, _ in CODE}


@pytest.mark.parametrize(
    ("page", "code"),
    [pair for pair in CODE if pair[0].name not in RUN_ELSEWHERE | {"store.md"}],
    ids=lambda value: value.name if isinstance(value, Path) else "",
)
def test_code_in_the_documentation_runs(
    page: Path,
    code: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """With the first lines of the text that it reads."""
    first = islice(documents(Source(str(demo.VALID))), 300)
    (tmp_path / "valid.txt").write_text("\n".join(first) + "\n", encoding="utf-8")
    monkeypatch.setattr(demo, "VALID", tmp_path / "valid.txt")
    exec(compile(code, str(page), "exec"), {})


def same_but_for_rounding(one: str, other: str) -> bool:
    """Whether two texts have the same words, and numbers that differ by little."""
    number = re.compile(r"(-?\d+\.\d+)")
    ours, theirs = (number.split(" ".join(text.split())) for text in (one, other))
    if ours[::2] != theirs[::2]:
        return False
    pairs = zip(map(float, ours[1::2]), map(float, theirs[1::2]), strict=True)
    return all(abs(a - b) <= 0.11 + 0.001 * abs(b) for a, b in pairs)


def test_texts_with_other_words_or_numbers_are_not_the_same() -> None:
    assert same_but_for_rounding("that 69.5% by 10.5%", "that  69.4%\nby 10.5%")
    assert not same_but_for_rounding("that 69.5%", "by 69.5%")
    assert not same_but_for_rounding("that 69.5%", "that 68.5%")


def test_the_example_prints_what_the_readme_says(capsys: pytest.CaptureFixture[str]) -> None:
    """And two silent memories change the word that the model writes next."""
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    code, printed = re.findall(r"```python\n(.*?)```\n\nprints\n\n```\n(.*?)```", text, re.DOTALL)[
        0
    ]
    exec(compile(code, "README.md", "exec"), {})
    said = capsys.readouterr().out
    assert same_but_for_rounding(said, printed), said
    assert [line.split(":")[1].split()[0] for line in printed.splitlines()[1:4]] == [
        "that",
        "that",
        "by",
    ]


def output_text(outputs: list[dict[str, Any]]) -> str:
    """What a cell shows, as text; a picture is only named."""
    parts = [one.get("text") or one["data"].get("text/plain", ["picture"]) for one in outputs]
    return "".join(line for part in parts for line in part)


@pytest.mark.usefixtures("few_figures")
def test_the_notebook_gives_what_it_shows() -> None:
    path = ROOT / "docs" / "notebooks" / "tour.ipynb"
    shown = json.loads(path.read_text(encoding="utf-8"))
    cells = 0
    for cell, outputs in notebook.run_cells(shown):
        cells += 1
        assert same_but_for_rounding(output_text(outputs), output_text(cell["outputs"])), (
            f"{cell['id']}: {output_text(outputs)}; run `python -m tools.notebook {path}`"
        )
    assert cells > 8
    source = "".join(line for cell in shown["cells"] for line in cell["source"])
    for name in ("load", "record", "explain_prompt", "contributions", "value_tokens", "edited"):
        assert f"ffmem.{name}(" in source
    for name in ("run_scan", "run_study", "open_study"):
        assert f"ffmem.{name}(" in source


@pytest.mark.usefixtures("few_figures")
def test_my_model_and_my_text_is_one_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The README's own, with a toy in place of a model that would be downloaded."""
    monkeypatch.chdir(tmp_path)
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    command, folder = re.findall(r"^ffmem study (gpt2 \S+).*\nffmem explore (\S+)", text, re.M)[0]
    model, corpus = command.replace("gpt2", "tiny:gpt2").split()
    Path(corpus).write_text("The river runs to the sea.\n" * 40, encoding="utf-8")
    with pytest.raises(SystemExit) as end:
        ffmem.main(["study", model, corpus, "--only", "values"], standalone_mode=False)
    assert end.value.code == 0
    assert (tmp_path / folder.replace("gpt2", "tiny:gpt2") / "report.html").is_file()


def test_the_quick_start_runs_and_so_does_the_store_page(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    text = (ROOT / "docs" / "quickstart.md").read_text(encoding="utf-8")
    commands = re.findall(r"^ffmem (\w+) (.*)$", text, re.MULTILINE)
    assert len(commands) >= 5
    for name, words in commands:
        few = words.replace("--max-sentences 3000", "--max-sentences 60 --layers 12")
        arguments = [a or b for a, b in re.findall(r'"([^"]*)"|(\S+)', few)]
        assert ffmem.main([name, *arguments], standalone_mode=False) is None
    page = ROOT / "docs" / "concepts" / "store.md"
    for code in BLOCK.findall(page.read_text(encoding="utf-8")):
        exec(compile(code, str(page), "exec"), {})
    assert "top_tokens" in capsys.readouterr().out


def test_the_page_of_commands_is_what_the_program_says() -> None:
    """In a process of its own, because click remembers help options of commands that were run."""
    code = "from tools.cli_page import page; print(page(), end='')"
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT)
    assert said.stdout == cli_page.PAGE.read_text(encoding="utf-8"), said.stderr


def test_the_page_of_python_names_is_what_the_docstrings_say() -> None:
    import ffmem

    text = python_page.PAGE.read_text(encoding="utf-8")
    assert text == python_page.page(), "run `python -m tools.python_page`"
    listed = " ".join(python_page.GROUPS.values()).split()
    assert sorted(listed) == sorted(ffmem.__all__)
    assert sorted(re.findall(r"^### (\w+)$", text, re.MULTILINE)) == sorted(listed)


def test_the_tables_of_results_are_what_their_numbers_say() -> None:
    text = results_page.PAGE.read_text(encoding="utf-8")
    assert text == results_page.page(text, STUDIES), "run `python -m tools.results_page`"


def numbers_in(name: str, claim: str) -> list[float]:
    """Estimate and interval of a claim's number in a study."""
    (found,) = (one for one in STUDIES[name]["verdicts"] if one["claim"] == claim)
    return found["number"]


def tallies(name: str) -> list[int]:
    """How many of the paper's claims have each outcome in a study by the present rules."""
    return results_page.tally({claim: told.now for claim, told in RESULTS.told[name].items()})


def test_the_readme_says_what_the_studies_say() -> None:
    text = " ".join((ROOT / "README.md").read_text(encoding="utf-8").split())
    demo, wiki, smollm2 = map(tallies, ("demo", "wiki", "smollm2"))
    assert f"({wiki[0]} of 30 hold, {wiki[1]} more without training too)" in text
    assert f"({smollm2[0]} and {smollm2[1]} more)" in text
    assert f"{demo[0]} of the demo's 30 hold and {demo[1]} more are met without training" in text
    agreeing = 100 * numbers_in("smollm2", "predictive-values-predict")[0]
    assert f"where {agreeing:.0f} of the 100 values with the highest" in text
    assert "have an agreeing trigger (46 in the paper)" in text
    share = 100 * numbers_in("paper", "upper-values-agree")[0]
    assert f"predict the next token in {share:.1f} % of the keys (3.5 % in the paper)" in text
    same, studies = len(RESULTS.stable()), len(RESULTS.others)
    assert f"{same} of {len(RESULTS.claims)} verdicts are the same in {studies} studies" in text


def test_the_page_of_results_says_how_stable_its_verdicts_are() -> None:
    """What stands in its words and in no table."""
    text = " ".join(results_page.PAGE.read_text(encoding="utf-8").split())
    stable, studies = RESULTS.stable(), len(RESULTS.others)
    words = Counter(RESULTS.words_elsewhere(claim)[0].now for claim in stable)
    older = sum(claim in STRONGEST for claim in stable)
    assert f"{len(stable)} of {len(RESULTS.claims)} verdicts are the same in all {studies}" in text
    assert older == 4
    assert "(four of them ¹)" in text
    assert (
        f"{words['holds']} hold, {words['also without training']} also untrained, "
        f"{words['does not hold']} do not hold, {words['undecided']} undecided" in text
    )
    tables = judge_random_weights(STUDIES)
    false = {one.name for table in tables.values() for one in table if one.word == "holds"}
    verdicts = [one.word for table in tables.values() for one in table]
    assert f"{verdicts.count('holds')} of {len(verdicts)} verdicts" in text
    assert false == {"last-token-matters-most"}
    assert "`last-token-matters-most`" in text


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_a_tally_of_claims_is_that_of_a_study(page: Path) -> None:
    """No page speaks of claims that hold by rules of another day."""
    known = {str(tallies(name)[0]) for name in results_page.COLUMNS}
    told = re.findall(r"(\d+) of 30\s+(?:claims|hold)", page.read_text(encoding="utf-8"))
    assert set(told) <= known


def anchors(page: Path) -> set[str]:
    """What a link may point to in a page: its headings, as a site makes names of them."""
    headings = re.findall(r"^#+ (.*)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    plain = (re.sub(r"[^\w\- ]", "", heading.lower()) for heading in headings)
    return {heading.replace(" ", "-") for heading in plain}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page: Path) -> None:
    for target, anchor in re.findall(
        r"\]\(([^)#\s]*)(?:#([^)\s]*))?\)", page.read_text(encoding="utf-8")
    ):
        if target.startswith("http"):
            continue
        there = page.parent / target if target else page
        assert there.exists(), f"{page.name}: {target}"
        assert not anchor or anchor in anchors(there), f"{page.name}: {target}#{anchor}"


def test_every_page_is_in_the_index() -> None:
    index = (ROOT / "docs" / "index.md").read_text(encoding="utf-8")
    for page in PAGES:
        name = page.relative_to(ROOT / "docs").as_posix() if page.parent != ROOT else "index.md"
        assert name == "index.md" or name in index, name


@pytest.mark.parametrize(
    "page", [page for page in PAGES if page.name != "cli.md"], ids=lambda page: page.name
)
def test_commands_and_options_in_the_pages_exist(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    for name, words in re.findall(r"\bffmem ([a-z]+)((?: [^`\n]*)?)", text):
        command = ffmem.commands.get(name)
        if command is None:
            assert f"`ffmem {name}" not in text, f"{page.name}: there is no command {name}"
            continue
        group = getattr(command, "commands", {})
        first = words.split()[0] if words.split() else ""
        known = {
            option
            for one in (command, group.get(first, command))
            for p in one.params
            for option in p.opts + p.secondary_opts
        }
        words = words.split("#")[0].split("|")[0]
        for option in re.findall(r"(?<=\s)--[a-z][a-z-]+", words):
            assert option in known | {"--help"}, f"{page.name}: ffmem {name} has no {option}"
