"""The words of the report: its sections in the paper's order, and how to read each figure."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class FigureText:
    """How to read one figure, and what the paper says of it."""

    figure: str
    read: str
    paper: str


@dataclass(frozen=True)
class SectionText:
    """One chapter of the story: the analyses it rests on and its figures in order."""

    name: str
    title: str
    intro: str
    stages: tuple[str, ...]
    figures: tuple[FigureText, ...]


SECTIONS = (
    SectionText(
        "keys",
        "Keys detect patterns",
        "A key fires on prefixes. Its strongest triggers show what it looks for: the same last "
        "word (shallow), the same subject (semantic), or both.",
        ("patterns", "removal"),
        (
            FigureText(
                "patterns",
                "Each bar is one layer; its parts add up to all triggers of the drawn keys. Orange "
                "growing upwards would mean that upper layers look for meaning. What the annotator "
                "finds on control keys, where there is nothing to find, is in the caption.",
                "Layers 1 to 9 mostly shallow, 10 to 16 mostly semantic; 65 to 80 % covered "
                "(figure 2, annotated by people).",
            ),
            FigureText(
                "removal",
                "The lower a line, the more of the coefficient is lost with that token. A key that "
                "only looks at the last word loses all of it with the last token.",
                "The last token costs most, and less so in upper layers (figure 3).",
            ),
        ),
    ),
    SectionText(
        "values",
        "Values promise tokens",
        "A value, multiplied with the output embedding, is a ranking of the vocabulary. If "
        "memories predict, the token on top should be the one that follows the key's triggers.",
        ("values", "lenses"),
        (
            FigureText(
                "values-agreement",
                "Bars above the grey line mean more than chance: the grey line gives every key "
                "another key's value, so common tokens are accounted for.",
                "About 0 in layers 1 to 10, then rising to 3.5 %; chance 0.0004 % (figure 4).",
            ),
            FigureText(
                "values-ranks",
                "Lower is better: 0 means that the next token is the value's first choice. Boxes "
                "below the grey band are better than another key's value.",
                "The rank improves through the layers (figure 5).",
            ),
            FigureText(
                "values-probability",
                "If sure values are right, bars rise to the right. The last bins on the left side "
                "hold few values: mind the counts.",
                "Agreement rises with the maximal probability (figure 6).",
            ),
            FigureText(
                "values-predictive",
                "The surest values against random ones, and against random ones of the same "
                "layers.",
                "97 of the 100 surest values are in layers 11 to 16; 46 have at least one agreeing "
                "trigger among 50.",
            ),
            FigureText(
                "lenses-top-10",
                "The same question under several readings of a value, each with its own chance "
                "level. ‘Measured’ forces the memory on and looks at what the model then says.",
                "Not in the paper, which asks whether lower layers live in another space.",
            ),
            FigureText(
                "lenses-rank",
                "As above, by rank: lower is better.",
                "Not in the paper.",
            ),
        ),
    ),
    SectionText(
        "composition",
        "Memories compose",
        "A layer's output is a sum over its memories. Either one memory decides, or many together "
        "say what none of them says alone.",
        ("composition",),
        (
            FigureText(
                "composition-active",
                "How much of each layer is at work for one prefix, and how many memories make up "
                "90 % of the sum.",
                "10 to 50 % of the memories, fewest around layer 10 (figure 7).",
            ),
            FigureText(
                "composition-zero-agreement",
                "Share of prefixes where no memory's first choice is the layer's. Random "
                "directions in place of the values show what chance would give.",
                "At least about 68 % in every layer (figure 8).",
            ),
            FigureText(
                "composition-cases",
                "In the cases where some memory does agree: how often the token is a stop word and "
                "the prefix short, beside the same shares over all cases.",
                "60 % stop words, 43 % short prefixes; base rates are not given there.",
            ),
        ),
    ),
    SectionText(
        "refinement",
        "Layers refine the prediction",
        "The residual carries a prediction from layer to layer. Each layer may leave it, replace "
        "it by its own, or turn it into a third.",
        ("refinement", "last-layer"),
        (
            FigureText(
                "refinement-settled",
                "Share of prefixes whose final token is already on top of the residual.",
                "About a third in the bottom few layers, growing fast from layer 10 (figure 9).",
            ),
            FigureText(
                "refinement-probability",
                "The probability that the residual gives to the final token.",
                "Rises through the layers (figure 10).",
            ),
            FigureText(
                "refinement-winners",
                "Each bar adds up to all prefixes: the residual's token stays, both agree, the "
                "layer's token wins, or a token of neither (composition).",
                "Residual and agreement the vast majority; composition far above ffn (figure 11).",
            ),
            FigureText(
                "refinement-veto",
                "Where the token changes: how often the layer pushes the old one down, beside "
                "tokens that stay on top.",
                "A conjecture there, not measured.",
            ),
            FigureText(
                "refinement-logits",
                "Where the token changes: how far the layer moves the logits of the old and of the "
                "new one.",
                "A conjecture there, not measured.",
            ),
            FigureText(
                "refinement-entropy",
                "How sure the model is of the next token, by the length of what it has read.",
                "Not in the paper.",
            ),
        ),
    ),
    SectionText(
        "causal",
        "Are memories causes?",
        "Correlation with triggers is not yet cause. Here random memories are silenced on their "
        "own triggers, and forced on elsewhere.",
        ("causal",),
        (
            FigureText(
                "causal-value-tokens",
                "Change of the value's own top tokens. Silencing the memory should lower them, "
                "forcing it should raise them, and the controls should stay near zero.",
                "Not in the paper.",
            ),
            FigureText(
                "causal-next-token",
                "Change of the probability of the token that really follows.",
                "Not in the paper.",
            ),
            FigureText(
                "causal-divergence",
                "How far the whole distribution moves, in nats.",
                "Not in the paper.",
            ),
        ),
    ),
)
