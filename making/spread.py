"""Train small models with several seeds on two corpora, and study each on several sizes of text.

    python -m making.spread wiki.txt --into out/spread

The first corpus is a text, one paragraph a line; the second is the Python source on this machine
(the standard library and all packages), one block between empty lines as a paragraph. All models
have one shape (`train_model`). A study scans the first sentences of the model's own training text
(`ffmem scan`), goes through every analysis that a claim rests on (`ffmem analyse`) and does the
same to an untrained twin. Models of the first corpus are studied at every size of `--sizes`, with
and without `--dedupe prefix`, those of the second at the largest size. The seed of a model is also
that of its study and of its twin.

Leaves in the folder the models with their curves, the studies, and `numbers/NAME.json.xz` (see
`tools.study_numbers`), each as soon as it is there; `logs/` tells what failed.
"""

import argparse
import functools
import itertools
import os
import random
import subprocess
import sys
import sysconfig
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from tools.study_numbers import study_numbers, write_numbers

from making.files import lines_of, write_whole
from making.train_tokenizer import save, trained

ANALYSES = "patterns,removal,values,composition,refinement,last-layer,causal"
BLOCK = (40, 2000)  # characters of a block of source code, the least and the most
RUN = """
import runpy, shlex, sys
for line in sys.argv[1:]:
    sys.argv = ["ffmem", *shlex.split(line)]
    try:
        runpy.run_module("ffmem", run_name="__main__")
    except SystemExit as end:
        if end.code:
            raise
"""  # several commands in one process: importing torch takes longer than some of them


@dataclass(frozen=True)
class Study:
    """One study: which model, on how many sentences."""

    corpus: str
    seed: int
    sentences: int
    dedupe: str

    @property
    def name(self) -> str:
        """A name for its folder."""
        return f"{self.corpus}-{self.seed}-{self.sentences}-{self.dedupe}"


def source_blocks(folders: Iterable[Path]) -> Iterator[str]:
    """Blocks of Python source between empty lines, each on one line and each only once."""
    seen = set()
    files = (path for folder in folders for path in sorted(folder.rglob("*.py")))
    for path in files:
        for block in path.read_text("utf-8", errors="ignore").split("\n\n"):
            text = " ".join(block.split())
            if BLOCK[0] <= len(text) <= BLOCK[1] and hash(text) not in seen:
                seen.add(hash(text))
                yield text


def write_corpus(name: str, lines: Iterable[str], given: argparse.Namespace) -> None:
    """Shuffle paragraphs, hold some out, and learn a tokenizer."""
    folder = given.into / name
    if (folder / "tokenizer" / "tokenizer_config.json").exists():
        return
    texts = list(itertools.islice((line for line in lines if line.strip()), given.most))
    random.Random(0).shuffle(texts)
    texts = texts[: given.paragraphs + given.held_out]
    held_out, rest = texts[: given.held_out], texts[given.held_out :]
    write_whole(folder / "valid.txt", "".join(f"{line}\n" for line in held_out).encode())
    write_whole(folder / "train.txt", "".join(f"{line}\n" for line in rest).encode())
    save(trained(rest[: given.tokenizer_lines], given.vocabulary), folder / "tokenizer", 256)
    print(f"{name}: {len(rest):,} paragraphs, {sum(map(len, rest)):,} characters", flush=True)


def run(name: str, words: list[str], given: argparse.Namespace) -> bool:
    """Run a command with its output in a log; whether it ended well."""
    log = given.into / "logs" / f"{name}.log"
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("a") as file:
        code = subprocess.run([sys.executable, *words], stdout=file, stderr=file).returncode
    print(f"{name}: {'done' if code == 0 else f'failed, see {log}'}", flush=True)
    return code == 0


def train(corpus: str, seed: int, given: argparse.Namespace) -> bool:
    """Train one model, unless it is there."""
    folder = given.into / corpus
    model = given.into / "models" / f"{corpus}-{seed}"
    if (model / "curve.json").exists():
        return True
    words = ["-m", "making.train_model", folder / "train.txt", folder / "valid.txt"]
    words += [f"--tokenizer={folder / 'tokenizer'}", f"--into={model}", f"--seed={seed}"]
    words += [f"--processes={given.encoders}", *given.training.split()]
    return run(f"train-{corpus}-{seed}", list(map(str, words)), given)


def study(one: Study, given: argparse.Namespace) -> None:
    """Scan and analyse a model and its twin, and write the numbers."""
    numbers = given.into / "numbers" / f"{one.name}.json.xz"
    if numbers.exists():
        return
    folder, texts = given.into / "studies" / one.name, given.into / one.corpus
    model = given.into / "models" / f"{one.corpus}-{one.seed}"
    analyse = f"analyse {folder} --valid {texts / 'valid.txt'} --size {given.size} --no-figures"
    analyse += f" --seed {one.seed} --only {ANALYSES} --device {given.device}"
    scan = f"scan {model} {texts / 'train.txt'} --max-sentences {one.sentences} -o {folder}"
    scan += f" --dedupe {one.dedupe} --seed {one.seed} --device {given.device}"
    commands = [scan, analyse, f"{analyse} --control random-weights"]
    if run(f"study-{one.name}", ["-c", RUN, *commands], given):
        write_numbers(study_numbers(folder), numbers)


def studies(corpus: str, seed: int, given: argparse.Namespace) -> Iterator[Study]:
    """The studies of one model, the one with most text first."""
    sizes = sorted(given.sizes, reverse=True)
    if corpus != "wiki":
        yield Study(corpus, seed, sizes[0], "none")
        return
    for dedupe, size in itertools.product(("none", "prefix"), sizes):
        yield Study(corpus, seed, size, dedupe)


def parse(words: list[str] | None = None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("text", type=Path, help="one paragraph a line; may be .xz or .gz")
    parser.add_argument("--into", type=Path, required=True)
    parser.add_argument("--source", type=Path, nargs="*", default=source_folders())
    parser.add_argument("--seeds", type=int, nargs="*", default=[0, 1, 2])
    parser.add_argument("--sizes", type=int, nargs="*", default=[2_500, 40_000, 400_000])
    parser.add_argument("--most", type=int, default=420_000, help="paragraphs read of a corpus")
    parser.add_argument("--paragraphs", type=int, default=250_000, help="trained on, at most")
    parser.add_argument("--held-out", type=int, default=2_000, help="paragraphs")
    parser.add_argument("--tokenizer-lines", type=int, default=50_000)
    parser.add_argument("--vocabulary", type=int, default=16_000)
    parser.add_argument("--training", default=TRAINING, help="settings of train_model")
    parser.add_argument("--encoders", type=int, default=3, help="processes per model")
    parser.add_argument("--size", default="paper", help="of the studies")
    parser.add_argument("--together", type=int, default=10, help="studies at once")
    parser.add_argument("--device", default="auto")
    return parser.parse_args(words)


TRAINING = (
    "--layers 8 --width 384 --memories 1536 --heads 6 --block 256 --batch-tokens 32768 "
    "--steps 1221 --seconds 240 --looks 5 --watch 500"
)


def source_folders() -> list[Path]:
    """Where this machine has Python source."""
    packages = (path for path in sys.path if path.endswith(("site-packages", "dist-packages")))
    return [Path(sysconfig.get_path("stdlib")), *map(Path, packages)]


def main(words: list[str] | None = None) -> None:
    """Prepare, train, study."""
    given = parse(words)
    os.environ.setdefault("OMP_NUM_THREADS", "2")
    os.environ.setdefault("TORCHINDUCTOR_COMPILE_THREADS", "2")
    corpora = {"wiki": lines_of(given.text), "code": source_blocks(given.source)}
    with ThreadPoolExecutor(2) as pool:
        list(pool.map(functools.partial(write_corpus, given=given), corpora, corpora.values()))
    models = list(itertools.product(corpora, given.seeds))
    with ThreadPoolExecutor(given.together) as pool, ThreadPoolExecutor(len(models)) as trainers:

        def follow(corpus: str, seed: int) -> list[Study]:
            return list(studies(corpus, seed, given)) if train(corpus, seed, given) else []

        ready = [trainers.submit(follow, *model) for model in models]
        waiting = [
            pool.submit(study, one, given)
            for turn in itertools.zip_longest(*(model.result() for model in ready))
            for one in turn
            if one is not None
        ]
        for one in waiting:
            one.result()


if __name__ == "__main__":
    main()
