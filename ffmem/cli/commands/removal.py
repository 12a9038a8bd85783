"""`ffmem removal DIR`: which token of a trigger a key needs, by layer."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Unpack

import click

from ffmem.cli.options import (
    LOCATION,
    SEED,
    SOME,
    ModelOptions,
    model_options,
    names_damage,
    while_loading,
)

if TYPE_CHECKING:
    from ffmem.analyses.removal import Removal, Variant
    from ffmem.studies.inputs import StudyInputs

KEYS = {"cuda": 100, "cpu": 10}  # a layer: the paper's, and what takes a minute with the demo model


@click.command()
@click.argument("folder", type=LOCATION)
@click.option(
    "--keys",
    type=SOME,
    help="Random keys per layer.  [default: 100 on a GPU, as in the paper; 10 on a CPU]",
)
@click.option("--top", type=SOME, default=50, show_default=True, help="Triggers per key.")
@click.option(
    "--seed", type=SEED, default=0, show_default=True, help="Seed of the drawn keys and tokens."
)
@click.option(
    "--random-interior",
    "interior",
    is_flag=True,
    help="Draw the random token between the first and the last; writes removal-interior.",
)
@click.option(
    "--unclipped",
    is_flag=True,
    help="Let coefficients fall below 0 (smooth activations, gates); writes removal-unclipped.",
)
@click.option("--model", help="The scanned model, where it is not found under its own name.")
@model_options
@names_damage
def removal(  # noqa: PLR0913 - one parameter an option
    folder: Path,
    keys: int | None,
    top: int,
    seed: int,
    interior: bool,
    unclipped: bool,
    model: str | None,
    **options: Unpack[ModelOptions],
) -> None:
    r"""Remove the first, the last or a random token of triggers and measure the coefficients again.

    Writes analyses/removal.json and figures/removal.png into FOLDER, or into FOLDER/other-settings/
    where the study has that result for other keys, triggers or seed.

    \b
    Example:
        ffmem removal out/scan --keys 10
    """
    from ffmem.analyses.removal import Variant
    from ffmem.store.range_checks import refuse_damage
    from ffmem.store.scan_store import ScanStore
    from ffmem.studies.inputs import Sizes, StudyInputs, scanned_model

    store = ScanStore.open(folder)
    refuse_damage(store)
    with while_loading(model or store.manifest.key.model["name"]):
        language_model = scanned_model(store, name=model, **options)
    keys = keys or KEYS["cuda" if language_model.device.type == "cuda" else "cpu"]
    sizes = Sizes(removal_keys=keys, removal_triggers=top)
    click.echo(f"{keys} keys in each of {len(store.memories)} layers, {top} triggers each")
    subject = StudyInputs(language_model, store, sizes, seed=seed)
    variant = Variant(interior, clipped=not unclipped)
    click.echo(f"-> {measure(subject, variant, folder)}")


def measure(subject: StudyInputs, variant: Variant, folder: Path) -> str:
    """Measure, print and leave numbers and figure behind; what was written, in words."""
    from ffmem.analyses.removal import AS_PUBLISHED
    from ffmem.analyses.removal import removal as measure
    from ffmem.cli.output import beside_note, save_figure, save_result
    from ffmem.figures.patterns import removal_chart
    from ffmem.store.folder import StudyFolder
    from ffmem.store.result_files import place_for
    from ffmem.studies.registry import result_key
    from ffmem.studies.runner import make_result

    made = result_key("removal", subject)
    if variant == AS_PUBLISHED:
        place = place_for(folder, "removal", made)
        result, _ = make_result(subject, "removal", place)
        print_table(result)
        figure = save_figure(place, "removal", removal_chart(result))
        return f"{StudyFolder(place).result('removal')}, {figure}{beside_note(place, folder)}"
    sizes = subject.sizes
    result = measure(
        subject.model,
        subject.store,
        sizes.removal_keys,
        sizes.removal_triggers,
        subject.seed,
        variant,
    )
    print_table(result)
    chosen = {"interior": variant.interior, "unclipped": not variant.clipped}
    name = "-".join(["removal", *(word for word, on in chosen.items() if on)])
    return save_result(folder, name, result, made | chosen, removal_chart(result))


def print_table(result: Removal) -> None:
    """One line per layer: mean change in percent, interval over keys, sizes."""
    click.echo("change of the coefficient in % when a token is removed (95 % over keys)")
    click.echo("layer   first token          last token           random token        triggers")
    for layer in result.layers:
        cells = "  ".join(
            f"{c.estimate:6.1f} ({c.low:.1f} .. {c.high:.1f})".ljust(19)
            for c in (layer.first.mean, layer.last.mean, layer.random.mean)
        )
        click.echo(f"{layer.layer:5}  {cells}  {layer.triggers:,}")
    dead, short = (sum(getattr(each, name) for each in result.layers) for name in ("dead", "short"))
    silent = sum(layer.silent for layer in result.layers)
    click.echo(
        f"left out: {dead:,} dead keys, {short:,} triggers of one token, "
        f"{silent:,} that do not fire when read again; {result.tokens:,} tokens read"
    )
