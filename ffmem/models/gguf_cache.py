"""GGUF files as transformers folders: unpacked once, since unpacking takes half a minute.

An entry of the cache has the numbers of the file in the precision that was asked for. It is made
again when the file's content, or the transformers that read it, is another one.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING

import torch

from ffmem.disk_cache import address_of, digest_once, file_digest, file_identity, find, keep

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

    Loaded = tuple[PreTrainedModel, PreTrainedTokenizerBase | None]


def unpack_once(file: Path, dtype: torch.dtype | None, load: Callable[[], Loaded]) -> Path | None:
    """The folder of an unpacked file, made now if it is not there; None if it cannot be written.

    `load` reads the file itself.
    """
    digest = digest_once(file_identity([file]), file.name, lambda: file_digest(file))
    address = address_of(digest, str(dtype), version("transformers"))
    folder = find("gguf", address)
    if folder is not None:
        return folder
    model, tokenizer = load()

    def write(part: Path) -> None:
        forget_packing(model).save_pretrained(part)
        if tokenizer is not None:
            tokenizer.save_pretrained(part)

    return keep("gguf", address, f"{file.name} as {dtype or 'it is'}", write)


def forget_packing(model: PreTrainedModel) -> PreTrainedModel:
    """The model without the note that it was packed; its weights are plain numbers by now."""
    model.hf_quantizer = None
    model.is_quantized = False
    if hasattr(model.config, "quantization_config"):
        del model.config.quantization_config
    return model
