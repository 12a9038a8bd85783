"""Greedy continuation of a text."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, TypedDict

import torch
from torch import Tensor

from ffmem.errors import ModelError
from ffmem.models.device_placement import device_of
from ffmem.models.language_model import evaluation_mode
from ffmem.models.loading import checkpoint

if TYPE_CHECKING:
    from transformers import PreTrainedModel
if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase


@torch.no_grad()
def continuation(model: PreTrainedModel, tokens: Tensor, most: int, pad: int | None) -> Tensor:
    """The token ids after `tokens` [1, position], the likeliest each time, at most so many."""
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


class Message(TypedDict):
    """One turn of a conversation."""

    role: Literal["system", "user", "assistant"]
    content: str


@dataclass(frozen=True)
class Reply:
    """What a model wrote, and the tokens it read and wrote."""

    text: str
    read: int
    written: int


Chat = Callable[[Sequence[Message]], Reply]


class LocalChat:
    """A causal language model on this machine that answers without chance, at most so much."""

    def __init__(
        self, model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, most: int
    ) -> None:
        self.model, self.tokenizer, self.most = model, tokenizer, most

    @classmethod
    def load(cls, name: str, most: int, **options: Any) -> LocalChat:
        """Load any causal model, named as for `ffmem.load`."""
        model, tokenizer, _ = checkpoint(name, **options)
        if tokenizer is None:
            raise ModelError(
                f"{name} comes without a tokenizer, so it cannot be asked; "
                "put the tokenizer's files into its folder"
            )
        return cls(model, tokenizer, most)

    @torch.no_grad()
    def __call__(self, messages: Sequence[Message]) -> Reply:
        """Read the conversation and write the next turn."""
        ids = self._ids(messages)
        limit = getattr(self.model.config.get_text_config(), "max_position_embeddings", None)
        if limit is not None and len(ids) + self.most > limit:
            raise ModelError(
                f"the question has {len(ids):,} tokens and the model has room for {limit:,}, "
                f"{self.most:,} of them for its answer; take a model that reads more"
            )
        tokens = torch.tensor([ids], device=device_of(self.model.get_input_embeddings()))
        written = continuation(self.model, tokens, self.most, self.tokenizer.eos_token_id or 0)
        text = self.tokenizer.decode(written, skip_special_tokens=True)
        return Reply(text, len(ids), len(written))

    def _ids(self, messages: Sequence[Message]) -> list[int]:
        """By the model's own template; a model without one reads the turns as plain text."""
        if self.tokenizer.chat_template is not None:
            found = self.tokenizer.apply_chat_template(
                list(messages), add_generation_prompt=True, return_dict=True
            )
            return list(found["input_ids"])
        text = "\n\n".join(message["content"] for message in messages) + "\n\n"
        return list(self.tokenizer.encode(text))
