"""Read r, x, a, m, y and o of every feed-forward layer while the model runs once.

| quantity | what it is                                                     | last axis |
|----------|----------------------------------------------------------------|-----------|
| h        | the block's input                                              | width     |
| r        | the residual that the layer's output is added to               | width     |
| x        | the input of the keys (the normed residual)                    | width     |
| a        | the keys' scores, bias included (of the gate, if gated)        | memory    |
| u        | the second map's scores in a gated layer                       | memory    |
| m        | the coefficients: the factor of each value                     | memory    |
| y        | the layer's output, added to the residual                      | width     |
| o        | the block's output                                             | width     |
| w        | the router's weights in a mixture of experts                   | part      |
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any, overload

import torch
from torch import Tensor, nn

from ffmem.address import Address
from ffmem.errors import AddressError, ModelError, shorten
from ffmem.models.blocks.trace import first_tensor
from ffmem.models.feedforward import FeedForward
from ffmem.models.language_model import LanguageModel, check_model
from ffmem.text import html_table

Place = tuple[nn.Module, str]  # a module, and "in" or "out"
RECORD_KINDS = {  # each has a letter and a name
    "block_input": "h",
    "residual": "r",
    "key_input": "x",
    "pre_activation": "a",
    "coefficients": "m",
    "ffn_output": "y",
    "block_output": "o",
}
OF_MIXTURES = {"router_weights": "w"}  # what dense layers do not have


@dataclass(frozen=True)
class LayerRecord:
    """Activations of one layer that `record` kept: [batch, position, ...], or [batch, ...] with at.

    Each has a name and the paper's letter; `kinds` lists those that were recorded.
    """

    layer: FeedForward
    raw: dict[str, Tensor] = field(repr=False)

    @property
    def h(self) -> Tensor:
        """The block's input (`resid_pre`)."""
        return self._tensor("block in")

    @property
    def r(self) -> Tensor:
        """The residual the layer adds to; in a parallel block the one with attention added."""
        match self.layer.form:
            case "sequential":
                r = self._tensor("norm in") if self.layer.norm is not None else self.x
                return r if self.layer.residual is None else r * self.layer.gain("residual")
            case "parallel":
                return self.h + self._tensor("attention out")
            case _:
                return self.x

    @property
    def x(self) -> Tensor:
        """The input of the keys: the normed residual."""
        return self._tensor("keys in")

    @property
    def a(self) -> Tensor:
        """Scores before the activation function, bias included (`hook_pre`)."""
        part = self.layer.gate_map or self.layer.key_map
        return part.of(self._tensor("gate out" if self.layer.gated else "keys out"), dim=-1)

    @property
    def u(self) -> Tensor | None:
        """Scores of the up projection, which multiply the gate's, in a gated layer; else None."""
        if not self.layer.gated:
            return None
        return self.layer.key_map.of(self._tensor("keys out"), dim=-1)

    @property
    def m(self) -> Tensor:
        """Coefficients: activations after the activation function (`hook_post`)."""
        return self._tensor("values in")

    @property
    def y(self) -> Tensor:
        """The layer's output as added to the residual, with the block's norm and scale if any."""
        added = self._tensor("values out" if self.layer.after is None else "after out")
        return added if self.layer.scale == 1.0 else added * self.layer.scale

    @property
    def value_bias(self) -> Tensor | None:
        """[width], what the layer adds besides its values; in a mixture, at one recorded place."""
        mixture = self.layer.mixture
        biases = None if mixture is None else mixture.biases
        if biases is None:
            return self.layer.value_bias
        return self._tensor("router out")[0].float() @ biases.float()

    @property
    def w(self) -> Tensor:
        """The router's weight of every part of a mixture of experts, 0 where it is not chosen."""
        if self.layer.mixture is None:
            raise ModelError(f"layer {self.layer.number} is not a mixture of experts")
        return self._tensor("router out")

    @property
    def o(self) -> Tensor:
        """The block's output; in a post-norm block the normed sum."""
        return self._tensor("block out")

    block_input, residual, key_input, pre_activation = h, r, x, a  # the same by name
    coefficients, ffn_output, block_output, router_weights = m, y, o, w

    def _tensor(self, place: str) -> Tensor:
        if place not in self.raw:
            raise ModelError(
                f"the record of layer {self.layer.number} has only "
                f"{', '.join(self.kinds) or 'parts of a quantity'}; name everything that you need "
                "in the `kinds` of `record`"
            )
        return self.raw[place]

    def __repr__(self) -> str:
        kinds = (f"{name} {list(getattr(self, name).shape)}" for name in self.kinds)
        return f"<LayerRecord of layer {self.layer.number}: {', '.join(kinds)}>"

    def _repr_html_(self) -> str:
        letters = RECORD_KINDS | OF_MIXTURES
        rows = [(name, letters[name], str(list(getattr(self, name).shape))) for name in self.kinds]
        return f"<b>layer {self.layer.number}</b>{html_table(('kind', 'letter', 'shape'), rows)}"

    @property
    def kinds(self) -> tuple[str, ...]:
        """The names of the recorded activations."""
        return tuple(
            name
            for name, letter in (RECORD_KINDS | OF_MIXTURES).items()
            if (places := _places_for(self.layer, letter)) and places.keys() <= self.raw.keys()
        )


@dataclass(frozen=True)
class Records:
    """What `record` keeps: one LayerRecord for each layer.

    `records["L7"]` and `records.layer(7)` are layer 7, which counts from 1; `records["L7.1034"]`
    are one memory's coefficients. `lead` columns stand before the first token: 1 where a BOS does.
    """

    layers: tuple[LayerRecord, ...]
    lead: int

    def __len__(self) -> int:
        return len(self.layers)

    def __iter__(self) -> Iterator[LayerRecord]:
        return iter(self.layers)

    @overload
    def __getitem__(self, name: Address) -> Tensor: ...

    @overload
    def __getitem__(self, name: str) -> Any: ...

    def __getitem__(self, name: str | Address) -> LayerRecord | Tensor:
        """A layer by its name, as in "L7", or a memory's coefficients, as in "L7.1034".

        With a sign, as in "L7.1034-", they are the sizes of the coefficients of that sign.
        """
        if isinstance(name, str) and re.fullmatch(r"L[1-9][0-9]{0,8}", name):
            return self.layer(int(name[1:]))
        if not isinstance(name, str | Address):
            raise AddressError(
                f"{shorten(repr(name))} names no layer; layers count from 1: write "
                'records["L7"] or records.layer(7)'
            )
        address = Address.parse(name) if isinstance(name, str) else name
        layer = self.layer(address.layer)
        m = layer.coefficients[..., layer.layer.parts.index(address)]
        return (
            m if not address.sign else m.clamp(min=0) if address.sign == "+" else (-m).clamp(min=0)
        )

    def layer(self, number: int) -> LayerRecord:
        """One layer, counted from 1."""
        if not 1 <= number <= len(self.layers):
            raise AddressError(
                f"the model has no layer {number}; its layers are 1 to {len(self.layers)}"
            )
        return self.layers[number - 1]

    def stack(self, kind: str) -> Tensor:
        """One kind of all layers, [layer, batch, position, ...], where the layers are alike."""
        _kind_letters((kind,))
        found = [getattr(layer, kind) for layer in self.layers]
        shapes = {tuple(one.shape) for one in found}
        if len(shapes) > 1:
            raise ModelError(f"the layers differ in their {kind}; read them layer by layer")
        return torch.stack([one.to(found[0].device) for one in found])

    def column(self, position: int) -> int:
        """The column at which `position` tokens have been read; -1 is the last."""
        column = position if position < 0 else position - 1 + self.lead
        if column < 0 <= position:
            raise ModelError("position 0 is the BOS, and nothing stands before the first token")
        return column

    def _repr_html_(self) -> str:
        return "".join(layer._repr_html_() for layer in self.layers)


def _places_for(layer: FeedForward, quantities: str) -> dict[str, Place]:
    """The modules of one layer at which the quantities with these letters are read."""
    keys, values = layer.key_map.module, layer.value_map.module
    gate = layer.gate_map.module if layer.gate_map is not None else keys
    mixture = layer.mixture
    router: Place | None = None if mixture is None else (mixture.router, "out")
    places: dict[str, dict[str, Place | None]] = {
        "h": {"block in": (layer.block, "in")},
        "x": {"keys in": (keys, "in")},
        "a": {"gate out": (gate, "out"), "keys out": (keys, "out")},
        "u": {"keys out": (keys, "out")},
        "m": {"values in": (values, "in")},
        "o": {"block out": (layer.block, "out")},
        "y": {
            "values out": (values, "out"),
            "after out": (layer.after, "out") if layer.after is not None else None,
            "router out": router if mixture is not None and mixture.biases is not None else None,
        },
        "w": {"router out": router},
        "r": {
            "keys in": (keys, "in"),
            "block in": (layer.block, "in") if layer.form == "parallel" else None,
            "norm in": (layer.norm, "in") if layer.norm is not None else None,
            "attention out": (layer.attention, "out") if layer.attention is not None else None,
            "attention norm in": (
                (layer.attention_norm, "in") if layer.attention_norm is not None else None
            ),
        },
    }
    wanted: dict[str, Place] = {}
    for letter in quantities:
        wanted |= {name: place for name, place in places[letter].items() if place is not None}
    return wanted


@contextmanager
def record_forward(
    layers: Sequence[FeedForward], quantities: str, keep: Callable[[Tensor], Tensor]
) -> Iterator[tuple[LayerRecord, ...]]:
    """Fill one reading per layer during the next forward pass; all hooks are removed on exit.

    `keep` receives each tensor as the module saw it and returns what to store: a copy, or less.
    """
    readings = tuple(LayerRecord(layer, {}) for layer in layers)
    with ExitStack() as hooks:
        for reading in readings:
            for name, (module, side) in _places_for(reading.layer, quantities).items():
                hooks.callback(_tap(module, side, (reading, name), keep).remove)
        yield readings


def _tap(
    module: nn.Module,
    side: str,
    into: tuple[LayerRecord, str],
    keep: Callable[[Tensor], Tensor],
) -> torch.utils.hooks.RemovableHandle:
    reading, name = into
    device = reading.layer.device  # what enters a block may still be where the last one ran

    def note(value: Any) -> None:
        tensor = first_tensor(value)
        if tensor is not None:
            reading.raw[name] = keep(tensor.detach()).to(device)

    def before(_module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        note(args or (kwargs.get("hidden_states"),))

    def after(_module: nn.Module, _args: Any, output: Any) -> None:
        note(output)

    if side == "in":
        return module.register_forward_pre_hook(before, with_kwargs=True)
    return module.register_forward_hook(after)


class _Enough(Exception):  # noqa: N818 - no error
    """Ends a forward pass once everything needed is recorded."""


@contextmanager
def stop_after(layer: FeedForward) -> Iterator[None]:
    """End the forward pass inside the `with` after `layer`'s block; later layers do not run."""

    def stop(_module: nn.Module, _args: Any, _output: Any) -> None:
        raise _Enough

    handle = layer.block.register_forward_hook(stop)
    try:
        yield
    except _Enough:
        pass
    finally:
        handle.remove()


PromptTexts = str | Sequence[str] | Sequence[int] | Sequence[Sequence[int]] | Tensor


@torch.no_grad()
def record(
    model: LanguageModel,
    text: PromptTexts,
    kinds: str | Sequence[str] = "rxamyo",
    at: Tensor | int | None = None,
) -> Records:
    """Run the model once and keep activations of every layer: `records["L7"]`.

    `text` is a prompt, a list of prompts, or token ids [position] or [batch, position], which are
    taken as they are. A prompt gets the BOS in front, in column 0, where the model has one.
    `kinds` are names, as in `("coefficients", "residual")`, or letters, as in `"mr"`:
    block_input h, residual r, key_input x, pre_activation a, coefficients m (the activations of
    the neurons), ffn_output y, block_output o, and in mixtures of experts router_weights w. The
    tensors are [batch, position, ...]; where a row is shorter than the longest they hold NaN. `at`
    keeps one position of each row: a number for all rows, or one for each. Position p means that p
    tokens have been read: 1 is the first token, -1 the last, 0 the BOS where there is one.
    """
    check_model(model)
    letters = _kind_letters(kinds)
    tokens, lengths, lead = token_rows(model, text)
    rows, columns = tokens.shape
    chosen = None if at is None else _columns_at(at, lengths, lead)
    blank = torch.arange(columns) >= lengths[:, None]

    def keep(tensor: Tensor) -> Tensor:
        tensor = tensor.reshape(rows, columns, -1)
        if chosen is not None:
            every = torch.arange(rows, device=tensor.device)
            return tensor[every, chosen.to(tensor.device)].clone()
        if not blank.any():
            return tensor.clone()
        return tensor.masked_fill(blank[..., None].to(tensor.device), torch.nan)

    with record_forward(model.layers, letters, keep) as readings:
        model.run_blocks(tokens)
    return Records(readings, lead)


def _kind_letters(kinds: str | Sequence[str]) -> str:
    """Kinds of activations as letters; refuses an unknown one."""
    known = RECORD_KINDS | OF_MIXTURES
    if not isinstance(kinds, Iterable) or not all(isinstance(one, str) for one in kinds):
        raise ModelError(f"{shorten(repr(kinds))} names no activations; give text, or a list of it")
    names = [kinds] if isinstance(kinds, str) and kinds in known else list(kinds)
    letters = [known.get(name, name) for name in names]
    unknown = [name for name in letters if name not in {"u", *known.values()}]
    if unknown or not letters:
        wrong = kinds if isinstance(kinds, str) else "".join(unknown[:1])
        raise ModelError(
            f"there is no kind of activation {wrong!r}; choose among "
            f"{', '.join(RECORD_KINDS)}, or their letters {''.join(RECORD_KINDS.values())}"
        )
    return "".join(letters)


def token_rows(model: LanguageModel, text: PromptTexts) -> tuple[Tensor, Tensor, int]:
    """Token ids [batch, position] on the model's device, each row's length, and what leads."""
    lead = 0
    if isinstance(text, Tensor):
        rows = list(text if text.ndim == 2 else text[None])
        shape = list(text.shape)
    elif not isinstance(text, Sequence) or isinstance(text, bytes):
        raise ModelError(
            f"{type(text).__name__} is not a prompt; give a text, a list of texts, or token ids"
        )
    else:
        parts = [text] if isinstance(text, str) or _is_one_row(text) else list(text)
        texts = {isinstance(part, str) for part in parts}
        if len(texts) > 1:
            raise ModelError("some prompts are texts and some are token ids; give one or the other")
        lead = int(texts == {True} and model.bos is not None)
        rows = [model.encode(part)[0] if isinstance(part, str) else _ids(part) for part in parts]
        shape = [len(rows), min((len(row) for row in rows if row.ndim), default=0)]
    if not rows or any(row.ndim != 1 or not len(row) for row in rows):
        raise ModelError(f"token ids have the shape {shape}; give [batch, position], both from 1")
    lengths = torch.tensor([len(row) for row in rows])
    tokens = nn.utils.rnn.pad_sequence([row.to(model.device) for row in rows], batch_first=True)
    model.check_tokens(tokens)
    return tokens, lengths, lead


def _ids(row: object) -> Tensor:
    try:
        return torch.as_tensor(row)
    except (TypeError, ValueError, RuntimeError) as error:
        raise ModelError(
            f"{shorten(repr(row))} is not a row of token ids; give whole numbers, or text"
        ) from error


def _is_one_row(text: Sequence[str] | Sequence[int] | Sequence[Sequence[int]]) -> bool:
    return bool(text) and isinstance(text[0], int)


def _columns_at(at: Tensor | int, lengths: Tensor, lead: int) -> Tensor:
    """One column per row for a position; negative ones count from the end of the row."""
    wanted = torch.as_tensor(at).cpu().expand(len(lengths))
    found = torch.where(wanted < 0, lengths + wanted, wanted - 1 + lead)
    wrong = (found < 0) | (found >= lengths)
    if wrong.any():
        raise ModelError(
            f"there is no position {int(wanted[wrong][0])} in a row of the batch; choose one "
            f"from {1 - lead} to the number of its tokens, or a negative one"
        )
    return found
