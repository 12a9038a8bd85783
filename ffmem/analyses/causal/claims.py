"""What silencing must show for a memory to be a cause."""

from __future__ import annotations

from ffmem.analyses.causal.record import Causal
from ffmem.analyses.claim import Effect, Finding, claim, up_to
from ffmem.analyses.statistics import mean_of_layers


@claim(
    "causal",
    "not tested there",
    "number",
    "the change is below zero and below that of another active memory",
    source="own",
    figure="causal-value-tokens",
)
def silencing_matters(result: Causal) -> Finding:
    """A memory is a cause: silenced on its triggers, its tokens lose (log-probability)."""
    own = mean_of_layers([layer.silenced.value_log_probability for layer in result.layers])
    other = mean_of_layers([layer.other_silenced.value_log_probability for layer in result.layers])
    worse = sum(
        layer.silenced.value_log_probability.estimate
        < layer.other_silenced.value_log_probability.estimate
        for layer in result.layers
    )
    more = mean_of_layers([layer.lost_more for layer in result.layers])
    effects = (Effect("loses more than another memory", more), Effect("loses", up_to(0, own)))
    detail = f"more than another memory in {worse} of {len(result.layers)} layers"
    return Finding(own, other, "another active memory", effects, detail)


CLAIMS = (  # in the paper's order
    silencing_matters,
)
