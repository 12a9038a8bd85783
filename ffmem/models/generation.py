"""What a model writes after a text, without chance."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING

import torch
from torch import Tensor

if TYPE_CHECKING:
    from transformers import PreTrainedModel


@torch.no_grad()
def continuation(model: PreTrainedModel, tokens: Tensor, most: int, pad: int | None) -> Tensor:
    """The token ids after `tokens` [1, position], the likeliest each time, at most so many."""
    with warnings.catch_warnings():
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
