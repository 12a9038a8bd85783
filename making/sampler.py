"""Choose the next token for thousands of sequences at once, on the device, without a sort."""

import math
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel

from making.llama_decode import LlamaDecoder

# Kernels that need no plan per length: every step has another length.
ATTENTION = [SDPBackend.FLASH_ATTENTION, SDPBackend.EFFICIENT_ATTENTION, SDPBackend.MATH]


@dataclass(frozen=True)
class Choice:
    """How the next token is chosen.

    A token is kept if it is at least `least` times as probable as the most probable one (min-p);
    the draw is made among those. Each time a token has been written before costs it its penalty,
    and a run of `ngram` tokens is not written twice in one sequence (0: allowed).
    """

    temperature: float  # 0: always the most probable token
    least: float
    ngram: int


class Sampler:
    """Continues a batch of prompts of equal length by a fixed number of tokens."""

    def __init__(
        self, decoder: LlamaDecoder, choice: Choice, penalties: Tensor, ends: Tensor
    ) -> None:
        """`penalties` [vocabulary] is what each earlier use costs; `ends` are tokens that stop."""
        _, _, self.batch, _, self.length, _ = decoder.cache.shape
        self.decoder = decoder
        self.choice = choice
        self.penalties = penalties
        self.ends = ends
        like = penalties
        self.history = like.new_zeros((self.batch, self.length + 1), dtype=torch.long)
        self.written = like.new_zeros((self.batch, len(penalties)), dtype=torch.bfloat16)
        self.prompt_length = like.new_zeros((), dtype=torch.long)
        self.ended = like.new_zeros(self.batch, dtype=torch.bool)
        self.graphs: dict[int, torch.cuda.CUDAGraph] | None = {} if like.is_cuda else None
        self.warm = False

    @torch.no_grad()
    def run(self, prompts: Tensor, new: int) -> Tensor:
        """Up to `new` tokens after each of the prompts [batch, prompt]; stops when most ended."""
        prompt = prompts.shape[1]
        self.history.zero_()
        self.history[:, :prompt] = prompts
        self.written.zero_()
        self.ended.zero_()
        self.prompt_length.fill_(prompt)
        with sdpa_kernel(ATTENTION):
            self._choose(self.decoder.logits(prompts, 0), prompt)
            for position in range(prompt, prompt + new - 1):
                self._advance(position)
                if position % 16 == 0 and self.ended.float().mean().item() > 0.95:
                    return self.history[:, prompt : position + 2]
        return self.history[:, prompt : prompt + new]

    def _advance(self, position: int) -> None:
        """One step, as a replayed graph where that is possible."""
        if self.graphs is None or not self.warm:
            self.warm = True
            self._step(position)
            return
        if position not in self.graphs:
            graph = torch.cuda.CUDAGraph()
            pool = next(iter(self.graphs.values())).pool() if self.graphs else None
            try:
                with torch.cuda.graph(graph, pool=pool):
                    self._step(position)
            except RuntimeError as problem:
                print(f"no CUDA graphs, running step by step: {problem}", flush=True)
                self.graphs = None
                torch.cuda.synchronize()
                self._step(position)
                return
            self.graphs[position] = graph
        self.graphs[position].replay()

    def _step(self, position: int) -> None:
        token = self.history[:, position : position + 1]
        self._choose(self.decoder.logits(token, position), position + 1)

    def _choose(self, logits: Tensor, position: int) -> None:
        """Write the next token into history[:, position]."""
        logits = logits - self.written
        if self.choice.ngram:
            self._forbid_repeats(logits, position)
        token = self._draw(logits)
        self.history[:, position] = token
        column = token[:, None]
        self.written.scatter_add_(1, column, self.penalties[column].to(self.written.dtype))
        self.ended.logical_or_((column == self.ends).any(dim=1))

    def _draw(self, logits: Tensor) -> Tensor:
        if self.choice.temperature == 0:
            return logits.argmax(dim=1)
        scaled = logits / self.choice.temperature
        scaled = scaled - scaled.amax(dim=1, keepdim=True)
        kept = scaled >= math.log(self.choice.least)
        weights = torch.where(kept, scaled.exp(), 0.0)
        # The largest of weight / exponential noise is a draw in proportion to the weights.
        return (weights / torch.empty_like(weights).exponential_()).argmax(dim=1)

    def _forbid_repeats(self, logits: Tensor, position: int) -> None:
        """Make impossible what would repeat a run of `ngram` tokens of this sequence's own text."""
        before = self.choice.ngram - 1
        starts = position - before  # places where an earlier run may begin
        if starts < 1:
            return
        history = self.history[:, :position]
        same = torch.arange(starts, device=logits.device).expand(self.batch, -1)
        same = same >= self.prompt_length
        for offset in range(before):
            last = history[:, starts + offset, None]
            same = same & (history[:, offset : offset + starts] == last)
        next_tokens = history[:, before:position]  # what followed each earlier run
        penalty = torch.where(same, -torch.inf, 0.0).to(logits.dtype)
        logits.scatter_add_(1, next_tokens, penalty)
