"""A fairseq language model's folder turned into one that transformers loads.

Its pickled checkpoint is read without running anything that it names: torch's own reader of plain
tensors comes first, and a file that names other things (settings of omegaconf, numbers of numpy) is
read by one that gives an empty stand-in for each of them; a TorchScript archive is refused. Sizes
come from the tensors, the rest from the settings stored with them. Every tensor is either renamed,
known to be of no use, or refused by its name.
"""

from __future__ import annotations

import pickle
import re
from argparse import Namespace
from collections import OrderedDict
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import IO, Any

import torch
from safetensors import SafetensorError
from safetensors.torch import save_file
from torch import Tensor
from transformers import GenerationConfig, XGLMConfig, XGLMForCausalLM

from ffmem.errors import ModelError, refusals
from ffmem.locations import refuse_place, whole_folder
from ffmem.models.fairseq.adaptive_model import FairseqConfig, FairseqForCausalLM, tied_names
from ffmem.models.fairseq.word_list import read_words, word_tokenizer

REBUILDERS = ("_rebuild_tensor", "_rebuild_tensor_v2", "_rebuild_parameter")
SAFE_CLASSES: dict[tuple[str, str], Any] = {
    ("collections", "OrderedDict"): OrderedDict,
    ("argparse", "Namespace"): Namespace,
    **{("torch._utils", name): getattr(torch._utils, name) for name in REBUILDERS},
}
CHECKPOINTS = ("model.pt", "checkpoint_best.pt", "checkpoint_last.pt")
# Read by nobody: version marks, and tables of positions that are made anew.
IGNORE = re.compile(r"(.*\.)?(version|_float_tensor)|embed_positions\.weights")
OLD_NORMS = {"0": "self_attn_layer_norm", "2": "final_layer_norm"}
RENAME = (  # (fairseq's name behind `decoder.`, ours)
    (r"embed_tokens\.embeddings\.(\d+)\.0\.weight", r"model.embed_tokens.rows_\1"),
    (r"embed_tokens\.embeddings\.(\d+)\.1\.weight", r"model.embed_tokens.projection_\1"),
    (r"adaptive_softmax\.head\.word_proj\.weight", "lm_head.rows_0"),
    (r"adaptive_softmax\.head\.class_proj\.weight", "lm_head.classes"),
    (r"(?:output_projection\.weight|embed_out)", "lm_head.weight"),
    (
        r"((?:embed_tokens|embed_positions)\.weight|layer_norm\.(?:weight|bias)"
        r"|layers\.\d+\.(?:self_attn\.[qkv]_proj|self_attn\.out_proj|self_attn_layer_norm"
        r"|fc1|fc2|final_layer_norm)\.(?:weight|bias))",
        r"model.\1",
    ),
)
ACTIVATIONS = {
    "relu": "relu",
    "gelu": "gelu",
    "gelu_accurate": "gelu_new",
    "gelu_fast": "gelu_new",
    "relu_squared": "relu2",
    "swish": "silu",
    "tanh": "tanh",
    "linear": "linear",
}


class ObjectPlaceholder:
    """What stands for an object of any other class: it holds what was stored and does nothing."""

    def __init__(self, *_args: Any, **_kwargs: Any) -> None:
        self.state: Any = None

    def __setstate__(self, state: Any) -> None:
        self.state = state

    def __setitem__(self, _key: Any, _value: Any) -> None:
        """Take an entry, as a class of dictionaries would, and forget it."""

    def append(self, _value: Any) -> None:
        """Take an entry, as a class of lists would, and forget it."""

    def extend(self, _values: Any) -> None:
        """Take entries, as a class of lists would, and forget them."""


class InertUnpickler(pickle.Unpickler):
    """Knows tensors, dictionaries and namespaces; every other name becomes a stand-in."""

    def find_class(self, module_name: str, global_name: str, /) -> Any:
        """The class or function of that name, or the stand-in; nothing is imported."""
        return SAFE_CLASSES.get((module_name, global_name), ObjectPlaceholder)


def _load(file: IO[bytes], **options: Any) -> Any:
    return InertUnpickler(file, **options).load()


INERT = SimpleNamespace(Unpickler=InertUnpickler, load=_load, __name__="inert")


def read_checkpoint(path: Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """(tensors by name, settings) of a fairseq checkpoint; refuses a file that is not one."""
    whole = read_pickle(path)
    tensors = whole.get("model") if isinstance(whole, dict) else None
    if not isinstance(tensors, dict) or not all(isinstance(t, Tensor) for t in tensors.values()):
        raise ModelError(
            f"{path} has no weights under `model`, so it is not a checkpoint of fairseq; "
            "give the model.pt that fairseq saved"
        )
    return dict(tensors), settings_of(whole)


def read_pickle(path: Path) -> Any:
    """All that a checkpoint holds, on the CPU."""
    with refusals(f"{path} cannot be read", ModelError), path.open("rb"):
        pass
    try:
        with torch.serialization.safe_globals([Namespace]):
            return torch.load(path, map_location="cpu", weights_only=True)
    except Exception:  # noqa: BLE001 - it names other things, or it is damaged
        return read_inertly(path)


def read_inertly(path: Path) -> Any:
    """The same of a file that names more than tensors and namespaces; refuses a program."""
    if holds_program(path):
        raise ModelError(
            f"{path} holds a program (TorchScript), not a checkpoint of fairseq; give the model.pt "
            "that fairseq saved"
        )
    try:
        return torch.load(path, map_location="cpu", weights_only=False, pickle_module=INERT)
    except Exception as error:  # whatever a broken file makes torch raise
        reason = " ".join(str(error).split())[:120] or type(error).__name__
        raise ModelError(
            f"{path} is not a whole checkpoint ({reason}); copy or download it again"
        ) from error


def holds_program(path: Path) -> bool:
    """Whether torch would take a file for TorchScript, which runs code of the file on loading."""
    try:
        return "constants.pkl" in torch._C.PyTorchFileReader(str(path)).get_all_records()
    except RuntimeError:  # it is not in torch's newer format
        return False


def settings_of(whole: dict[str, Any]) -> dict[str, Any]:
    """The model's settings by name: `args` of older files, `cfg.model` of newer ones."""
    old = plain(whole.get("args"))
    new = plain(whole.get("cfg"))
    new = plain(new.get("model")) if isinstance(new, dict) else None
    return {**(old if isinstance(old, dict) else {}), **(new if isinstance(new, dict) else {})}


def plain(stored: Any) -> Any:
    """A stored setting without its class: a dictionary, a number, a text."""
    if isinstance(stored, Namespace):
        stored = vars(stored)
    if isinstance(stored, ObjectPlaceholder):
        state = stored.state if isinstance(stored.state, dict) else {}
        stored = state.get("_content", state.get("_val"))  # omegaconf's containers and leaves
    if isinstance(stored, dict):
        return {str(plain(name)): plain(value) for name, value in stored.items()}
    return stored


def convert(source: Path, out: Path, wikitext: bool = True) -> Path:
    """Write the model at `source`, a folder or its model.pt, as a folder `out` for transformers.

    The folder is whole or not there. With `wikitext`, prompts and corpora are brought into
    WikiText's form before their words are looked up.
    """
    path = checkpoint_at(source)
    refuse_place(out, ModelError)
    words = read_words(path.parent / "dict.txt")
    stored, settings = read_checkpoint(path)
    tensors = dict(new_names(path, stored))
    config = config_of(path, tensors, settings)
    if config.vocab_size != len(words):
        raise ModelError(
            f"{path.parent / 'dict.txt'} has {len(words) - 4:,} words, with fairseq's own four "
            f"{len(words):,}, but {path.name} has {config.vocab_size:,}; give the dict.txt that it "
            "was trained with"
        )
    check_tensors(path, tensors, config)
    with whole_folder(out, ModelError) as part:
        write_folder(part, tensors, config)
        longest = config.max_position_embeddings
        word_tokenizer(words, longest, wikitext).save_pretrained(part)
    return out


def checkpoint_at(source: Path) -> Path:
    """The checkpoint file that is meant."""
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
    return source


def new_names(path: Path, stored: dict[str, Tensor]) -> Iterator[tuple[str, Tensor]]:
    """Every tensor under the name that it has in transformers; refuses one without a place."""
    width = model_width(path, stored)
    for whole, tensor in stored.items():
        name = whole.removeprefix("decoder.")
        name = re.sub(r"\.layer_norms\.([02])\.", lambda found: f".{OLD_NORMS[found[1]]}.", name)
        if IGNORE.fullmatch(name) and whole != name:
            continue
        places = list(places_of(name, tensor, width))
        if not places or whole == name:
            raise ModelError(
                f"{path} holds the tensor {whole}, which is not part of any supported fairseq "
                "language model; give a checkpoint of a transformer_lm architecture"
            )
        yield from places


def model_width(path: Path, stored: dict[str, Tensor]) -> int:
    """Numbers in one state, by the first layer's keys."""
    keys = stored.get("decoder.layers.0.fc1.weight")
    if keys is None or keys.ndim != 2:
        raise ModelError(
            f"{path} has no tensor decoder.layers.0.fc1.weight, so it is not a language model of "
            "fairseq; give a checkpoint of a transformer_lm architecture"
        )
    return keys.shape[1]


def places_of(name: str, tensor: Tensor, width: int) -> Iterator[tuple[str, Tensor]]:
    """Where one tensor of fairseq's goes: one place, or three for a fused map."""
    for pattern, ours in RENAME:
        found = re.fullmatch(pattern, name)
        if found:
            yield found.expand(ours), tensor
            return
    if found := re.fullmatch(r"(layers\.\d+\.self_attn)\.in_proj_(weight|bias)", name):
        for part, piece in zip("qkv", tensor.chunk(3), strict=True):
            yield f"model.{found[1]}.{part}_proj.{found[2]}", piece
    elif found := re.fullmatch(r"adaptive_softmax\.tail\.(\d+)\.([02])\.weight", name):
        number = int(found[1]) + 1
        if found[2] == "2":
            yield f"lm_head.rows_{number}", tensor
        else:  # shared with the input it is stored as there, else the other way round
            shared = tensor.shape[0] == width
            yield f"lm_head.projection_{number}", tensor if shared else tensor.T
    elif name == "adaptive_softmax.head.weight":
        yield "lm_head.head", tensor


def config_of(path: Path, tensors: dict[str, Tensor], settings: dict[str, Any]) -> XGLMConfig:
    """The settings for transformers: sizes of the tensors, and what was stored beside them."""
    split_head(path, tensors)
    width = tensors["model.layers.0.fc1.weight"].shape[1]
    ends: dict[str, Any] = {
        "input_bands": bands_of(tensors, "model.embed_tokens"),
        "output_bands": bands_of(tensors, "lm_head"),
        "final_norm": "model.layer_norm.weight" in tensors,
        "learned_positions": "model.embed_positions.weight" in tensors,
    }
    words = vocabulary_of(path, tensors, ends)
    every = {
        "vocab_size": words,
        "d_model": width,
        "ffn_dim": len(tensors["model.layers.0.fc1.weight"]),
        "num_layers": len({name for name in tensors if name.endswith(".fc1.weight")}),
        "scale_embedding": not settings.get("no_scale_embedding", False),
        "max_position_embeddings": positions_of(tensors, settings),
        "attention_heads": heads_of(path, width, settings),
        "activation_function": activation_of(path, settings),
        "bos_token_id": 2,
        "eos_token_id": 2,
        "pad_token_id": 1,
        "dtype": tensors["model.layers.0.fc1.weight"].dtype,
        **{name: float(settings.get(name) or 0) for name in ("dropout", "attention_dropout")},
        **ties_of(path, tensors, settings),
    }
    if list(ends.values()) == [None, None, True, False]:  # all as XGLM has it
        every.pop("tie_projections")
        return XGLMConfig(**every)
    return FairseqConfig(**every, **ends)


def vocabulary_of(path: Path, tensors: dict[str, Tensor], ends: dict[str, Any]) -> int:
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


def split_head(path: Path, tensors: dict[str, Tensor]) -> None:
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


def bands_of(tensors: dict[str, Tensor], place: str) -> list[list[int]] | None:
    """[words, width of a row] of every band at one end, or None where it is one matrix."""
    count = sum(name.startswith(f"{place}.rows_") for name in tensors)
    rows = [tensors.get(f"{place}.rows_{number}") for number in range(count)]
    return [list(each.shape) for each in rows if each is not None] or None


def ties_of(path: Path, tensors: dict[str, Tensor], settings: dict[str, Any]) -> dict[str, bool]:
    """Which weights of the two ends are the same, bit for bit; refuses what only claims to be."""

    def equal(name: str) -> bool:
        one, other = (tensors.get(f"{end}.{name}") for end in ("lm_head", "model.embed_tokens"))
        return one is not None and other is not None and torch.equal(one, other)

    rows = [name.removeprefix("lm_head.") for name in tensors if name.startswith("lm_head.rows_")]
    maps = [name for name in (f"projection_{row[5:]}" for row in rows) if name != "projection_0"]
    if not rows:
        head = "lm_head.weight" in tensors
        return {"tie_word_embeddings": not head or equal("weight"), "tie_projections": True}
    found = {"rows": all(map(equal, rows)), "projections": all(map(equal, maps))}
    for kind, setting in (("rows", "tie_adaptive_weights"), ("projections", "tie_adaptive_proj")):
        if settings.get(setting) and not found[kind]:
            names = rows if kind == "rows" else maps
            wrong = next(name for name in names if not equal(name)).replace("_", " ")
            raise ModelError(
                f"{path} says {setting}, but {wrong} of input and softmax differ; "
                "copy or download it again"
            )
    return {"tie_word_embeddings": found["rows"], "tie_projections": found["projections"]}


def positions_of(tensors: dict[str, Tensor], settings: dict[str, Any]) -> int:
    """The longest text that it reads: learned positions, else what it was trained with."""
    learned = tensors.get("model.embed_positions.weight")
    if learned is not None:
        return len(learned) - 2
    return int(settings.get("max_target_positions") or settings.get("tokens_per_sample") or 1024)


def heads_of(path: Path, width: int, settings: dict[str, Any]) -> int:
    """Attention heads, which no tensor tells."""
    heads = settings.get("decoder_attention_heads")
    if not isinstance(heads, int) or heads < 1 or width % heads:
        raise ModelError(
            f"{path} does not say how many attention heads it has (decoder_attention_heads); give "
            "the checkpoint as fairseq saved it, with its args or cfg"
        )
    return heads


def activation_of(path: Path, settings: dict[str, Any]) -> str:
    """The activation by transformers' name."""
    name = settings.get("activation_fn") or "relu"
    if name not in ACTIVATIONS:
        raise ModelError(
            f"{path} has the activation {name!r}; ffmem converts {', '.join(ACTIVATIONS)}"
        )
    return ACTIVATIONS[name]


def check_tensors(path: Path, tensors: dict[str, Tensor], config: XGLMConfig) -> None:
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
            raise ModelError(
                f"{path} does not fit its own architecture: {name} {what}, and {list(shape)} is "
                "expected; copy or download it again"
            )
    if extra := sorted(set(tensors) - set(expected)):
        raise ModelError(
            f"{path} does not fit its own architecture: {extra[0]} is too much; give a checkpoint "
            "of a transformer_lm architecture"
        )


def write_folder(folder: Path, tensors: dict[str, Tensor], config: XGLMConfig) -> None:
    """Weights, config and what `generate` needs."""
    own = {name: tensor.contiguous().clone() for name, tensor in tensors.items()}
    try:
        save_file(own, folder / "model.safetensors", metadata={"format": "pt"})
    except SafetensorError as error:  # what the disk says, under another name
        raise OSError(str(error)) from error
    kind = FairseqForCausalLM if isinstance(config, FairseqConfig) else XGLMForCausalLM
    config.architectures = [kind.__name__]
    config.save_pretrained(folder)
    GenerationConfig.from_model_config(config).save_pretrained(folder)
