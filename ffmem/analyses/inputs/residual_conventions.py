"""What counts as residual and output where blocks or final norms differ from the paper's model."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from torch import Tensor

from ffmem.memories.projection import PAPER, Lens
from ffmem.memories.recording import LayerRecord
from ffmem.models.language_model import LanguageModel


@dataclass(frozen=True)
class Convention:
    """One way to say what r and o are, and how they are projected.

    `parallel_r`: in a block with attention and layer side by side, `with_attn` takes
    r = h + attention and o = what leaves the block, `block_input` r = h and o = h + y.
    `postln_o`: in a post-norm block, o is the `normed` sum that the model passes on, or the `sum`.
    """

    name: str
    lens: Lens = PAPER
    parallel_r: Literal["with_attn", "block_input"] = "with_attn"
    postln_o: Literal["normed", "sum"] = "normed"

    def r(self, reading: LayerRecord) -> Tensor:
        """The residual of a layer."""
        if self.parallel_r == "block_input" and reading.layer.form == "parallel":
            return reading.h
        return reading.r

    def o(self, reading: LayerRecord) -> Tensor:
        """The output of a layer."""
        form = reading.layer.form
        if self.parallel_r == "block_input" and form == "parallel":
            return (reading.h + reading.y) * reading.layer.output_scale
        if self.postln_o == "sum" and form == "post-norm":
            return reading.r + reading.y
        return reading.o


DEFAULT = Convention("default")


def conventions_of(model: LanguageModel) -> tuple[Convention, ...]:
    """The default, and every other convention that makes a difference in this model."""
    forms = {layer.form for layer in model.layers}
    found = [DEFAULT]
    if "parallel" in forms:
        found.append(Convention("block_input", parallel_r="block_input"))
    if "post-norm" in forms:
        found.append(Convention("sum", postln_o="sum"))
    if model.head.chain:
        found.append(Convention("no final norm", Lens(final_norm="none")))
    return tuple(found)
