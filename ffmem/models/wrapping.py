"""See a transformers model as memories: trace it once, place its layers, check the equations."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Literal

import torch
from torch import Tensor

from ffmem.errors import ModelError, shorten
from ffmem.locations import first_line
from ffmem.models.blocks.discovery import families_by_block, family_by_structure
from ffmem.models.blocks.forms import LayerFit, block_places, families_of, fit_layer, norm_belongs
from ffmem.models.blocks.trace import Trace, evaluation_mode, probe_tokens, relative_error, trace
from ffmem.models.device_placement import ROOM, device_of, own_parameters, parameter_bytes
from ffmem.models.effective_weights import quantised_modules, refuse_adapted_experts
from ffmem.models.experts.mixture_fit import fit_mixture, read_mixtures
from ffmem.models.experts.routing import experts_function, experts_in, has_readable_experts
from ffmem.models.families import FAMILIES, Family
from ffmem.models.language_model import LanguageModel
from ffmem.models.unembedding import Head, head_of, token_count

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

EXACT, ROUNDED = 1e-4, 3e-2  # largest relative error allowed in float32, and in 16 bits
QUANTISED_TOLERANCE = 5e-2  # and in layers that round what enters them to 8 bits


@torch.no_grad()
def wrap(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase | None = None,
    name: str | None = None,
    revision: str | None = None,
) -> LanguageModel:
    """Wrap a loaded causal LM of transformers, with its tokenizer, as a LanguageModel.

    The model is not changed, and a model in training mode stays in it; ffmem's own passes run
    without dropout. An unknown architecture is recognised by its structure; one that fails an
    identity is refused with a ModelError. Of a PEFT model the model inside is used, with its
    adapters; of a compiled model the original. Keys and values of layers that are quantised or
    have adapters are those of the model that runs; a layer whose quantised arithmetic is too far
    from linear is refused. `name` is the model's name in messages and results.
    """
    if not isinstance(model, torch.nn.Module):
        raise ModelError(
            f"wrap takes a model that is already loaded, not {shorten(repr(model))}; load one by "
            "its name with ffmem.load"
        )
    model = _without_peft(_without_compilation(model))
    refuse_adapted_experts(model, [one for one in model.modules() if has_readable_experts(one)])
    with evaluation_mode(model):
        return _wrap_in_evaluation(model, tokenizer, name, revision)


def float32_copy(model: LanguageModel) -> LanguageModel:
    """The same weights and device with 32 bits per number, where the biggest logit must be exact.

    A model of 32 bits is given as it is, and so is one that is quantised, spread over devices or
    too large for a copy beside it on its GPU.
    """
    if model.dtype not in (torch.bfloat16, torch.float16) or not _has_room_for_copy(model):
        return model
    whole = copy.deepcopy(model.model).float()
    found = wrap(whole, model.tokenizer, model.name, model.revision)
    return found.with_experts(model.experts)


def _has_room_for_copy(model: LanguageModel) -> bool:
    """Whether the model can be copied, and weights of twice the size fit beside it."""
    if quantised_modules(model.model):
        return False
    if len(model.devices) > 1 or len(set(getattr(model.model, "hf_device_map", {}).values())) > 1:
        return False
    if model.device.type != "cuda":
        return True
    room = torch.cuda.get_device_properties(model.device).total_memory
    return 3 * parameter_bytes(model.model) + ROOM <= room


def _wrap_in_evaluation(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase | None,
    name: str | None,
    revision: str | None,
) -> LanguageModel:
    """Trace a model whose dropout is off, and check what was found."""
    kind = model.config.model_type
    name = name or getattr(model.config, "name_or_path", "") or kind
    embedding = model.get_input_embeddings()
    tokens = probe_tokens(token_count(embedding), device_of(embedding))
    with experts_function(experts_in(model), "eager"):
        run = _run_on_text(model, tokens, name)
    _refuse_not_finite(model, run, name)
    quantised = bool(quantised_modules(model))
    _refuse_non_causal(run, name, quantised)
    families, known_by = _families_for(model, kind, run, name)
    try:
        seen = [
            fit_mixture(model, place, family, run)
            if family.experts
            else fit_layer(place, family, run)
            for place, family in block_places(model, families)
        ]
        seen = read_mixtures(model, tokens, run, seen)
    except ModelError as error:
        raise ModelError(f"{name}: {error}") from None
    blocks = families[seen[0].layer.block_index].blocks
    head = head_of(model, name, run, _last_state(run, blocks))
    identity = _measure_identity(run, seen, blocks, head)
    identity.check(name, seen[0].layer.dtype, quantised)
    layers = tuple(sighting.layer for sighting in seen)
    return LanguageModel(name, model, tokenizer, layers, head, identity, known_by, revision)


def _without_peft(model: PreTrainedModel) -> PreTrainedModel:
    """The model that adapters of PEFT are in; refuses a learned prompt, which is not in it."""
    if hasattr(model, "get_base_model"):
        if getattr(model.active_peft_config, "is_prompt_learning", False):
            raise ModelError(
                "the PEFT model has a learned prompt, which is not a part of the model; "
                "pass its get_base_model()"
            )
        model = model.get_base_model()
    return model


def _without_compilation(model: PreTrainedModel) -> PreTrainedModel:
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


def _run_on_text(model: PreTrainedModel, tokens: Tensor, name: str) -> Trace:
    """One traced run on token ids and nothing else; refuses a model that needs more."""
    try:
        return trace(model, tokens)
    except (AttributeError, TypeError, ValueError) as error:
        reason = " ".join(str(error).split()).rstrip(".")
        raise ModelError(
            f"{name}: it does not run on token ids alone ({reason}); "
            "use a causal language model of text"
        ) from error
    except torch.OutOfMemoryError:
        raise
    except (RuntimeError, IndexError) as error:
        reason = shorten(first_line(error))
        raise ModelError(
            f"{name}: it does not run ({reason}); check that its config fits its weights"
        ) from error


def _families_for(
    model: PreTrainedModel, kind: str, run: Trace, name: str
) -> tuple[dict[int, Family], Literal["row", "structure"]]:
    """By each block's index the table's row for this architecture, or one made from structure."""
    if kind not in FAMILIES and any(map(has_readable_experts, model.modules())):
        return families_by_block(model, run, name), "structure"
    known = kind in FAMILIES
    family = FAMILIES[kind] if known else family_by_structure(model, run, name)
    try:
        found = families_of(model, family, run)
    except ModelError as error:
        raise ModelError(f"{name}: {error}") from None
    if not found:
        copies = any(hasattr(module, "modules_to_save") for module in model.modules())
        raise ModelError(
            f"{name}: no feed-forward layer found at {family.blocks}.*.{family.keys}"
            + ("; call merge_and_unload() on the model and pass the result" if copies else "")
        )
    blocks = (f"{family.blocks}.{index}" for index in found)
    if not known and not all(norm_belongs(block, family, run) for block in blocks):
        return families_by_block(model, run, name), "structure"
    return found, "row" if known else "structure"


@dataclass(frozen=True)
class Identity:
    """Relative errors on a short input, each the worst over layers; small means understood."""

    memories: float  # sum of coefficient x value + bias = what the value map gives
    activation: float  # activation of the pre-activations = coefficients
    residual: float  # r + y = o
    head: float  # the last o through the head = the model's own logits
    causal: float  # a later token changes nothing at an earlier position

    def check(self, name: str, dtype: torch.dtype, quantised: bool = False) -> None:
        """Refuse a model for which one of the equations does not hold."""
        worst, error = max(asdict(self).items(), key=lambda pair: pair[1])
        if not error <= largest_error(dtype, quantised):
            raise ModelError(fault(name, worst, error, quantised))


EQUATION_FAULTS = {
    "memories": "coefficients times values do not add up to the feed-forward layer's output",
    "activation": "no known activation turns the keys' scores into coefficients",
    "residual": "residual plus feed-forward output is not the block's output",
    "head": "the last block's output does not lead to the model's logits",
    "causal": "it reads ahead (an encoder, or a masked language model), so prefixes mean nothing",
}
ADVICE = "use a causal language model, or add a row as docs/how-to/add-a-family.md says"


def largest_error(dtype: torch.dtype, quantised: bool = False) -> float:
    """The relative error up to which an equation counts as holding in this precision.

    A quantised layer may round what enters it to fewer bits.
    """
    if quantised:
        return QUANTISED_TOLERANCE
    return EXACT if dtype in (torch.float32, torch.float64) else ROUNDED


def fault(name: str, equation: str, error: float, quantised: bool) -> str:
    """One sentence for an equation that does not hold."""
    sentence = f"{name}: {EQUATION_FAULTS[equation]} (relative error {error:.1e})"
    if not quantised:
        return f"{sentence}; {ADVICE}"
    return (
        f"{sentence}, perhaps because its quantised layers round what enters them too coarsely; "
        "pass a model loaded without quantisation, or one that dequantize() was called on"
    )


def _refuse_not_finite(model: PreTrainedModel, run: Trace, name: str) -> None:
    """Refuse a model whose logits are NaN or infinite by a weight, which is named."""
    if run.logits.isfinite().all():
        return
    for path, weight in own_parameters(model):
        if weight.device.type != "meta" and not weight.isfinite().all():
            raise ModelError(
                f"{name} has NaN or infinite numbers in its weight {path}; make or download it "
                "again"
            )
    if run.logits.isnan().any():
        kind = str(run.logits.dtype).removeprefix("torch.")
        raise ModelError(f"{name} predicts NaN in {kind}; load it in another precision")


def _refuse_non_causal(run: Trace, name: str, quantised: bool) -> None:
    """Refuse an encoder before anything else, since nothing later can explain it better."""
    error = _causal_error(run)
    if not error <= largest_error(run.logits.dtype, quantised):
        raise ModelError(fault(name, "causal", error, quantised))


def _causal_error(run: Trace) -> float:
    """How far the last token, the only one in which the two rows differ, changes what is before."""
    return relative_error(run.logits[1, :-1], run.logits[0, :-1])


def _measure_identity(run: Trace, seen: Sequence[LayerFit], blocks: str, head: Head) -> Identity:
    """Measure all five equations on a traced run."""
    return Identity(
        memories=max(sighting.memory_error for sighting in seen),
        activation=max(sighting.activation_error for sighting in seen),
        residual=max(sighting.form_error for sighting in seen),
        head=relative_error(state_logits(head, _last_state(run, blocks)), run.logits.float()),
        causal=_causal_error(run),
    )


def _last_state(run: Trace, blocks: str) -> Tensor:
    """The output of the last block that ran."""
    ran = [name for name in run.outputs if name.rpartition(".")[0] == blocks]
    return run.outputs[max(ran, key=lambda name: int(name.rpartition(".")[2]))]


@torch.no_grad()
def state_logits(head: Head, state: Tensor) -> Tensor:
    """Logits of a state, step by step as the model makes them, in float32 at the end."""
    for module in head.chain:
        state = module(state)
    state = state.to(head.device) * head.before
    if head.classes is not None:
        return head.finish(head.log_probabilities(head.vectors().scores(state), state))
    logits = torch.nn.functional.linear(state, head.embedding, head.bias)
    return head.finish(logits.float())
