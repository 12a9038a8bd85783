"""The analyses of a study on the terminal: one line each, with the time it has left."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from ffmem.cli.output import print_hanging, say
from ffmem.steps import listen
from ffmem.text import duration_text, size_text

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Progress as Lines
    from rich.progress import TaskID

    from ffmem.analyses.estimate import Estimate
    from ffmem.analyses.runner import AnalysisEvent
    from ffmem.execution.checkpoint import ScanProgress
    from ffmem.workflows import Watches


QUIET = 3.0  # seconds without a countdown


@contextmanager
def step_line() -> Iterator[None]:
    """A line on the terminal while a command runs: what it does, and how much of it is done."""
    from rich.console import Console

    line = Console(stderr=True).status("")
    with line, listen(lambda what, share: line.update(f"{what} {100 * share:.0f} %")):
        yield


@contextmanager
def progress_lines(console: Console, estimate: Estimate) -> Iterator[Watches]:
    """Lines that live while the study runs; a terminal that cannot be redrawn gets plain ones."""
    from rich.progress import Progress as Lines
    from rich.progress import ProgressColumn, SpinnerColumn, Task, TextColumn, TimeElapsedColumn
    from rich.text import Text

    from ffmem.workflows import Watches

    class TimeLeft(ProgressColumn):
        def render(self, task: Task) -> Text:
            if task.finished:
                return Text(task.fields["note"])
            elapsed, fields = task.elapsed or 0.0, task.fields
            since, planned = elapsed - fields["began"], fields["estimate"] - elapsed
            left = remaining_seconds(since, fields["share"], planned)
            rest = f"about {duration_text(left)} left" if left > 0 else ""
            return Text(f"{task.fields['note']} {rest}".strip(), style="dim")

    plain = not console.is_terminal
    columns = (SpinnerColumn(finished_text="✓"), TextColumn("{task.description:<14}"))
    with Lines(*columns, TimeElapsedColumn(), TimeLeft(), console=console, disable=plain) as lines:
        events = _EventLines(lines, estimate, plain)
        with listen(events.ranking):
            yield Watches(events.batch, events.analysis)


def remaining_seconds(elapsed: float, share: float, planned: float) -> float:
    """Seconds that are left of a step, by the share of it that is done, or else as planned.

    Nothing in the first seconds, when nobody knows.
    """
    if elapsed < QUIET:
        return 0.0
    return elapsed / share - elapsed if share else planned


class _EventLines:
    """Turns what a study tells into lines."""

    def __init__(self, lines: Lines, estimate: Estimate, plain: bool) -> None:
        self.lines, self.estimate, self.plain = lines, estimate, plain
        self.tasks: dict[str, TaskID] = {}
        self.now, self.since = ("", ""), 0.0  # the line and its step, and when that began

    def begin(self, name: str) -> TaskID:
        """The line of an analysis, new or old."""
        if name not in self.tasks:
            seconds = self.estimate.seconds.get(name, 0.0)
            self.tasks[name] = self.lines.add_task(
                name, total=1.0, estimate=seconds, note="", began=0.0, share=0.0
            )
        return self.tasks[name]

    def step(self, name: str, what: str, share: float) -> None:
        """What a line does now, and how much of that is done, which the countdown follows."""
        task = self.begin(name)
        if self.now != (name, what):
            self.now, self.since = (name, what), self.lines.tasks[task].elapsed or 0.0
        note = f"{what} {100 * share:.0f} %"
        self.lines.update(task, note=note, began=self.since, share=share)

    def batch(self, progress: ScanProgress, _share: float | None) -> None:
        """The scan's own speed replaces the estimate."""
        task, tokens = self.begin("scan"), self.estimate.text.tokens or 0
        speed = progress.tokens / max(progress.seconds, 1e-9)
        ends = progress.seconds + max(tokens - progress.tokens, 0) / speed
        note = f"{progress.tokens:,} tokens, {speed:,.0f} tokens/s"
        self.lines.update(task, estimate=ends, note=note)

    def ranking(self, what: str, share: float) -> None:
        """Values are ranked once all text is read; later rankings are of controls."""
        if not self.tasks or self.is_at("scan") or self.is_at("ranking"):
            self.end("scan")
            self.step("ranking", what, share)

    def is_at(self, name: str) -> bool:
        """Whether a stage has begun and not ended."""
        return name in self.tasks and not self.lines.tasks[self.tasks[name]].finished

    def end(self, name: str) -> None:
        """End a stage of the scan if it has begun."""
        if self.is_at(name):
            self.lines.update(self.tasks[name], completed=1.0, note="")
            if self.plain:
                _print_end(name, self.lines.tasks[self.tasks[name]].elapsed or 0.0)

    def analysis(self, event: AnalysisEvent) -> None:
        """An analysis begins or ends; by then the scan has ended."""
        for stage in ("scan", "ranking"):
            self.end(stage)
        task = self.begin(event.analysis)
        if event.state == "begun":
            return
        if event.state == "running":
            self.step(event.analysis, event.reason, event.share)
            return
        note = {"kept": "kept", "failed": "FAILED"}.get(event.state, event.reason)
        self.lines.update(task, completed=1.0, note=note)
        if self.plain or event.state == "failed":
            print_event(event)


def print_plan(console: Console, what: str, estimate: Estimate) -> None:
    """Print the plan: analyses, estimated time, memory and disk."""
    tokens = estimate.text.tokens
    text = "text of unknown length" if tokens is None else f"about {tokens:,} tokens of text"
    parts = ", ".join(f"{name} {duration_text(took)}" for name, took in estimate.seconds.items())
    print_hanging(console, "", f"{what}, {text}")
    head = (
        f"needs about {size_text(estimate.memory)} of memory, {size_text(estimate.disk)} of disk "
    )
    head += f"and {'more than ' if tokens is None else ''}{duration_text(estimate.total)}"
    print_hanging(console, "", f"{head}: {parts}" if parts else head)
    if estimate.there:
        print_hanging(console, "already there: ", ", ".join(estimate.there))
    if estimate.undecided:
        print_hanging(console, "", estimate.undecided)


def print_failures(events: list[AnalysisEvent], folder: object) -> None:
    """Name the analyses that failed and the remedy."""
    failed = [event.analysis for event in events if event.state == "failed"]
    if failed:
        say(
            f"ffmem: {', '.join(failed)} failed, the rest is complete; fix the cause and run the "
            f"same command again, which computes only what is missing in {folder}",
            err=True,
        )


def print_event(event: AnalysisEvent) -> None:
    """One line when an analysis ends; a failure goes to standard error with what to do."""
    if event.state == "made":
        _print_end(event.analysis, event.seconds, event.reason)
    elif event.state == "kept":
        say(f"{event.analysis:<14}    kept")
    elif event.state == "failed":
        say(f"ffmem: {event.analysis} failed: {event.reason}", err=True)


def _print_end(name: str, seconds: float, result: str = "") -> None:
    """One line for what has ended, with the time that it took and what to open."""
    say(f"{name:<14} {seconds:7.1f} s  {result}".rstrip())


def exit_code(events: Sequence[AnalysisEvent]) -> int:
    """2 where an analysis failed, else 0."""
    return 2 if any(event.state == "failed" for event in events) else 0
