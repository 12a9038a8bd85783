"""What is printed fits the terminal, and nothing that a user wrote is read as markup or emoji."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator
from dataclasses import replace
from io import StringIO
from itertools import pairwise
from pathlib import Path

import click
import pytest
import torch
from click.testing import CliRunner
from rich.console import Console
from rich.text import Text

from ffmem.address import Address
from ffmem.analyses.claim import Finding, Source
from ffmem.analyses.estimate import CorpusSize, Estimate
from ffmem.analyses.matches import By
from ffmem.analyses.open_claims.need import Need
from ffmem.analyses.patterns.record import HeldOutScore
from ffmem.analyses.runner import AnalysisEvent
from ffmem.analyses.search import Hit
from ffmem.analyses.statistics import Interval
from ffmem.analyses.verdicts import NO_CONTROL, Outcome, Verdict, tally
from ffmem.cli import main as command_line
from ffmem.cli.claims import MARKS, print_verdicts
from ffmem.cli.commands.compare import print_claims
from ffmem.cli.commands.prompt import steps_table
from ffmem.cli.commands.search import score_text, why_text
from ffmem.cli.commands.show import near_line
from ffmem.cli.judgements import print_held_out
from ffmem.cli.output import (
    percent_text,
    print_columns,
    print_hanging,
    print_parts,
    say,
    terminal,
    token_words,
)
from ffmem.cli.progress import QUIET, print_plan, progress_lines, remaining_seconds
from ffmem.execution.checkpoint import ScanProgress
from ffmem.memories.folded_weights import NearToken
from ffmem.memories.prompt_explanation import PromptExplanation, Step, StrongMemory
from ffmem.models.loading import load
from ffmem.report.comparison import Comparison, Side
from ffmem.steps import listen, steps
from ffmem.store.memory_page import Evidence, fold_equal, token_line
from ffmem.store.search.lookup import TokenPush
from ffmem.text import Piece
from tests.analyses.conftest import FEW_LINES, scanned_lines


@pytest.fixture(autouse=True)
def narrow(monkeypatch: pytest.MonkeyPatch) -> None:
    """A terminal of 80 columns."""
    monkeypatch.setenv("COLUMNS", "80")


def verdict(outcome: Outcome, source: Source = "paper", measured: bool = True) -> Verdict:
    number = Interval(0.123, 0.1, 0.2, 1000)
    found = Finding(number, number, "keys that were shuffled among the layers")
    return Verdict(
        name="a-claim",
        analysis="values",
        says="A claim of some length, " * 4,
        paper="3.5 %",
        unit="rank",
        holds_if="rule",
        source=source,
        word=outcome,
        reason="" if measured else "not measured",
        finding=found if measured else None,
        controls=(),
        chance=1.0,
    )


def test_user_text_is_printed_as_it_is(capsys: pytest.CaptureFixture[str]) -> None:
    estimate = Estimate(CorpusSize(10, 5.0), {"scan": 1.0}, 2**30, 2**26, ("values",))
    print_plan(terminal(), "tiny:llama: mod[bold]el[/] :smile:", estimate)
    out = capsys.readouterr().out
    assert "tiny:llama: mod[bold]el[/] :smile:" in out
    assert "already there: values" in out
    assert "needs about 1.0 GiB of memory, 64 MiB of disk and 1 s: scan 1 s" in out


def test_claims_fit_80_columns_whatever_their_outcomes_are(
    capsys: pytest.CaptureFixture[str],
) -> None:
    verdicts = [*map(verdict, MARKS), verdict("holds", "own"), verdict("undecided", measured=False)]
    print_verdicts(terminal(), verdicts, every=True)
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= 80
    assert any(line.startswith("  also without training  12.3 %") for line in lines)
    said = " ".join(" ".join(lines).split())
    assert "median rank, % of the vocabulary" in said
    assert "undecided (not measured)" in said
    assert "paper: 3.5 % (own)" in said
    assert "1 of 5 claims of the paper holds, 1 also without training, 1 does not" in said


def test_the_tally_comes_first_then_a_line_for_each_claim_that_is_decided(
    capsys: pytest.CaptureFixture[str],
) -> None:
    verdicts = [*map(verdict, MARKS), verdict("undecided", measured=False)]
    need = replace(verdict("undecided"), name="open", need=Need("more", "keys a layer", 12, 7.2))
    missing = replace(verdict("undecided"), name="missing", need=Need("analysis", "the analysis"))
    print_verdicts(terminal(), [*verdicts[:-1], need, missing])
    lines = capsys.readouterr().out.splitlines()
    assert "? open: 12 more keys a layer, 7 s" in lines
    assert "  to measure more: ffmem study DIR --decide" in lines
    assert not any("missing" in line or "--only" in line for line in lines)
    assert max(map(len, lines)) <= 80
    assert lines[0].startswith("1 of 6 claims of the paper holds, 1 also without training")
    assert [line[:9] for line in lines if "a-claim" in line] == ["✓ a-claim", "✗ a-claim"]
    assert all(
        " 12.3 %   12.3 %  keys that were shuffled" in line for line in lines if "a-claim" in line
    )
    said = " ".join(" ".join(lines).split())
    assert said.endswith("✓ holds, ✗ does not hold; all 6, with intervals and reasons: --claims")


def test_without_controls_no_claim_is_said_to_hold_or_not(
    capsys: pytest.CaptureFixture[str],
) -> None:
    alone = replace(verdict("undecided"), reason=NO_CONTROL)
    print_verdicts(terminal(), [alone, alone, verdict("does not hold")])
    said = " ".join(capsys.readouterr().out.split())
    assert said.startswith(
        "2 of 3 claims of the paper may hold, but have no controls to compare with, "
        "1 does not hold claim here control ✗ a-claim"
    )


def test_the_countdown_follows_what_is_done_and_is_silent_at_first() -> None:
    assert remaining_seconds(elapsed=QUIET / 2, share=0.5, planned=100.0) == 0
    assert remaining_seconds(elapsed=10.0, share=0.25, planned=100.0) == 30
    assert remaining_seconds(elapsed=10.0, share=0.0, planned=100.0) == 100


def test_claims_of_several_studies_fit_80_columns_and_say_where_they_differ(
    capsys: pytest.CaptureFixture[str],
) -> None:
    rows = [[verdict("holds"), verdict("undecided", measured=False)], [verdict("holds")] * 2]
    columns = zip(*rows, strict=True)
    labels = ("one [bold]model[/]", "a model with a name of some length")
    sides = [
        Side(label, {}, tally(one), tuple(one)) for label, one in zip(labels, columns, strict=True)
    ]
    print_claims(Comparison(tuple(sides), ()))
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= 80
    assert [line[0] for line in lines if "A claim of" in line[:12]] == ["≠", " "]
    marks = [line.split()[0] for line in lines if line.startswith("    ") and line[4] in "✓?"]
    assert marks == ["✓", "?", "✓", "✓"]
    assert "    ? a model with a name of some length  not measured" in lines
    said = " ".join(" ".join(lines).split())
    assert "one [bold]model[/]                  12.3 % (10.0 .. 20.0," in "\n".join(lines)
    assert "paper: 3.5 %; median rank, % of the vocabulary; control: keys that were" in said
    assert "≠ 1 of 2 come out differently" in said
    assert "one [bold]model[/] 2 of 2 claims of the paper hold" in said


def test_further_lines_begin_below_the_first() -> None:
    text = StringIO()
    print_hanging(Console(file=text, width=30), "head: ", "word " * 12)
    lines = text.getvalue().splitlines()
    assert len(lines) > 1
    assert all(line.startswith("      word") for line in lines[1:])
    assert max(map(len, lines)) <= 30


def test_parts_stay_whole_one_below_the_other() -> None:
    text = StringIO()
    parts = ["loss +0.1 (0.0 .. 0.2)", "KL 0.5", "top-1 -3 points", "x" * 30]
    print_parts(Console(file=text, width=40), "the edit  ", parts)
    lines = text.getvalue().splitlines()
    assert lines[0] == "the edit  loss +0.1 (0.0 .. 0.2)  KL 0.5"
    assert lines[1:] == [" " * 10 + "top-1 -3 points", " " * 10 + "x" * 30]


@pytest.mark.parametrize(
    "words",
    [
        ["weights", "tiny:llama"],
        ["effect", "tiny:opt", "FOLDER/c.txt", "--set", "L2.7=0", "--generate", "the sea " * 4],
    ],
    ids=lambda words: words[0],
)
def test_a_command_fits_80_columns(words: list[str], tmp_path: Path) -> None:
    (tmp_path / "c.txt").write_text("the river runs to the sea\nthe stone lies in it\n")
    command = [word.replace("FOLDER", str(tmp_path)) for word in words]
    done = CliRunner().invoke(command_line.ffmem, command)
    assert done.exit_code == 0, done.output
    lines = done.stdout.splitlines()
    assert len(lines) > 3
    assert max(map(len, lines)) <= 80


@pytest.mark.parametrize("width", range(24, 60))
def test_a_number_keeps_its_unit_and_an_interval_its_ends(width: int) -> None:
    text = StringIO()
    says = "it holds  53.0 % (43.3 .. 62.5, n\u00a0=\u00a0100); control: 13.0 % random values"
    print_hanging(Console(file=text, width=width), "  ", Text(says, style="bold"))
    lines = text.getvalue().replace("\u00a0", " ").splitlines()
    assert max(map(len, lines)) <= width
    for whole in ("53.0 %", "(43.3 .. 62.5,", "n = 100);", "13.0 %"):
        assert any(whole in line for line in lines), whole
    assert " ".join(" ".join(lines).split()) == " ".join(says.replace("\u00a0", " ").split())


@pytest.mark.parametrize("width", range(24, 60))
def test_a_next_token_stays_behind_what_was_read(width: int) -> None:
    text = StringIO()
    says = "on …Evening is an Egyptian thriller series that[ was] shown, and then[ a] second one"
    print_hanging(Console(file=text, width=width), "  ", says)
    lines = text.getvalue().splitlines()
    assert max(map(len, lines)) <= width
    assert any("that[ was]" in line for line in lines)
    assert any("then[ a]" in line for line in lines)


def test_no_control_character_reaches_the_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    print_hanging(terminal(), "  ", "a\x1b[31mred\x04 line\x9b2J")
    assert capsys.readouterr().out == "  a�[31mred� line�2J\n"
    assert token_line([TokenPush(1, "\x1b", 0.1), TokenPush(2, " a", 0.1)]) == "\\x1b  ·a"


@pytest.mark.parametrize(
    ("by", "score", "says"),
    [
        ("meaning", 0.1234, "nearness 0.123"),
        ("words", 7, "  7 triggers"),
        ("phrase", 0.5, " 50 %"),
        ("promotes", 0, "rank  1, logit +2.50"),
    ],
)
def test_hits_of_a_search_say_what_their_score_is(by: By, score: float, says: str) -> None:
    trigger = Evidence(1, 2.0, (Piece("a "), Piece("river", "word")))
    hit = Hit("L1.2", score, (), 1, 1.0, 2.0, 0.1, None, logit=2.5, evidence=trigger)
    assert score_text(by, hit) == says
    assert why_text(hit) == "a *river*"
    assert why_text(replace(hit, pattern="on water")) == "on water  a *river*"


class Screen(StringIO):
    """What is printed to a terminal."""

    def isatty(self) -> bool:
        return True


def test_a_sentence_is_broken_between_words_on_a_terminal_only(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    text = "ffmem: " + "a sentence that says what to do now, " * 4 + "/a/long/path" * 9
    say(text)
    assert capsys.readouterr().out == f"{text}\n"
    screen = Screen()
    monkeypatch.setattr("sys.stderr", screen)
    say(f"{text}\nnext", err=True)
    *lines, path, last = screen.getvalue().splitlines()
    assert max(map(len, lines)) <= 80
    assert (path.strip(), last) == ("/a/long/path" * 9, "next")
    assert " ".join(" ".join([*lines, path]).split()) == text


@pytest.mark.parametrize("width", range(30, 60))
def test_a_sentence_keeps_numbers_and_intervals_whole(
    width: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = "needs 0.6 GiB and 18 min: scan 59 s; 6.2 % have one (-0.3 .. 19.4, 16 keys), 2 h ahead"
    monkeypatch.setenv("COLUMNS", str(width))
    screen = Screen()
    monkeypatch.setattr("sys.stdout", screen)
    say(text)
    lines = screen.getvalue().splitlines()
    assert max(map(len, lines)) <= width
    for whole in ("0.6 GiB", "18 min:", "59 s;", "6.2 %", "(-0.3 .. 19.4,", "2 h"):
        assert any(whole in line for line in lines), whole
    assert " ".join(" ".join(lines).split()) == text


def test_columns_stand_below_their_headings_and_one_key_has_no_interval(
    capsys: pytest.CaptureFixture[str],
) -> None:
    numbers = [Interval(-100.0, -100.0, -98.6, 9), Interval(3.25, 3.25, 3.25, 1)]
    rows = [[f"{layer:5}", percent_text(one), "x"] for layer, one in enumerate(numbers, 1)]
    print_columns(("layer", "last token", "sign"), rows)
    assert capsys.readouterr().out.splitlines() == [
        "layer  last token            sign",
        "    1  -100.0 (-100 .. -99)  x",
        "    2     3.2                x",
    ]
    assert percent_text(Interval(4.0, 4.0, 4.2, 9)) == "   4.0"
    assert percent_text(Interval(0.5, 0.25, 0.75, 2), 100) == "  50.0 (25 .. 75)"


def test_held_out_scores_have_no_interval_without_width_and_no_nan(
    capsys: pytest.CaptureFixture[str],
) -> None:
    one, many = Interval(0.46, 0.46, 0.46, 1), Interval(0.7, 0.64, 0.76, 16)
    rows = [
        HeldOutScore("keys", "any", "random", 1, 0.4, 0.16, one),
        HeldOutScore("keys", "any", "weak", 16, math.nan, 0.0, many),
    ]
    print_held_out(rows)
    assert capsys.readouterr().out.splitlines()[1:] == [
        "  keys     any       v. random       1       0.40    0.16  0.46",
        "  keys     any       v. weak        16          –    0.00  0.70 (0.64 .. 0.76)",
    ]


def every_command(group: click.Group, names: tuple[str, ...] = ()) -> Iterator[list[str]]:
    yield list(names)
    for name, command in group.commands.items():
        if isinstance(command, click.Group):
            yield from every_command(command, (*names, name))
        else:
            yield [*names, name]


@pytest.mark.parametrize("width", [80, 100])
def test_help_fits_the_terminal_and_ends_no_line_inside_a_word(
    width: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    for words in every_command(command_line.ffmem):
        shown = CliRunner().invoke(command_line.ffmem, [*words, "--help"]).output.splitlines()
        assert max(map(len, shown)) <= width, words
        assert [line for line in shown if line.endswith("-") or line.strip()[:1] == "%"] == []


def test_help_lists_every_command_once_in_the_order_of_use() -> None:
    shown = CliRunner().invoke(command_line.ffmem, ["--help"]).output
    listed = re.findall(r"^  ([a-z]+)  ", shown.partition("\nStart:")[2], flags=re.MULTILINE)
    assert listed == list(command_line.ffmem.commands)
    assert listed[0] == "study"
    assert sorted(listed) == sorted(set(listed))


def test_tokens_are_whole_or_not_there() -> None:
    assert token_words([" one", " two", "three"], 9) == "·one ·two"


def test_steps_tell_how_far_a_loop_is() -> None:
    heard: list[tuple[str, float]] = []
    with listen(lambda what, share: heard.append((what, share))):
        assert list(steps("abcd", "letters")) == list("abcd")
    assert heard == [("letters", 0.0), ("letters", 0.25), ("letters", 0.5), ("letters", 0.75)]
    assert list(steps("ab", "letters")) == ["a", "b"]  # and nobody is told
    assert len(heard) == 4


def events_on(console: Console) -> None:
    """A scan that ranks values last, one analysis, and the scan of the twin."""
    estimate = Estimate(
        CorpusSize(10, 5.0), {"scan": 1.0, "values": 1.0, "twin": 1.0}, 2**30, 2**26
    )
    with progress_lines(console, estimate) as watches:
        watches.scan(ScanProgress(tokens=10, seconds=1.0), 1.0)
        for _ in steps(range(8), "ranking values"):
            pass
        watches.analyses(AnalysisEvent("values", "begun"))
        watches.analyses(AnalysisEvent("values", "made", 2.5))
        watches.analyses(AnalysisEvent("twin", "begun"))
        for _ in steps(range(8), "ranking values"):
            pass
        watches.analyses(AnalysisEvent("twin", "made", 1.5))


def test_a_file_gets_one_line_per_stage(capsys: pytest.CaptureFixture[str]) -> None:
    events_on(terminal())
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines] == ["scan", "ranking", "values", "twin"]
    assert lines[2].split()[1:] == ["2.5", "s"]


def test_a_scan_that_has_ended_does_not_say_what_it_did_last() -> None:
    text = StringIO()
    events_on(Console(file=text, width=80, force_terminal=True))
    last = [line for line in text.getvalue().splitlines() if "✓ scan" in line][-1]
    assert "ranking" not in last


@pytest.mark.parametrize(("command", "goes_on"), [("study", True), ("show", False)])
def test_ctrl_c_says_whether_the_command_goes_on_from_here(
    command: str,
    goes_on: bool,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def interrupt(_words: list[str]) -> int:
        raise KeyboardInterrupt

    monkeypatch.setattr(command_line, "run", interrupt)
    monkeypatch.setattr("sys.argv", ["ffmem", command, "demo"])
    with pytest.raises(SystemExit) as ended:
        command_line.main()
    assert ended.value.code == 130
    said = capsys.readouterr().err
    assert said.startswith("stopped")
    assert ("goes on from here" in said) == goes_on


@pytest.mark.parametrize("width", [80, 100, 120])
def test_the_table_of_layers_cuts_no_token_of_a_memory(width: int) -> None:
    """Also beside long addresses, long coefficients and long tokens in every other column."""
    tokens = (" anywhere", "ization", " practitioner", " Dominican", "s", " x")
    memory = StrongMemory(Address(30, 11_676, "-"), -133.48, 1.0, tokens)
    step = Step(
        30, " residualtoken", " layertoken", " outputtoken", "composition", 10_240, (memory,)
    )
    view = PromptExplanation(3, "a b c", (step,), torch.ones(1), ())
    text = StringIO()
    console = Console(file=text, width=width)
    console.print(steps_table(console, "", view))
    (line,) = [line for line in text.getvalue().splitlines() if "L30.11676-" in line]
    assert len(line) <= width
    said = line.split("-133.48 ")[1].split()
    assert said
    assert said == [token.replace(" ", "·") for token in tokens[: len(said)]]
    assert ("·outputtoken" in line) == (width == 120)  # whole where there is room


def test_a_key_along_a_text_has_a_row_for_every_prefix(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    folder = str(tmp_path / "scan")
    store = scanned_lines(load("tiny:opt"), Path(folder), FEW_LINES)
    text = "I love dogs [bold]and this line is a little too long[/bold]"
    assert command_line.run(["show", folder, "L2.7", "--text", text, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert command_line.run(["show", folder, "L2.7", "--text", text]) == 0
    _, head, *rows = capsys.readouterr().out.splitlines()
    assert f"largest in the scan {store.counts(Address.parse('L2.7')).largest:.3f}" in head
    assert max(map(len, rows)) <= 80
    assert [float(row[:10]) for row in rows] == pytest.approx(found["coefficients"], abs=6e-4)
    assert [row[11:16] == "fires" for row in rows] == [m > 0 for m in found["coefficients"]]
    ends = [f"{one}[{after}]" for one, after in pairwise([*found["tokens"], "end"])]
    assert all(row.endswith(end) for row, end in zip(rows, ends, strict=True))
    assert rows[1].endswith("".join(found["tokens"][:2]) + f"[{found['tokens'][2]}]")
    picture = tmp_path / "key.svg"
    for other in (["--picture", str(picture)], ["--saliency"], ["--wakes", "L3.1"]):
        with pytest.raises(click.UsageError, match=f"leave out {other[0]}"):
            command_line.run(["show", folder, "L2.7", "--text", text, *other])
    assert not picture.exists()


def test_the_random_sample_stands_in_place_of_the_triggers(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    folder = str(tmp_path / "scan")
    store = scanned_lines(load("tiny:opt"), Path(folder), FEW_LINES)
    key = Address.parse("L2.7")

    def coefficients(*more: str) -> list[str]:
        assert command_line.run(["show", folder, "L2.7", "-n", "1000", *more]) == 0
        return re.findall(r"^ *(\d+\.\d{3}) ", capsys.readouterr().out, re.MULTILINE)

    for printed, kept in (
        (coefficients("--sample"), store.triggers(key, "sample")),
        (coefficients(), store.triggers(key)),
    ):
        folded = fold_equal(kept[:], len(kept))
        assert printed == [f"{one.coefficient:.3f}" for one, _ in folded]
    assert coefficients("--sample") != coefficients()


def test_tokens_near_a_key_fit_80_columns_each_with_its_cosine() -> None:
    text = StringIO()
    tokens = [NearToken(f" word{n}\x04", n / 10) for n in range(10)]
    print_hanging(Console(file=text, width=80), "  key near: ", near_line(tokens))
    lines = text.getvalue().splitlines()
    assert len(lines) > 1
    assert max(map(len, lines)) <= 80
    pairs = [pair for line in lines for pair in line.replace("  key near:", "").split("  ")]
    assert [pair.strip() for pair in pairs if pair.strip()] == [
        f"·word{n}\\x04\u00a0{n / 10:.2f}" for n in range(10)
    ]
