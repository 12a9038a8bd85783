"""Toy models of any architecture, seeded, for tests, docs and a first look: no download."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from ffmem.errors import ModelError

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

VOCABULARY = 264  # 3 special tokens, 256 bytes, and 5 rows that no token uses

SMALL: dict[str, Any] = {
    "vocab_size": VOCABULARY,
    "hidden_size": 32,
    "n_embd": 32,
    "d_model": 32,
    "embed_dim": 32,
    "num_hidden_layers": 3,
    "num_layers": 3,
    "n_layer": 3,
    "n_layers": 3,
    "decoder_layers": 3,
    "num_attention_heads": 4,
    "num_heads": 4,
    "n_head": 4,
    "n_heads": 4,
    "decoder_attention_heads": 4,
    "attention_heads": 4,
    "num_key_value_heads": 2,
    "num_kv_heads": 2,
    "head_dim": 8,
    "intermediate_size": 64,
    "ffn_dim": 64,
    "decoder_ffn_dim": 64,
    "n_inner": 64,
    "max_position_embeddings": 64,
    "n_positions": 64,
    "n_ctx": 64,
    "rotary_dim": 4,
    "word_embed_proj_dim": 32,
    "bos_token_id": 2,
    "eos_token_id": 2,
    "pad_token_id": 1,
}
SPECIAL: dict[str, dict[str, Any]] = {
    "gpt_neo": {"num_layers": 2, "attention_types": [[["global", "local"], 1]]},
    "opt": {"activation_function": "relu"},
}


def tiny_model(kind: str, seed: int = 0, **changes: Any) -> PreTrainedModel:
    """A model of architecture `kind` with about 30,000 random parameters, the same every time.

    Biases and norm gains are random too, so that no identity holds by accident. `changes` go
    into the config, for the forms that hide behind one name.
    """
    from transformers import CONFIG_MAPPING, AutoModelForCausalLM
    from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES

    if kind not in MODEL_FOR_CAUSAL_LM_MAPPING_NAMES:
        raise ModelError(
            f"transformers knows no causal language model of type {kind!r}; "
            "`ffmem models` lists the types"
        )
    defaults = CONFIG_MAPPING[kind]().to_dict()
    small = {name: value for name, value in SMALL.items() if name in defaults}
    config = CONFIG_MAPPING[kind](**{**small, **SPECIAL.get(kind, {}), **changes})
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = AutoModelForCausalLM.from_config(config)
        shake(model)
    return model.eval()


@torch.no_grad()
def shake(model: nn.Module) -> None:
    """Give every parameter a size at which mistakes show: maps ~ 1/sqrt(inputs), gains near 1."""
    for parameter in model.parameters():
        if parameter.ndim >= 2:
            parameter.normal_(0, parameter.shape[-1] ** -0.5)
        else:
            parameter.add_(torch.randn_like(parameter) * 0.1)


def tiny_tokenizer() -> PreTrainedTokenizerBase:
    """One token a byte, with `</s>` as BOS and EOS: reads any text without loss."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    words = ["<unk>", "<pad>", "</s>", *alphabet]
    tokenizer = Tokenizer(models.BPE(vocab={word: i for i, word in enumerate(words)}, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        bos_token="</s>",
        eos_token="</s>",
        pad_token="<pad>",
        unk_token="<unk>",
    )
