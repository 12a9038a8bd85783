"""fairseq's `transformer_lm` for transformers, with adaptive input and adaptive softmax.

The body is XGLM's, which was made for fairseq's models and has their names, with the attention of
OPT, which has the same names too and can use torch's fast kernels. Ours are the ends: an embedding
whose rows are narrower for rarer words (`AdaptiveInput`), a softmax of the same kind
(`AdaptiveHead`), and a final norm that can be missing.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Sequence

import torch
from torch import Tensor, nn
from transformers import AutoConfig, AutoModelForCausalLM, XGLMConfig, XGLMForCausalLM, XGLMModel
from transformers import initialization as init
from transformers.models.opt.modeling_opt import OPTAttention
from transformers.models.xglm.modeling_xglm import XGLMDecoderLayer, XGLMPreTrainedModel

from ffmem.models.fairseq import KIND

Bands = Sequence[Sequence[int]]  # (words, width of a row) of each


class FairseqConfig(XGLMConfig):
    """XGLM's settings, and how the ends are cut.

    `input_bands` and `output_bands` hold [words, width of a row] of every band; none means one
    matrix. `tie_projections` says that the bands after the first share their maps too.
    """

    model_type = KIND

    input_bands: list[list[int]] | None = None
    output_bands: list[list[int]] | None = None
    tie_projections: bool = True
    final_norm: bool = True
    enable_bias: bool = True  # of attention, as OPT calls it


class TokenBands(nn.Module):
    """Words of consecutive ids in bands: `rows_0`, `projection_0`, `rows_1` and so on.

    A word's vector is `projection` [width, width of the row] times its row, or the row itself in a
    band without a projection.
    """

    def __init__(self, bands: Bands, width: int, first_projection: bool) -> None:
        super().__init__()
        self.sizes = [words for words, _ in bands]
        for number, (words, narrow) in enumerate(bands):
            self.register_parameter(f"rows_{number}", nn.Parameter(torch.empty(words, narrow)))
            if number or first_projection:
                projection = nn.Parameter(torch.empty(width, narrow))
                self.register_parameter(f"projection_{number}", projection)

    def rows(self, number: int) -> Tensor:
        """The rows of one band."""
        return self.get_parameter(f"rows_{number}")

    def projection(self, number: int) -> Tensor:
        """The map of one band from rows to states."""
        return self.get_parameter(f"projection_{number}")


class AdaptiveInput(TokenBands):
    """Word ids to states: a row of the word's band, mapped to the width of the states."""

    def __init__(self, bands: Bands, width: int, scale: float) -> None:
        super().__init__(bands, width, first_projection=True)
        self.scale = scale

    def forward(self, ids: Tensor) -> Tensor:
        """[...] to [..., width]; every band reads some row, and those of other bands count zero."""
        found, start = torch.zeros((), device=ids.device), 0
        for number, words in enumerate(self.sizes):
            inside = (ids >= start) & (ids < start + words)
            row = nn.functional.embedding((ids - start).remainder(words), self.rows(number))
            found = found + (row * inside[..., None]) @ self.projection(number).T
            start += words
        return found * self.scale


class AdaptiveHead(TokenBands):
    """States to log-probabilities of all words.

    One softmax is over the first band's words and the other bands (`classes`), one over the words
    of each other band.
    """

    def __init__(self, bands: Bands, width: int) -> None:
        super().__init__(bands, width, first_projection=False)
        self.classes = nn.Parameter(torch.empty(len(bands) - 1, width))

    def forward(self, h: Tensor) -> Tensor:
        """[..., width] to [..., word], in float32."""
        first = torch.cat([h @ self.rows(0).T, h @ self.classes.T], dim=-1)
        choice = first.log_softmax(dim=-1, dtype=torch.float32)
        parts, words = [choice[..., : self.sizes[0]]], self.sizes[0]
        for number in range(1, len(self.sizes)):
            scores = h @ self.projection(number) @ self.rows(number).T
            inside = scores.log_softmax(dim=-1, dtype=torch.float32)
            parts.append(choice[..., words + number - 1, None] + inside)
        return torch.cat(parts, dim=-1)


class FairseqPreTrained(XGLMPreTrainedModel):
    """What body and model share: fairseq's own start for untrained weights."""

    config: FairseqConfig
    _supports_sdpa = True
    _no_split_modules = ["XGLMDecoderLayer", "AdaptiveInput", "AdaptiveHead"]  # noqa: RUF012

    def _init_weights(self, module: nn.Module) -> None:
        super()._init_weights(module)
        if isinstance(module, nn.Linear):
            init.xavier_uniform_(module.weight)
        if isinstance(module, TokenBands):
            for name, weights in module.named_parameters(recurse=False):
                if name.startswith("rows_"):
                    init.normal_(weights, mean=0.0, std=weights.shape[1] ** -0.5)
                else:
                    init.xavier_uniform_(weights)


class FairseqModel(FairseqPreTrained, XGLMModel):
    """The decoder: XGLM's, with OPT's attention and fairseq's ends."""

    _can_record_outputs = {"hidden_states": XGLMDecoderLayer, "attentions": OPTAttention}  # noqa: RUF012

    def __init__(self, config: FairseqConfig) -> None:
        narrow = copy.copy(config)
        if config.input_bands:  # XGLM's own embedding is never built at full size
            narrow.vocab_size = (config.pad_token_id or 0) + 1
        XGLMModel.__init__(self, narrow)
        self.config = config
        for number, layer in enumerate(self.layers):
            layer.self_attn = OPTAttention(config, layer_idx=number)
        width = config.d_model
        if config.input_bands:
            scale = math.sqrt(width) if config.scale_embedding else 1.0
            self.embed_tokens = AdaptiveInput(config.input_bands, width, scale)
        if not config.final_norm:
            self.layer_norm = nn.Identity()
        self.post_init()


class FairseqForCausalLM(FairseqPreTrained, XGLMForCausalLM):
    """A fairseq language model; what it gives as logits are log-probabilities if it is adaptive."""

    config_class = FairseqConfig

    def __init__(self, config: FairseqConfig) -> None:
        XGLMPreTrainedModel.__init__(self, config)
        self.model = FairseqModel(config)
        self.lm_head: nn.Module
        if config.output_bands:
            self.lm_head = AdaptiveHead(config.output_bands, config.d_model)
        else:
            self.lm_head = nn.Linear(config.d_model, config.vocab_size, bias=False)
        self._tied_weights_keys = tied_names(config)
        self.post_init()


def tied_names(config: FairseqConfig) -> dict[str, str]:
    """Each weight of the head that is one of the embedding, and its name there."""
    if not config.tie_word_embeddings:
        return {}
    if not config.output_bands:
        names = ["weight"]
    else:
        count = len(config.output_bands)
        names = [f"rows_{number}" for number in range(count)]
        if config.tie_projections:
            names += [f"projection_{number}" for number in range(1, count)]
    return {f"lm_head.{name}": f"model.embed_tokens.{name}" for name in names}


def register() -> None:
    """Let transformers load folders of this kind; to call it again does nothing."""
    AutoConfig.register(KIND, FairseqConfig, exist_ok=True)
    AutoModelForCausalLM.register(FairseqConfig, FairseqForCausalLM, exist_ok=True)
