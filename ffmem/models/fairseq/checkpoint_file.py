"""fairseq's pickled checkpoints, read without running anything that they name.

torch's own reader of plain tensors comes first. A file that names other things (settings of
omegaconf, numbers of numpy) is read by one that gives an empty stand-in for each of them; a
TorchScript archive is refused.
"""

from __future__ import annotations

import pickle
import re
import warnings
from argparse import Namespace
from collections import OrderedDict
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import IO, Any

import torch
from torch import Tensor

from ffmem.errors import ModelError, refusals

REBUILDERS = ("_rebuild_tensor", "_rebuild_tensor_v2", "_rebuild_parameter")


class ObjectPlaceholder:
    """What stands for an object of any other class: it holds what was stored and does nothing."""

    arguments: tuple[Any, ...] = ()
    state: Any = None

    def __init__(self, *arguments: Any, **_more: Any) -> None:
        self.arguments = arguments

    def __repr__(self) -> str:
        return "an object"

    def __setstate__(self, state: Any) -> None:
        self.state = state

    def __setitem__(self, _key: Any, _value: Any) -> None:
        """Take an entry, as a class of dictionaries would, and forget it."""

    def append(self, _value: Any) -> None:
        """Take an entry, as a class of lists would, and forget it."""

    def extend(self, _values: Any) -> None:
        """Take entries, as a class of lists would, and forget them."""

    @property
    def content(self) -> Any:
        """What was stored in it, or itself where nothing is known about it.

        That is a namespace's or an omegaconf container's entries, the value of omegaconf's leaves,
        and that of an enumeration's member.
        """
        if isinstance(self.state, dict):
            return self.state.get("_content", self.state.get("_val", self.state))
        return self.arguments[0] if len(self.arguments) == 1 else self


class InertUnpickler(pickle.Unpickler):
    """Knows tensors and dictionaries; every other name becomes a stand-in."""

    def find_class(self, module_name: str, global_name: str, /) -> Any:
        """The class of that name, what calls the function, or the stand-in; nothing is imported.

        A file may set attributes of what it gets, so it never gets one that others use too.
        """
        if (module_name, global_name) == ("collections", "OrderedDict"):
            return OrderedDict
        if module_name == "torch._utils" and global_name in REBUILDERS:
            return partial(getattr(torch._utils, global_name))
        return ObjectPlaceholder


def _load(file: IO[bytes], **options: Any) -> Any:
    return InertUnpickler(file, **options).load()


INERT = SimpleNamespace(Unpickler=InertUnpickler, load=_load, __name__="inert")


def read_checkpoint(path: Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """(tensors by name, settings) of a fairseq checkpoint; refuses a file that is not one."""
    whole = read_pickle(path)
    tensors = whole.get("model") if isinstance(whole, dict) else None
    if not isinstance(tensors, dict) or not all(
        isinstance(name, str) and isinstance(t, Tensor) for name, t in tensors.items()
    ):
        raise ModelError(
            f"{path} has no weights under `model`, so it is not a checkpoint of fairseq; "
            "give the model.pt that fairseq saved"
        )
    try:
        return dict(tensors), _settings_of(whole)
    except RecursionError:
        raise ModelError(
            f"the settings in {path} are nested without end; copy or download it again"
        ) from None


def read_pickle(path: Path) -> Any:
    """The content of a checkpoint, on the CPU."""
    with refusals(f"{path} cannot be read", ModelError), path.open("rb"):
        pass
    with warnings.catch_warnings(action="ignore"):  # torch's, of what is refused anyway
        try:
            with torch.serialization.safe_globals([Namespace]):
                return torch.load(path, map_location="cpu", weights_only=True)
        except Exception:  # noqa: BLE001 - it names other things, or it is damaged
            return _read_inertly(path)


def _read_inertly(path: Path) -> Any:
    """The same of a file that names more than tensors and namespaces; refuses a program."""
    if _holds_program(path):
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


def _holds_program(path: Path) -> bool:
    """Whether torch would take a file for TorchScript, which runs code of the file on loading."""
    try:
        return "constants.pkl" in torch._C.PyTorchFileReader(str(path)).get_all_records()
    except RuntimeError:  # it is not in torch's newer format
        return False


def _settings_of(whole: dict[str, Any]) -> dict[str, Any]:
    """The model's settings by name: `args` of older files, `cfg.model` of newer ones."""
    old, new = (plain(whole.get(name)) for name in ("args", "cfg"))
    new = new if isinstance(new, dict) else {}
    own = new.get("model")
    return {
        **(old if isinstance(old, dict) else {}),
        **({name: resolve(new, own[name]) for name in own} if isinstance(own, dict) else {}),
    }


def plain(stored: Any) -> Any:
    """A stored setting without its class: a dictionary, a number, a text."""
    if isinstance(stored, Namespace):
        stored = vars(stored)
    if isinstance(stored, ObjectPlaceholder):
        content = stored.content
        return stored if content is stored else plain(content)
    if isinstance(stored, dict):
        return {str(plain(name)): plain(value) for name, value in stored.items()}
    return stored


def resolve(config: dict[str, Any], value: Any) -> Any:
    """A setting that omegaconf stored as a reference, `${task.tokens_per_sample}`, by its value."""
    found = re.fullmatch(r"\$\{([\w.]+)\}", value) if isinstance(value, str) else None
    if found is None:
        return value
    target: Any = config
    for name in found[1].split("."):
        target = target.get(name) if isinstance(target, dict) else None
    return resolve(config, target)
