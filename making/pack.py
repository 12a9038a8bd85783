"""Lay the trained model and a part of its text into the folder that the package ships.

    python -m making.pack out/model --text out/text --into ffmem/assets/demo

Copies the model folder, writes `train.txt.xz` (a random part of the training paragraphs, in their
order) and `valid.txt.xz` (all of them), and `card.json` with the counts that the data card gives.
Stops if the result is larger than `--most` MB.
"""

import argparse
import json
import lzma
import random
import shutil
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer

from making.files import lines_of, write_whole

MODEL_FILES = [
    "config.json",
    "generation_config.json",
    "model.safetensors",
    "tokenizer.json",
    "tokenizer_config.json",
    "curve.json",
]


def part(lines: list[str], tokens: list[int], wanted: int, seed: int) -> list[str]:
    """A random part of the lines with about `wanted` tokens, in their order."""
    order = random.Random(seed).sample(range(len(lines)), len(lines))
    chosen, total = [], 0
    for line in order:
        if total >= wanted:
            break
        chosen.append(line)
        total += tokens[line]
    return [lines[line] for line in sorted(chosen)]


def lengths(lines: list[str], tokenizer: Tokenizer) -> list[int]:
    """Tokens of each line."""
    return [len(encoding.ids) for encoding in tokenizer.encode_batch_fast(lines)]


def count(lines: list[str], tokenizer: Tokenizer) -> dict[str, int]:
    """What the data card says of a text."""
    return {
        "paragraphs": len(lines),
        "words": sum(len(line.split()) for line in lines),
        "characters": sum(map(len, lines)),
        "tokens": sum(lengths(lines, tokenizer)),
    }


def write_text(path: Path, lines: list[str]) -> None:
    """Write lines, packed as small as xz can."""
    write_whole(
        path, lzma.compress(("\n".join(lines) + "\n").encode(), preset=9 | lzma.PRESET_EXTREME)
    )


def pack(given: argparse.Namespace) -> dict[str, Any]:
    """Write the folder; returns the counts."""
    tokenizer = Tokenizer.from_file(str(given.model / "tokenizer.json"))
    train, valid = (list(lines_of(given.text / f"{name}.txt")) for name in ("train", "valid"))
    tokens = lengths(train, tokenizer)
    shipped = part(train, tokens, given.tokens, given.seed)
    given.into.mkdir(parents=True, exist_ok=True)
    for name in MODEL_FILES:
        shutil.copyfile(given.model / name, given.into / name)
    write_text(given.into / "train.txt.xz", shipped)
    write_text(given.into / "valid.txt.xz", valid)
    card = {
        "cleaning": json.loads((given.text / "counts.json").read_text()),
        "all training text": {"paragraphs": len(train), "tokens": sum(tokens)},
        "training text shipped": count(shipped, tokenizer),
        "validation text": count(valid, tokenizer),
    }
    write_whole(given.into / "card.json", json.dumps(card, indent=1).encode())
    return card


def main() -> None:
    """Read the command line, pack and check the size."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("model", type=Path)
    parser.add_argument("--text", type=Path, required=True, help="the folder of making.clean_text")
    parser.add_argument("--into", type=Path, required=True)
    parser.add_argument("--tokens", type=int, default=1_500_000, help="of training text to ship")
    parser.add_argument("--most", type=float, default=42, help="MB that the folder may have")
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    print(json.dumps(pack(given), indent=1))
    sizes = {path.name: path.stat().st_size for path in sorted(given.into.iterdir())}
    print("\n".join(f"{size:>12,} {name}" for name, size in sizes.items()), flush=True)
    if sum(sizes.values()) > given.most * 1e6:
        raise SystemExit(f"{sum(sizes.values()):,} bytes are too many; ship fewer --tokens")


if __name__ == "__main__":
    main()
