"""The chapters of the report, in the paper's order."""

from __future__ import annotations

from dataclasses import dataclass

from ffmem.studies.registry import ANALYSES


@dataclass(frozen=True)
class SectionText:
    """One chapter of the story; the registry says which analyses belong to it."""

    name: str
    title: str
    intro: str

    @property
    def analyses(self) -> tuple[str, ...]:
        """The analyses that it rests on."""
        return tuple(name for name, row in ANALYSES.items() if row.section == self.name)


SECTIONS = (
    SectionText(
        "keys",
        "Keys detect patterns",
        "A key fires on prefixes. Its strongest triggers show what it looks for: the same last "
        "word (shallow), the same subject (semantic), or both.",
    ),
    SectionText(
        "values",
        "Values promise tokens",
        "A value, multiplied with the output embedding, is a ranking of the vocabulary. If "
        "memories predict, the token on top should be the one that follows the key's triggers.",
    ),
    SectionText(
        "composition",
        "Memories compose",
        "A layer's output is a sum over its memories. Either one memory decides, or many together "
        "say what none of them says alone.",
    ),
    SectionText(
        "refinement",
        "Layers refine the prediction",
        "The residual carries a prediction from layer to layer. Each layer may leave it, replace "
        "it by its own, or turn it into a third.",
    ),
    SectionText(
        "causal",
        "Are memories causes?",
        "Correlation with triggers is not yet cause. Here random memories are silenced on their "
        "own triggers, and forced on elsewhere.",
    ),
)
