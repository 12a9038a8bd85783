import json
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from ffmem.cli import main as cli
from ffmem.models.loading import load
from tests.near_ties import assert_best


def run(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, str]:
    """Run the command line in this process, as `ffmem WORDS`."""
    old = sys.argv
    sys.argv = ["ffmem", *words]
    try:
        with pytest.raises(SystemExit) as end:
            cli.main()
    finally:
        sys.argv = old
    out = capsys.readouterr()
    return int(end.value.code or 0), out.out, out.err


@pytest.mark.parametrize("words", [("show",), ("study",), ("annotate", "llm")], ids=" ".join)
def test_examples_in_the_help_stand_on_their_own_lines(
    words: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    code, out, _ = run(capsys, *words, "--help")
    lines = [line.strip() for line in out.splitlines()]
    (heading,) = (row for row, line in enumerate(lines) if line in ("Example:", "Examples:"))
    assert code == 0
    assert lines[heading + 1].startswith(f"ffmem {' '.join(words)} ")
    assert not any(line.startswith("\\b") for line in lines)


@pytest.mark.parametrize("words", [(), ("annotate",)], ids=["ffmem", "annotate"])
def test_the_list_of_commands_cuts_no_sentence(
    words: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    _, out, _ = run(capsys, *words, "--help")
    listed = " ".join(out.partition("Commands:" if words else "Options:")[2].split())
    assert "..." not in listed
    assert "including control keys." in listed if words else "corpora, controls." in listed


def test_inspect_shows_layers_memories_and_errors(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(capsys, "inspect", "tiny:opt", "--json")
    facts = json.loads(out)
    assert code == 0
    assert (facts["layers"], facts["memories in all"], facts["activation"]) == (3, "192", "relu")
    assert max(facts["identity errors"].values()) <= 1e-5
    block = load("tiny:opt").model.model.decoder.layers[0]
    inside = sum(p.numel() for one in (block.fc1, block.fc2) for p in one.parameters())
    attention = sum(p.numel() for p in block.self_attn.parameters())
    share = inside / (inside + attention)
    assert json.loads(out)["of the blocks alone"].startswith(f"{100 * share:.0f} % feed-forward")
    code, out, _ = run(capsys, "inspect", "tiny:llama")
    assert "a memory is two cells" in out
    assert "r + y = o" in out


def test_a_folder_may_have_any_name(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Some libraries take a relative path with a colon, ? or % for a URL."""
    monkeypatch.chdir(tmp_path)
    pq.write_table(pa.table({"text": ["the river runs to the sea"] * 3}), tmp_path / "a:b.parquet")
    folder = "run:1 50%25?x=y#z"
    for words in (
        ["scan", "tiny:opt", "a:b.parquet", "-o", folder],
        ["show", folder, "L1.1"],
        ["analyse", folder, "--only", "weights", "--no-figures"],
        ["search", folder, "--where", "value_norm>0"],
        ["annotate", "sheets", folder, f"{folder}/sheets", "--keys", "1"],
        ["verify", folder],
    ):
        code, _, err = run(capsys, *words)
        assert code == 0, (words, err)
    assert (Path(folder) / "annotations.sqlite").is_file()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a:b.parquet", folder]


def test_models_lists_families_and_names(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(capsys, "models")
    assert code == 0
    for word in ("smollm2", "gpt_neox", "tiny:TYPE"):
        assert word in out


def test_prompt_shows_every_layer_and_the_next_token(capsys: pytest.CaptureFixture[str]) -> None:
    from ffmem.models.loading import load

    code, out, _ = run(capsys, "prompt", "tiny:gpt2", "the river", "--json")
    found = json.loads(out)
    model = load("tiny:gpt2")
    said = model.model(model.encode("the river")).logits[0, -1, : model.vocab_size].softmax(-1)
    assert code == 0
    assert [step["layer"] for step in found["plain"]["steps"]] == [1, 2, 3]
    assert_best(found["chances"][0]["id"], said)
    assert found["chances"][0]["plain"] == pytest.approx(said.max().item(), rel=1e-4)
    assert found["plain"]["steps"][-1]["output"] == found["chances"][0]["text"]


def test_prompt_at_an_earlier_position_is_the_shorter_prompt(
    capsys: pytest.CaptureFixture[str],
) -> None:
    _, whole, _ = run(capsys, "prompt", "tiny:gpt2", "the river", "--position", "3", "--json")
    _, short, _ = run(capsys, "prompt", "tiny:gpt2", "the", "--json")
    found, expected = json.loads(whole), json.loads(short)
    read = ("".join(view["tokens"][: view["position"]]) for view in (found, expected))
    assert tuple(read) == ("the", "the")
    one, other = ({t["id"]: t["plain"] for t in view["chances"]} for view in (found, expected))
    least = min(other.values())  # of tokens that tie for the last place, either may be shown
    assert sorted(one.values()) == pytest.approx(sorted(other.values()), rel=1e-4)
    for token in one.keys() | other.keys():
        chance = one.get(token, least)
        assert other.get(token, least) == pytest.approx(chance, rel=1e-4)


def test_prompt_answers_in_one_screen(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    code, out, _ = run(capsys, "prompt", "tiny:llama", "the river")
    lines = out.splitlines()
    assert code == 0
    assert len(lines) <= 40
    assert max(map(len, lines)) <= 80
    order = [out.index(word) for word in ("next token", "Why ", "sum ", "its value promotes")]
    assert order == sorted(order)
    assert "residual" not in out
    assert "made by" in run(capsys, "prompt", "tiny:llama", "the river", "--layers")[1]


def test_the_sum_of_a_prompt_is_the_logit(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(capsys, "prompt", "tiny:llama", "the river", "--token", "s", "--json")
    why = json.loads(out)["plain"]["explanation"]
    assert code == 0
    assert why["total"] == pytest.approx(why["logit"], rel=1e-3, abs=1e-3)
    layers = sum(
        sum(value for key, value in one.items() if key != "layer") for one in why["layers"]
    )
    whole = why["start"] + layers + why["constant"]
    assert whole == pytest.approx(why["total"], rel=1e-6, abs=1e-6)
    amounts = [abs(memory["amount"]) for memory in why["strongest"]]
    assert amounts == sorted(amounts, reverse=True)


def test_an_empty_prompt_gets_a_sentence(capsys: pytest.CaptureFixture[str]) -> None:
    code, _, err = run(capsys, "prompt", "tiny:opt", "")
    assert code == 2
    assert "0 tokens; give between 1 and" in err


def test_prompt_with_an_edit_shows_both_and_the_change(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["prompt", "tiny:opt", "the river", "--set", "L2.7=9", "--set", "L1.0*2"]
    code, out, _ = run(capsys, *words, "--json")
    data = json.loads(out)
    assert code == 0
    assert data["moved"] > 0.01
    assert any(one["edited"] != one["plain"] for one in data["chances"])
    code, out, _ = run(capsys, *words)
    assert "with L2.7=9, L1.0*2" in out
    assert "nats" in out
    said = " ".join(out.split())
    for one in data["controls"]:
        assert f"{one['control']} for {one['memory']} (" in said
    assert f": {data['control_moved']:.4f} nats" in said
    assert "with edits control" in said


def test_the_module_runs_from_a_checkout(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "ffmem", "--version"], capture_output=True, text=True
    )
    assert done.returncode == 0
    assert "ffmem" in done.stdout + done.stderr


def test_scan_of_some_experts_says_what_to_lower_when_memory_is_short(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    text, little = tmp_path / "text.txt", tmp_path / "meminfo"
    text.write_text("the river runs\nto the sea\n")
    little.write_text("MemTotal:  100 kB\nMemAvailable:   64 kB\n")
    monkeypatch.setattr("ffmem.execution.plan.MEMINFO", little)
    monkeypatch.setattr("ffmem.cli.commands.scan.TOP_VALUES", 0)  # no memory is clear enough
    words = ("scan", "tiny:mixtral", str(text), "-o", str(tmp_path / "out"), "--experts", "1-2")
    code, out, err = run(capsys, *words)
    assert code == 0
    assert "384 memories" in out  # 2 experts of 64 in 3 layers
    assert f"ffmem show {tmp_path / 'out'} L3.E1.0" in " ".join(out.split())
    assert "64 KiB are free; lower --top (50) and --sample (32)" in err
    assert "--layers or --experts" in err
    code, out, _ = run(capsys, "show", str(tmp_path / "out"), "L2.E2.3")
    assert code == 0
    assert "L2.E2.3" in out
    code, _, err = run(capsys, "show", str(tmp_path / "out"), "L2.E0.3")
    assert code == 2
    assert "E1, E2" in err


def test_why_shows_predicted_and_true_effects_in_one_screen(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    code, out, err = run(capsys, "why", "demo", "It was later discovered", "--top", "12")
    assert code == 0
    assert max(map(len, out.splitlines())) <= 80
    assert "Why ·that: logit" in out
    assert "L12.691   4 ·discovered  +1.3" in out
    assert "all 12 pairs together +" in out
    assert "  L16 " in out
    assert "were silenced at random" in out
    assert err.startswith("37 copies of 5 tokens, 37 at a time: at most about ")


def test_the_map_of_a_long_text_has_its_last_places_and_their_numbers(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    words = ("why", "demo", "the sea and " * 36, "--against", " in", "--method", "linear")
    code, out, _ = run(capsys, *words, "--top", "3")
    lines = out.splitlines()
    assert code == 0
    assert max(map(len, lines)) <= 80
    assert any(line.endswith(" 106 107 108 109") for line in lines)
    assert "Predicted, by layer and the last 18 places" in out
    assert " above ·in: difference of logits " in out
    assert all("predict " not in line for line in lines)  # the column is called linear


def test_why_as_json_is_the_record(capsys: pytest.CaptureFixture[str]) -> None:
    words = ("why", "tiny:qwen2_moe", "the river", "--top", "3", "--token", "a", "--json")
    code, out, _ = run(capsys, *words)
    found = json.loads(out)
    assert code == 0
    assert found["token"] == "a"
    assert len(found["effects"]) == found["missed"]["sampled"] == 3
    assert found["effects"][0].keys() >= {"address", "place", "direct", "predicted", "true"}


def test_why_refuses_in_one_sentence(capsys: pytest.CaptureFixture[str]) -> None:
    for words, message in (
        (("",), "nothing to read"),
        (("the river", "--token", ""), "token"),
        (("the river", "--against-text", "sea"), "as many"),
        (("x" * 100,), "reads at most 63"),
        (("the river", "--top", "0"), "write a whole number from 1"),
    ):
        code, out, err = run(capsys, "why", "tiny:opt", *words)
        assert (code, out) == (2, ""), words
        assert message in err
        assert "Traceback" not in err


def test_why_saves_its_answer_heat_map_and_graph(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    words = ("why", "tiny:llama", "the river", "--top", "6", "--edges", "--save", str(tmp_path))
    code, out, _ = run(capsys, *words)
    assert code == 0
    assert " -> L" in out
    answer = json.loads((tmp_path / "why.json").read_text(encoding="utf-8"))
    assert answer["edges"][0].keys() == {
        "source", "source_place", "target", "target_place", "predicted", "true"
    }  # fmt: skip
    for name in ("why-heat-map", "why-edges"):
        assert "<svg" in (tmp_path / f"{name}.svg").read_text(encoding="utf-8")
    graph = (tmp_path / "why-edges.svg").read_text(encoding="utf-8")
    assert answer["edges"][0]["source"] in graph


def test_why_of_several_prompts_has_controls(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    file = tmp_path / "prompts.txt"
    file.write_text("the river\n\na river\nthe rivers\n", encoding="utf-8")
    code, out, _ = run(capsys, "why", "tiny:llama", "--prompts", str(file), "--top", "9")
    assert code == 0
    assert "in at least 2 of 3 prompts" in out
    assert "their controls" in out
    code, _, err = run(capsys, "why", "tiny:llama", "the", "--prompts", str(file))
    assert (code, "give a TEXT, or a file" in err) == (2, True)
    for more in (("--edges",), ("--position", "0"), ("--against-text", "")):
        code, _, err = run(capsys, "why", "tiny:llama", "--prompts", str(file), *more)
        assert (code, "--prompts goes with" in err) == (2, True)
    code, _, err = run(capsys, "why", "tiny:llama", "--prompts", str(tmp_path / "none.txt"))
    assert (code, "none.txt" in err) == (2, True)
