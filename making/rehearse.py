"""Try both GPU loops at full size for a minute, with random weights, before the real runs.

    python -m making.rehearse

Needs no model and no text. Says whether replayed graphs write what single steps write, and how many
tokens per second sampling and training reach.
"""

import argparse
import time

import torch
from transformers import LlamaConfig, LlamaForCausalLM

from making.llama_decode import LlamaDecoder
from making.sampler import Choice, Sampler
from making.token_data import Tokens
from making.train_model import compiled, new_model, optimizer_of, training_batches, training_loss

VOCABULARY = 49_152
NEW = 96


def rehearse_sampling(batch: int, layers: int, device: str) -> None:
    """Greedy with graphs against greedy without, then the rate of real draws."""
    config = LlamaConfig(
        vocab_size=VOCABULARY,
        hidden_size=576,
        intermediate_size=1536,
        num_hidden_layers=layers,
        num_attention_heads=9,
        num_key_value_heads=3,
        tie_word_embeddings=True,
        initializer_range=0.04,
    )
    dtype = torch.bfloat16 if device == "cuda" else torch.float32
    decoder = LlamaDecoder(LlamaForCausalLM(config).to(device, dtype), batch, 70 + NEW)
    prompts = torch.randint(100, VOCABULARY, (batch, 70), device=device)
    costs = torch.full((VOCABULARY,), 0.2, device=device)
    ends = torch.tensor([0], device=device)
    greedy = Sampler(decoder, Choice(0.0, 0.1, 4), costs, ends)
    replayed = greedy.run(prompts, NEW).clone()
    print("captured graphs:", len(greedy.graphs or {}), flush=True)
    greedy.graphs = None
    same = (greedy.run(prompts, NEW) == replayed).float().mean().item()
    print(f"tokens that graphs and single steps agree on: {same:.1%}", flush=True)
    del greedy
    drawing = Sampler(decoder, Choice(1.0, 0.1, 4), costs, ends)
    for name in ("first batch", "second batch"):
        begin = time.monotonic()
        drawing.run(prompts, NEW).cpu()
        rate = batch * NEW / (time.monotonic() - begin)
        print(f"sampling, {name}: {rate:,.0f} tokens/s", flush=True)


def rehearse_training(given: argparse.Namespace) -> None:
    """A few steps of the default model on random tokens."""
    model = new_model(given, 8000, 2, 1).to(given.device).eval()
    sentences = torch.randint(4, 8000, (20_000, 30), dtype=torch.int32, device=given.device)
    sentences[:, 0] = 2
    starts = torch.arange(0, sentences.numel(), 30, device=given.device)
    tokens = Tokens(sentences.flatten(), starts, starts % 120 == 0)
    batches = training_batches(tokens, 2, given)
    loss_of, optimizer = compiled(training_loss, given.compile), optimizer_of(model, given)
    begin = time.monotonic()
    for step in range(given.steps):
        loss = loss_of(model, next(batches))
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        if step == 2:
            loss.item()
            print(f"first steps: {time.monotonic() - begin:.1f} s", flush=True)
            begin = time.monotonic()
    loss.item()
    rate = (given.steps - 3) * given.batch_tokens / (time.monotonic() - begin)
    print(f"training: {rate:,.0f} tokens/s, loss {loss.item():.3f}", flush=True)


def main() -> None:
    """Read the command line and rehearse both."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--batch", type=int, default=4096)
    parser.add_argument("--llama-layers", type=int, default=30)
    parser.add_argument("--layers", type=int, default=16)
    parser.add_argument("--width", type=int, default=256)
    parser.add_argument("--memories", type=int, default=1024)
    parser.add_argument("--heads", type=int, default=8)
    parser.add_argument("--block", type=int, default=256)
    parser.add_argument("--batch-tokens", type=int, default=65_536)
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--compile", action=argparse.BooleanOptionalAction, default=True)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    given = parser.parse_args()
    given.seed, given.share, given.rate, given.decay = 0, 0.5, 1e-3, 0.1
    torch.manual_seed(0)
    rehearse_sampling(given.batch, given.llama_layers, given.device)
    rehearse_training(given)


if __name__ == "__main__":
    main()
