"""`ffmem weights MODEL`: every memory in numbers, from the weights alone."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Unpack

import click

from ffmem.cli.options import LOCATION, SEED, ModelOptions, load_model, model_options
from ffmem.cli.output import print_hanging, print_parts, say, terminal

if TYPE_CHECKING:
    from torch import Tensor

    from ffmem.analyses.weights import Candidate, LayerWeights, Weights, WeightSummary
    from ffmem.models.language_model import LanguageModel


@click.command()
@click.argument("model")
@click.option("-o", "--out", type=LOCATION, help="Folder for the table, numbers and figures.")
@click.option(
    "--text",
    help="Text (named like a CORPUS) to count tokens in, for the frequency column; without it "
    "frequency is estimated from the order of token ids.",
)
@click.option(
    "--seed", type=SEED, default=0, show_default=True, help="Seed of the mismatched pairs."
)
@click.option(
    "--figures/--no-figures", default=True, help="Draw the figures, or save numbers only."
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON for machines.")
@model_options
def weights(  # noqa: PLR0913 - one parameter per option
    model: str,
    out: Path | None,
    text: str | None,
    seed: int,
    figures: bool,
    as_json: bool,
    **options: Unpack[ModelOptions],
) -> None:
    r"""Describe every memory (MLP neuron) of MODEL by its weights alone, without a corpus.

    Reports norms of key, gate and value, their cosines and the resulting class (strengthening,
    weakening, conditional ...), moments of the value's logits, candidates for entropy and
    token-frequency neurons, and duplicates; mismatched pairs are the control. With -o:
    weights.parquet, weights.csv and weights.json in analyses/, and the figures. For a study use
    `ffmem analyse DIR --only weights`; `ffmem search` then sorts and filters by the columns.

    \b
    Example:
        ffmem weights tiny:llama -o out/weights
    """
    import torch

    from ffmem.analyses.weights import summarise_weights, weight_table
    from ffmem.store.folder import StudyFolder, check_folder
    from ffmem.store.result_files import to_plain

    if out is not None and StudyFolder(out).manifest.exists():
        raise click.UsageError(
            f"{out} holds a scan; run `ffmem analyse {out} --only weights`, or choose another "
            "folder"
        )
    if out is not None:
        check_folder(out)
    language_model = load_model(model, options)
    generator = torch.Generator().manual_seed(seed)
    counts = None if text is None else token_counts(language_model, text)
    table = weight_table(language_model, generator, counts, text or "")
    result = summarise_weights(table, generator)
    if as_json:
        click.echo(json.dumps(to_plain(result), indent=2))
    else:
        print_summary(result)
    if out is not None:
        save(out, table, result, figures)


def token_counts(model: LanguageModel, text: str) -> Tensor:
    """How often each token is in a text."""
    import torch

    from ffmem import demo
    from ffmem.corpus.sentences import SentenceSettings, tokenise
    from ffmem.corpus.shards import shards
    from ffmem.corpus.sources import Source, documents

    counts = torch.zeros(model.vocab_size, dtype=torch.long)
    for shard in shards(documents(Source(demo.corpus(text)))):
        tokens = tokenise(shard, model.tokenizer, SentenceSettings()).tokens
        counts += torch.bincount(torch.as_tensor(tokens).long(), minlength=len(counts))
    return counts


def save(out: Path, table: WeightSummary, result: Weights, figures: bool) -> None:
    """Leave the table, the numbers and the figures in a folder."""
    from ffmem.analyses.weights import table_columns
    from ffmem.cli.output import save_figure, save_numbers
    from ffmem.store.folder import StudyFolder
    from ffmem.store.weight_columns import write_columns

    files, columns = StudyFolder(out), table_columns(table)
    write_columns(files.weights, columns)
    write_columns(files.weights.with_suffix(".csv"), columns)
    save_numbers(out, "weights", result)
    if figures:
        from ffmem.figures.weights import charts

        for name, chart in charts(result).items():
            save_figure(out, name, chart)
    say(f"-> {files.analyses}" + (f", {files.figures}" if figures else ""), err=True)


CLASS_COLUMNS = ("strengthening", "proportional change", "weakening")


def print_summary(result: Weights) -> None:
    """Two tables with a line per layer, then the memories that stand out."""
    console = terminal()
    print_hanging(
        console,
        "",
        "memories by class at cosines of ±0.5 (mism.: of mismatched pairs), and the medians of "
        "cos(key, value), |key| and |value|",
        "bold",
    )
    click.echo("layer  memories  strength.  proport.  weaken.  (mism.)     cos  |key|  |value|")
    for layer in result.layers:
        click.echo(class_line(layer))
    print_hanging(console, "", "memories that stand out (mism.: of mismatched pairs)", "bold")
    click.echo("layer  predict  suppress  entropy  (mism.)  freq.  twins")
    for layer in result.layers:
        click.echo(
            f"{layer.layer:5}  {layer.prediction:7,}  {layer.suppression:8,}  {layer.entropy:7,}  "
            f"{layer.control_entropy:7,}  {layer.frequency:5,}  {layer.duplicates:5,}"
        )
    print_hanging(console, "frequency of tokens: ", result.frequency_from)
    say(f"random directions with a kurtosis above 10: {100 * result.random_peaked:.1f} %")
    for name, found, score in (
        ("entropy", result.entropy, "{:.2f} sd"),
        ("frequency", result.frequency, "{:.2f} sd"),
        ("duplicates", result.duplicates, "cosine {:.2f}"),
    ):
        print_parts(console, f"{name}: ", listing(found, score))
    print_hanging(console, "", "sd: robust standard deviations from the layer's median")


def class_line(layer: LayerWeights) -> str:
    """One layer; conditional and atypical classes counted with the plain ones."""
    counts = [
        sum(n for name, n in layer.classes.items() if name.endswith(word)) for word in CLASS_COLUMNS
    ]
    chance = sum(n for name, n in layer.mismatched_classes.items() if name != "orthogonal output")
    return (
        f"{layer.layer:5}  {layer.memories:8,}  {counts[0]:9,}  {counts[1]:8,}  {counts[2]:7,}  "
        f"{chance:7.1f}  {layer.cosines['key_value'].quantiles[2]:z6.3f}  "
        f"{layer.key_norm[2]:5.2f}  {layer.value_norm[2]:7.2f}"
    )


def listing(found: tuple[Candidate, ...], score: str) -> list[str]:
    """Candidates with their scores in words, best first."""
    return [f"{one.address} ({score.format(one.score)})" for one in found[:10]] or ["none"]
