"""`ffmem inspect MODEL`: the model as layers of memories, and how exactly it is understood."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, Unpack

import click

from ffmem.cli.options import ModelOptions, load_model, model_options

if TYPE_CHECKING:
    from ffmem.models.language_model import LanguageModel


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
    from ffmem.models.feedforward import FORM_SENTENCES

    layers = model.layers
    sizes = sorted({layer.memories for layer in layers})
    all_parameters = sum(parameter.numel() for _, parameter in own_parameters(model.model))
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
        "parameters": f"{all_parameters:,}, {inside / all_parameters:.0%} in feed-forward layers",
        "of the blocks alone": f"{inside / blocks:.0%} feed-forward, the rest attention",
        "runs in": f"{str(model.dtype).removeprefix('torch.')} on {devices}",
        "identity errors": asdict(model.identity),
    }


def experts_of(model: LanguageModel) -> dict[str, str]:
    """The mixtures of experts among the layers, or nothing for a dense model."""
    mixtures = [layer.mixture for layer in model.layers if layer.mixture is not None]
    if not mixtures:
        return {}
    sizes = dict.fromkeys(mixture.parts for mixture in mixtures)
    words = [
        f"{parts.experts:,} of {parts.size:,} memories"
        + "".join(f", and a shared one of {size:,}" for size in parts.beside)
        for parts in sizes
    ]
    packed = any(not weight.is_floating_point() for weight in model.model.parameters())
    dtype = mixtures[0].dtype
    name = str(dtype).removeprefix("torch.")
    note = (
        f"; they are not quantised, as other weights are, but in {name}"
        if packed and dtype.is_floating_point
        else ""
    )
    return {
        "experts": f"in {len(mixtures)} of {len(model.layers)} layers: {' or '.join(words)}{note}"
    }


def after_the_values(model: LanguageModel) -> str:
    """What a block does to a layer's sum before it is added to the residual."""
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
    """What stands between the last block and the output embedding."""
    names = [type(module).__name__ for module in model.head.chain]
    if not names:
        return "none, as in the paper's model"
    return " then ".join(names)
