"""Toy models of any architecture, seeded, for tests, docs and a first look: no download."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from ffmem.errors import ModelError
from ffmem.models.blocks.trace import torch_seed
from ffmem.models.fairseq import KIND, introduce

if TYPE_CHECKING:
    from transformers import PretrainedConfig, PreTrainedModel, PreTrainedTokenizerBase

VOCABULARY = 264  # 3 special tokens, 256 bytes, and 5 rows that no token uses

# Sizes by the names that configs give them; a config takes the ones it knows, and so do the
# configs inside it (text, vision, audio, encoder).
SMALL: dict[str, Any] = {
    **dict.fromkeys(("vocab_size", "vocab_size_per_layer_input"), VOCABULARY),
    **dict.fromkeys(("hidden_size", "n_embd", "d_model", "embed_dim", "embedding_size"), 32),
    **dict.fromkeys(("num_hidden_layers", "num_layers", "n_layer", "n_layers"), 3),
    **dict.fromkeys(("encoder_layers", "decoder_layers", "num_decoder_layers"), 3),
    **dict.fromkeys(("num_attention_heads", "num_heads", "n_head", "n_heads"), 4),
    **dict.fromkeys(("encoder_attention_heads", "decoder_attention_heads", "attention_heads"), 4),
    **dict.fromkeys(("num_key_value_heads", "num_kv_heads"), 2),
    "head_dim": 8,
    **dict.fromkeys(("intermediate_size", "ffn_dim", "n_inner", "dff", "d_ff", "d_inner"), 64),
    **dict.fromkeys(("encoder_ffn_dim", "decoder_ffn_dim", "intermediate_size_mlp"), 64),
    **dict.fromkeys(("max_position_embeddings", "n_positions", "n_ctx", "sliding_window"), 64),
    "rotary_dim": 4,
    "word_embed_proj_dim": 32,
    **dict.fromkeys(("bos_token_id", "eos_token_id"), 2),
    "pad_token_id": 1,
    **dict.fromkeys(("residual_multiplier", "embedding_multiplier", "attention_multiplier"), 0.5),
    "logits_scaling": 4.0,
    "is_decoder": True,
    # low-rank and linear attention, state spaces
    **dict.fromkeys(("kv_lora_rank", "q_lora_rank", "qk_nope_head_dim", "v_head_dim"), 8),
    **dict.fromkeys(("qk_rope_head_dim", "linear_key_head_dim", "linear_value_head_dim"), 8),
    **dict.fromkeys(("linear_num_key_heads", "linear_num_value_heads"), 4),
    **dict.fromkeys(("mamba_n_heads", "mamba_d_head", "mamba_d_state", "mamba_chunk_size"), 8),
    **dict.fromkeys(("state_size", "chunk_size", "mamba_dt_rank", "time_step_rank"), 8),
    "mamba_d_ssm": 64,
    # experts
    **dict.fromkeys(("num_experts", "num_local_experts", "n_routed_experts", "moe_num_experts"), 4),
    **dict.fromkeys(("num_experts_per_tok", "num_experts_per_token", "moe_k", "moe_topk"), 2),
    **dict.fromkeys(("moe_intermediate_size", "shared_expert_intermediate_size"), 16),
    **dict.fromkeys(("shared_intermediate_size", "dense_intermediate_size"), 16),
    **dict.fromkeys(("n_group", "topk_group", "first_k_dense_replace"), 1),
    # pictures and sound beside the text
    **dict.fromkeys(("image_size", "crop_size"), 32),
    **dict.fromkeys(("depth", "num_blocks", "num_global_layers"), 1),
    **dict.fromkeys(("mlp_dim", "ext_pw_out_channel", "nemo_conv_channels", "base_channels"), 32),
    "hidden_size_per_layer_input": 8,
    "hidden_size_global": 32,
    "encoder_hash_byte_group_vocab": 16,
}
# What a type needs beyond small sizes; a nested dict goes into the config of that name.
LATENT = {"num_key_value_heads": 4}  # low-rank attention has no fewer key heads than heads
ROPES = {"full_attention": {"rope_type": "default", "rope_theta": 1e4, "mrope_section": [1, 1, 2]}}
SPECIAL: dict[str, dict[str, Any]] = {
    **dict.fromkeys(("axk1", "axk2", "deepseek_v2", "deepseek_v3", "deepseek_v32"), LATENT),
    **dict.fromkeys(("glm4_moe_lite", "glm_moe_dsa", "longcat_flash", "minicpm3", "youtu"), LATENT),
    "bailing_hybrid": {"num_experts": 16},
    "cohere_compass_text": {"rope_parameters": ROPES},
    "dbrx": {"attn_config": {"rope_theta": 1e4, "clip_qkv": 8.0}},
    "dots1": {"n_routed_experts": 4, "n_shared_experts": 1, "num_experts_per_tok": 2},
    "fairseq_lm": {
        "activation_function": "relu",
        "final_norm": False,
        "input_bands": [[64, 32], [100, 16], [100, 8]],
        "output_bands": [[64, 32], [100, 16], [100, 8]],
    },
    "falcon_h1": {"mlp_multipliers": [0.5, 0.75], "lm_head_multiplier": 0.5},
    "gemma3n_text": {"num_kv_shared_layers": 0},
    "got_ocr2": {"vision_config": {"output_channels": 8, "global_attn_indexes": [0]}},
    "gpt_neo": {"num_layers": 2, "attention_types": [[["global", "local"], 1]]},
    "granitemoehybrid": {
        "layers_block_type": ["linear_attention", "full_attention", "linear_attention"]
    },
    "lfm2_moe": {"layer_types": ["conv", "full_attention", "conv"]},
    "mamba2": {"head_dim": 16, "n_groups": 2},
    "mllama": {"text_config": {"num_hidden_layers": 4, "cross_attention_layers": [1]}},
    "opt": {"activation_function": "relu"},
    "reformer": {
        "axial_pos_embds_dim": [16, 16],
        "axial_pos_shape": [8, 8],
        "num_buckets": 2,
        "attention_head_size": 8,
        "feed_forward_size": 64,
    },
    "rembert": {"input_embedding_size": 16, "output_embedding_size": 48},
    "roc_bert": {
        "pronunciation_vocab_size": 8,
        "shape_vocab_size": 8,
        "pronunciation_embed_dim": 8,
        "shape_embed_dim": 8,
    },
    "xlm": {"causal": True},
    "xlnet": {"attn_type": "uni"},
    "xmod": {"languages": ["en_XX"], "default_language": "en_XX"},
    "xlstm": {"num_blocks": 3},
    "zaya": {"num_experts_per_tok": 1},
    "zamba": {"layers_block_type": ["linear_attention", "hybrid", "hybrid"]},
    "zamba2": {
        "layers_block_type": ["linear_attention", "hybrid", "hybrid"],
        "attention_hidden_size": 64,
        "attention_head_dim": 16,
    },
}


def tiny_model(kind: str, seed: int = 0, **changes: Any) -> PreTrainedModel:
    """A model of architecture `kind` with about 30,000 random parameters, the same every time.

    Biases and norm gains are random too, so that no identity holds by accident. `changes` go
    into the config, for the forms that hide behind one name.
    """
    from transformers import CONFIG_MAPPING, AutoModelForCausalLM
    from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES

    introduce(kind)
    if kind not in {KIND, *MODEL_FOR_CAUSAL_LM_MAPPING_NAMES}:
        raise ModelError(
            f"transformers knows no causal language model of type {kind!r}; "
            "`ffmem models` lists the types"
        )
    special = merge_settings(SPECIAL.get(kind, {}), changes)
    config = CONFIG_MAPPING[kind](**merge_settings(_small_values(CONFIG_MAPPING[kind]()), special))
    with torch_seed(seed):
        model = AutoModelForCausalLM.from_config(config)
        randomise(model)
    return model.eval()


def _small_values(config: PretrainedConfig) -> dict[str, Any]:
    """The small sizes that a config knows by name, and those of the configs inside it."""
    known = config.to_dict()
    values = {name: value for name, value in SMALL.items() if name in known}
    for name in config.sub_configs:
        inner = getattr(config, name, None)
        if inner is not None:
            values[name] = {"model_type": inner.model_type, **_small_values(inner)}
    return values


def merge_settings(one: dict[str, Any], other: dict[str, Any]) -> dict[str, Any]:
    """Both, the second winning; dicts inside them are merged in the same way."""
    both = {**one, **other}
    for name in one.keys() & other.keys():
        if isinstance(one[name], dict) and isinstance(other[name], dict):
            both[name] = merge_settings(one[name], other[name])
    return both


@torch.no_grad()
def randomise(model: nn.Module) -> None:
    """Give every parameter a size at which mistakes show: maps ~ 1/sqrt(inputs), gains near 1."""
    for parameter in model.parameters():
        if parameter.ndim >= 2:
            parameter.normal_(0, parameter.shape[-1] ** -0.5)
        else:
            parameter.add_(torch.randn_like(parameter) * 0.1)
    for name, number in model.state_dict().items():
        if (
            number.numel() == 1
            and name in dict(model.named_buffers())
            and number.is_floating_point()
        ):
            number.mul_(0.8)  # a number that checkpoints set, such as the scale of a layer


def tiny_tokenizer() -> PreTrainedTokenizerBase:
    """One token per byte, with `</s>` as BOS and EOS: reads any text without loss."""
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
