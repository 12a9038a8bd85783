"""Paths of the feed-forward layers in each architecture: one row per family, no code.

Only places are written down. Sizes come from the weights; the form of the block (sequential,
parallel, post-norm) and the activation are measured on a short input when a model is loaded,
because many families have several forms behind one name.
"""

from __future__ import annotations

from dataclasses import dataclass, replace


@dataclass(frozen=True)
class Family:
    """Paths to the parts of a feed-forward layer.

    `blocks` starts at the model, all others at a block. A path may end in `[:half]` or `[half:]`
    when one linear map holds two, as in fused gate-and-up maps. A part that a block lacks is
    allowed only for `norm` and `attention`, which not every form of a family has.
    """

    blocks: str
    keys: str  # the map whose rows are keys; in a gated layer the map beside the gate
    values: str  # the map that takes the coefficients and adds up the values
    norm: str | None = None  # the norm of the feed-forward part: before it, or around r + y
    attention: str | None = None  # what is added beside the feed-forward part in a parallel block
    gate: str | None = None  # the map under the activation, in a gated layer
    after: str | None = None  # a norm between the values and the residual stream
    scale: str | None = None  # number that multiplies what is added, by its name in config or block
    output: str | None = None  # number that multiplies r + y on the way out, likewise
    leaves: str | None = None  # what reads r + y, in a block that adds something else behind it
    experts: str | None = None  # in a mixture; `keys` and `values` are then what adds them up
    residual: str | None = None  # vector of the block that multiplies r where y is added to it
    entry: str | None = None  # vector of the block that multiplies its input on the way to r
    beside: str | None = None  # values of a dense layer that the block adds to the mixture's sum


LLAMA = Family(
    blocks="model.layers",
    keys="mlp.up_proj",
    values="mlp.down_proj",
    norm="post_attention_layernorm",
    attention="self_attn",
    gate="mlp.gate_proj",
)
FUSED_GATE = replace(LLAMA, keys="mlp.gate_up_proj[half:]", gate="mlp.gate_up_proj[:half]")
SANDWICH = replace(LLAMA, norm="pre_feedforward_layernorm", after="post_feedforward_layernorm")
NORM_AFTER = replace(LLAMA, norm=None, after="post_feedforward_layernorm")
GPT2 = Family("transformer.h", "mlp.c_fc", "mlp.c_proj", norm="ln_2", attention="attn")
GPTJ = Family("transformer.h", "mlp.fc_in", "mlp.fc_out", norm="ln_1", attention="attn")
FAIRSEQ = Family("model.layers", "fc1", "fc2", norm="final_layer_norm", attention="self_attn")
PLAIN = replace(LLAMA, gate=None)
NEOX = Family(
    blocks="gpt_neox.layers",
    keys="mlp.dense_h_to_4h",
    values="mlp.dense_4h_to_h",
    norm="post_attention_layernorm",
    attention="attention",
)
BART = replace(FAIRSEQ, blocks="model.decoder.layers")
BERT = Family(
    blocks="bert.encoder.layer",
    keys="intermediate.dense",
    values="output.dense",
    norm="output.LayerNorm",
)
ROBERTA = replace(BERT, blocks="roberta.encoder.layer")
BLOOM = replace(NEOX, blocks="transformer.h", attention="self_attention")

FAMILIES: dict[str, Family] = {
    "apertus": replace(PLAIN, norm="feedforward_layernorm"),
    "arcee": PLAIN,
    "bart": BART,
    "bert": BERT,
    "bert-generation": BERT,
    "big_bird": BERT,
    "bigbird_pegasus": BART,
    "biogpt": replace(FAIRSEQ, blocks="biogpt.layers"),
    "blenderbot": BART,
    "blenderbot-small": BART,
    "bloom": BLOOM,
    "camembert": ROBERTA,
    "codegen": GPTJ,
    "cohere": replace(LLAMA, norm="input_layernorm"),
    "cohere2": replace(LLAMA, norm="input_layernorm"),
    "cohere_compass_text": replace(LLAMA, norm="input_layernorm"),
    "cwm": LLAMA,
    "data2vec-text": replace(BERT, blocks="data2vec_text.encoder.layer"),
    "diffllama": LLAMA,
    "electra": replace(BERT, blocks="electra.encoder.layer"),
    "ernie": replace(BERT, blocks="ernie.encoder.layer"),
    "ernie4_5": LLAMA,
    "exaone4": NORM_AFTER,
    "fairseq_lm": FAIRSEQ,
    "falcon": BLOOM,
    "gemma": LLAMA,
    "gemma2": SANDWICH,
    "gemma3": replace(SANDWICH, blocks="model.language_model.layers"),
    "gemma3_text": SANDWICH,
    "git": replace(BERT, blocks="git.encoder.layer"),
    "glm": FUSED_GATE,
    "glm4": replace(FUSED_GATE, after="post_mlp_layernorm"),
    "gpt2": GPT2,
    "gpt_bigcode": GPT2,
    "gpt_neo": GPT2,
    "gpt_neox": NEOX,
    "gpt_neox_japanese": replace(NEOX, blocks="gpt_neox_japanese.layers"),
    "gptj": GPTJ,
    "granite": replace(LLAMA, scale="residual_multiplier"),
    "granite_swa": replace(LLAMA, scale="residual_multiplier"),
    "helium": LLAMA,
    "hunyuan_v1_dense": LLAMA,
    "jais2": PLAIN,
    "lfm2": Family(
        "model.layers", "feed_forward.w3", "feed_forward.w2", "ffn_norm", None, "feed_forward.w1"
    ),
    "llama": LLAMA,
    "marian": BART,
    "mbart": BART,
    "megatron-bert": replace(BERT, norm="ln"),
    "minicpm3": replace(LLAMA, scale="residual_scale"),
    "ministral": LLAMA,
    "ministral3": LLAMA,
    "mistral": LLAMA,
    "modernbert-decoder": Family(
        "model.layers", "mlp.Wi[half:]", "mlp.Wo", "mlp_norm", None, "mlp.Wi[:half]"
    ),
    "mpt": Family("transformer.blocks", "ffn.up_proj", "ffn.down_proj", "norm_2", "attn"),
    "mvp": BART,
    "nanochat": replace(PLAIN, keys="mlp.fc1", values="mlp.fc2"),
    "nemotron": PLAIN,
    "olmo": LLAMA,
    "olmo2": NORM_AFTER,
    "olmo3": NORM_AFTER,
    "openai-gpt": GPT2,
    "opt": BART,
    "pegasus": BART,
    "persimmon": replace(NEOX, blocks="model.layers", attention="self_attn"),
    "phi": Family("model.layers", "mlp.fc1", "mlp.fc2", "input_layernorm", "self_attn"),
    "phi3": FUSED_GATE,
    "phi4_multimodal": FUSED_GATE,
    "plbart": BART,
    "qwen2": LLAMA,
    "qwen3": LLAMA,
    "qwen3_5_text": LLAMA,
    "rembert": replace(BERT, blocks="rembert.encoder.layer"),
    "roberta": ROBERTA,
    "roberta-prelayernorm": replace(
        BERT, blocks="roberta_prelayernorm.encoder.layer", norm="intermediate.LayerNorm"
    ),
    "roc_bert": replace(BERT, blocks="roc_bert.encoder.layer"),
    "roformer": replace(BERT, blocks="roformer.encoder.layer"),
    "seed_oss": LLAMA,
    "smollm3": LLAMA,
    "stablelm": LLAMA,
    "starcoder2": replace(PLAIN, keys="mlp.c_fc", values="mlp.c_proj"),
    "trocr": BART,
    "vaultgemma": replace(LLAMA, norm="pre_feedforward_layernorm"),
    "whisper": BART,
    "xglm": FAIRSEQ,
    "xlm-roberta": ROBERTA,
    "xlm-roberta-xl": replace(ROBERTA, norm="LayerNorm"),
    "youtu": LLAMA,
}
