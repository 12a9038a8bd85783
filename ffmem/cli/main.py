"""The command group; prints errors that a user can fix in one line."""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Iterator, MutableMapping
from importlib import import_module
from inspect import cleandoc

import click

from ffmem.cli.output import say
from ffmem.errors import FfmemError, is_text, sentence, shorten
from ffmem.version import VERSION

STOPPED = 130  # the exit code that shells know: ended by Ctrl-C
RESUMABLE = (["scan"], ["study"], ["analyse"])  # commands that keep what they have done
NOBODY_READS = 1  # as click has it: the reader of a pipe has left, as `head` does


MODULES = {  # in ffmem.cli.commands, by the command that it has
    "analyse": "study",
    "annotate": "annotate",
    "cache": "cache",
    "check": "models",
    "compare": "compare",
    "contrast": "contrast",
    "effect": "effect",
    "explore": "explore",
    "inspect": "models",
    "models": "models",
    "patch": "effect",
    "patterns": "patterns",
    "prompt": "prompt",
    "removal": "patterns",
    "report": "study",
    "scan": "scan",
    "search": "search",
    "show": "show",
    "study": "study",
    "verify": "verify",
    "weights": "weights",
}


class Commands(MutableMapping[str, click.Command]):
    """The commands by name; each is imported when it is looked up, so that one starts sooner."""

    def __init__(self) -> None:
        self.commands: dict[str, click.Command | None] = dict.fromkeys(MODULES)

    def __getitem__(self, name: str) -> click.Command:
        command = self.commands[name]
        if command is None:
            command = getattr(import_module(f"ffmem.cli.commands.{MODULES[name]}"), name)
            prepare_help(command)
            self.commands[name] = command
        return command

    def __setitem__(self, name: str, command: click.Command) -> None:
        self.commands[name] = command

    def __delitem__(self, name: str) -> None:
        del self.commands[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.commands)

    def __len__(self) -> int:
        return len(self.commands)


def prepare_help(command: click.Command) -> None:
    """Mark the examples in a help text for click, which else joins their lines.

    The mark is the character backspace; in a raw docstring it is still written out. In the list of
    commands the first sentence stands whole; click would cut it to one line.
    """
    command.help = (command.help or "").replace(r"\b", "\b")
    command.short_help = " ".join(cleandoc(command.help).partition("\n\n")[0].split())
    if isinstance(command, click.Group):
        for inner in command.commands.values():
            prepare_help(inner)


@click.group(
    commands=Commands(),
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
@click.version_option(VERSION, prog_name="ffmem")
def ffmem() -> None:
    """See what a language model's feed-forward layers remember.

    MODEL is a hub id, a folder, a .gguf file, or a name from `ffmem models`. A memory's address is
    layer and number, as in L7.1034: layers count from 1, memories from 0.
    """


def main() -> None:
    """Run the command line: exit code 2 and one sentence for anything a user can fix."""
    os.environ.setdefault("GOMP_SPINCOUNT", "10000")  # before torch: threads that wait soon sleep
    # On a GPU batches of ever new shapes fragment memory, unless its pieces can grow.
    os.environ.setdefault("PYTORCH_ALLOC_CONF", "expandable_segments:True")
    if isinstance(sys.stdout, io.TextIOWrapper):  # what cannot be encoded must not stop a listing
        sys.stdout.reconfigure(errors="backslashreplace")
    try:
        sys.exit(run(sys.argv[1:]))
    except FfmemError as error:
        fail(str(error))
    except click.ClickException as error:
        error.show()
        sys.exit(2)
    except BrokenPipeError:
        stop_printing()
        sys.exit(NOBODY_READS)
    except OSError as error:
        fail(sentence(error))
    except (click.Abort, KeyboardInterrupt):
        goes_on = "; the same command goes on from here" if sys.argv[1:2] in RESUMABLE else ""
        click.echo(f"stopped{goes_on}", err=True)
        sys.exit(STOPPED)


def run(words: list[str]) -> int:
    """Run the command that these words name; its exit code."""
    for word in words:
        if not is_text(word):
            raise FfmemError(f"{shorten(word)} is not UTF-8 text; write it as UTF-8")
    try:
        code = ffmem(words, prog_name="ffmem", standalone_mode=False)
    except SystemExit as end:
        code = end.code
    print(end="", flush=True)  # trouble with the last lines is found while it can be told
    return code if isinstance(code, int) else 0


def stop_printing() -> None:
    """Drop what is not printed yet, so that Python does not try again when it ends."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def fail(message: str) -> None:
    """Print one sentence and leave with code 2."""
    say(f"ffmem: {' '.join(message.split())}", err=True)
    sys.exit(2)
