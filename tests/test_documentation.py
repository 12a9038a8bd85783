"""Documentation that cannot drift: its code runs, its links lead somewhere, its lists are whole."""

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import pytest

from ffmem import demo
from ffmem.cli.main import ffmem
from ffmem.corpus.sources import Source, documents
from ffmem.report.paper_claims import CLAIMS
from ffmem.report.verdicts import tally
from tools import (
    cli_page,
    moe_study_page,
    notebook,
    paper_study_page,
    python_page,
    spread_page,
)

ROOT = Path(__file__).parent.parent
PAGES = sorted([ROOT / "README.md", *(ROOT / "docs").rglob("*.md")])
BLOCK = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)
CODE = [(page, code) for page in PAGES for code in BLOCK.findall(page.read_text(encoding="utf-8"))]
STUDIED = ("wiki", "smollm2")  # whose tallies the README has
RUN_ELSEWHERE = {"add-a-family.md", "memories.md"}  # by tests/models


@pytest.fixture(scope="module", autouse=True)
def short_shards() -> Iterator[None]:
    """For scans of the first few sentences: the shard that they are in is split and tokenised."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("ffmem.corpus.shards.SHARD_BYTES", 100_000)
        yield


def test_there_is_code_to_run() -> None:
    assert {"README.md", "projection.md", "store.md"} <= {page.name for page, _ in CODE}


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
    exec(compile(BLOCK.findall(page.read_text(encoding="utf-8"))[0], str(page), "exec"), {})
    assert "->" in capsys.readouterr().out


def test_the_page_of_commands_is_what_the_program_says() -> None:
    """In a process of its own, because click remembers help options of commands that were run."""
    code = "from tools.cli_page import page; print(page(), end='')"
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT)
    assert said.stdout == cli_page.PAGE.read_text(encoding="utf-8"), said.stderr


def test_the_page_of_python_names_is_what_the_docstrings_say() -> None:
    import ffmem

    text = python_page.PAGE.read_text(encoding="utf-8")
    assert text == python_page.page(), "run `python -m tools.python_page`"
    assert sorted(re.findall(r"^## (\w+)$", text, re.MULTILINE)) == ffmem.__all__


@pytest.mark.parametrize("page", paper_study_page.PAGES, ids=lambda page: page.name)
def test_the_tables_of_a_study_are_what_its_numbers_say(page: paper_study_page.Page) -> None:
    text = page.path.read_text(encoding="utf-8")
    again = paper_study_page.fill(text, paper_study_page.read_numbers(page.name), page.tables)
    assert text == again, "run `python -m tools.paper_study_page`"
    tally = re.search(r"\*\*(\d+) of (\d+) claims of the paper hold, (\d+) also", text)
    assert tally, "the table has no headline"
    said = (
        f"Of the paper's {tally[2]} claims {tally[1]} hold, {tally[3]} hold also without training"
    )
    assert said in text, "the words of the page say another number than its table"


@pytest.mark.parametrize("name", paper_study_page.CHAPTERS)
def test_the_page_of_an_analysis_has_the_verdicts_of_every_study(name: str) -> None:
    text = paper_study_page.chapter_path(name).read_text(encoding="utf-8")
    assert text == paper_study_page.fill_chapter(text, name), (
        "run `python -m tools.paper_study_page`"
    )


def test_every_claim_is_on_the_page_of_its_analysis() -> None:
    chapters = {analysis for names in paper_study_page.CHAPTERS.values() for analysis in names}
    assert chapters == {claim.analysis for claim in CLAIMS}


def test_the_readme_says_what_the_studies_say() -> None:
    text = " ".join((ROOT / "README.md").read_text(encoding="utf-8").split())
    wiki, smollm2 = (tally(paper_study_page.verdicts_of(f"{name}-study")) for name in STUDIED)
    assert (
        f"({wiki.outcomes['holds']} of {wiki.claims} claims hold, "
        f"{wiki.outcomes['also without training']} also without training)"
    ) in text
    assert f"({smollm2.outcomes['holds']} and {smollm2.outcomes['also without training']})" in text
    of_hundred = paper_study_page.read_numbers("smollm2-study")["results"]["values"]["predictive"]
    upper, agreeing, chance = (
        of_hundred["largest"]["upper"],
        of_hundred["largest"]["agreeing"],
        of_hundred["random_same_layers"]["agreeing"],
    )
    assert f"where {upper} of the 100 values with the highest" in text
    assert f"and {agreeing} have an agreeing trigger (46 there, {chance} for random values" in text
    values = paper_study_page.read_numbers("paper-study")["results"]["values"]
    share = 100 * values["effects"]["agreement_upper"]["estimate"]
    assert f"predict the next token in {share:.1f} % of the keys (3.5 % in the paper)" in text
    spread = spread_page.PAGE.read_text(encoding="utf-8")
    same = re.search(r"^The same verdict in every study, (\d+ of \d+):", spread, re.MULTILINE)
    assert same
    studies = len(paper_study_page.read_numbers(spread_page.NAME)["studies"])
    assert f"{same[1]} verdicts stay the same in {studies} studies" in text


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_a_tally_of_claims_is_that_of_a_study(page: Path) -> None:
    """No page speaks of claims that hold by rules of another day."""
    known = [tally(paper_study_page.verdicts_of(name)) for name in paper_study_page.STUDIES]
    told = re.findall(r"(\d+) of (\d+)\s+claims", page.read_text(encoding="utf-8"))
    of_studies = {(str(one.outcomes["holds"]), str(one.claims)) for one in known}
    assert set(told) <= of_studies


def test_the_tables_of_the_spread_are_what_its_numbers_say() -> None:
    text = spread_page.PAGE.read_text(encoding="utf-8")
    again = spread_page.page(text, paper_study_page.read_numbers(spread_page.NAME))
    assert text == again, "run `python -m tools.spread_page`"


def test_the_tables_of_experts_against_dense_memories_are_what_their_numbers_say() -> None:
    text = moe_study_page.PAGE.read_text(encoding="utf-8")
    again = moe_study_page.page(text, moe_study_page.read_numbers())
    assert text == again, "run `python -m tools.moe_study_page`"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)#]+)\)", page.read_text(encoding="utf-8")):
        if not target.startswith("http"):
            assert (page.parent / target).exists(), f"{page.name}: {target}"


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
