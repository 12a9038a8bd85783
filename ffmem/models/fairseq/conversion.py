"""A fairseq language model's folder turned into one that transformers loads.

Sizes come from the tensors, the rest from the settings stored with them; a tensor that these
promise must be there. Every tensor is either renamed, known to be of no use, or refused by its
name. So are the forms of fairseq's models that the paper's has nothing of.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from safetensors.torch import save_file
from torch import Tensor
from transformers import GenerationConfig, XGLMConfig, XGLMForCausalLM

from ffmem.errors import ModelError, shorten
from ffmem.files.whole_files import refuse_place, whole_folder
from ffmem.locations import is_remote
from ffmem.models.fairseq.adaptive_model import FairseqConfig, FairseqForCausalLM, tied_names
from ffmem.models.fairseq.checkpoint_file import read_checkpoint
from ffmem.models.fairseq.word_list import read_words, word_tokenizer

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

LONGEST = 2**20  # positions, for which a table is made on loading
CHECKPOINTS = ("model.pt", "checkpoint_best.pt", "checkpoint_last.pt")
# Read by nobody: version marks, and tables of positions that are made anew.
IGNORE = re.compile(r"(.*\.)?(version|_float_tensor)|embed_positions\.weights")
OLD_NORMS = {"0": "self_attn_layer_norm", "2": "final_layer_norm"}
HEAD_NAMES = {  # of the output layer: ours, fairseq's behind `decoder.`
    "weight": "output_projection.weight",
    "head": "adaptive_softmax.head.weight",
    "rows_0": "adaptive_softmax.head.word_proj.weight",
    "classes": "adaptive_softmax.head.class_proj.weight",
}
RENAME = (  # (fairseq's name behind `decoder.`, ours)
    (r"embed_tokens\.embeddings\.(\d+)\.0\.weight", r"model.embed_tokens.rows_\1"),
    (r"embed_tokens\.embeddings\.(\d+)\.1\.weight", r"model.embed_tokens.projection_\1"),
    (r"adaptive_softmax\.head\.word_proj\.weight", "lm_head.rows_0"),
    (r"adaptive_softmax\.head\.class_proj\.weight", "lm_head.classes"),
    (r"(?:output_projection\.weight|embed_out)", "lm_head.weight"),
    (
        r"(embed_tokens\.weight|layer_norm\.(?:weight|bias)"
        r"|layers\.\d+\.(?:self_attn\.[qkv]_proj|self_attn\.out_proj|self_attn_layer_norm"
        r"|fc1|fc2|final_layer_norm)\.(?:weight|bias))",
        r"model.\1",
    ),
)
ACTIVATIONS = {"relu": "relu", "gelu": "gelu", "gelu_accurate": "gelu_new"}


def convert(source: Path, out: Path, wikitext: bool = True) -> Path:
    """Write the model at `source`, a folder or its model.pt, as a folder `out` for transformers.

    The folder is whole or not there. With `wikitext`, prompts and corpora are brought into
    WikiText's form before their words are looked up.
    """
    path = _checkpoint_at(source)
    refuse_place(out, ModelError)
    words = read_words(path.parent / "dict.txt")
    stored, settings = read_checkpoint(path)
    _refuse_other_forms(path, stored, settings)
    tensors = _new_names(path, stored)
    _turn_projections(path, tensors)
    config = _config_of(path, tensors, settings)
    if config.vocab_size != len(words):
        raise ModelError(
            f"{path.parent / 'dict.txt'} has {len(words) - 4:,} words, with fairseq's own four "
            f"{len(words):,}, but {path.name} has {config.vocab_size:,}; give the dict.txt that it "
            "was trained with"
        )
    _check_tensors(path, tensors, config)
    longest, first = config.max_position_embeddings, config.bos_token_id
    tokenizer = word_tokenizer(words, longest, wikitext, first)
    with whole_folder(out, ModelError) as part:
        _write_folder(part, tensors, config, tokenizer)
    return out


def _checkpoint_at(source: Path) -> Path:
    if is_remote(source):
        raise ModelError(
            f"a model cannot be read from a URL; download {source} and pass its folder"
        )
    if source.is_dir():
        found = [source / name for name in CHECKPOINTS if (source / name).is_file()]
        if not found:
            raise ModelError(
                f"the folder {source} has no {', '.join(CHECKPOINTS[:-1])} or {CHECKPOINTS[-1]}; "
                "give the checkpoint file itself"
            )
        return found[0]
    if not source.exists():
        raise ModelError(f"there is no file {source}; check the path")
    if source.suffix in (".bz2", ".gz", ".tar", ".tgz", ".zip"):
        raise ModelError(f"{source} is an archive; unpack it and give the folder")
    if not source.is_file():
        raise ModelError(f"{source} is a pipe or a device; give the checkpoint file itself")
    return source


def misfit(path: Path, name: str, what: str) -> ModelError:
    """The refusal of a file for one tensor, by the name that fairseq gives it."""
    return ModelError(
        f"{path} does not fit its own architecture: {name} {what}; copy or download it again"
    )


def _other_form(path: Path, what: str) -> ModelError:
    """The refusal of a model of a form that is not converted."""
    return ModelError(
        f"{path} is a model with {what}, which ffmem does not convert; give one with norms before "
        "the sums, sinusoidal positions, and an output that is adaptive or shared with the input"
    )


def _refuse_other_forms(path: Path, stored: dict[str, Tensor], settings: dict[str, Any]) -> None:
    """Refuse blocks and positions of another form than the paper's."""
    if "decoder.embed_positions.weight" in stored or settings.get("decoder_learned_pos"):
        raise _other_form(path, "learned positions")
    if settings.get("no_token_positional_embeddings"):
        raise _other_form(path, "no positions")
    # A final norm is only there with norms before the sums, whatever a version's default says.
    final_norm = "decoder.layer_norm.weight" in stored
    if settings.get("decoder_normalize_before") is False and not final_norm:
        raise _other_form(path, "norms behind the sums")


def _new_names(path: Path, stored: dict[str, Tensor]) -> dict[str, Tensor]:
    """Every tensor under the name that it has in transformers; refuses one without a place."""
    width = _model_width(path, stored)
    tensors: dict[str, Tensor] = {}
    for whole, tensor in stored.items():
        name = whole.removeprefix("decoder.")
        name = re.sub(r"\.layer_norms\.([02])\.", lambda found: f".{OLD_NORMS[found[1]]}.", name)
        if IGNORE.fullmatch(name) and whole != name:
            continue
        places = [ours for ours in places_of(name) if whole != name]
        if not places:
            raise ModelError(
                f"{path} holds the tensor {whole}, which is not part of any supported fairseq "
                "language model; give a checkpoint of a transformer_lm architecture"
            )
        check_numbers(path, whole, tensor)
        if len(places) > 1 and len(tensor) != 3 * width:
            raise misfit(path, whole, f"has {len(tensor):,} rows, and {3 * width:,} are expected")
        for ours, piece in zip(places, tensor.chunk(len(places)), strict=True):
            if ours in tensors:
                raise misfit(path, whole, f"is there twice, as {_stored_name(ours)} too")
            tensors[ours] = piece
    return tensors


def check_numbers(path: Path, name: str, tensor: Tensor) -> None:
    """Refuse a tensor that cannot be a weight: of another kind, or with numbers that are none."""
    if tensor.layout != torch.strided or tensor.is_meta or not tensor.is_floating_point():
        kind = str(tensor.dtype if tensor.layout == torch.strided else tensor.layout)
        what = "no numbers" if tensor.is_meta else kind.removeprefix("torch.")
        raise misfit(path, name, f"holds {what}, and floating-point numbers are expected")
    dimensions = 1 if re.search(r"norm|bias", name) else 2
    if tensor.ndim != dimensions or not tensor.numel():
        rule = "one dimension is" if dimensions == 1 else "two dimensions are"
        raise misfit(path, name, f"has the shape {list(tensor.shape)}, and {rule} expected")
    if not tensor.isfinite().all():
        raise misfit(path, name, "has numbers that are infinite or NaN")


def _model_width(path: Path, stored: dict[str, Tensor]) -> int:
    """Numbers in one state, by the first layer's keys."""
    name = "decoder.layers.0.fc1.weight"
    if name not in stored:
        raise ModelError(
            f"{path} has no tensor {name}, so it is not a language model of fairseq; give a "
            "checkpoint of a transformer_lm architecture"
        )
    check_numbers(path, name, stored[name])
    return stored[name].shape[1]


def places_of(name: str) -> Iterator[str]:
    """Where one tensor of fairseq's goes: one place, or three for a fused map."""
    for pattern, ours in RENAME:
        found = re.fullmatch(pattern, name)
        if found:
            yield found.expand(ours)
            return
    if found := re.fullmatch(r"(layers\.\d+\.self_attn)\.in_proj_(weight|bias)", name):
        yield from (f"model.{found[1]}.{part}_proj.{found[2]}" for part in "qkv")
    elif found := re.fullmatch(r"adaptive_softmax\.tail\.(\d+)\.([02])\.weight", name):
        kind = "rows" if found[2] == "2" else "projection"
        yield f"lm_head.{kind}_{int(found[1]) + 1}"
    elif name == "adaptive_softmax.head.weight":
        yield "lm_head.head"


def _stored_name(ours: str) -> str:
    """The name that fairseq gives a weight of ours, in its newest form."""
    place, _, last = ours.rpartition(".")
    kind, _, number = last.partition("_")
    if place == "model.embed_tokens" and number:
        return f"decoder.embed_tokens.embeddings.{number}.{'01'[kind == 'projection']}.weight"
    if place != "lm_head":
        return f"decoder.{ours.removeprefix('model.')}"
    if last in HEAD_NAMES:
        return f"decoder.{HEAD_NAMES[last]}"
    return f"decoder.adaptive_softmax.tail.{int(number) - 1}.{'20'[kind == 'projection']}.weight"


def _turn_projections(path: Path, tensors: dict[str, Tensor]) -> None:
    """Bring the softmax's maps into one form, [width, width of a row], whatever they are stored as.

    One that is shared with the input is stored as it is there, another one the other way round.
    """
    names = [name for name in tensors if name.startswith("lm_head.projection_")]
    width = tensors["model.layers.0.fc1.weight"].shape[1]
    for name in names:
        tensor, shared = tensors[name], tensors.get(name.replace("lm_head", "model.embed_tokens"))
        if shared is not None and torch.equal(tensor, shared):
            continue
        if tensor.shape[1] != width:
            what = f"has the shape {list(tensor.shape)} of a map that is shared with the input"
            raise misfit(path, _stored_name(name), f"{what}, but the input has no such map")
        tensors[name] = tensor.T


def _config_of(path: Path, tensors: dict[str, Tensor], settings: dict[str, Any]) -> XGLMConfig:
    """The settings for transformers: sizes of the tensors, and what was stored beside them."""
    _split_head(path, tensors)
    width = tensors["model.layers.0.fc1.weight"].shape[1]
    ends: dict[str, Any] = {
        "input_bands": _bands_of(path, tensors, "model.embed_tokens"),
        "output_bands": _bands_of(path, tensors, "lm_head"),
        "final_norm": _has_final_norm(path, tensors, settings),
    }
    words = _vocabulary_of(path, tensors, ends)
    every = {
        "vocab_size": words,
        "d_model": width,
        "ffn_dim": len(tensors["model.layers.0.fc1.weight"]),
        "num_layers": layers_of(path, tensors, settings),
        "scale_embedding": not settings.get("no_scale_embedding", False),
        "max_position_embeddings": _positions_of(path, settings),
        "attention_heads": _heads_of(path, width, settings),
        "activation_function": _activation_of(path, settings),
        "bos_token_id": 0 if settings.get("add_bos_token") else 2,
        "eos_token_id": 2,
        "pad_token_id": 1,
        "dtype": tensors["model.layers.0.fc1.weight"].dtype,
        **{name: share_of(settings.get(name)) for name in ("dropout", "attention_dropout")},
        **_ties_of(path, tensors, settings),
    }
    if list(ends.values()) == [None, None, True]:  # all as XGLM has it
        every.pop("tie_projections")
        return XGLMConfig(**every)
    return FairseqConfig(**every, **ends)


def layers_of(path: Path, tensors: dict[str, Tensor], settings: dict[str, Any]) -> int:
    """Layers, without a gap, and as many as the settings say."""
    names = [re.match(r"model\.layers\.(\d+)\.", name) for name in tensors]
    numbers = {int(found[1]) for found in names if found}
    gap = next(number for number in range(len(numbers) + 1) if number not in numbers)
    wanted = settings.get("decoder_layers")
    if not isinstance(wanted, int) or settings.get("decoder_layers_to_keep"):
        wanted = gap
    if gap < max(len(numbers), wanted):
        raise misfit(path, _stored_name(f"model.layers.{gap}.fc1.weight"), "is not there")
    if gap > wanted:
        raise misfit(path, f"decoder.layers.{wanted}", "is beyond the last of its decoder_layers")
    return gap


def _has_final_norm(path: Path, tensors: dict[str, Tensor], settings: dict[str, Any]) -> bool:
    """Whether the last state is normed; refuses a file that says so and lacks the norm.

    Files older than `no_decoder_final_norm` leave it to the tensors.
    """
    found = any(name.startswith("model.layer_norm.") for name in tensors)
    old = "no_tie_adaptive_proj" in settings or "decoder_final_norm" in settings
    if not found and not old and settings.get("no_decoder_final_norm") is False:
        raise misfit(path, "decoder.layer_norm.weight", "is not there")
    return found


def share_of(stored: Any) -> float:
    """A share between 0 and 1, as of dropout, which only training reads; else 0."""
    return float(stored) if isinstance(stored, int | float) and 0 <= stored <= 1 else 0.0


def _vocabulary_of(path: Path, tensors: dict[str, Tensor], ends: dict[str, Any]) -> int:
    """Words at the input; refuses another number at the output."""
    whole = tensors.get("model.embed_tokens.weight")
    read = ends["input_bands"] or ([] if whole is None else [whole.shape])
    if not read:
        raise ModelError(f"{path} has no embedding; give a checkpoint of a language model")
    words, rows = (sum(count for count, _ in cut) for cut in (read, ends["output_bands"] or read))
    if words != rows:
        raise ModelError(
            f"{path} reads {words:,} words and its softmax has {rows:,}; copy or download it again"
        )
    return words


def _split_head(path: Path, tensors: dict[str, Tensor]) -> None:
    """Cut the first softmax of an untied head, stored as one matrix, into words and classes."""
    first = tensors.pop("lm_head.head", None)
    if first is None:
        return
    others = sum(name.startswith("lm_head.rows_") for name in tensors)
    if not others or "lm_head.rows_0" in tensors:
        raise ModelError(
            f"{path} holds the tensor decoder.adaptive_softmax.head.weight, but not the tails that "
            "belong to it; copy or download it again"
        )
    tensors["lm_head.rows_0"] = first[: len(first) - others]
    tensors["lm_head.classes"] = first[len(first) - others :]


def _bands_of(path: Path, tensors: dict[str, Tensor], place: str) -> list[list[int]] | None:
    """[words, width of a row] of every band at one end, or None where it is one matrix."""
    names = [re.fullmatch(rf"{place}\.(?:rows|projection)_(\d+)", name) for name in tensors]
    count = 1 + max((int(found[1]) for found in names if found), default=-1)
    rows = [f"{place}.rows_{number}" for number in range(min(count, len(tensors)))]
    for name in rows:
        if name not in tensors:
            raise misfit(path, _stored_name(name), "is not there")
    return [list(tensors[name].shape) for name in rows] or None


def _ties_of(path: Path, tensors: dict[str, Tensor], settings: dict[str, Any]) -> dict[str, bool]:
    """Which weights of the two ends are the same, bit for bit; refuses what only claims to be."""

    def equal(name: str) -> bool:
        one, other = (tensors.get(f"{end}.{name}") for end in ("lm_head", "model.embed_tokens"))
        return one is not None and other is not None and torch.equal(one, other)

    def check(setting: str, names: list[str]) -> bool:
        wrong = next((name for name in names if not equal(name)), None)
        if wrong is None or not settings.get(setting):
            return wrong is None
        one, other = (_stored_name(f"{end}.{wrong}") for end in ("lm_head", "model.embed_tokens"))
        raise ModelError(
            f"{path} says {setting}, but {one} is not the same as {other}; copy or download it "
            "again"
        )

    head = [name.removeprefix("lm_head.") for name in tensors if name.startswith("lm_head.")]
    rows = [name for name in head if name.startswith("rows_")]
    if rows:
        maps = [f"projection_{name.removeprefix('rows_')}" for name in rows if name != "rows_0"]
        if missing := [name for name in maps if name not in head]:
            raise misfit(path, _stored_name(f"lm_head.{missing[0]}"), "is not there")
        shared = check("tie_adaptive_weights", rows)
        claim = "tie_adaptive_proj" if settings.get("tie_adaptive_weights") else ""
        return {"tie_word_embeddings": shared, "tie_projections": check(claim, maps)}
    if "weight" in head:
        if not check("share_decoder_input_output_embed", ["weight"]):
            raise _other_form(path, "an output matrix of its own that is not adaptive")
    else:
        _refuse_missing_output(path, tensors, settings)
    return {"tie_word_embeddings": True, "tie_projections": True}


def _refuse_missing_output(
    path: Path, tensors: dict[str, Tensor], settings: dict[str, Any]
) -> None:
    """Refuse a file without an output, unless it is the embedding."""
    apart = settings.get("share_decoder_input_output_embed") is False
    if apart or "model.embed_tokens.weight" not in tensors:
        name = "rows_0" if settings.get("adaptive_softmax_cutoff") else "weight"
        raise misfit(path, _stored_name(f"lm_head.{name}"), "is not there")


def _positions_of(path: Path, settings: dict[str, Any]) -> int:
    """The longest text that it was trained with."""
    names = ("max_target_positions", "tokens_per_sample")
    stored = next((settings[name] for name in names if settings.get(name) is not None), 1024)
    if not isinstance(stored, int) or not 1 <= stored <= LONGEST:
        raise ModelError(
            f"{path} says that it reads {shorten(repr(stored))} words at most, which is not a "
            f"number from 1 to {LONGEST:,}; give the checkpoint as fairseq saved it"
        )
    return int(stored)


def _heads_of(path: Path, width: int, settings: dict[str, Any]) -> int:
    """Attention heads, which no tensor tells."""
    heads = settings.get("decoder_attention_heads")
    if not isinstance(heads, int) or isinstance(heads, bool) or heads < 1 or width % heads:
        raise ModelError(
            f"{path} does not say how many attention heads it has (decoder_attention_heads); give "
            "the checkpoint as fairseq saved it, with its args or cfg"
        )
    return heads


def _activation_of(path: Path, settings: dict[str, Any]) -> str:
    name = settings.get("activation_fn")
    name = "relu" if name is None else name
    if not isinstance(name, str) or name not in ACTIVATIONS:
        raise ModelError(
            f"{path} has the activation {shorten(repr(name))}; ffmem converts "
            f"{', '.join(ACTIVATIONS)}"
        )
    return ACTIVATIONS[name]


def _check_tensors(path: Path, tensors: dict[str, Tensor], config: XGLMConfig) -> None:
    """Refuse a checkpoint that lacks a tensor of its own architecture, or has one of another size.

    Weights that both ends share are dropped from the head.
    """
    adaptive = isinstance(config, FairseqConfig)
    with torch.device("meta"):
        model = FairseqForCausalLM(config) if adaptive else XGLMForCausalLM(config)
    ties = tied_names(config) if adaptive else {"lm_head.weight": "model.embed_tokens.weight"}
    ties = ties if config.tie_word_embeddings else {}
    expected = {name: t.shape for name, t in model.state_dict().items() if name not in ties}
    for name in ties:
        tensors.pop(name, None)
    for name, shape in expected.items():
        tensor = tensors.get(name)
        if tensor is None or tensor.shape != shape:
            what = "is not there" if tensor is None else f"has the shape {list(tensor.shape)}"
            raise misfit(path, _stored_name(name), f"{what}, and {list(shape)} is expected")
    if extra := sorted(set(tensors) - set(expected)):
        raise misfit(path, _stored_name(extra[0]), "is too much")


def _write_folder(
    folder: Path, tensors: dict[str, Tensor], config: XGLMConfig, tokenizer: PreTrainedTokenizerBase
) -> None:
    """Weights, config, words, and what `generate` needs; what the disk refuses is an OSError."""
    own = {name: tensor.contiguous().clone() for name, tensor in tensors.items()}
    kind = FairseqForCausalLM if isinstance(config, FairseqConfig) else XGLMForCausalLM
    config.architectures = [kind.__name__]
    try:
        save_file(own, folder / "model.safetensors", metadata={"format": "pt"})
        config.save_pretrained(folder)
        GenerationConfig.from_model_config(config).save_pretrained(folder)
        tokenizer.save_pretrained(folder)
    except OSError:
        raise
    except Exception as error:  # what the system says, as two libraries written in Rust tell it
        found = re.search(r"\(os error (\d+)\)", str(error))
        if found is None:
            raise
        raise OSError(int(found[1]), os.strerror(int(found[1]))) from error
