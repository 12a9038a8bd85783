"""What keeping a scan's state costs, as a ratio to the bare forward pass of the same batches.

    python -m benchmarks.scan_state                         # 16 layers, d 512, 2048 memories, CPU
    python -m benchmarks.scan_state --device cuda           # 16 layers, d 1024, 4096 memories, bf16
    python -m benchmarks.scan_state --device cuda --kernel  # the kernel alone, over its block sizes

A random OPT reads random sentences (Zipf tokens, lengths with a mean near 25, batches of like
length). Each block of batches is read twice, bare and with the state kept, in alternating order, in
one process; the ratio of each pair is printed, early blocks first, because most of the cost is at
the start, when nearly everything is among the strongest so far.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn

from ffmem.scan.launch_queue import LaunchQueue
from ffmem.scan.layer_scan import LayerScan
from ffmem.scan.settings import ScanSettings


@dataclass(frozen=True)
class RandomBatch:
    """What a corpus would hand over."""

    tokens: Tensor
    lengths: Tensor
    sentences: Tensor
    bos: int = 1
    content: Tensor | None = None

    @property
    def read(self) -> int:
        """Tokens without padding, BOS included."""
        return int(self.lengths.sum()) + len(self.lengths)


def random_batches(count: int, tokens: int, vocabulary: int) -> Iterator[RandomBatch]:
    """Batches of sentences of like length, at most so many tokens each, in random order."""
    generator = torch.Generator().manual_seed(1)
    numbered = 0
    weights = 1.0 / torch.arange(10, vocabulary + 10)
    for _ in range(count):
        # Batches of like length: a common length, one token more or less.
        common = float(torch.randn((), generator=generator) * 0.45 + 3.1)
        middle = min(max(int(torch.tensor(common).exp()), 3), 120)
        rows = max(1, tokens // (middle + 2))
        lengths = torch.randint(middle - 1, middle + 2, (rows,), generator=generator).sort()[0]
        ids = torch.multinomial(
            weights, rows * (middle + 2), replacement=True, generator=generator
        ).view(rows, -1)
        ids[:, 0] = 2
        order = torch.randperm(rows, generator=generator) + numbered
        numbered += rows
        yield RandomBatch(ids, lengths, order)


def random_model(options: argparse.Namespace) -> nn.Module:
    """An OPT of the given sizes, untrained."""
    from transformers import OPTConfig, OPTModel

    torch.manual_seed(0)
    config = OPTConfig(
        vocab_size=options.vocabulary,
        hidden_size=options.width,
        word_embed_proj_dim=options.width,
        num_hidden_layers=options.layers,
        ffn_dim=options.memories,
        num_attention_heads=options.width // 64,
    )
    return OPTModel(config).to(options.device, getattr(torch, options.dtype)).eval()


@dataclass
class Times:
    """Seconds of each block, bare and scanning, and the tokens and sentences in it."""

    bare: list[float] = field(default_factory=list)
    scan: list[float] = field(default_factory=list)
    tokens: list[int] = field(default_factory=list)
    sentences: list[int] = field(default_factory=list)
    inside: list[float] = field(default_factory=list)  # of these, seconds inside see(); CPU only

    def ratios(self) -> list[float]:
        """Scan over bare, block by block."""
        return [s / b for s, b in zip(self.scan, self.bare, strict=True)]


def timed(options: argparse.Namespace, work: Callable[[], None]) -> float:
    """Seconds the work takes, the GPU's part included."""
    clock = time.process_time if options.clock == "cpu" else time.perf_counter
    if options.device == "cuda":
        torch.cuda.synchronize()
    start = clock()
    work()
    if options.device == "cuda":
        torch.cuda.synchronize()
    return clock() - start


class Bench:
    """A model, its layers' states, and hooks that can be switched off."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.options = options
        self.model = random_model(options)
        chosen = ScanSettings(top=options.top, sample=options.sample)
        shared = LaunchQueue(chosen)
        self.layers = [
            LayerScan(options.memories, chosen, options.device, shared, not options.plain)
            for _ in range(options.layers)
        ]
        self.batch: RandomBatch | None = None
        self.inside = 0.0
        self.clock = time.process_time if options.clock == "cpu" else time.perf_counter
        blocks = self.model.decoder.layers  # type: ignore[union-attr]
        for block, layer in zip(blocks, self.layers, strict=True):
            block.fc2.register_forward_pre_hook(self._hook(layer))

    def _hook(self, layer: LayerScan) -> Callable[[nn.Module, tuple[Tensor, ...]], None]:
        def hook(_module: nn.Module, inputs: tuple[Tensor, ...]) -> None:
            if self.batch is not None:
                start = self.clock()
                layer.take_in(inputs[0], self.batch)
                self.inside += self.clock() - start

        return hook

    def read(self, batches: list[RandomBatch], scanning: bool) -> None:
        """Read the batches, keeping the state or not."""
        for batch in batches:
            self.batch = batch if scanning else None
            with torch.inference_mode():
                self.model(input_ids=batch.tokens.to(self.options.device), use_cache=False)

    def run(self) -> Times:
        """All blocks, each bare and scanning."""
        options, times = self.options, Times()
        batches = list(random_batches(options.batches, options.tokens, options.vocabulary))
        self.read(batches[-3:], False)  # not timed: first use of everything
        for number in range(0, len(batches), options.block):
            block = batches[number : number + options.block]
            self.inside = 0.0
            for scanning in (False, True) if number // options.block % 2 else (True, False):
                seconds = timed(options, lambda s=scanning, b=block: self.read(b, s))
                (times.scan if scanning else times.bare).append(seconds)
            times.inside.append(self.inside)
            times.tokens.append(sum(batch.read for batch in block))
            times.sentences.append(sum(len(batch.lengths) for batch in block))
        return times


def report(options: argparse.Namespace, times: Times) -> None:
    """Print the ratio of each block and of early and late ones together."""
    seen = 0
    print(f"{'sentences':>10} {'bare us/tok':>12} {'scan us/tok':>12} {'see us/tok':>11} ratio")
    every = max(1, len(times.bare) // 24)
    for i, ratio in enumerate(times.ratios()):
        seen += times.sentences[i]
        if i < 6 or i % every == 0 or i == len(times.bare) - 1:
            bare, scan, see = (
                1e6 * t[i] / times.tokens[i] for t in (times.bare, times.scan, times.inside)
            )
            print(f"{seen:>10} {bare:>12.2f} {scan:>12.2f} {see:>11.2f} {ratio:.3f}")
    half = len(times.bare) // 2
    late = sorted(times.ratios()[half:])
    quarter = len(late) // 4
    tokens = sum(times.tokens)
    print(f"tokens {tokens}, sentences {seen}, bare {tokens / sum(times.bare):.0f} tokens/s")
    print(f"whole run:   scan/bare = {sum(times.scan) / sum(times.bare):.4f}")
    print(f"first half:  scan/bare = {sum(times.scan[:half]) / sum(times.bare[:half]):.4f}")
    print(
        f"second half: scan/bare = {sum(times.scan[half:]) / sum(times.bare[half:]):.4f}; "
        f"median of blocks {statistics.median(late):.4f}, "
        f"middle half {late[quarter]:.4f} to {late[-1 - quarter]:.4f}"
    )
    if options.device == "cpu":
        share = [s / b for s, b in zip(times.inside, times.bare, strict=True)][half:]
        print(f"second half: seconds inside see() over bare = {statistics.median(share):.4f}")


def time_kernel(options: argparse.Namespace) -> None:
    """The kernel alone on coefficients like the model's, for several block sizes."""
    from ffmem.scan.passes import triton_pass

    batch = next(iter(random_batches(1, options.tokens, options.vocabulary)))
    chosen = ScanSettings(top=options.top, sample=options.sample)
    dtype = getattr(torch, options.dtype)
    shape = (*batch.tokens.shape, options.memories)
    inputs = [torch.randn(shape, device="cuda", dtype=dtype).relu_() for _ in range(4)]
    filler = torch.randn(8192, 8192, device="cuda", dtype=dtype)
    size = inputs[0].numel() * inputs[0].element_size()
    print(f"{list(shape)} {options.dtype}: {size / 1e6:.0f} MB per pass")
    print("block rows warps   ms   GB/s")
    for block, rows, warps in (
        (512, 4, 4), (512, 2, 4), (512, 8, 4), (512, 16, 4), (256, 4, 2), (1024, 4, 8),
        (1024, 4, 4), (2048, 4, 8),
    ):  # fmt: skip
        triton_pass.BLOCK, triton_pass.ROWS, triton_pass.WARPS = block, rows, warps
        shared = LaunchQueue(chosen)
        layer = LayerScan(options.memories, chosen, "cuda", shared)
        numbered, laps = 0, []
        for lap in range(60):
            again = RandomBatch(batch.tokens, batch.lengths, batch.sentences + numbered)
            numbered += len(batch.lengths)
            start, stop = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            if (
                lap == 40
            ):  # by now the thresholds are high; fold, so that they are as high as can be
                layer.state()
            shared.rows(again, layer.device)  # once per batch in a scan: not the kernel's time
            filler @ filler  # keeps the GPU busy until the host has launched the kernel
            start.record()
            layer.take_in(inputs[lap % 4], again)
            stop.record()
            torch.cuda.synchronize()
            laps.append(start.elapsed_time(stop))
        assert layer.uses_kernel
        ms = statistics.median(laps[42:])
        print(f"{block:5} {rows:4} {warps:5} {ms:.3f} {size / ms / 1e6:6.0f}")


def main() -> None:
    """Read the options, run, print."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    parser.add_argument("--layers", type=int, default=16)
    parser.add_argument("--width", type=int, help="the model's d: 512 on the CPU, 1024 on a GPU")
    parser.add_argument("--memories", type=int, help="per layer: four times the width")
    parser.add_argument("--dtype", help="float32 on the CPU, bfloat16 on a GPU")
    parser.add_argument("--tokens", type=int, help="per batch: 1024 on the CPU, 65536 on a GPU")
    parser.add_argument("--batches", type=int, help="100 on the CPU, 240 on a GPU")
    parser.add_argument("--block", type=int, help="batches timed together: 2, or 8 on a GPU")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--vocabulary", type=int, default=32_000)
    parser.add_argument("--top", type=int, default=50)
    parser.add_argument("--sample", type=int, default=32)
    parser.add_argument(
        "--clock", choices=["wall", "cpu"], default="wall", help="cpu: on a machine others use too"
    )
    parser.add_argument("--plain", action="store_true", help="plain torch, no kernel")
    parser.add_argument("--kernel", action="store_true", help="time the kernel alone")
    options = parser.parse_args()
    on_gpu = options.device == "cuda"
    options.width = options.width or (1024 if on_gpu else 512)
    options.memories = options.memories or 4 * options.width
    options.dtype = options.dtype or ("bfloat16" if on_gpu else "float32")
    options.tokens = options.tokens or (65_536 if on_gpu else 1024)
    options.batches = options.batches or (240 if on_gpu else 100)
    options.block = options.block or (8 if on_gpu else 2)
    torch.set_num_threads(options.threads)
    print(vars(options))
    print(torch.__version__, torch.cuda.get_device_name() if on_gpu else "cpu")
    if options.kernel:
        time_kernel(options)
        return
    bench = Bench(options)
    print("the kernel reads" if bench.layers[0].uses_kernel else "plain torch reads")
    times = bench.run()
    report(options, times)
    state = bench.layers[0].state()
    filled = state.triggers.slot_counts.float().mean().item()
    print(f"layer 1: filled {filled:.1f} slots per cell, ")
    print(f"fires on {state.tallies.rate.mean().item():.3f} of {state.tallies.prefixes} prefixes")
    if on_gpu:
        print(f"peak memory {torch.cuda.max_memory_allocated() / 2**30:.2f} GiB")


if __name__ == "__main__":
    main()
