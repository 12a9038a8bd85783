"""How far the seeds of a scanned control differ, beyond the intervals of each.

    python -m benchmarks.control_seeds out/demo --seeds 3

Scans a study's text with the model's weights permuted by several seeds and prints, for every claim
on keys and values, the first effect of each seed, their deviation as a share of their mean, and
that less what the intervals explain. A verdict takes a control of one seed to deviate by
`ONE_SEED` (ffmem/analyses/statistics.py).
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path
from statistics import fmean, stdev

from ffmem.analyses.catalogue import ANALYSES, CLAIMS
from ffmem.analyses.inputs.study_inputs import StudyInputs, scanned_control_inputs, scanned_model
from ffmem.analyses.statistics import Interval
from ffmem.analyses.study import open_study

NAMES = ("patterns", "removal", "values", "causal")


def first_effects(inputs: StudyInputs) -> dict[str, Interval]:
    """The first effect of every claim that a control's scan decides, by claim."""
    results = {name: ANALYSES[name].measure(inputs) for name in NAMES}
    claims = [one for one in CLAIMS if set(one.analyses) <= set(NAMES)]
    found = {one.name: one.find(results) for one in claims}
    return {name: one.effects[0].found for name, one in found.items() if one and one.effects}


def main() -> None:
    """Scan, measure and print."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.control_seeds")
    parser.add_argument("study", type=Path)
    parser.add_argument("--seeds", type=int, default=3)
    given = parser.parse_args()
    study = open_study(given.study)
    inputs = StudyInputs(scanned_model(study.store), study.store)
    seeds = []
    with tempfile.TemporaryDirectory() as folder:
        for seed in range(given.seeds):
            name = f"permuted-weights-{seed}"
            control = scanned_control_inputs(inputs, name, Path(folder) / name)
            seeds.append(first_effects(control))
    print(f"{'claim':<32}{'mean':>10}{'deviation':>11}{'beyond':>9}")
    for name in seeds[0]:
        found = [one[name] for one in seeds]
        mean, between = fmean(one.estimate for one in found), stdev(one.estimate for one in found)
        within = fmean(((one.high - one.low) / 3.92) ** 2 for one in found)
        beyond = max(between**2 - within, 0) ** 0.5
        print(f"{name:<32}{mean:>10.4f}{between / abs(mean):>11.1%}{beyond / abs(mean):>9.1%}")


if __name__ == "__main__":
    main()
