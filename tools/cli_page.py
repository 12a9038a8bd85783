"""Write docs/reference/cli.md from the program's own help.

python -m tools.cli_page
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import click

from ffmem.cli.main import ffmem

PAGE = Path(__file__).parent.parent / "docs" / "reference" / "cli.md"
WIDTH = 96
HEAD = """# Commands

Made by `python -m tools.cli_page` from the program's own help. `ffmem COMMAND --help` lists every
option; those that several commands have stand here [once](#options-that-commands-share).
"""
SHARED = "## Options that commands share"
Option = tuple[str, str]  # how it is written, and what help says of it


def page() -> str:
    """The whole page."""
    context = click.Context(ffmem, info_name="ffmem", **ffmem.context_settings)
    every = list(contexts(context, ffmem))
    counts = Counter(one for inner in every for one in options(inner))
    commonest = dict(name_and_help for name_and_help, _ in reversed(counts.most_common()))
    shared = {one for one, count in counts.items() if count > 1 and commonest[one[0]] == one[1]}
    parts = [HEAD, *(section(inner, shared) for inner in every)]
    formatter = click.HelpFormatter(width=WIDTH)
    formatter.write_dl(sorted(shared))
    return "\n".join([*parts, f"{SHARED}\n\n```\n{formatter.getvalue()}```\n"])


def contexts(context: click.Context, command: click.Command) -> Iterator[click.Context]:
    """A command, and those in it by name."""
    context.max_content_width = context.terminal_width = WIDTH
    yield context
    for name, inner in sorted(getattr(command, "commands", {}).items()):
        yield from contexts(click.Context(inner, info_name=name, parent=context), inner)


def options(context: click.Context) -> list[Option]:
    """The options of a command as help shows them."""
    every = context.command.get_params(context)
    records = [one.get_help_record(context) for one in every if isinstance(one, click.Option)]
    return [one for one in records if one is not None]


def section(context: click.Context, shared: set[Option]) -> str:
    """One command: its name, its own options, and the names of those that others have too."""
    with hidden_options(context, shared) as names:
        text = help_text(context)
    more = f"\nShared: {', '.join(f'`{name}`' for name in names)}\n" if names else ""
    return f"## {context.command_path}\n\n```\n{text}\n```\n{more}"


def help_text(context: click.Context) -> str:
    """A command's help without the list of the commands in it, whose sections say the same."""
    formatter = context.make_formatter()
    context.command.format_usage(context, formatter)
    context.command.format_help_text(context, formatter)
    click.Command.format_options(context.command, context, formatter)
    return formatter.getvalue().rstrip("\n")


@contextmanager
def hidden_options(context: click.Context, shared: set[Option]) -> Iterator[list[str]]:
    """Leave some options out of a command's help; their names, without that of help itself."""
    every = context.command.get_params(context)
    known = [one for one in every if isinstance(one, click.Option)]
    found = [one for one in known if one.get_help_record(context) in shared]
    for one in found:
        one.hidden = True
    try:
        yield [max(one.opts, key=len) for one in found if "--help" not in one.opts]
    finally:
        for one in found:
            one.hidden = False


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
