"""Read fairseq's pickled checkpoint without running anything that it names.

torch's own reader of plain tensors comes first. A file that names other things (settings of
omegaconf, numbers of numpy) is read by one that gives an empty stand-in for each of them.
"""

from __future__ import annotations

import pickle
from argparse import Namespace
from collections import OrderedDict
from pathlib import Path
from types import SimpleNamespace
from typing import IO, Any

import torch
from torch import Tensor

from ffmem.errors import ModelError, refusals

REBUILDERS = ("_rebuild_tensor", "_rebuild_tensor_v2", "_rebuild_parameter")
KNOWN: dict[tuple[str, str], Any] = {
    ("collections", "OrderedDict"): OrderedDict,
    ("argparse", "Namespace"): Namespace,
    **{("torch._utils", name): getattr(torch._utils, name) for name in REBUILDERS},
}


class StandIn:
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
        return KNOWN.get((module_name, global_name), StandIn)


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
    """The same of a file that names more than tensors and namespaces."""
    try:
        return torch.load(path, map_location="cpu", weights_only=False, pickle_module=INERT)
    except Exception as error:  # whatever a broken file makes torch raise
        reason = " ".join(str(error).split())[:120] or type(error).__name__
        raise ModelError(
            f"{path} is not a whole checkpoint ({reason}); copy or download it again"
        ) from error


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
    if isinstance(stored, StandIn):
        state = stored.state if isinstance(stored.state, dict) else {}
        stored = state.get("_content", state.get("_val"))  # omegaconf's containers and leaves
    if isinstance(stored, dict):
        return {str(plain(name)): plain(value) for name, value in stored.items()}
    return stored
