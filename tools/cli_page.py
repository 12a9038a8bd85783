"""Write docs/reference/cli.md from the program's own help.

python -m tools.cli_page
"""

from __future__ import annotations

from pathlib import Path

import click

from ffmem.cli.main import ffmem

PAGE = Path(__file__).parent.parent / "docs" / "reference" / "cli.md"


def page() -> str:
    """The whole page."""
    parts = ["# Commands\n\nMade by `python -m tools.cli_page` from the program's own help.\n"]
    context = click.Context(ffmem, info_name="ffmem", **ffmem.context_settings)
    parts.append(section(context, ffmem))
    for name in sorted(ffmem.commands):
        inner = click.Context(ffmem.commands[name], info_name=name, parent=context)
        parts.append(section(inner, ffmem.commands[name]))
        for sub, command in sorted(getattr(ffmem.commands[name], "commands", {}).items()):
            parts.append(section(click.Context(command, info_name=sub, parent=inner), command))
    return "\n".join(parts)


def section(context: click.Context, command: click.Command) -> str:
    """One command: its name and what --help prints."""
    context.max_content_width = 96
    context.terminal_width = 96
    return f"## {context.command_path}\n\n```\n{command.get_help(context)}\n```\n"


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
