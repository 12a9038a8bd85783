"""What would decide an undecided claim: how much more of what was measured, and how long it takes.

The effects that were found are taken as true, and the claim is judged again as if more had been
measured: intervals shrink with the square root of their units, the deviation between controls
does not. An estimate falls short of its truth half the time, so it is moved towards the bar by as
much as it falls short once in five times.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import NormalDist

from ffmem.analyses.claim import FEWEST, Effect, Finding
from ffmem.analyses.open_claims.need import Need
from ffmem.analyses.statistics import REACH, Interval, difference
from ffmem.analyses.verdicts import (
    ControlEffect,
    Verdict,
    chance_of_failing,
    chance_of_holding,
    decide,
    look_weight,
)

POWER = NormalDist().inv_cdf(0.8)  # deviations by which an estimate falls short once in five times
MOST_LOOKS = 3  # at a claim: the error rate of later ones is too small to decide anything
STEP, MOST_TIMES = 1.25, 25.0  # how finely is searched, and beyond what a claim lies on its bar


ON_THE_BAR = Need("nothing", "lies on the bar")


@dataclass(frozen=True)
class Measurement:
    """What an analysis measured: how many units, what they are, the seconds it took.

    `unit` is empty where everything there is was measured. `most` is how many units there are, in
    the model or `in_text`; None where that is not known.
    """

    amount: int
    unit: str
    seconds: float
    most: int | None = None
    in_text: bool = False


def with_needs(
    verdicts: Sequence[Verdict], measurements: Mapping[str, Measurement]
) -> list[Verdict]:
    """The verdicts, the undecided ones with what would decide them; measurements are by claim."""
    return [
        replace(one, need=_need_of(one, measurements.get(one.name), multipliers(one, verdicts)))
        if one.word == "undecided"
        else one
        for one in verdicts
    ]


def multipliers(one: Verdict, verdicts: Sequence[Verdict]) -> tuple[float, float]:
    """What the p-values of *holds* and of *does not hold* count times in a second look.

    Holm's method counts the claims of the family that are not decided so before, and a later look
    has a part of the error rate.
    """
    family = [
        other
        for other in verdicts
        if (other.source == "paper") == (one.source == "paper")
        and other.finding is not None
        and not other.finding.reason
    ]
    weight = look_weight(one.look + 1)
    holding, failing = (
        max(1, len(family) - sum(other.word == word for other in family))
        for word in ("holds", "does not hold")
    )
    return weight * holding, weight * failing


def _need_of(
    one: Verdict, measured: Measurement | None, times: tuple[float, float] = (1.0, 1.0)
) -> Need:
    """What would decide one undecided claim."""
    found = one.finding
    if found is None:
        return Need("analysis", f"the analysis {one.analysis}")
    if found.awaits:
        return Need("people", found.awaits)
    if any(math.isnan(effect.found.estimate) for effect in found.effects):
        return Need("nothing", "there is nothing to measure it on")
    if not decides(found, one.controls, math.inf, times):
        if not one.controls:
            sure = decides(replace(found, alone="as if it beat them"), (), math.inf, times)
            return Need("controls", "controls") if sure else ON_THE_BAR
        sure = decides(found, _without_deviation(one.controls), math.inf, times)
        return Need("nothing", "the controls differ too much") if sure else ON_THE_BAR
    if one.look >= MOST_LOOKS:
        return ON_THE_BAR
    if measured is None or not measured.unit or found.whole:
        return Need("nothing", "lies on the bar, and all there is was read")
    return need_of_units(measured, _factor_to_decide(found, one.controls, times))


def need_of_units(measured: Measurement, factor: float) -> Need:
    """So many times the units as a need: more of them, or of the text that has them."""
    wanted, most = factor * measured.amount, measured.most or math.inf
    if math.isinf(factor) or (wanted > most and not measured.in_text):
        return ON_THE_BAR
    if wanted > most:
        return Need("text", "the text", wanted / most, factor * measured.seconds)
    more = math.ceil(wanted) - measured.amount
    return Need("more", measured.unit, more, factor * measured.seconds)


def _factor_to_decide(
    found: Finding, controls: Sequence[ControlEffect], times: tuple[float, float]
) -> float:
    """How many times the units would decide it; infinity where that is beyond reason."""
    few = min(effect.found.n for effect in found.effects)
    factor = max(STEP, FEWEST / max(few, 1))
    while factor <= MOST_TIMES:
        if decides(found, controls, factor, times):
            return factor
        factor *= STEP
    return math.inf


def decides(
    found: Finding, controls: Sequence[ControlEffect], factor: float, times: tuple[float, float]
) -> bool:
    """Whether as many times the units would probably decide a claim."""
    more = replace(found, effects=tuple(grow(effect, factor) for effect in found.effects))
    beside = [replace(one, more=difference(more.effects[0].found, one.effect)) for one in controls]
    holding = min(1.0, times[0] * chance_of_holding(more, beside))
    failing = min(1.0, times[1] * chance_of_failing(more, beside))
    return decide(more, beside, holding, failing)[0] != "undecided"


def grow(effect: Effect, factor: float) -> Effect:
    """An effect as so many times its units would probably show it."""
    old, root = effect.found, math.sqrt(factor)
    if math.isnan(old.low):  # counted, not estimated
        return effect
    down, up = (old.estimate - old.low) / root, (old.high - old.estimate) / root
    above = old.estimate > effect.bar
    short = POWER / REACH * (down if above else up)
    middle = old.estimate - short if above else old.estimate + short
    count = FEWEST if math.isinf(factor) else round(old.n * factor)
    found = Interval(middle, middle - down, middle + up, max(old.n, count))
    return replace(effect, found=found)


def _without_deviation(controls: Sequence[ControlEffect]) -> list[ControlEffect]:
    """The controls as if their mean were known without error."""
    means = [(one, one.effect.estimate) for one in controls]
    return [replace(one, effect=Interval(mean, mean, mean, one.effect.n)) for one, mean in means]
