"""Load a model by name, folder, GGUF file or hub id, and see it as memories."""

from __future__ import annotations

import gc
import hashlib
import json
import re
import warnings
from collections.abc import Callable
from contextlib import redirect_stderr, suppress
from dataclasses import replace
from functools import partial
from importlib.metadata import version
from io import StringIO
from os import PathLike, fspath
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from ffmem import demo
from ffmem.errors import ModelError, refusals, shorten
from ffmem.files.disk_cache import address_of, digest_once, file_identity, find, keep
from ffmem.locations import hub_silence, is_url, location
from ffmem.models.fairseq import introduce
from ffmem.models.fingerprint import WeightFiles
from ffmem.models.language_model import LanguageModel
from ffmem.models.patches import apply_patch
from ffmem.models.pypi_models import WHEELS, cache_path
from ffmem.models.tiny import tiny_model, tiny_tokenizer
from ffmem.models.wrapping import wrap

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

    Loaded = tuple[PreTrainedModel, PreTrainedTokenizerBase | None]

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}
HUB_ID = re.compile(r"[\w.-]+(/[\w.-]+)?", flags=re.ASCII)
TOKENIZER_FILES = ("tokenizer*", "vocab*", "*.model", "merges.txt")
LAYER_COUNTS = re.compile(r"num_(hidden_|decoder_)?layers|n_layers?|decoder_layers")  # in configs
MOST_LAYERS = 10_000  # of which transformers makes a model in bearable time


def load(  # noqa: PLR0913 - a keyword for each choice
    name: str | Path,
    *,
    revision: str | None = None,
    dtype: str = "auto",
    device: str = "auto",
    trust_remote_code: bool = False,
    tokenizer: str | Path | None = None,
    patch: str | Path | None = None,
) -> LanguageModel:
    """Load a causal language model and verify that its layers are read exactly.

    `name` is `tiny:TYPE` (a toy), a name from `ffmem models`, a folder with config and weights, a
    GGUF file, or a hub id. `device="auto"` uses a GPU if there is one; `"all"` spreads the layers
    over all GPUs, for a model that is larger than one. `dtype="auto"` is the checkpoint's own type
    on a GPU and float32 on a CPU, where 16 bits are slow and inexact.
    Code inside a checkpoint runs only with `trust_remote_code`. `tokenizer` is a folder or hub id
    whose tokenizer is used in place of the model's own. `patch` is a folder that `ffmem patch`
    wrote; it is applied to the loaded weights, and refused if it was made for others.
    """
    if not isinstance(name, str | PathLike):
        raise ModelError(
            f"load takes the name or folder of a model, not {shorten(repr(name))}; a model that is "
            "already loaded goes through ffmem.wrap"
        )
    name, other = fspath(name), None if tokenizer is None else fspath(tokenizer)
    model, used, commit = checkpoint(
        name,
        revision=revision,
        dtype=dtype,
        device=device,
        trust_remote_code=trust_remote_code,
        tokenizer=other,
    )
    found = replace(wrap(model, used, name, commit), tokenizer_name=other)
    if not trust_remote_code:  # else its code may lie anywhere
        found = replace(found, files=WeightFiles.of(model))
    return found if patch is None else apply_patch(found, patch)


def checkpoint(
    name: str,
    *,
    revision: str | None = None,
    dtype: str = "auto",
    device: str = "auto",
    trust_remote_code: bool = False,
    tokenizer: str | None = None,
) -> tuple[PreTrainedModel, PreTrainedTokenizerBase | None, str | None]:
    """Model, tokenizer and revision as transformers loads them, whatever its layers are."""
    import_transformers()
    other = None if tokenizer is None else _tokenizer_of(tokenizer, trust_remote_code)
    where = resolve_device(device)
    kind = _resolve_dtype(dtype, where)
    if name.startswith("tiny:"):
        toy = tiny_model(name.removeprefix("tiny:")).to(where)
        used = tiny_tokenizer() if other is None else other
        return toy if kind is None else toy.to(kind), used, None
    options: dict[str, Any] = {"revision": revision, "trust_remote_code": trust_remote_code}
    if device == "all":
        options["device_map"] = "auto"
    source, extra = locate(name, revision)
    if "gguf_file" in extra:
        packed = partial(through_transformers, name, source, {**options, **extra}, kind)
        folder = _unpack_once(Path(source) / extra["gguf_file"], kind, packed)
        source, extra = (source, extra) if folder is None else (str(folder), {})
    model, used = through_transformers(name, source, {**options, **extra}, kind, other)
    commit = getattr(model.config, "_commit_hash", None)
    whole = model if device == "all" else model.to(where)
    return whole, used, commit or revision


def weight_bytes(
    name: str,
    *,
    revision: str | None = None,
    dtype: str = "auto",
    trust_remote_code: bool = False,
) -> int:
    """The room that a model's weights take on a GPU, by its config alone."""
    from transformers import AutoConfig, AutoModelForCausalLM

    import_transformers()
    options: dict[str, Any] = {"trust_remote_code": trust_remote_code}
    if name.startswith("tiny:"):
        return 4 * sum(one.numel() for one in tiny_model(name.removeprefix("tiny:")).parameters())
    source, extra = locate(name, revision)
    try:
        config = AutoConfig.from_pretrained(source, revision=revision, **extra, **options)
        with torch.device("meta"):  # shapes without numbers
            model = AutoModelForCausalLM.from_config(config, **options)
    except Exception as error:  # whatever a broken checkpoint makes transformers raise
        raise ModelError(_loading_error(name, source, error)) from error
    kind = DTYPES.get(dtype) or getattr(config, "dtype", None) or torch.float32
    return sum(one.numel() for one in model.parameters()) * kind.itemsize


def resolve_device(device: str) -> torch.device:
    """The device to run on; refuses one that is not there."""
    if device in ("auto", "all"):
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        with warnings.catch_warnings(action="ignore"):  # of names that torch no longer uses
            found = torch.device(device)
            torch.zeros(1, device=found).item()  # not every device of torch's holds numbers
    except (RuntimeError, AssertionError, ImportError, ValueError, TypeError) as error:
        reason = (str(error).splitlines() or ["it is not there"])[0]
        if "INTERNAL ASSERT" in reason:
            reason = "torch holds no numbers there"
        raise ModelError(
            f"device {shorten(str(device))!r} cannot be used ({shorten(reason)}); write "
            f"{' or '.join(_devices_here())}"
        ) from None
    return found


def _devices_here() -> list[str]:
    """The devices that models can run on here."""
    gpus = [f"cuda:{number}" for number in range(torch.cuda.device_count())]
    return ["cpu", *(["mps"] if torch.backends.mps.is_available() else []), *gpus]


def _resolve_dtype(dtype: str, device: torch.device) -> torch.dtype | None:
    """The precision asked for; None leaves the checkpoint's own."""
    if dtype == "auto":
        return torch.float32 if device.type == "cpu" else None
    if dtype not in list(DTYPES):
        raise ModelError(f"there is no dtype {dtype!r}; write auto, {', '.join(DTYPES)}")
    return DTYPES[dtype]


def locate(name: str, revision: str | None = None) -> tuple[str, dict[str, Any]]:
    """The arguments to transformers for `name`: a folder or hub id, and options."""
    if name == "demo":
        return str(demo.MODEL), {}
    if name in WHEELS:
        file = cache_path(name)
        if not file.exists():
            raise ModelError(
                f"{name} is not on this machine yet; run `ffmem models get {name}` once"
            )
        return str(file.parent), {"gguf_file": file.name}
    if is_url(name):
        raise ModelError(f"a model cannot be read from a URL; download {name} and pass its folder")
    path = location(name)
    if path.is_dir():
        return _model_folder(path)
    if path.suffix == ".gguf" or path.exists():
        return gguf_file(path)
    return _hub_model(name, revision), {}


def _hub_model(name: str, revision: str | None) -> str:
    """A hub id; one that is not here yet is refused where the hub does not reply."""
    if not HUB_ID.fullmatch(name):
        raise ModelError(f"there is no model at {shorten(name)}; check the path")
    if not is_in_hub_cache(name, revision) and hub_silence(name, "model") is not None:
        raise ModelError(_unreachable(name))
    return name


def is_in_hub_cache(name: str, revision: str | None) -> bool:
    """Whether the hub's library has fetched a model before."""
    from huggingface_hub import try_to_load_from_cache
    from huggingface_hub.errors import HFValidationError

    try:
        return isinstance(try_to_load_from_cache(name, "config.json", revision=revision), str)
    except HFValidationError:  # a name that the hub would not have
        return False


def _model_folder(path: Path) -> tuple[str, dict[str, Any]]:
    """A folder: transformers reads those that it has saved."""
    if not (path / "config.json").exists():
        _refuse_fairseq(path, path)
        raise ModelError(
            f"the folder {path} has no config.json; give the folder of a saved transformers model, "
            "or a .gguf file"
        )
    config = settings_in(path / "config.json")
    introduce(config.get("model_type"))
    inner = [one for one in config.values() if isinstance(one, dict)]  # as that of the text
    for name, value in [pair for one in (config, *inner) for pair in one.items()]:
        if LAYER_COUNTS.fullmatch(name) and isinstance(value, int) and value > MOST_LAYERS:
            raise ModelError(
                f"{path / 'config.json'} says {name} = {value:,}, but at most {MOST_LAYERS:,} "
                "layers can be loaded; correct that number"
            )
    return str(path), {}


def settings_in(config: Path) -> dict[str, Any]:
    """What a config says, or nothing; what is wrong in it transformers says."""
    try:
        found = json.loads(config.read_bytes())
    except (OSError, ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def gguf_file(path: Path) -> tuple[str, dict[str, Any]]:
    """A single file: only GGUF holds a whole model."""
    if not path.exists():
        raise ModelError(f"there is no file {path}; check the path")
    if path.is_fifo():  # which is read once, and whose writer may never come
        raise ModelError(f"{path} is a pipe; give a .gguf file or the folder of a saved model")
    with refusals(f"{path} cannot be read", ModelError):
        with path.open("rb") as file:
            begin = file.read(4)
        if begin != b"GGUF":
            if path.suffix == ".pt":
                _refuse_fairseq(path, path.parent)
            raise ModelError(
                f"{path} is not a GGUF file; give a .gguf file or the folder of a saved model"
            )
    return str(path.parent), {"gguf_file": path.name}


def _refuse_fairseq(path: Path, folder: Path) -> None:
    """Refuse a checkpoint of fairseq, or the folder that holds one, and say how to load it."""
    if (folder / "dict.txt").is_file() and any(folder.glob("*.pt")):
        raise ModelError(
            f"{path} is a checkpoint of fairseq; run `ffmem models convert {path} -o FOLDER` once, "
            "and load that folder"
        )


def through_transformers(
    name: str,
    source: str,
    options: dict[str, Any],
    dtype: torch.dtype | None,
    tokenizer: PreTrainedTokenizerBase | None = None,
) -> tuple[PreTrainedModel, PreTrainedTokenizerBase | None]:
    """Model and tokenizer as transformers loads them, or one sentence why not.

    A tokenizer that is given is taken, and the model's own is not looked for.
    """
    from transformers import AutoModelForCausalLM

    try:
        with redirect_stderr(StringIO()):  # the progress bars of the GGUF reader
            model, info = AutoModelForCausalLM.from_pretrained(
                source,
                dtype="auto" if dtype is None else dtype,
                weights_only=True,
                output_loading_info=True,
                **options,
            )
            if tokenizer is None:
                tokenizer = _tokenizer_at(source, options)
    except Exception as error:  # whatever a broken checkpoint makes transformers raise
        raise ModelError(_loading_error(name, source, error)) from error
    missing = sorted(info["missing_keys"])
    if missing:
        raise ModelError(
            f"{name} lacks {len(missing)} of its weights, {missing[0]} among them; "
            "the checkpoint is incomplete or of another architecture than its config says"
        )
    return model, tokenizer


def _tokenizer_at(source: str, options: dict[str, Any]) -> PreTrainedTokenizerBase | None:
    """The tokenizer beside a model; None for a local folder that has no tokenizer files."""
    from transformers import AutoTokenizer

    files = [file for pattern in TOKENIZER_FILES for file in Path(source).glob(pattern)]
    if Path(source).is_dir() and "gguf_file" not in options and not files:
        return None
    about_text = {name: value for name, value in options.items() if name != "device_map"}
    return AutoTokenizer.from_pretrained(source, **about_text)


def _tokenizer_of(name: str, trust_remote_code: bool) -> PreTrainedTokenizerBase:
    """The tokenizer in a folder or at a hub id, whatever model is there."""
    where, extra = (name, {}) if location(name).is_dir() else locate(name)
    reason: Exception | None = None
    try:
        found = _tokenizer_at(where, {"trust_remote_code": trust_remote_code, **extra})
    except Exception as error:  # whatever a broken file makes transformers raise
        found, reason = None, error
    if found is None:
        raise ModelError(
            f"there is no tokenizer at {shorten(name)} that transformers reads; name a folder that "
            "save_pretrained wrote, or a hub id"
        ) from reason
    return found


def _loading_error(name: str, source: str, error: Exception) -> str:
    """One sentence for what went wrong while transformers loaded a checkpoint."""
    whole = " ".join(str(error).split())
    reason = whole[:200] or type(error).__name__
    if "Unrecognized configuration class" in whole:
        kind = "an encoder-decoder" if _is_encoder_decoder(source) else "another kind of model"
        return f"{name} is {kind}, not a causal language model; choose one that is"
    if "does not recognize this architecture" in whole:
        return (
            f"{name} is of a type that transformers {version('transformers')} does not know; "
            "correct model_type in its config.json, or install a transformers that knows it"
        )
    if "trust_remote_code" in whole:
        return (
            f"{name} brings its own code, which is not run by default; if you trust it, "
            "load it with trust_remote_code"
        )
    if "Weights only load failed" in whole:
        return (
            f"{name} has pickled weights that are damaged, or not plain tensors; what else a "
            "pickle holds could run code, so save them as safetensors where you trust them"
        )
    if "ignore_mismatched_sizes" in reason:  # transformers' words are about its own options
        return (
            f"{name} has weights of other shapes than its config says; the config was changed, or "
            "is that of another model"
        )
    if Path(source).is_dir():
        return f"{name} could not be loaded: {reason}; check that its files are whole"
    if re.search(r"offline|connect|couldn't|resolve|reach|timed out|proxy", reason, re.IGNORECASE):
        return _unreachable(name)
    return f"{name} could not be loaded from the hub: {reason}; check the spelling or pass a folder"


def _is_encoder_decoder(source: str) -> bool:
    """Whether a checkpoint's config, which transformers can read, is of such a model."""
    from transformers import AutoConfig

    with suppress(Exception):  # the hub may be gone by now
        return bool(AutoConfig.from_pretrained(source).is_encoder_decoder)
    return False


def _unreachable(name: str) -> str:
    """The sentence for a hub id that leads nowhere."""
    return (
        f"{name} is not a path here and the Hugging Face hub cannot be reached or has no such "
        "model; check the spelling, or download the model elsewhere and pass its folder"
    )


def import_transformers() -> None:
    """Import transformers; keep its and the hub's progress bars, advice and retries out of output.

    Python does not look for garbage meanwhile, which took a fifth of the time.
    """
    collects = gc.isenabled()
    gc.disable()
    try:
        import transformers.modeling_utils  # noqa: F401 - what every load needs
        from huggingface_hub.utils import logging as hub_logging
        from transformers.utils import logging
    finally:
        if collects:
            gc.enable()
    hub_logging.set_verbosity_error()
    logging.set_verbosity_error()
    logging.disable_progress_bar()


def _unpack_once(file: Path, dtype: torch.dtype | None, load: Callable[[], Loaded]) -> Path | None:
    """A GGUF file as a transformers folder; None if that cannot be written.

    Unpacking takes half a minute, so it is done once: an entry of the cache has the numbers of the
    file in the precision that was asked for, and is made again when the file's content, or the
    transformers that read it, is another one. `load` reads the file itself.
    """

    def content() -> str:
        with file.open("rb") as opened:
            return hashlib.file_digest(opened, "sha256").hexdigest()

    digest = digest_once(file_identity([file]), file.name, content)
    address = address_of(digest, str(dtype), version("transformers"))
    folder = find("gguf", address)
    if folder is not None:
        return folder
    model, tokenizer = load()

    def write(part: Path) -> None:
        _forget_packing(model).save_pretrained(part)
        if tokenizer is not None:
            tokenizer.save_pretrained(part)

    return keep("gguf", address, f"{file.name} as {dtype or 'it is'}", write)


def _forget_packing(model: PreTrainedModel) -> PreTrainedModel:
    """The model without the note that it was packed; its weights are plain numbers by now."""
    model.hf_quantizer = None
    model.is_quantized = False
    if hasattr(model.config, "quantization_config"):
        del model.config.quantization_config
    return model
