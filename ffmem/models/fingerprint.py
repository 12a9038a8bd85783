"""Digests of a model's weights and tokenizer: a short name, and one of all that they hold."""

from __future__ import annotations

import hashlib
import json
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from ffmem.files.disk_cache import address_of, digest_once, file_identity
from ffmem.models.device_placement import own_parameters, tensor_of
from ffmem.models.effective_weights import quantised_modules, storage_facts, stored_tensors

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

NUMBERS_PER_PARAMETER = 4096  # numbers of each parameter that count


@torch.no_grad()
def weights_digest(model: nn.Module, dtype: torch.dtype | None = None) -> str:
    """Twelve hex digits over every parameter's name, shape, type and some of its numbers.

    With `dtype` as if the model had been loaded in that precision. Evenly spaced numbers are
    enough to tell trained models apart, and reading them takes milliseconds where hashing every
    byte of a large model would take minutes. What quantised layers store beside parameters counts
    too, how they compute, and which adapters are on.
    """
    found = hashlib.sha256()
    for name in sorted(_plain_parameters(model)):
        tensor = tensor_of(model, name)
        assert tensor is not None
        _add_some(found, name, tensor, dtype or tensor.dtype)
    for name, tensor in stored_tensors(model):
        _add_some(found, name, tensor, tensor.dtype)
    for fact in storage_facts(model):
        found.update(fact.encode())
    return found.hexdigest()[:12]


def _plain_parameters(model: nn.Module) -> list[str]:
    """The names of all parameters but those of quantised layers."""
    packed = tuple(f"{name}." for name in quantised_modules(model))
    return [name for name, _ in own_parameters(model) if not name.startswith(packed)]


def _add_some(found: hashlib._Hash, name: str, tensor: Tensor, kind: torch.dtype) -> None:
    flat = tensor.detach().reshape(-1)
    some = flat[:: max(1, len(flat) // NUMBERS_PER_PARAMETER)].to(kind).float().cpu().numpy()
    found.update(f"{name} {tuple(tensor.shape)} {kind}".encode())
    found.update(some.tobytes())


@dataclass(frozen=True)
class WeightFiles:
    """The files that a model was read from, as they were then, and the changes made in place."""

    identity: str
    changes: int

    @classmethod
    def of(cls, model: PreTrainedModel) -> WeightFiles | None:
        """Those of a model that was just loaded; None where they are not known."""
        folder = _checkpoint_folder(model)
        if folder is None or any(one.is_inference() for one in model.parameters()):
            return None  # torch does not count the changes of inference tensors
        files = [path for path in folder.iterdir() if path.is_file()]
        return cls(file_identity(files), _in_place_changes(model))


def _checkpoint_folder(model: PreTrainedModel) -> Path | None:
    """The folder that transformers has read a model from."""
    from transformers.utils import cached_file

    source = str(getattr(model.config, "name_or_path", "") or "")
    if not source:
        return None
    if Path(source).is_dir():
        return Path(source)
    commit = getattr(model.config, "_commit_hash", None)
    try:
        config = cached_file(source, "config.json", revision=commit, local_files_only=True)
    except (OSError, ValueError):
        return None
    return None if config is None else Path(config).parent


def _in_place_changes(model: nn.Module) -> int:
    """How often torch has seen a weight change in place: more than at first, and it is another."""
    return sum(parameter._version for parameter in model.parameters())


def content_digest(model: PreTrainedModel, files: WeightFiles | None = None) -> str:
    """A digest of every number in a model's weights and of its config.

    Reading them all takes seconds, so for a model that is as it was in its `files` the digest is
    kept. Some of the numbers are looked at all the same, for changes that torch has not seen.
    """
    compute = partial(_content_digest, model)
    if files is None or files.changes != _in_place_changes(model):
        return compute()
    identity = address_of(files.identity, weights_digest(model))
    return digest_once(identity, f"the weights of {model.config.name_or_path}", compute)


def _content_digest(model: PreTrainedModel) -> str:
    config = {
        name: value
        for name, value in model.config.to_dict().items()
        if name not in ("_name_or_path", "_commit_hash", "transformers_version")
    }
    with ThreadPoolExecutor() as pool:  # hashing leaves Python's lock to others
        weights = list(pool.map(partial(_parameter_digest, model), _plain_parameters(model)))
    weights += [_tensor_digest(name, tensor) for name, tensor in stored_tensors(model)]
    described = json.dumps(config, sort_keys=True, default=str)
    facts = [*storage_facts(model), version("transformers")]
    return address_of(described, sorted(weights), *facts)


def _parameter_digest(model: nn.Module, name: str) -> tuple[str, str]:
    tensor = tensor_of(model, name)
    assert tensor is not None
    return _tensor_digest(name, tensor)


@torch.no_grad()
def _tensor_digest(name: str, tensor: Tensor) -> tuple[str, str]:
    numbers = tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy()
    facts = f"{tuple(tensor.shape)} {tensor.dtype} {hashlib.sha256(numbers.data).hexdigest()}"
    return name, facts


def tokenizer_digest(tokenizer: PreTrainedTokenizerBase | None) -> str:
    """Twelve hex digits over the whole vocabulary and how it is applied to text."""
    if tokenizer is None:
        return "none"
    backend = getattr(tokenizer, "backend_tokenizer", None)
    if backend is not None:
        described = backend.to_str()
    else:
        described = repr(sorted(tokenizer.get_vocab().items()))
    return hashlib.sha256(described.encode()).hexdigest()[:12]
