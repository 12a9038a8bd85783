"""How commands tell what becomes of the stages of a study."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from ffmem.studies.runner import Event


def print_event(event: Event) -> None:
    """One line when a stage ends; a failure goes to standard error with what to do."""
    if event.state == "made":
        click.echo(f"{event.stage:<12} {event.seconds:7.1f} s{place_note(event)}")
    elif event.state == "kept":
        click.echo(f"{event.stage:<12}    kept{place_note(event)}")
    elif event.state == "failed":
        click.echo(f"ffmem: {event.stage} failed: {event.reason}", err=True)


def place_note(event: Event) -> str:
    """Where a result of other settings is: this one, or the one whose place it took."""
    if event.beside is not None:
        return f"  -> {event.beside}, because the study's own result has other settings"
    if event.earlier is not None:
        return f"  (the earlier result, of other settings, is now in {event.earlier})"
    return ""


def exit_code(events: Sequence[Event]) -> int:
    """2 where a stage failed, else 0."""
    return 2 if any(event.state == "failed" for event in events) else 0
