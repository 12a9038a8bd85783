"""What is printed fits the terminal, and nothing that a user wrote is read as markup or emoji."""

from __future__ import annotations

from io import StringIO

import pytest
import torch
from rich.console import Console

from ffmem.address import Address
from ffmem.analyses.statistics import Interval
from ffmem.cli import main as command_line
from ffmem.cli.commands.prompt import steps_table
from ffmem.cli.output import MARKS, print_hanging, print_verdicts, terminal, token_words
from ffmem.cli.progress import board, print_plan
from ffmem.memories.prompt_explanation import PromptExplanation, Step, StrongMemory
from ffmem.report.verdicts import Finding, Outcome, Source, Verdict
from ffmem.steps import listen, steps
from ffmem.store.checkpoint import Progress
from ffmem.studies.estimates import CorpusSize, Estimate
from ffmem.studies.runner import AnalysisEvent


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
        twin=None,
        chance=1.0,
    )


def test_user_text_is_printed_as_it_is(capsys: pytest.CaptureFixture[str]) -> None:
    estimate = Estimate(CorpusSize(10, 5.0), {"scan": 1.0}, 2**30, ("values",))
    print_plan(terminal(), "tiny:llama: mod[bold]el[/] :smile:", estimate)
    out = capsys.readouterr().out
    assert "tiny:llama: mod[bold]el[/] :smile:" in out
    assert "already there: values" in out


def test_claims_fit_80_columns_whatever_their_outcomes_are(
    capsys: pytest.CaptureFixture[str],
) -> None:
    verdicts = [*map(verdict, MARKS), verdict("holds", "own"), verdict("undecided", measured=False)]
    print_verdicts(terminal(), verdicts)
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= 80
    assert any(line.startswith("  also without training  12.3 %") for line in lines)
    said = " ".join(" ".join(lines).split())
    assert "median rank, % of the vocabulary" in said
    assert "undecided (not measured)" in said
    assert "paper: 3.5 % (own)" in said
    assert "1 of 5 claims of the paper hold, 1 also without training" in said


def test_further_lines_begin_below_the_first() -> None:
    text = StringIO()
    print_hanging(Console(file=text, width=30), "head: ", "word " * 12)
    lines = text.getvalue().splitlines()
    assert len(lines) > 1
    assert all(line.startswith("      word") for line in lines[1:])
    assert max(map(len, lines)) <= 30


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
    """A scan that ranks values last, and one analysis."""
    estimate = Estimate(CorpusSize(10, 5.0), {"scan": 1.0, "values": 1.0}, 2**30)
    with board(console, estimate) as watches:
        watches.scan(Progress(tokens=10, seconds=1.0), 1.0)
        for _ in steps(range(8), "ranking values"):
            pass
        watches.analyses(AnalysisEvent("values", "begun"))
        watches.analyses(AnalysisEvent("values", "made", 2.5))


def test_a_file_gets_one_line_per_stage(capsys: pytest.CaptureFixture[str]) -> None:
    events_on(terminal())
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines] == ["scan", "values"]
    assert lines[1].split()[1:] == ["2.5", "s"]


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
    console.print(steps_table(console, "as it is", view))
    (line,) = [line for line in text.getvalue().splitlines() if "L30.11676-" in line]
    assert len(line) <= width
    said = line.split("-133.48 ")[1].split()
    assert said
    assert said == [token.replace(" ", "·") for token in tokens[: len(said)]]
