"""A Llama decoder with a static key-value cache: thousands of sequences, one token at a time.

All sequences of a batch have the same length, so a step needs no mask: it reads the cache up to its
own position. On a GPU the step of each position is captured once as a CUDA graph and replayed for
all later batches, because thirty small layers cost more to launch than to compute.
"""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional


@dataclass(frozen=True)
class Block:
    """One layer's weights, with the matrices that read the same input joined."""

    attention_norm: Tensor  # [width]
    query_key_value: Tensor  # [(heads + 2 * kv_heads) * head_size, width]
    attention_out: Tensor  # [width, heads * head_size]
    feedforward_norm: Tensor  # [width]
    gate_up: Tensor  # [2 * inner, width]
    down: Tensor  # [width, inner]


class LlamaDecoder:
    """The weights of a transformers Llama model and a cache for `batch` sequences of `length`."""

    def __init__(self, model: Any, batch: int, length: int) -> None:
        config = model.config
        self.embedding: Tensor = model.model.embed_tokens.weight.data
        self.unembedding: Tensor = model.lm_head.weight.data
        self.final_norm: Tensor = model.model.norm.weight.data
        self.epsilon: float = config.rms_norm_eps
        self.heads: int = config.num_attention_heads
        self.kv_heads: int = config.num_key_value_heads
        self.head_size: int = model.model.layers[0].self_attn.head_dim
        self.blocks = [_block(layer) for layer in model.model.layers]
        self.turns = _turns(model, length, self.embedding)  # [2, length, head_size]
        shape = (len(self.blocks), 2, batch, self.kv_heads, length, self.head_size)
        self.cache = self.embedding.new_zeros(shape)

    def logits(self, tokens: Tensor, start: int) -> Tensor:
        """Read tokens [batch, new] that begin at position `start`; logits after the last, float32.

        Earlier positions are taken from the cache. More than one new token is allowed only at
        position 0.
        """
        batch, new = tokens.shape
        cosine, sine = self.turns[:, start : start + new]
        residual = functional.embedding(tokens, self.embedding)  # [batch, new, width]
        for layer, block in enumerate(self.blocks):
            normed = self._norm(residual, block.attention_norm)
            joined = functional.linear(normed, block.query_key_value).view(
                batch, new, -1, self.head_size
            )
            query, key, value = joined.transpose(1, 2).split(
                [self.heads, self.kv_heads, self.kv_heads], dim=1
            )  # each [batch, heads, new, head_size]
            self.cache[layer, 0, :batch, :, start : start + new] = _turn(key, cosine, sine)
            self.cache[layer, 1, :batch, :, start : start + new] = value
            mixed = self._attention(layer, _turn(query, cosine, sine), start)
            residual = residual + functional.linear(mixed, block.attention_out)
            normed = self._norm(residual, block.feedforward_norm)
            gate, up = functional.linear(normed, block.gate_up).chunk(2, dim=-1)
            residual = residual + functional.linear(functional.silu(gate) * up, block.down)
        last = self._norm(residual[:, -1], self.final_norm)
        return functional.linear(last, self.unembedding).float()

    def _norm(self, x: Tensor, weight: Tensor) -> Tensor:
        return functional.rms_norm(x, (x.shape[-1],), weight, self.epsilon)

    def _attention(self, layer: int, query: Tensor, start: int) -> Tensor:
        """Attention over the cache; the queries that share a key head become its query rows."""
        batch, _, new, size = query.shape
        keys, values = self.cache[layer, :, :batch, :, : start + new]
        if new == 1:
            rows = query.reshape(batch, self.kv_heads, -1, size)  # [batch, kv_heads, group, size]
            return functional.scaled_dot_product_attention(rows, keys, values).reshape(batch, 1, -1)
        mixed = functional.scaled_dot_product_attention(
            query, keys, values, is_causal=True, enable_gqa=True
        )  # [batch, heads, new, size]
        return mixed.transpose(1, 2).reshape(batch, new, -1)


def _block(layer: Any) -> Block:
    attention, inner = layer.self_attn, layer.mlp
    return Block(
        attention_norm=layer.input_layernorm.weight.data,
        query_key_value=torch.cat(
            [attention.q_proj.weight, attention.k_proj.weight, attention.v_proj.weight]
        ).data,
        attention_out=attention.o_proj.weight.data,
        feedforward_norm=layer.post_attention_layernorm.weight.data,
        gate_up=torch.cat([inner.gate_proj.weight, inner.up_proj.weight]).data,
        down=inner.down_proj.weight.data,
    )


def _turns(model: Any, length: int, like: Tensor) -> Tensor:
    """Cosines and sines of the rotary embedding, [2, length, head_size]."""
    positions = torch.arange(length, device=like.device)[None]
    cosine, sine = model.model.rotary_emb(like.float(), positions)
    return torch.stack([cosine[0], sine[0]]).to(like.dtype)


def _turn(x: Tensor, cosine: Tensor, sine: Tensor) -> Tensor:
    first, second = x.chunk(2, dim=-1)
    return x * cosine + torch.cat([-second, first], dim=-1) * sine
