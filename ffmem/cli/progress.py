"""The analyses of a study on the terminal: one line each, with the time it has left."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from ffmem.cli.output import print_hanging, say
from ffmem.steps import listen

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Progress as Lines
    from rich.progress import TaskID

    from ffmem.store.checkpoint import ScanProgress
    from ffmem.studies.estimates import Estimate
    from ffmem.studies.runner import AnalysisEvent
    from ffmem.workflows import Watches


def duration_text(seconds: float) -> str:
    """A length of time as a person says it."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    if seconds < 5400:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h"


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
            left = task.fields["estimate"] - (task.elapsed or 0.0)
            rest = f"about {duration_text(left)} left" if left > 0 else ""
            return Text(f"{task.fields['note']} {rest}".strip(), style="dim")

    plain = not console.is_terminal
    columns = (SpinnerColumn(finished_text="✓"), TextColumn("{task.description:<14}"))
    with Lines(*columns, TimeElapsedColumn(), TimeLeft(), console=console, disable=plain) as lines:
        events = _EventLines(lines, estimate, plain)
        with listen(events.end_of_scan):
            yield Watches(events.batch, events.analysis)


class _EventLines:
    """Turns what a study tells into lines."""

    def __init__(self, lines: Lines, estimate: Estimate, plain: bool) -> None:
        self.lines, self.estimate, self.plain = lines, estimate, plain
        self.tasks: dict[str, TaskID] = {}
        self.began = time.monotonic()

    def begin(self, name: str) -> TaskID:
        """The line of an analysis, new or old."""
        if name not in self.tasks:
            seconds = self.estimate.seconds.get(name, 0.0)
            self.tasks[name] = self.lines.add_task(name, total=1.0, estimate=seconds, note="")
        return self.tasks[name]

    def batch(self, progress: ScanProgress, _share: float | None) -> None:
        """The scan's own speed replaces the estimate."""
        task, tokens = self.begin("scan"), self.estimate.text.tokens or 0
        speed = progress.tokens / max(progress.seconds, 1e-9)
        ends = progress.seconds + max(tokens - progress.tokens, 0) / speed
        note = f"{progress.tokens:,} tokens, {speed:,.0f} tokens/s"
        self.lines.update(task, estimate=ends, note=note)

    def end_of_scan(self, what: str, share: float) -> None:
        """What the scan does once all text is read; later scans are the untrained twin's."""
        if not self.tasks or self.is_at_scan:
            self.lines.update(self.begin("scan"), estimate=0.0, note=f"{what} {100 * share:.0f} %")

    @property
    def is_at_scan(self) -> bool:
        """Whether the scan has begun and not ended."""
        return "scan" in self.tasks and not self.lines.tasks[self.tasks["scan"]].finished

    def analysis(self, event: AnalysisEvent) -> None:
        """An analysis begins or ends; by then the scan has ended."""
        if self.is_at_scan:
            self.lines.update(self.tasks["scan"], completed=1.0, note="")
            if self.plain:
                print_end("scan", time.monotonic() - self.began)
        task = self.begin(event.analysis)
        if event.state == "begun":
            return
        if event.state == "running":
            self.lines.update(task, note=f"{event.reason} {100 * event.share:.0f} %")
            return
        note = {"kept": "kept", "failed": "FAILED"}.get(event.state, "") + place_note(event)
        self.lines.update(task, completed=1.0, note=note)
        if self.plain or event.state == "failed":
            print_event(event)


def print_plan(console: Console, what: str, estimate: Estimate) -> None:
    """Print the plan: analyses, estimated time and memory."""
    tokens = estimate.text.tokens
    text = "text of unknown length" if tokens is None else f"about {tokens:,} tokens of text"
    parts = ", ".join(f"{name} {duration_text(took)}" for name, took in estimate.seconds.items())
    print_hanging(console, "", f"{what}, {text}")
    head = f"needs about {estimate.memory / 2**30:.1f} GiB of memory and "
    head += f"{'more than ' if tokens is None else ''}{duration_text(estimate.total)}"
    print_hanging(console, "", f"{head}: {parts}" if parts else head)
    if estimate.there:
        print_hanging(console, "already there: ", ", ".join(estimate.there))


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
        print_end(event.analysis, event.seconds, place_note(event))
    elif event.state == "kept":
        say(f"{event.analysis:<14}    kept{place_note(event)}")
    elif event.state == "failed":
        say(f"ffmem: {event.analysis} failed: {event.reason}", err=True)


def print_end(name: str, seconds: float, note: str = "") -> None:
    """One line for what has ended, with the time that it took."""
    say(f"{name:<14} {seconds:7.1f} s{note}")


def place_note(event: AnalysisEvent) -> str:
    """Where a result of other settings is: this one, or the one whose place it took."""
    if event.beside is not None:
        return f"  -> {event.beside}, because the study's own result has other settings"
    if event.earlier is not None:
        return f"  (the earlier result, of other settings, is now in {event.earlier})"
    return ""


def exit_code(events: Sequence[AnalysisEvent]) -> int:
    """2 where an analysis failed, else 0."""
    return 2 if any(event.state == "failed" for event in events) else 0
