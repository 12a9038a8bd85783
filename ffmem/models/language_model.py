"""A causal language model and its feed-forward layers; transformers owns and runs it."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Literal

import torch
from torch import Tensor, nn

from ffmem.address import WHOLE, Address
from ffmem.errors import AddressError, FfmemError, ModelError, is_text, shorten, whole_number
from ffmem.models.blocks.trace import evaluation_mode
from ffmem.models.device_placement import device_of
from ffmem.models.experts.mixtures import with_experts
from ffmem.models.feedforward import FeedForward
from ffmem.models.fingerprint import WeightFiles, content_digest
from ffmem.models.unembedding import Head

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

    from ffmem.models.wrapping import Identity

BEFORE_TOKEN = ("", "\n", "a")  # behind one of these a tokenizer puts no space before a token
MOST_PIECES = 4  # that an error message lists


@dataclass(frozen=True)
class LanguageModel:
    """A causal language model as layers of memories, with its unembedding.

    Returned by `load` or `wrap`. `model` and `tokenizer` are those of transformers; `layers` holds
    the feed-forward layers (MLPs), each with `keys` (W_in) and `values` (W_out): row i of both is
    memory i (an MLP neuron).
    """

    name: str
    model: PreTrainedModel = field(repr=False)
    tokenizer: PreTrainedTokenizerBase | None = field(repr=False)
    layers: tuple[FeedForward, ...] = field(repr=False)
    head: Head = field(repr=False)
    identity: Identity
    known_by: Literal["row", "structure"]
    revision: str | None = None
    tokenizer_name: str | None = None  # where it comes from, if not with the model
    files: WeightFiles | None = field(default=None, repr=False)

    def __repr__(self) -> str:
        kind = str(self.dtype).removeprefix("torch.")
        return (
            f"<LanguageModel {self.name}: {self.architecture}, {len(self.layers)} layers, "
            f"{self.memories:,} memories, {kind} on {self.device}>"
        )

    @property
    def architecture(self) -> str:
        """The architecture, as transformers names it."""
        return str(self.model.config.model_type)

    @property
    def device(self) -> torch.device:
        """The device that input goes to."""
        return device_of(self.model.get_input_embeddings())

    @property
    def devices(self) -> set[torch.device]:
        """Every device that the model runs on."""
        return {self.device, self.head.device, *(layer.device for layer in self.layers)}

    @property
    def dtype(self) -> torch.dtype:
        """The precision of the weights."""
        return self.layers[0].dtype

    @property
    def hidden_size(self) -> int:
        """Width of the residual stream (d_model)."""
        return self.layers[0].width

    @property
    def memories(self) -> int:
        """Number of memories (MLP neurons) in all layers."""
        return sum(layer.memories for layer in self.layers)

    @property
    def gated(self) -> bool:
        """Whether coefficients can have either sign, so that a memory has two cells."""
        return any(layer.gated for layer in self.layers)

    @property
    def vocab_size(self) -> int:
        """Tokens that may be predicted: rows of the embedding that the tokenizer knows."""
        known = self.head.vocabulary if self.tokenizer is None else len(self.tokenizer)
        return min(known, self.head.vocabulary)

    @property
    def digest(self) -> str:
        """A digest of all weights: models with equal digests are the same."""
        return content_digest(self.model, self.files)

    @property
    def context_length(self) -> int:
        """Tokens that fit into one input, the leading one included."""
        config = self.model.config.get_text_config()
        for name in ("max_position_embeddings", "n_positions", "n_ctx", "max_seq_len"):
            if isinstance(limit := getattr(config, name, None), int):
                return limit
        return 2048

    @property
    def bos(self) -> int | None:
        """The token before every sentence: the tokenizer's BOS, else its EOS, else none."""
        if self.tokenizer is None:
            return None
        first = self.tokenizer.bos_token_id
        return self.tokenizer.eos_token_id if first is None else first

    @property
    def unk(self) -> int | None:
        """The token that stands for words outside the vocabulary, where there is one."""
        return None if self.tokenizer is None else self.tokenizer.unk_token_id

    @property
    def block_stack(self) -> nn.Module:
        """The module that runs the blocks one after the other: tokens in, last state out."""
        block = self.layers[0].block
        return next(
            module
            for module in self.model.modules()
            if any(block in set(child.children()) for child in module.children())
        )

    @property
    def experts(self) -> tuple[int, ...] | None:
        """The experts that `with_experts` has selected; None means all."""
        seen = [layer.mixture.numbers for layer in self.layers if layer.mixture is not None]
        return seen[0] if seen and seen[0] else None

    def with_experts(self, numbers: Sequence[int] | None) -> LanguageModel:
        """The same model restricted to these routed experts in every mixture layer.

        The model runs as before; memories of other experts have no address and no coefficient.
        None leaves the model as it is.
        """
        if numbers is None:
            return self
        sizes = [len(one.mixture.experts.down_proj) for one in self.layers if one.mixture]
        if not sizes:
            raise ModelError(f"{self.name} has no experts to choose from; leave --experts out")
        chosen = sorted(set(numbers))
        if not chosen or chosen[0] < 0 or chosen[-1] >= min(sizes):
            raise ModelError(
                f"{self.name} has experts 0 to {min(sizes) - 1} in a layer, so choose some of "
                "these with --experts"
            )
        return replace(self, layers=tuple(with_experts(one, chosen) for one in self.layers))

    def layer(self, number: int) -> FeedForward:
        """The layer with this number, counted from 1."""
        if not 1 <= number <= len(self.layers):
            raise AddressError(
                f"{self.name} has no layer {number}; its layers are 1 to {len(self.layers)}"
            )
        return self.layers[number - 1]

    def layer_of(self, address: Address) -> FeedForward:
        """The layer an address lies in; refuses an address outside the model."""
        self.places_of(address)
        return self.layer(address.layer)

    def places_of(self, address: Address) -> range:
        """The place of a memory, or the places of a whole expert, in its layer's arrays."""
        if address.index == WHOLE:
            within = self.layer(address.layer).parts.within(address, self.name)
            return range(within.start, within.stop)
        index = self.index_of(address)
        return range(index, index + 1)

    def memories_of(self, address: Address) -> list[Address]:
        """The address itself, or those of all memories of a whole expert."""
        if address.index != WHOLE:
            return [address]
        return [replace(address, index=one) for one in range(len(self.places_of(address)))]

    def index_of(self, address: Address) -> int:
        """The place of a memory in its layer's arrays; refuses an address outside the model."""
        layer = self.layer(address.layer)
        index = layer.parts.index(address, self.name)
        if address.sign and not layer.gated:
            raise AddressError(
                f"{address} names one sign, but the layers of {self.name} are not gated; "
                f"write {address.memory}"
            )
        return index

    def run_blocks(self, tokens: Tensor) -> None:
        """Run token ids through the blocks, without head or dropout, so that hooks fire."""
        with evaluation_mode(self.model):
            self.model.base_model(input_ids=tokens, use_cache=False)

    def on_device(self, embed: Literal["output", "input"] = "output") -> LanguageModel:
        """The same model with the embedding on the head's device, for many projections."""
        return replace(self, head=self.head.on_device(embed))

    def encode(self, text: str) -> Tensor:
        """Token ids [1, position] of `text` on the model's device, with the BOS in front."""
        if self.tokenizer is None:
            raise ModelError(
                f"{self.name} comes without a tokenizer, so it cannot read text; "
                "put the tokenizer's files into its folder"
            )
        if not isinstance(text, str):
            raise ModelError(f"{shorten(repr(text))} is not text; give one string")
        if not is_text(text):
            raise ModelError(
                f"{text!r} holds half a character, which is not Unicode text; write it as UTF-8"
            )
        ids = self.tokenizer.encode(text, add_special_tokens=False)
        lead = [] if self.bos is None else [self.bos]
        if not lead + ids:
            raise ModelError(f"there is nothing to read in {text!r}; give at least one token")
        if len(lead + ids) > self.context_length:
            raise ModelError(
                f"the text has {len(ids):,} tokens and {self.name} reads at most "
                f"{self.context_length - len(lead):,}; shorten it"
            )
        self.check_tokenizer(max(lead + ids))
        return torch.tensor([lead + ids], device=self.device)

    def generate(self, text: str, count: int, position: int | None = None) -> str:
        """What the model writes after `text`, or after its first tokens: the likeliest each time.

        At most `count` tokens; inside `edited` this is the edited model's.
        """
        if whole_number(count, "the number of tokens") < 0:
            raise FfmemError(f"{count} tokens cannot be written; ask for 0 or more")
        lead = 0 if self.bos is None else 1
        tokens = self.encode(text)[:, : None if position is None else position + lead]
        if not tokens.shape[1] > lead:
            raise ModelError(f"there is nothing to read in {text!r}; give at least one token")
        room = self.context_length - tokens.shape[1]
        if min(count, room) < 1 or self.tokenizer is None:
            return ""
        pad = self.tokenizer.eos_token_id
        written = continuation(self.model, tokens, min(count, room), pad)
        if len(written) and int(written[-1]) == pad:  # the end of the text is not part of it
            written = written[:-1]
        return self.text_behind(tokens[0, lead:], written)

    def token_id(self, token: int | str) -> int:
        """The id of a token that is given by its id or its text; refuses a text of several.

        The text may leave out the space that the tokenizer puts in front of a word; where the space
        would be a token of its own, as before `)`, the token without it is meant.
        """
        if not isinstance(token, str):
            number = whole_number(token, "the token", FfmemError)
            if not 0 <= number < self.vocab_size:
                raise FfmemError(
                    f"{shorten(str(number))} is not a token of {self.name}; its token ids are "
                    f"whole numbers from 0 to {self.vocab_size - 1}"
                )
            return number
        pieces: list[int] = []
        for before in BEFORE_TOKEN if is_text(token) else ():
            found = self._ids_behind(before, token)
            if len(found) == 1 and found[0] < self.vocab_size:
                text = self.token_text(found[0])
                if text in (token, f" {token}") or token == f" {text}":
                    return found[0]
            pieces = pieces or found
        listed = ", ".join(repr(self.token_text(one)) for one in pieces[:MOST_PIECES])
        parts = f", but {len(pieces)} ({listed}{', ...' * (len(pieces) > MOST_PIECES)})"
        raise FfmemError(
            f"{shorten(repr(token))} is not one token of {self.name}"
            f"{parts if len(pieces) > 1 else ''}; give a text that is one token"
        )

    def _ids_behind(self, before: str, text: str) -> list[int]:
        """The tokens of a text behind another one; none where the two share a token."""
        if self.tokenizer is None:
            return []
        first, whole = (
            self.tokenizer.encode(one, add_special_tokens=False) for one in (before, before + text)
        )
        return whole[len(first) :] if whole[: len(first)] == first else []

    def check_tokenizer(self, token: int) -> None:
        """Refuse a tokenizer with a token that has no embedding in the model."""
        if token >= self.head.read:
            raise ModelError(
                f"the tokenizer gives token {token} and {self.name} reads tokens 0 to "
                f"{self.head.read - 1}; give it the tokenizer that it was trained with"
            )

    def check_tokens(self, ids: Tensor) -> None:
        """Refuse ids that are not among the tokens that the model reads."""
        wrong = ids if ids.is_floating_point() else ids[(ids < 0) | (ids >= self.head.read)]
        if wrong.numel():
            raise ModelError(
                f"{wrong.flatten()[0].item()} is not a token of {self.name}; its token ids are "
                f"whole numbers from 0 to {self.head.read - 1}"
            )

    @cached_property
    def token_texts(self) -> tuple[str, ...]:
        """The text of every token that may be predicted; computed once, as it is slow."""
        if self.tokenizer is None:
            return tuple(self.token_text(index) for index in range(self.vocab_size))
        return tuple(self.tokenizer.batch_decode([[index] for index in range(self.vocab_size)]))

    def token_text(self, index: int) -> str:
        """A token as the text it stands for."""
        return f"<{index}>" if self.tokenizer is None else self.tokenizer.decode([index])

    def text_behind(self, tokens: Tensor, written: Tensor) -> str:
        """The text that `written` adds after `tokens`, both [position], with the space between."""
        if self.tokenizer is None:
            return "".join(map(self.token_text, written.tolist()))
        before, whole = (
            str(self.tokenizer.decode(ids)) for ids in (tokens, torch.cat([tokens, written]))
        )
        return whole[len(before) :] if whole.startswith(before) else self.tokenizer.decode(written)


def check_model(model: object) -> None:
    """Refuse anything but a LanguageModel, such as a name or a model of transformers."""
    if not isinstance(model, LanguageModel):
        raise ModelError(
            f"{shorten(repr(model))} is not a model that ffmem has loaded; load one by its name "
            "with ffmem.load, or take one of transformers with ffmem.wrap"
        )


@torch.no_grad()
def continuation(model: PreTrainedModel, tokens: Tensor, most: int, pad: int | None) -> Tensor:
    """Greedy continuation: at most `most` token ids after `tokens` [1, position]."""
    with evaluation_mode(model), warnings.catch_warnings():
        # transformers asks the first weight where the model is; an offloaded one does not know.
        warnings.filterwarnings("ignore", message=r".*on a device type different", append=False)
        whole = model.generate(
            input_ids=tokens,
            attention_mask=torch.ones_like(tokens),
            max_new_tokens=most,
            do_sample=False,
            pad_token_id=pad,
        )
    return whole[0, tokens.shape[1] :]
