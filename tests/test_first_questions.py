"""Each of the ten first questions is answered by the commands that the page says."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

import pytest
from fastapi.testclient import TestClient

from ffmem import demo
from ffmem.cli.main import run
from ffmem.corpus.sources import Source, documents
from ffmem.explorer.app import create_app
from ffmem.explorer.context import open_context
from ffmem.models.tiny import tiny_model, tiny_tokenizer

PAGE = Path(__file__).parent.parent / "docs" / "how-to" / "first-questions.md"
SECTIONS = dict(re.findall(r"^## (.*?)\n(.*?)(?=^## |\Z)", PAGE.read_text("utf-8"), re.M | re.S))
CODE = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)
FEWER = {  # what would take long, by the command
    "scan": ("--max-sentences", "40", "--layers", "12"),
    "effect": ("--max-sentences", "3", "--random", "1"),
    "why": ("--top", "2"),
}
ANSWERS = {  # a part of what each section prints at the end
    "Which memories write “ that”?": r"Why ·that.*L12\.\d+",
    "What fires on code and not on prose?": r"-> only-code.txt",
    "What did fine-tuning change?": r"memories that moved most:\s+L2\.5 ",
    "Let me label twenty memories and take the labels home": r"-> twenty.txt",
    "All triggers of a layer as a data frame": "",
    "Is there a memory for a bigram, and does it do it?": r"control.*Why ·place",
    "What changed after my edit?": r"the edit +loss.*random 1 +loss",
    "Is my model read right?": r"sum of coefficient x value \+ bias = layer's output",
    "How much text do I need?": r"drift by layer.*triggers 0\.\d+",
    "What is this memory for?": r"value promotes.*control",
}


@pytest.fixture(scope="module")
def here(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A folder with what the page takes for granted: a study, texts, a model and a tuned one."""
    folder = tmp_path_factory.mktemp("questions")
    lines = list(islice(documents(Source(str(demo.VALID))), 80))
    (folder / "text.txt").write_text("\n".join(lines), "utf-8")
    (folder / "prose.txt").write_text("\n".join(lines), "utf-8")
    code = "".join(f"for number in range({n}): print(number * {n}, 'and', n)\n" for n in range(60))
    (folder / "code.txt").write_text(code, "utf-8")
    model = tiny_model("opt")
    for name in ("base", "tuned"):
        model.save_pretrained(folder / name)
        tiny_tokenizer().save_pretrained(folder / name)
        model.model.decoder.layers[1].fc1.weight.data[5] *= -1
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("ffmem.corpus.shards.SHARD_BYTES", 30_000)
        patch.chdir(folder)
        words = "scan demo demo --max-sentences 60 --layers 12,14 -o out/demo"
        assert run(words.split()) == 0
        assert (
            run(["analyse", "out/demo", "--only", "values", "--size", "small", "--no-figures"]) == 0
        )
        yield folder


def commands_of(section: str) -> list[list[str]]:
    """The commands of a section, as a shell would read them."""
    return [shlex.split(line)[1:] for line in re.findall(r"^    (ffmem .*)$", section, re.M)]


def with_less(words: list[str]) -> list[str]:
    """The same command on few sentences."""
    at = words.index("--max-sentences") if "--max-sentences" in words else len(words)
    sentences = int(words[at + 1]) // 100 if at < len(words) else 40
    fewer = list(FEWER.get(words[0], ()))
    if words[0] == "scan":
        fewer[1] = str(sentences)
        if words[1] != "demo":
            fewer = fewer[:2]
    return words[:at] + words[at + 2 :] + fewer


def test_the_page_answers_ten_questions_with_at_most_three_commands_each() -> None:
    assert list(SECTIONS) == list(ANSWERS)
    assert len(SECTIONS) == 10
    for name, section in SECTIONS.items():
        lines = [line for code in CODE.findall(section) for line in code.splitlines() if line]
        assert 1 <= len(commands_of(section)) + len(lines) <= 3, name


@pytest.mark.parametrize("name", [name for name in SECTIONS if not CODE.search(SECTIONS[name])])
@pytest.mark.usefixtures("here")
def test_the_commands_of_a_question_answer_it(
    name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    for words in commands_of(SECTIONS[name]):
        if words[0] != "explore":
            assert run(with_less(words)) == 0, words
    said = capsys.readouterr()
    assert re.search(ANSWERS[name], said.out + said.err, re.S)


def test_triggers_of_a_layer_are_a_frame(here: Path) -> None:
    found: dict[str, object] = {}
    (code,) = CODE.findall(SECTIONS["All triggers of a layer as a data frame"])
    exec(compile(code, str(PAGE), "exec"), found)
    frame = found["frame"]
    assert len(frame) > 1000  # type: ignore[arg-type]
    assert {"address", "rank", "coefficient", "prefix", "next"} <= set(frame)  # type: ignore[call-overload]


def test_twenty_memories_are_labelled_in_the_explorer_and_come_back_as_csv(here: Path) -> None:
    app = create_app(open_context(here / "out" / "demo", "demo"))
    with TestClient(app, "http://127.0.0.1:8600") as asking:
        given = {"text": "L12.691\nL14.356\n"}
        assert asking.post("/api/lists/twenty", json=given).status_code == 200
        label = {"label": "verbs of saying", "note": "reported, said"}
        assert asking.put("/api/memories/L12.691/label", json=label).status_code == 200
        table = asking.get("/lists/twenty/memories.csv").text
    assert re.search(r"L12\.691.*verbs of saying", table)
    assert "L14.356" in table
