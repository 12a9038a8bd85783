"""See a transformers model as memories: trace it once, place its layers, check the equations."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import torch
from torch import Tensor

from ffmem.errors import ModelError
from ffmem.models.block_forms import layers_of
from ffmem.models.checks import last_state, measure_identity, refuse_non_causal
from ffmem.models.device_placement import device_of
from ffmem.models.discovery import family_by_structure
from ffmem.models.families import FAMILIES, Family
from ffmem.models.language_model import LanguageModel, evaluation_mode
from ffmem.models.trace import Trace, probe_tokens, trace
from ffmem.models.unembedding import head_of

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase


@torch.no_grad()
def wrap(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase | None = None,
    name: str | None = None,
    revision: str | None = None,
) -> LanguageModel:
    """Use a model that you have already, with its tokenizer: any causal LM of transformers.

    Nothing is copied, and the model stays as it is, also in training mode: what ffmem runs is run
    without dropout. An unknown architecture is tried by its structure; one that fails an identity
    is refused with a ModelError. Of a PEFT model whose adapters are all in attention, the model
    inside is used; with other adapters, call `merge_and_unload()` first. Of a compiled model the
    original is used; a quantised one (int8, 4-bit, torchao) is refused. `name` is how messages
    and results call the model.
    """
    model = without_peft(without_compilation(model))
    refuse_quantisation(model)
    with evaluation_mode(model):
        return wrap_in_evaluation(model, tokenizer, name, revision)


def wrap_in_evaluation(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase | None,
    name: str | None,
    revision: str | None,
) -> LanguageModel:
    """Trace a model whose dropout is off, and check what was found."""
    kind = model.config.model_type
    name = name or getattr(model.config, "name_or_path", "") or kind
    embedding = model.get_input_embeddings()
    tokens = probe_tokens(embedding.weight.shape[0], device_of(embedding))
    run = run_on_text(model, tokens, name)
    refuse_non_causal(run, name)
    family, known_by = family_for(model, kind, run, name)
    try:
        seen = layers_of(model, family, run)
    except ModelError as error:
        raise ModelError(f"{name}: {error}") from None
    if not seen:
        raise ModelError(f"{name}: no feed-forward layer found at {family.blocks}.*.{family.keys}")
    head = head_of(model, name, run, last_state(run, family.blocks))
    identity = measure_identity(run, seen, family, head)
    identity.check(name, seen[0].layer.dtype)
    layers = tuple(sighting.layer for sighting in seen)
    return LanguageModel(name, model, tokenizer, layers, head, identity, known_by, revision)


def without_peft(model: PreTrainedModel) -> PreTrainedModel:
    """The model that an adapter of PEFT was put on; refuses one whose weights it would hide."""
    if hasattr(model, "get_base_model"):
        if getattr(model.active_peft_config, "is_prompt_learning", False):
            raise ModelError(
                "the PEFT model has a learned prompt, which is not a part of the model; "
                "pass its get_base_model()"
            )
        model = model.get_base_model()
    for name, module in model.named_modules():
        if hasattr(module, "base_layer") and "att" not in name.lower():
            raise ModelError(
                f"a PEFT adapter at {name} hides weights that must be read; "
                "call merge_and_unload() on the model and pass the result"
            )
    return model


def without_compilation(model: PreTrainedModel) -> PreTrainedModel:
    """The model that `torch.compile` was called with; refuses one that is compiled in part."""
    whole: PreTrainedModel = getattr(model, "_orig_mod", model)
    for name, module in whole.named_modules():
        in_place = getattr(module, "_compiled_call_impl", None) is not None
        if in_place or hasattr(module, "_orig_mod"):
            what = f"its part {name}" if name else "the model"
            raise ModelError(
                f"{what} is compiled, so what happens inside cannot be seen; pass the model as it "
                "was before compilation"
            )
    return whole


def refuse_quantisation(model: PreTrainedModel) -> None:
    """Refuse a model that keeps weights in a form that cannot be read as numbers."""
    for name, module in model.named_modules():
        weight = getattr(module, "weight", None)
        if weight is None or (
            isinstance(weight, Tensor)
            and weight.is_floating_point()
            and type(weight.data) is Tensor
        ):
            continue
        kind = f"{type(module).__module__}.{type(module).__name__}"
        raise ModelError(
            f"the weights of {name} are quantised ({kind}), so keys and values cannot be read; "
            "pass a model loaded without quantisation, or one that dequantize() was called on"
        )


def run_on_text(model: PreTrainedModel, tokens: Tensor, name: str) -> Trace:
    """One traced run on token ids and nothing else; refuses a model that needs more."""
    try:
        return trace(model, tokens)
    except (AttributeError, TypeError, ValueError) as error:
        reason = " ".join(str(error).split()).rstrip(".")
        raise ModelError(
            f"{name}: it does not run on token ids alone ({reason}); "
            "use a causal language model of text"
        ) from error


def family_for(
    model: PreTrainedModel, kind: str, run: Trace, name: str
) -> tuple[Family, Literal["row", "structure"]]:
    """The table's row for this architecture, or one made from its structure."""
    if kind in FAMILIES:
        return FAMILIES[kind], "row"
    return family_by_structure(model, run, name), "structure"
