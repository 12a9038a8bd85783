"""The command group; prints errors that a user can fix in one line."""

from __future__ import annotations

import io
import os
import sys
from inspect import cleandoc

import click

from ffmem.cli.commands.annotate import annotate
from ffmem.cli.commands.cache import cache
from ffmem.cli.commands.compare import compare
from ffmem.cli.commands.contrast import contrast
from ffmem.cli.commands.effect import effect, patch
from ffmem.cli.commands.explore import explore
from ffmem.cli.commands.models import check, inspect, models
from ffmem.cli.commands.patterns import patterns, removal
from ffmem.cli.commands.prompt import prompt
from ffmem.cli.commands.scan import scan
from ffmem.cli.commands.search import search
from ffmem.cli.commands.show import show
from ffmem.cli.commands.study import analyse, report, study
from ffmem.cli.commands.verify import verify
from ffmem.cli.commands.weights import weights
from ffmem.cli.output import say
from ffmem.errors import FfmemError, is_text, sentence, shorten
from ffmem.version import VERSION

INTERRUPT_CODE = 130  # the exit code that shells know: ended by Ctrl-C
RESUMABLE = (["scan"], ["study"], ["analyse"])  # commands that keep what they have done
NOBODY_READS = 1  # as click has it: the reader of a pipe has left, as `head` does


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(VERSION, prog_name="ffmem")
def ffmem() -> None:
    """See what a language model's feed-forward layers remember.

    MODEL is a hub id, a folder, a .gguf file, or a name from `ffmem models`. A memory's address is
    layer and number, as in L7.1034: layers count from 1, memories from 0.
    """


for command in (
    analyse,
    annotate,
    cache,
    check,
    compare,
    contrast,
    effect,
    explore,
    inspect,
    models,
    patch,
    patterns,
    prompt,
    removal,
    report,
    scan,
    search,
    show,
    study,
    verify,
    weights,
):
    ffmem.add_command(command)


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


prepare_help(ffmem)


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
        sys.exit(INTERRUPT_CODE)


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
