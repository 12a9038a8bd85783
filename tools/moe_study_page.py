"""Write the tables of docs/reference/moe-study.md from its numbers, without a GPU.

    python -m tools.moe_study_page

The numbers are those that `python -m making.study_moe_pair` gathers: every result of the mixture,
of the dense model and of their untrained twins, and both curves of the training, without texts.
Intervals resample keys: 95 %; those of a difference resample the keys of both sides.
"""

from __future__ import annotations

import json
import lzma
from collections.abc import Callable, Sequence
from statistics import fmean
from typing import Any

import torch

from ffmem.analyses.statistics import Interval, bootstrap, wilson
from ffmem.report.verdicts import interval_text
from tools.paper_study_page import DOCS, Numbers, fill, percent, table

PAGE = DOCS / "reference" / "moe-study.md"
NUMBERS = DOCS / "reference" / "data" / "moe-study.json.xz"
ROUNDS = 2000
Key = dict[str, Any]
Measure = Callable[[Key], float | None]
BAR = (
    0.1  # control keys of the hardest kind that may have a pattern, or patterns of meaning are out
)


def at_chance(auc: float | None) -> float:
    """The score of a key; 0.5 (chance) without a pattern."""
    return 0.5 if auc is None else auc


MEASURES: dict[str, Measure] = {  # by key; None leaves a key out
    "patterns per memory": lambda key: key["shallow"] + key["semantic"],
    "shallow patterns per memory": lambda key: key["shallow"],
    "semantic patterns per memory": lambda key: key["semantic"],
    "memories with a pattern": lambda key: float(key["shallow"] + key["semantic"] > 0),
    "triggers that the largest pattern covers": lambda key: key["largest"],
    "triggers that some pattern covers": lambda key: key["covered"],
    "held-out AUC against random prefixes": lambda key: at_chance(key["random"]),
    "held-out AUC against near misses": lambda key: at_chance(key["weak"]),
    "the same, of memories with patterns": lambda key: key["weak"],
}


def read_numbers() -> Numbers:
    """Every measurement."""
    found: Numbers = json.loads(lzma.decompress(NUMBERS.read_bytes()))
    return found


def values_of(keys: Sequence[Key], measure: Measure) -> torch.Tensor:
    """One number for each key that has it."""
    found = [number for key in keys if (number := measure(key)) is not None]
    return torch.tensor(found, dtype=torch.double)


def mean_of(keys: Sequence[Key], measure: Measure) -> Interval:
    """The mean over keys."""
    return bootstrap(values_of(keys, measure), torch.Generator().manual_seed(0), ROUNDS)


def difference_of(one: Sequence[Key], other: Sequence[Key], measure: Measure) -> Interval:
    """How much larger the mean is over one side's keys than over the other's."""
    generator = torch.Generator().manual_seed(0)
    sides = [values_of(keys, measure) for keys in (one, other)]
    resamples = [
        side[torch.randint(len(side), (ROUNDS, len(side)), generator=generator)].mean(dim=1)
        for side in sides
    ]
    ends = torch.tensor([0.025, 0.975], dtype=torch.double)
    low, high = (resamples[0] - resamples[1]).quantile(ends).tolist()
    return Interval(float(sides[0].mean() - sides[1].mean()), low, high, sum(map(len, sides)))


def number_text(found: Interval, sign: bool = False) -> str:
    """A number with its interval."""
    form = "+.2f" if sign else ".2f"
    return f"{found.estimate:{form}} ({found.low:{form}} .. {found.high:{form}})"


def difference_text(found: Interval) -> str:
    """A difference with its interval, in bold where 0 is outside."""
    text = number_text(found, sign=True)
    return f"**{text}**" if found.low > 0 or found.high < 0 else text


def keys_of(numbers: Numbers, name: str, part: str = "results") -> list[Key]:
    """The live keys of a study that were looked at for patterns."""
    found: list[Key] = numbers[name][part]["patterns"]["keys"]
    return found


OF_MEANING = (  # measures that rest on patterns of meaning too
    "patterns per memory",
    "semantic patterns per memory",
    "memories with a pattern",
    "triggers that the largest pattern covers",
    "triggers that some pattern covers",
)


def controls_allow(numbers: Numbers, name: str, measure: str) -> bool:
    """Whether the controls of a study allow a measure to be used."""
    controls = numbers[name]["results"]["patterns"]["controls"]
    worst = max(one["false_patterns"]["estimate"] for one in controls)
    return worst <= BAR or measure not in OF_MEANING


def clean(numbers: Numbers) -> str:
    """Mixture against dense, and against the dense model on as much text as an expert reads."""
    moe, dense = keys_of(numbers, "moe"), keys_of(numbers, "dense")
    eighth = keys_of(numbers, "dense-eighth")

    def against(other: str, keys: Sequence[Key], name: str) -> list[str]:
        if not controls_allow(numbers, other, name):
            return ["–", "–"]
        found = difference_of(moe, keys, MEASURES[name])
        return [number_text(mean_of(keys, MEASURES[name])), difference_text(found)]

    def row(name: str) -> list[str]:
        own = number_text(mean_of(moe, MEASURES[name]))
        sides = (("dense-eighth", eighth), ("dense", dense))
        return [name, own, *(cell for side in sides for cell in against(*side, name))]

    heads = (
        f"by memory ({len(moe)}, {len(eighth)} and {len(dense)} live keys)",
        "experts",
        "dense, an eighth of the text",
        "difference",
        "dense, all of the text",
        "difference",
    )
    return table(heads, map(row, MEASURES))


def untrained_twins(numbers: Numbers) -> str:
    """The same measures in the untrained twins."""
    sides = [keys_of(numbers, name, "untrained twin") for name in ("moe", "dense")]

    def row(name: str) -> list[str]:
        measure = MEASURES[name]
        means = [number_text(mean_of(keys, measure)) for keys in sides]
        return [name, *means, difference_text(difference_of(*sides, measure))]

    return table(("untrained", "experts", "dense", "difference"), map(row, MEASURES))


def controls(numbers: Numbers) -> str:
    """How often control keys have a pattern: prefixes that no memory has chosen."""
    sides = [
        {
            one["kind"]: one["false_patterns"]
            for one in numbers[name]["results"]["patterns"]["controls"]
        }
        for name in ("moe", "dense-eighth", "dense")
    ]
    kinds = {
        "random": "random prefixes",
        "matched": "last tokens as common as the triggers'",
        "length": "as long as the triggers",
        "strangers": "one trigger of each of 25 other keys",
    }

    def row(kind: str) -> list[str]:
        return [
            kinds[kind],
            *(interval_text(Interval(**side[kind]), "share") for side in sides),
        ]

    heads = (
        "control keys with a pattern",
        "experts",
        "dense, an eighth of the text",
        "dense, all of the text",
    )
    return table(heads, map(row, kinds))


def by_kind(numbers: Numbers) -> str:
    """Held-out scores of patterns one by one, by class; these intervals resample patterns."""
    sides = {
        name: {
            (one["kind"], one["against"]): one
            for one in numbers[name]["results"]["patterns"]["held_out"]
            if one["on"] == "keys"
        }
        for name in ("moe", "dense-eighth", "dense")
    }

    def cell(one: Numbers) -> str:
        found = Interval(**one["auc"])
        return f"{number_text(found)}, {found.n:,} patterns"

    rows = (
        [f"{kind}, against {words}", *(cell(side[kind, against]) for side in sides.values())]
        for kind in ("shallow", "semantic")
        for against, words in (("random", "random prefixes"), ("weak", "near misses"))
    )
    heads = (
        "AUC of a pattern",
        "experts",
        "dense, an eighth of the text",
        "dense, all of the text",
    )
    return table(heads, rows)


def by_layer(numbers: Numbers) -> str:
    """Patterns, held-out scores and agreement by layer."""
    moe, dense = keys_of(numbers, "moe"), keys_of(numbers, "dense")
    depth = int(numbers["training"]["dense"]["settings"]["layers"])

    def own(keys: Sequence[Key], layer: int) -> list[Key]:
        return [key for key in keys if key["key"].startswith(f"L{layer}.")]

    def row(layer: int) -> list[str]:
        sides = own(moe, layer), own(dense, layer)
        agreement = [
            one["filled"]
            for name in ("moe", "dense")
            for part in ("results", "untrained twin")
            for one in numbers[name][part]["values"]["agreement"]
            if (one["layer"], one["cells"]) == (layer, "both")
        ]
        names = ("shallow patterns per memory", "held-out AUC against near misses")
        return [
            str(layer),
            *(number_text(mean_of(keys, MEASURES[name])) for name in names for keys in sides),
            *(percent(one, 2) for one in agreement),
        ]

    heads = (
        "layer",
        "shallow patterns per memory: experts",
        "dense",
        "AUC against near misses: experts",
        "dense",
        "agreement of values, %: experts",
        "untrained",
        "dense",
        "untrained",
    )
    return table(heads, map(row, range(1, depth + 1)))


def experts(numbers: Numbers) -> str:
    """Load and specialisation of experts by layer."""
    found = numbers["moe"]["results"]["experts"]

    def row(one: Numbers) -> list[str]:
        own = [use for use in found["experts"] if use["layer"] == one["layer"]]
        loads = sorted(use["load"] for use in own)
        special, shuffled = (
            fmean(use[name] for use in own if use[name] is not None)  # None where never chosen
            for name in ("specialisation", "shuffled")
        )
        excess = one["excess"]
        return [
            str(one["layer"]),
            f"{one['effective']:.1f} of {one['experts']}",
            f"{percent(loads[0])} to {percent(loads[-1])}",
            str(one["unused"]),
            f"{excess['estimate']:.4f} ({excess['low']:.4f} .. {excess['high']:.4f})",
            f"{special:.3f} ({shuffled:.3f})",
            f"{percent(one['agreement'], 2)} ({percent(one['shuffled_agreement'], 2)})",
        ]

    heads = (
        "layer",
        "experts in use",
        "load, %: least to most",
        "never chosen",
        "bits about the part of the text, beyond chance",
        "specialisation, mean of experts (by chance)",
        "agreement, % (shuffled)",
    )
    return table(heads, map(row, found["layers"]))


def models(numbers: Numbers) -> str:
    """Both models: sizes and held-out perplexity."""

    def row(name: str, word: str) -> list[str]:
        one, scan = numbers["training"][name], numbers[name]["scan"]
        shape, last = one["settings"], one["curve"][-1]
        chosen, size = int(shape["chosen"]), int(shape["size"])
        count = int(shape["experts"]) * size if name == "moe" else chosen * size
        live = len(keys_of(numbers, name))
        drawn = live + numbers[name]["results"]["patterns"]["dead"]
        dead = wilson(drawn - live, drawn)
        return [
            word,
            f"{one['active'] / 1e6:.1f} M",
            f"{int(shape['layers']) * count:,}",
            f"{chosen * size:,}",
            f"{last['tokens'] / 1e6:.1f} M",
            f"{last['validation perplexity']:.1f}",
            f"{scan['sentences']:,} ({scan['prefixes'] / 1e6:.1f} M prefixes)",
            interval_text(dead, "share"),
        ]

    heads = (
        "model",
        "active parameters",
        "memories",
        "active per place and layer",
        "tokens read in training",
        "held-out perplexity",
        "sentences scanned",
        "dead keys in the sample",
    )
    return table(heads, [row("moe", "mixture"), row("dense", "dense")])


def training(numbers: Numbers) -> str:
    """Both training curves."""
    curves = [numbers["training"][name]["curve"] for name in ("moe", "dense")]
    dense = {point["tokens"]: point["validation perplexity"] for point in curves[1]}
    rows = (
        [
            f"{point['tokens'] / 1e6:.1f}",
            f"{point['validation perplexity']:.1f}",
            f"{dense[point['tokens']]:.1f}" if point["tokens"] in dense else "–",
        ]
        for point in curves[0]
    )
    return table(("million tokens", "perplexity of the mixture", "of the dense model"), rows)


TABLES = {
    "models": models,
    "clean": clean,
    "kinds": by_kind,
    "controls": controls,
    "untrained": untrained_twins,
    "layers": by_layer,
    "experts": experts,
    "training": training,
}


def page(text: str, numbers: Numbers) -> str:
    """The page with every table generated from the numbers."""
    return fill(text, numbers, TABLES)


def main() -> None:
    """Write the page."""
    PAGE.write_text(page(PAGE.read_text("utf-8"), read_numbers()), "utf-8")


if __name__ == "__main__":
    main()
