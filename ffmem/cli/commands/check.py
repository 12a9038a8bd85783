"""`ffmem check MODEL`: published numbers of a public model against one's own copy of it."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Unpack

import click

from ffmem.cli.options import LOCATION, ModelOptions, load_model, model_options
from ffmem.cli.terminal import print_hanging, terminal


@click.command()
@click.argument("model")
@click.option("--published", type=LOCATION, help="Other published numbers, in a file of that form.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON for machines.")
@model_options
def check(
    model: str, published: Path | None, as_json: bool, **options: Unpack[ModelOptions]
) -> None:
    r"""Hold numbers that others have published against MODEL, your copy of that model.

    Counts of the classes of neurons, entropy neurons, norms and cosines of universal neurons, of
    some thirty public models; those of all models of the same shape are shown, with their source.

    \b
    Example:
        ffmem check path/to/gpt2
    """
    from ffmem.analyses.published_numbers import compare_numbers, published_models

    numbers = published_models(published)
    found = compare_numbers(load_model(model, options), numbers)
    if as_json:
        click.echo(json.dumps([asdict(one) for one in found], indent=2, ensure_ascii=False))
        return
    console = terminal()
    for one in found:
        word = "equal" if one.matches else "DIFFERS"
        says = f"{one.model}: {one.what}: published {one.published}, here {one.here}"
        print_hanging(console, f"{word:8} ", says)
    for name in dict.fromkeys(one.model for one in found):
        own = [one for one in found if one.model == name]
        sources = "; ".join(dict.fromkeys(one.source for one in own))
        match = f"{sum(one.matches for one in own)} of {len(own)} match ({sources})"
        print_hanging(console, f"{name}: ", match)
