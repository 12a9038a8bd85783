"""The explorer under load: many clients ask at once for a minute, each as soon as it is answered.

    python -m benchmarks.synthetic_store --into FOLDER --signed
    python -m benchmarks.explorer_load FOLDER --clients 16 --seconds 60

Half of the requests are for memory pages, half are searches of every kind that needs no model.
Server and clients share the machine. Memory is what the server and its helpers hold besides the
mapped files.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import random
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import quote

import numpy as np
import uvloop

from ffmem.store.parquet_tables import read_column
from ffmem.store.scan_store import ScanStore

LIMITS = {"memory": 50.0, "search": 100.0}  # milliseconds at the 95th percentile


@dataclass
class Measured:
    """Latencies by kind of request, errors, and the server's memory second by second."""

    seconds: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))
    errors: list[str] = field(default_factory=list)
    memory: list[int] = field(default_factory=list)  # MiB
    processor: float = 0.0  # seconds that the server computed


def main() -> None:
    """Serve, load, report."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--clients", type=int, default=16)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--pause", type=float, default=0.0, help="mean seconds between requests")
    parser.add_argument("--port", type=int, default=8655)
    options = parser.parse_args()
    store = ScanStore.open(options.folder)
    words = [str(word).strip() for word in read_column(store, "vocabulary", "text")]
    with served(options.folder, options.port) as process:
        measured = uvloop.run(load(options, requests(store, words), process))
    report(measured, options)


@contextmanager
def served(folder: Path, port: int) -> Iterator[int]:
    """The explorer in a process of its own, as a user starts it."""
    command = [sys.executable, "-m", "ffmem", "explore", str(folder), "--no-browser"]
    process = subprocess.Popen([*command, "--port", str(port)], stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        for line in process.stdout:
            print(line, end="")
            if "Ctrl-C" in line:
                break
        yield process.pid
    finally:
        process.terminate()
        process.wait()


def requests(store: ScanStore, words: list[str]) -> Callable[[random.Random], tuple[str, str]]:
    """A function that draws (kind, path)."""
    layers, sign = list(store.memories.items()), store.cells.signs
    sorts = ["address", "fires", "mean", "largest", "probability"]

    def word(draw: random.Random) -> str:
        return quote(words[min(int(10 * draw.paretovariate(1)) - 10, len(words) - 1)])

    def drawn(draw: random.Random) -> tuple[str, str]:
        layer, memories = draw.choice(layers)
        if draw.random() < 0.5:
            return "memory", f"/memory/L{layer}.{draw.randrange(memories)}{draw.choice(sign)}"
        asked = draw.choice(
            [
                f"by=promotes&q={word(draw)}",
                f"by=suppresses&q={word(draw)}&sort={draw.choice(sorts)}",
                f"by=promotes&q={word(draw)}&layer={layer}",
                f"by=words&q={word(draw)}",
                f"by=words&q={word(draw)}+{word(draw)}",
                f"by=meaning&q={word(draw)}+{word(draw)}",
                f"by=any&layer={layer}&sort={draw.choice(sorts)}",
                f"by=any&sort={draw.choice(sorts)}&first={25 * draw.randrange(80)}",
                "by=dead",
            ]
        )
        return "search", f"/{'api/' if draw.random() < 0.25 else ''}search?{asked}"

    return drawn


async def load(
    options: argparse.Namespace, drawn: Callable[[random.Random], tuple[str, str]], process: int
) -> Measured:
    """All clients at once, until the time is over."""
    measured, until = Measured(), time.monotonic() + options.seconds
    clients = [
        client(random.Random(number), drawn, measured, (options, until))
        for number in range(options.clients)
    ]
    before = processor_seconds(process)
    await asyncio.gather(watch(process, measured, until), *clients)
    measured.processor = processor_seconds(process) - before
    return measured


def processor_seconds(process: int) -> float:
    """What the server has computed so far, all threads and its helpers together."""
    ticks = 0
    for number in family(process):
        fields = Path(f"/proc/{number}/stat").read_text().rpartition(")")[2].split()
        ticks += int(fields[11]) + int(fields[12])
    return ticks / os.sysconf("SC_CLK_TCK")


def family(process: int) -> list[int]:
    """A process and its children."""
    children = Path(f"/proc/{process}/task/{process}/children").read_text().split()
    return [process, *map(int, children)]


async def client(
    draw: random.Random,
    drawn: Callable[[random.Random], tuple[str, str]],
    measured: Measured,
    about: tuple[argparse.Namespace, float],
) -> None:
    """One connection that asks again as soon as it is answered, or after a pause."""
    options, until = about
    reader, writer = await asyncio.open_connection("127.0.0.1", options.port)
    while time.monotonic() < until:
        kind, path = drawn(draw)
        began = time.perf_counter()
        writer.write(f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1:{options.port}\r\n\r\n".encode())
        status = await answered(reader)
        measured.seconds[kind].append(time.perf_counter() - began)
        if status != 200:
            measured.errors.append(f"{path}: {status}")
        if options.pause:
            await asyncio.sleep(draw.expovariate(1 / options.pause))
    writer.close()


async def answered(reader: asyncio.StreamReader) -> int:
    """The status of an answer, which is read whole."""
    head = (await reader.readuntil(b"\r\n\r\n")).lower()
    size = int(head.split(b"content-length: ")[1].split(b"\r\n")[0])
    await reader.readexactly(size)
    return int(head.split(b" ")[1])


async def watch(process: int, measured: Measured, until: float) -> None:
    """Note the server's own memory every second."""
    while time.monotonic() < until:
        measured.memory.append(sum(map(own_memory, family(process))))
        await asyncio.sleep(1)


def own_memory(process: int) -> int:
    """MiB that a process holds besides mapped files; what a helper shares counts for each."""
    status = Path(f"/proc/{process}/status").read_text().splitlines()
    return int(next(line for line in status if line.startswith("RssAnon")).split()[1]) // 1024


def report(measured: Measured, options: argparse.Namespace) -> None:
    """Print latencies, errors and memory; say whether the limits hold."""
    for kind, limit in LIMITS.items():
        found = 1000 * np.array(measured.seconds[kind])
        middle, high, most = np.percentile(found, [50, 95, 99])
        verdict = "holds" if high <= limit else "DOES NOT HOLD"
        print(
            f"{kind:<7} {len(found):6,} requests  median {middle:6.1f} ms  p95 {high:6.1f} ms  "
            f"p99 {most:6.1f} ms  largest {found.max():6.1f} ms   p95 <= {limit:.0f} ms {verdict}"
        )
    count = sum(len(found) for found in measured.seconds.values())
    tenth = max(len(measured.memory) // 10, 1)
    print(
        f"{count / options.seconds:,.0f} requests per second from {options.clients} clients, "
        f"{1000 * measured.processor / max(count, 1):.1f} ms of the server's processor each, "
        f"{len(measured.errors)} errors; own memory of the server {measured.memory[tenth]} MiB "
        f"after a tenth of the time, {measured.memory[-1]} MiB at the end"
    )
    for error in measured.errors[:5]:
        print("  ", error)


if __name__ == "__main__":
    main()
