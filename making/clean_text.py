"""Turn sampled tokens into clean text, one paragraph a line, split by prompt.

    python -m making.clean_text out/samples --model out/smollm2 --into out/text

Writes `train.txt`, `valid.txt` and `counts.json` (texts, paragraphs, words, and what each rule
took). The rules for one text are in `making.clean_rules`; here come those that look at all texts: a
text whose beginning has been seen is dropped, and a sentence that recurs word for word in more than
`--same` paragraphs takes the later paragraphs with it.
"""

import argparse
import json
import multiprocessing
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from tokenizers import Tokenizer

from making.clean_rules import clean
from making.files import write_whole
from making.prompts import Prompt, is_validation, prompts
from making.sentences import sentences

FIRST_ORDINARY_TOKEN = 17  # the ids below are the special tokens of SmolLM2

# Set before the workers are forked, which then need no copy of their own.
_shared: dict[str, tuple[Tokenizer, list[Prompt]]] = {}


def texts_of(path: Path) -> tuple[list[tuple[int, list[str]]], Counter[str]]:
    """One batch's texts as (prompt id, clean paragraphs), and what the rules took."""
    tokenizer, made = _shared["reader"]
    batch = np.load(path)
    gone: Counter[str] = Counter()
    cut = []
    for row in batch["tokens"]:
        ends = np.flatnonzero(row < FIRST_ORDINARY_TOKEN)
        cut.append(row[: ends[0]].tolist() if len(ends) else row.tolist())
    written = tokenizer.decode_batch(cut, skip_special_tokens=False)
    texts = []
    for prompt, continuation in zip(batch["prompts"].tolist(), written, strict=True):
        texts.append((prompt, clean(made[prompt].opening + continuation, gone)))
    return texts, gone


def distinct(
    texts: Iterator[tuple[int, list[str]]], same: int, gone: Counter[str]
) -> Iterator[tuple[int, str]]:
    """(prompt id, paragraph) of texts not seen before, without sentences seen too often."""
    beginnings: set[int] = set()
    times: Counter[int] = Counter()
    for prompt, paragraphs in texts:
        if not paragraphs:
            continue
        beginning = hash(" ".join(paragraphs)[:160])
        if beginning in beginnings:
            gone["text: seen before"] += 1
            continue
        beginnings.add(beginning)
        for paragraph in paragraphs:
            marks = [hash(sentence) for sentence in sentences(paragraph)]
            if any(times[mark] >= same for mark in marks):
                gone["paragraph: sentence seen too often"] += 1
                continue
            times.update(marks)
            yield prompt, paragraph


def clean_folder(given: argparse.Namespace) -> dict[str, object]:
    """Clean all batches of a folder and write the two files; returns the counts."""
    tokenizer = Tokenizer.from_file(str(given.model / "tokenizer.json"))
    _shared["reader"] = (tokenizer, prompts(given.prompts, given.seed))
    files = sorted(given.samples.glob("batch-*.npz"))
    gone: Counter[str] = Counter()
    sampled = 0

    def texts() -> Iterator[tuple[int, list[str]]]:
        nonlocal sampled
        with multiprocessing.get_context("fork").Pool(given.processes) as pool:
            for number, (found, lost) in enumerate(pool.imap(texts_of, files)):
                gone.update(lost)
                sampled += len(found)
                yield from found
                if number % 20 == 0:
                    print(f"{number + 1} of {len(files)} batches", flush=True)

    parts: dict[str, list[str]] = {"train": [], "valid": []}
    for prompt, paragraph in distinct(texts(), given.same, gone):
        parts["valid" if is_validation(prompt) else "train"].append(paragraph)
    counts: dict[str, object] = {"texts sampled": sampled, "taken": dict(gone.most_common())}
    for name, paragraphs in parts.items():
        write_whole(given.into / f"{name}.txt", ("\n".join(paragraphs) + "\n").encode())
        counts[name] = {
            "paragraphs": len(paragraphs),
            "words": sum(len(paragraph.split()) for paragraph in paragraphs),
            "characters": sum(map(len, paragraphs)),
        }
    write_whole(given.into / "counts.json", json.dumps(counts, indent=1).encode())
    return counts


def main() -> None:
    """Read the command line and clean."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("samples", type=Path)
    parser.add_argument("--model", type=Path, required=True, help="the folder sampled from")
    parser.add_argument("--into", type=Path, required=True)
    parser.add_argument("--prompts", type=int, default=250_000, help="as in making.sample_text")
    parser.add_argument("--seed", type=int, default=0, help="as in making.sample_text")
    parser.add_argument("--same", type=int, default=20, help="times a sentence may recur")
    parser.add_argument("--processes", type=int, default=multiprocessing.cpu_count())
    begin = time.monotonic()
    counts = clean_folder(parser.parse_args())
    print(json.dumps(counts, indent=1), f"{time.monotonic() - begin:.0f} s", sep="\n", flush=True)


if __name__ == "__main__":
    main()
