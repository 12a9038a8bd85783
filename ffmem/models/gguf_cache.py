"""GGUF files as transformers folders: unpacked once, since unpacking takes half a minute.

A folder in the cache has the numbers of the file in the precision that was asked for. It is made
again when the file, or the transformers that read it, is another one.
"""

from __future__ import annotations

import hashlib
import shutil
import tempfile
from collections.abc import Callable
from contextlib import suppress
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING

import torch

from ffmem.locations import cache_folder

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

    Loaded = tuple[PreTrainedModel, PreTrainedTokenizerBase | None]


def unpack_once(file: Path, dtype: torch.dtype | None, load: Callable[[], Loaded]) -> Path | None:
    """The folder of an unpacked file, made now if it is not there; None if it cannot be written.

    `load` reads the file itself.
    """
    about = file.resolve().stat()
    facts = (file.resolve(), about.st_size, about.st_mtime_ns, dtype, version("transformers"))
    digest = hashlib.sha256(repr(facts).encode()).hexdigest()[:16]
    folder = cache_folder() / "gguf" / f"{file.stem}-{digest}"
    if folder.exists():
        return folder
    model, tokenizer = load()
    with suppress(OSError):
        folder.parent.mkdir(parents=True, exist_ok=True)
        part = Path(tempfile.mkdtemp(dir=folder.parent, prefix="part-"))
        try:
            forget_packing(model).save_pretrained(part)
            if tokenizer is not None:
                tokenizer.save_pretrained(part)
            part.rename(folder)
        finally:
            shutil.rmtree(part, ignore_errors=True)
    return folder if folder.exists() else None


def forget_packing(model: PreTrainedModel) -> PreTrainedModel:
    """The model without the note that it was packed; its weights are plain numbers by now."""
    model.hf_quantizer = None
    model.is_quantized = False
    if hasattr(model.config, "quantization_config"):
        del model.config.quantization_config
    return model
