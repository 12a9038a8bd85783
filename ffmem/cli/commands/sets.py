"""Sets of memories: `ffmem contrast` finds them, `effect` and `patch` edit them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Unpack

import click

from ffmem.address_space import room_for_figures
from ffmem.cli.options import (
    ModelOptions,
    device_option,
    edits_option,
    json_option,
    load_model,
    model_options,
    while_loading,
)
from ffmem.cli.output import print_hanging, print_json, print_parts, say, terminal
from ffmem.cli.parameters import LOCATION, SEED, SHARE_TYPE, SOME, Whole
from ffmem.cli.study_access import load_beside
from ffmem.errors import StoreError
from ffmem.files.whole_files import refuse_place

if TYPE_CHECKING:
    from ffmem.address import Address
    from ffmem.analyses.contrast.measure import Contrast, ContrastTable, Permutations, SpecificCell
    from ffmem.analyses.effect.record import LossChange, TaskEffect, TextEffect
    from ffmem.store.scan_store import ScanStore


@click.command()
@click.argument("folders", nargs=-1, required=True, type=LOCATION)
@click.option(
    "--level", type=SHARE_TYPE, default=0.05, show_default=True, help="False discovery rate."
)
@click.option(
    "--max-sentences",
    type=SOME,
    default=2000,
    show_default=True,
    help="Sentences read of each corpus.",
)
@device_option
@click.option(
    "-n", "--count", type=SOME, default=10, show_default=True, help="Cells shown per corpus."
)
@click.option("--top", type=SOME, default=50, show_default=True, help="Cells of the saved set.")
@click.option(
    "--save", type=LOCATION, help="Write the most specific cells of the first corpus to a file."
)
@click.option("-o", "--out", type=LOCATION, help="Folder for the table, numbers and figure.")
@json_option
def contrast(  # noqa: PLR0913 - one parameter per option
    folders: tuple[Path, ...],
    level: float,
    max_sentences: int,
    device: str,
    count: int,
    top: int,
    save: Path | None,
    out: Path | None,
    as_json: bool,
) -> None:
    r"""Find the memories that fire on the corpus of one scan and not on those of others.

    FOLDERS are scans of one model over different corpora: languages, code and prose, safe and
    unsafe text. The model reads the text again. Prints log odds of firing with intervals; the
    control deals the documents out to the corpora at random. `ffmem effect` with the saved set
    measures what silencing it does.

    \b
    Example:
        ffmem contrast out/french out/english --save french.txt
    """
    if out is not None:
        room_for_figures()
    from ffmem.analyses.contrast.measure import contrast as compare
    from ffmem.analyses.contrast.measure import preparation_warnings, refuse_different
    from ffmem.analyses.inputs.study_inputs import scanned_model
    from ffmem.store.folder import StudyFolder, writing
    from ffmem.store.scan_store import ScanStore

    stores, names = [ScanStore.open(folder) for folder in folders], _corpus_names(folders)
    refuse_different(stores)  # before the model is loaded
    for warning in preparation_warnings(stores, names):
        say(f"ffmem: {warning}", err=True)
    with while_loading(stores[0].manifest.key.model["name"]):
        model = scanned_model(stores[0], device)
    result, table, counts = compare(stores, model, names, level, max_sentences)
    if save is not None:
        _save_set(save, stores[0].cells.addresses(table.order(0)[:top]), result)
    if as_json:
        print_json(result)
    else:
        _print_contrast(result, count)
    if out is not None:
        with writing(StudyFolder(out)):
            _write(out, stores[0], counts, table, result)


def _corpus_names(folders: Sequence[Path]) -> list[str]:
    """A short name for each scan: its folder's, or the whole path where two are alike."""
    short = [folder.name for folder in folders]
    return short if len(set(short)) == len(short) else [str(folder) for folder in folders]


def _save_set(path: Path, addresses: Sequence[Address], result: Contrast) -> None:
    """Write the set of the first corpus."""
    from ffmem.files.whole_files import write_text
    from ffmem.memories.edits import set_text

    first, *others = result.corpora
    if not addresses:
        raise StoreError(
            f"no memory is specific to {first}, so {path} was not written; scan more text"
        )
    about = f"{len(addresses)} memories that fire more often on {first} than on {', '.join(others)}"
    write_text(path, set_text(addresses, about))
    say(f"-> {path}", err=True)


def _print_contrast(result: Contrast, count: int) -> None:
    """Counts, control, and the most specific cells of each corpus."""
    console, names = terminal(), result.corpora
    for read in result.read:
        unit = "runs of documents" if read.of_documents else "runs of sentences"
        print_hanging(
            console,
            "",
            f"{read.name}: {read.sentences:,} sentences, {read.prefixes:,} prefixes, in "
            f"{read.parts} {unit}",
        )
    print_hanging(
        console,
        "",
        f"{result.cells:,} cells, false discoveries held to {100 * result.level:.3g} %",
    )
    for name, control in zip(names, result.permutations, strict=False):
        print_hanging(console, "", _control_text(control, name if len(names) > 2 else ""))
    print_hanging(console, "", f"fires and mean are on {', then '.join(names)}")
    for name, specific in zip(names, result.specific, strict=True):
        print_hanging(console, "", f"specific to {name}: {specific:,}", "bold")
        for cell in result.top[name][:count]:
            print_parts(console, f"  {cell.address!s:<12} ", _cell_parts(cell))
    layers = [f"L{layer.layer}: {'/'.join(map(str, layer.specific))}" for layer in result.layers]
    print_parts(console, f"by layer ({'/'.join(names)}): ", layers)


def _control_text(control: Permutations, name: str) -> str:
    """What chance gives: documents dealt out to the corpora at random."""
    about = f"control of {name}: " if name else "control: "
    found = f"of {control.deals} random deals of the documents, {control.with_any} have any"
    if control.bar is None:
        return f"{about}{found}; here no cell is beyond chance"
    return (
        f"{about}{control.passing:,} cells differ by {control.bar:.1f} errors or more; in 95 % of "
        f"{control.deals} random deals of the documents at most {control.bound:,} do; "
        f"{control.with_any} deals have any that would be called specific"
    )


def _cell_parts(cell: SpecificCell) -> list[str]:
    """A specific cell: rates, means, log odds, its strongest trigger and first token."""
    from ffmem.text import visible_token

    rates = " ".join(f"{100 * rate:6.2f} %" for rate in cell.rates)
    means = " ".join(f"{mean:6.2f}" for mean in cell.means)
    odds = f"log odds {cell.log_odds:5.2f} ({cell.low:.2f} .. {cell.high:.2f})"
    parts = [f"fires {rates}", f"mean {means}", odds, f"entropy {cell.entropy:.2f}"]
    if cell.mirror is not None:
        parts.append(f"{cell.mirror} fires on {cell.mirror_corpus}")
    if cell.trigger is not None:
        parts.append(f"trigger: {visible_token(str(cell.trigger))}")
    if cell.promotes:
        parts.append(f"promotes {visible_token(cell.promotes[0])}")
    return parts


def _write(
    out: Path, store: ScanStore, counts: Any, table: ContrastTable, result: Contrast
) -> None:
    """Leave table, numbers and figure in a folder."""
    from ffmem.analyses.contrast.charts import contrast_chart
    from ffmem.analyses.contrast.measure import contrast_columns
    from ffmem.cli.output import save_figure, save_numbers
    from ffmem.store.search.columns import write_columns

    numbers = save_numbers(out, "contrast", result)
    columns = contrast_columns(store, counts, table)
    for ending in (".parquet", ".csv"):
        write_columns(numbers.with_suffix(ending), columns)
    figure = save_figure(out, "contrast", contrast_chart(result))
    say(f"-> {numbers.parent}, {figure}", err=True)


SENTENCES = 100


@click.command()
@click.argument("model")
@click.argument("corpus")
@edits_option
@click.option(
    "--max-sentences", type=SOME, default=SENTENCES, show_default=True, help="Sentences read."
)
@click.option(
    "--random",
    type=Whole(0, 1000),
    default=3,
    show_default=True,
    help="Random sets as control.",
)
@click.option("--task", type=LOCATION, help="JSON lines of prompt and answer: report accuracy too.")
@click.option(
    "--generate",
    multiple=True,
    metavar="TEXT",
    help="Generate from TEXT with and without the edit.",
)
@click.option("--most", type=SOME, default=24, show_default=True, help="Tokens to generate.")
@click.option("--seed", type=SEED, default=0, show_default=True, help="Seed of random sets.")
@json_option
@model_options
def effect(  # noqa: PLR0913 - one parameter per option
    model: str,
    corpus: str,
    edits: Sequence[str],
    max_sentences: int,
    random: int,
    task: Path | None,
    generate: Sequence[str],
    most: int,
    seed: int,
    as_json: bool,
    **options: Unpack[ModelOptions],
) -> None:
    r"""Measure what editing a set of memories does to MODEL on CORPUS.

    Prints the change of the loss and of top-1, and KL, per token, and of the answers to tasks; as
    a control the same for random sets of as many memories of the same layers with nearly the same
    fire rate. A set is a text file of addresses, one per line.

    \b
    Example:
        ffmem effect tiny:opt corpus.txt --set @numbers.txt=0
    """
    from ffmem import demo
    from ffmem.analyses.effect.measure import EffectSettings, read_tasks, set_effect
    from ffmem.corpus.sources import Source

    tasks = None if task is None else read_tasks(task)
    settings = EffectSettings(max_sentences, random, most, seed)
    source = Source(demo.corpus(corpus))
    found = set_effect(load_model(model, options), source, edits, settings, tasks, generate)
    if as_json:
        print_json(found)
        return
    _print_effect(found.text, found.task)
    for one in found.generated:
        print_hanging(terminal(), "after ", repr(one.prompt))
        print_hanging(terminal(), "  as it is: ", repr(one.as_it_is))
        print_hanging(terminal(), "  edited:   ", repr(one.edited))


def _print_effect(found: TextEffect, answers: TaskEffect | None) -> None:
    """The edit, then each random set."""
    console = terminal()
    memories = "memory" if found.memories == 1 else "memories"
    print_hanging(
        console,
        "",
        f"{found.memories:,} {memories} edited, {found.sentences:,} sentences, {found.tokens:,} "
        f"tokens; as it is: loss {found.loss:.4f}, top-1 {100 * found.top_1:.1f} %",
    )
    for name, change in [("the edit", found.edit), *_numbered(found.random)]:
        print_parts(console, f"{name:<12} ", _change_parts(change))
    if found.random:
        say(f"{found.stronger} of {len(found.random)} random sets change the loss at least as much")
    if answers is not None:
        _print_tasks(answers)


def _print_tasks(answers: TaskEffect) -> None:
    """Answers as the model is, then what the edit and each random set change."""
    console = terminal()
    print_hanging(
        console,
        "",
        f"{answers.tasks:,} tasks; as it is: {100 * answers.accuracy:.1f} % right, log-probability "
        f"of the answer {answers.log_probability:.3f}",
    )
    for name, change in [("the edit", answers.edit), *_numbered(answers.random)]:
        right, likely = change.accuracy, change.log_probability
        parts = [
            f"right {100 * right.estimate:+.1f} points "
            f"({100 * right.low:+.1f} .. {100 * right.high:+.1f})",
            f"log-probability {likely.estimate:+.3f} ({likely.low:+.3f} .. {likely.high:+.3f})",
        ]
        print_parts(console, f"{name:<12} ", parts)
    if answers.random:
        many = len(answers.random)
        say(f"{answers.stronger} of {many} random sets change the answers at least as much")


def _numbered(changes: Sequence[Any]) -> list[tuple[str, Any]]:
    """The changes by random sets, each with its name."""
    return [(f"random {number}", one) for number, one in enumerate(changes, 1)]


def _change_parts(change: LossChange) -> list[str]:
    """Loss, KL and top-1, with 95 % intervals over sentences."""
    loss, kl, top = change.loss, change.kl, change.top_1
    return [
        f"loss {loss.estimate:+.4f} ({loss.low:+.4f} .. {loss.high:+.4f})",
        f"KL {kl.estimate:.4f} ({kl.low:.4f} .. {kl.high:.4f})",
        f"top-1 {100 * top.estimate:+.2f} points",
    ]


@click.command()
@click.argument("model")
@edits_option
@click.option("-o", "--out", type=LOCATION, required=True, help="Folder for the patch.")
@click.option("--study", type=LOCATION, help="Scan that =mean takes mean coefficients from.")
@model_options
def patch(
    model: str, edits: Sequence[str], out: Path, study: Path | None, **options: Unpack[ModelOptions]
) -> None:
    r"""Save edits of MODEL's memories as a patch of its weights.

    `ffmem.load(MODEL, patch=DIR)` applies it; `ffmem.remove_patch` restores exactly the original
    weights. Holding a memory at a number other than 0 needs a layer with a bias.

    \b
    Example:
        ffmem patch tiny:opt --set L2.7=0 -o out/patch
    """
    from ffmem.memories.edits import expand_edits, value_changes
    from ffmem.models.patches import write_patch

    refuse_place(out)
    language_model, store = load_beside(model, options, study)
    means = None if store is None else store.mean_coefficients
    parsed = expand_edits(edits, language_model, means)
    count = sum(len(language_model.places_of(edit.address)) for edit in parsed)
    folder = write_patch(
        language_model, value_changes(language_model, parsed), [str(e) for e in parsed], out
    )
    memories = "1 memory" if count == 1 else f"{count:,} memories"
    say(f"-> {folder}: {memories}; load it with ffmem.load(..., patch={str(out)!r})")
