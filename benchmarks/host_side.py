"""What the analyses of values, composition and refinement cost the host, without a GPU or a model.

    python -m benchmarks.synthetic_store --into FOLDER --layers 32 --memories 14336 --signed
    python -m benchmarks.host_side FOLDER [--prefixes 4000]

Triggers come from the store; rankings of values and readings of prefixes are random, in the shapes
that a GPU would give. What is timed is all that happens to them in Python, numpy and torch on the
CPU, in seconds of the processor. Run it on two versions in turn to compare them.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path
from tempfile import TemporaryDirectory
from types import SimpleNamespace
from typing import Any, TypeVar

import torch
from tokenizers import Tokenizer, models
from torch import Tensor
from transformers import PreTrainedTokenizerFast

from ffmem.analyses.composition import activity, composition_effects
from ffmem.analyses.controls import shuffle_rows
from ffmem.analyses.inputs.layer_readings import (
    DEFAULT_CONVENTION,
    CoefficientSummary,
    Predictions,
    SampleRecord,
)
from ffmem.analyses.inputs.prefix_sample import PrefixSample
from ffmem.analyses.inputs.value_rankings import (
    LayerValueRankings,
    TriggerTokens,
    other_keys_tokens,
    trigger_tokens,
)
from ffmem.analyses.refinement import refinement
from ffmem.analyses.values import summarise
from ffmem.models.language_model import LanguageModel
from ffmem.models.tiny import tiny_model
from ffmem.models.wrapping import wrap
from ffmem.store.lookup import token_texts
from ffmem.store.range_checks import refuse_damage
from ffmem.store.scan_store import ScanStore
from ffmem.studies.inputs import value_arrays
from ffmem.studies.runner import write_npz

Found = TypeVar("Found")


def timed(name: str, work: Callable[[], Found]) -> Found:
    """Print the processor seconds of some work."""
    began = time.process_time()
    found = work()
    print(f"{name:<28} {time.process_time() - began:7.2f} s", flush=True)
    return found


def word_model(words: list[str]) -> LanguageModel:
    """A toy whose tokens are the store's; the statistics ask it for little else."""
    tokenizer = Tokenizer(models.WordLevel({word: i for i, word in enumerate(words)}, words[0]))
    fast = PreTrainedTokenizerFast(tokenizer_object=tokenizer, bos_token=words[0])
    return wrap(tiny_model("llama", vocab_size=len(words)), fast)


class SyntheticResults:
    """Random numbers in the shapes of what a GPU gives, the same for every version."""

    def __init__(self, words: int) -> None:
        self.words, self.draw = words, torch.Generator().manual_seed(0)

    def numbers(self, *shape: int) -> Tensor:
        """From 0 to 1."""
        return torch.rand(*shape, generator=self.draw)

    def tokens(self, *shape: int) -> Tensor:
        """Tokens, or ranks: small ones are frequent."""
        return (self.words * self.numbers(*shape) ** 3).long()

    def rankings(self, store: ScanStore, layer: int, triggers: TriggerTokens) -> LayerValueRankings:
        """One layer, where one value in twenty promotes what follows the strongest trigger."""
        following, cells = triggers.next, len(triggers.next)
        none = (following < 0).all(dim=1)
        agrees = (self.numbers(cells) < 0.05) & ~none
        other = shuffle_rows(following[:, 0], self.draw)
        return LayerValueRankings(
            layer=layer,
            cells=store.cells,
            top=following[:, 0].where(agrees, self.tokens(cells)),
            probability=self.numbers(cells),
            triggers=triggers,
            ranks=self.tokens(*following.shape).masked_fill(following < 0, -1),
            shuffled_next=other,
            shuffled_ranks=self.tokens(cells).masked_fill(other < 0, -1),
            mass=self.numbers(cells).masked_fill(none, torch.nan),
            shuffled_mass=self.numbers(cells).masked_fill(none, torch.nan),
        )

    def reading(self, prefixes: int, layers: int, memories: int) -> SampleRecord:
        """Prefixes of up to 40 tokens."""
        shape = (prefixes, layers)
        whole = {"active", "for_90", "residual", "feedforward", "output", "rank"}
        counts = {
            one.name: (self.numbers(*shape) * memories).long() for one in fields(CoefficientSummary)
        }
        counts["matches_y"] = self.tokens(*shape) % 3
        found: dict[str, Tensor] = {
            one.name: self.tokens(*shape) if "rank" in one.name or one.name in whole else number
            for one in fields(Predictions)[1:]
            for number in [self.numbers(*shape) - 0.5]
        }
        found |= {name: self.tokens(*shape) % 3 for name in ("change", "foreign_change")}
        sizes = 1 + self.tokens(prefixes) % 40
        sample = PrefixSample(
            torch.arange(prefixes),
            sizes,
            self.tokens(prefixes),
            self.tokens(int(sizes.sum())),
            torch.cat([torch.zeros(1).long(), sizes.cumsum(0)]),
            ("",) * prefixes,
            torch.zeros(prefixes).long(),
            0,
        )
        return SampleRecord(
            sample=sample,
            layers=tuple(range(1, layers + 1)),
            memories=(memories,) * layers,
            predictions=(Predictions(DEFAULT_CONVENTION, **found),) * 2,
            coefficients=CoefficientSummary(**counts),
            value_tops=(),
            output=self.tokens(prefixes),
            entropy=self.numbers(prefixes),
            strongest=self.tokens(prefixes, 32),
        )


def main() -> None:
    """Time each part once."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--prefixes", type=int, default=4000)
    choice = parser.parse_args()
    store = ScanStore.open(choice.folder)
    words = list(token_texts(store))
    model, synthetic, layers = word_model(words), SyntheticResults(len(words)), list(store.memories)
    generator = torch.Generator().manual_seed(0)

    def triggers() -> list[TriggerTokens]:
        found = [trigger_tokens(store, layer) for layer in layers]
        for layer, each in zip(layers, found, strict=True):
            other_keys_tokens(each.next, layer)
        return found

    def numbers() -> None:
        arrays: dict[str, Any] = value_arrays(SimpleNamespace(values=read))  # type: ignore[arg-type]
        with TemporaryDirectory() as folder:
            write_npz(Path(folder) / "values.npz", arrays)

    timed("digests of the store", lambda: refuse_damage(store))
    pairs = zip(layers, timed("tokens of triggers", triggers), strict=True)
    read = [synthetic.rankings(store, layer, each) for layer, each in pairs]
    timed("values: statistics", lambda: summarise(model, store, read, generator))
    timed("values: compressing numbers", numbers)
    reading = synthetic.reading(choice.prefixes, len(layers), max(store.memories.values()))
    stop_word = reading.predictions[0].feedforward % 7 == 0
    timed("composition: activity", lambda: activity(reading))
    timed("composition: effects", lambda: composition_effects(reading, stop_word))
    timed("refinement", lambda: refinement(reading, len(words), generator))


if __name__ == "__main__":
    main()
