"""The command group; prints errors that a user can fix in one line."""

from __future__ import annotations

import io
import os
import sys
from inspect import cleandoc

import click

from ffmem.cli.commands.analyse import analyse, patterns
from ffmem.cli.commands.annotate import annotate
from ffmem.cli.commands.compare import compare
from ffmem.cli.commands.model import inspect, models, weights
from ffmem.cli.commands.prompt import prompt
from ffmem.cli.commands.scan import scan
from ffmem.cli.commands.search import search
from ffmem.cli.commands.sets import contrast, effect, patch
from ffmem.cli.commands.show import show
from ffmem.cli.commands.study import explore, report, study
from ffmem.cli.commands.upkeep import cache, verify
from ffmem.cli.commands.why import why
from ffmem.cli.output import say
from ffmem.cli.study_access import names_damage
from ffmem.errors import FfmemError, is_text, sentence, shorten
from ffmem.interrupts import exit_code
from ffmem.version import VERSION

RESUMABLE = (["scan"], ["study"], ["analyse"])  # commands that keep what they have done
NOBODY_READS = 1  # as click has it: the reader of a pipe has left, as `head` does


SECTIONS: dict[str, tuple[click.Command, ...]] = {  # in the order of use
    "Start": (study, explore, report),
    "One model": (inspect, prompt, why, weights),
    "Scan a text": (scan, show, search),
    "The paper's questions": (analyse, patterns, compare),
    "Sets of memories": (contrast, effect, patch),
    "People": (annotate,),
    "Files": (models, verify, cache),
}


class Sections(click.Group):
    """A group whose help lists its commands section by section."""

    def format_commands(self, _: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the sections below each other, their columns aligned."""
        width = max(len(name) for name in self.commands)
        for section, commands in SECTIONS.items():
            with formatter.section(section):
                rows = [(str(one.name).ljust(width), one.short_help or "") for one in commands]
                formatter.write_dl(rows)


@click.group(
    cls=Sections,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
@click.version_option(VERSION, prog_name="ffmem")
def ffmem() -> None:
    """See what a language model's feed-forward layers remember.

    Begin with `ffmem study demo`, which ends with a report to open, or with
    `ffmem study MODEL CORPUS`.

    MODEL is a hub id, a folder, a .gguf file, or a name from `ffmem models`. A memory's address is
    layer and number, as in L7.1034: layers count from 1, memories from 0.
    """


for commands in SECTIONS.values():
    for command in commands:
        ffmem.add_command(command)


def prepare(command: click.Command) -> None:
    """Mark the examples in a help text for click, and let a failing command name damaged studies.

    Without the mark click joins the lines. It is the character backspace; in a raw docstring it is
    still written out. In the list of commands the first sentence stands whole; click would cut it
    to one line.
    """
    command.help = (command.help or "").replace(r"\b", "\b")
    command.short_help = " ".join(cleandoc(command.help).partition("\n\n")[0].split())
    if isinstance(command, click.Group):
        for inner in command.commands.values():
            prepare(inner)
    elif command.callback is not None:
        command.callback = names_damage(command.callback)


prepare(ffmem)


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
        _stop_printing()
        sys.exit(NOBODY_READS)
    except OSError as error:
        fail(sentence(error))
    except (click.Abort, KeyboardInterrupt):
        goes_on = "; the same command goes on from here" if sys.argv[1:2] in RESUMABLE else ""
        click.echo(f"stopped{goes_on}", err=True)
        sys.exit(exit_code())


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


def _stop_printing() -> None:
    """Drop what is not printed yet, so that Python does not try again when it ends."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def fail(message: str) -> None:
    """Print one sentence and leave with code 2."""
    say(f"ffmem: {' '.join(message.split())}", err=True)
    sys.exit(2)
