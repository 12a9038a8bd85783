"""What must hold in every family: ReLU, GELU, gated, parallel, post-norm.

The invariants of the specification, and where each is tested (in tests/analyses unless a folder is
named; 1, 2 and 8 on more kinds of toys than the five):

1. o = r + y; the next block reads o; the last o through the head is what the model says:
   memories/test_recording, test_prefix_sample, here, test_refinement.
2. The sum of coefficients x values, plus bias, is y, by memories and by signed cells:
   memories/test_recording, test_prefix_sample, here.
3. Figure 4 is the share of rank 0 in figure 5: test_values.
4. Figure 9 at the last layer is residual + agreement of figure 11: test_refinement.
5. The shares of figure 11 add up; R = F = O under a linear projection: test_refinement.
6. Fewer memories can only agree less (figure 8): test_composition.
7. A stored coefficient is that of BOS and the prefix alone; "I love dogs" has its three prefixes
   and next tokens: here, execution/test_run.
8. Without its last token a prefix is the position before: here, test_removal.
9. Streaming is brute force, whatever the batches and the padding: here, execution/test_run,
   scan/test_layer_scan.
10. Planted memories: agreement 1, rank 0, -100 % without the last token: test_values,
    test_removal (ReLU only).
11. Dead keys, unfilled slots, triggers of one token and unknown tokens are counted beside the
    figures: test_values, test_removal.
"""

from __future__ import annotations

import numpy as np
import pytest
import torch

from ffmem.address import Address, Sign
from ffmem.analyses.coefficients.page_coefficients import text_coefficients
from ffmem.analyses.removal.shortened_prefixes import (
    CoefficientQuery,
    ShortenedSentence,
    shortened_coefficients,
)
from ffmem.memories.recording import record
from ffmem.memories.value_vectors import value_vectors
from ffmem.models.language_model import LanguageModel
from ffmem.store.scan_store import ScanStore
from tests.analyses.conftest import lines

Scanned = tuple[LanguageModel, ScanStore]
TOP = 6  # triggers of the toys' scans


def test_signed_cells_add_up_to_what_the_layer_adds(scanned_toy: Scanned) -> None:
    """Invariant 2: cells with coefficients that are never negative, added one by one."""
    model, _ = scanned_toy
    for reading in record(model, "stone light", "my"):
        m, values = reading.m[0, -1], value_vectors(reading.layer)
        total = torch.zeros_like(reading.y[0, -1])
        for index in range(reading.layer.memories):
            total += m[index].clamp(min=0) * values[index]
            total += (-m[index]).clamp(min=0) * -values[index]
        bias = reading.layer.value_bias
        total += 0 if bias is None else bias
        torch.testing.assert_close(total, reading.y[0, -1], rtol=1e-4, atol=1e-5)


def test_a_stored_coefficient_is_that_of_the_prefix_alone(scanned_toy: Scanned) -> None:
    """Invariant 7: BOS and the prefix, without what follows, give the stored coefficient."""
    model, store = scanned_toy
    signs: tuple[Sign, ...] = ("+", "-") if model.gated else ("",)
    seen = 0
    for layer in store.memories:
        for address in (Address(layer, index, sign) for index in (0, 33) for sign in signs):
            for trigger in store.triggers(address):
                m = record(model, trigger.before + trigger.last, "m").layer(layer).m[0, -1]
                own = float(m[address.index]) * (-1 if address.sign == "-" else 1)
                assert own == pytest.approx(trigger.coefficient, rel=1e-3, abs=1e-5)
                seen += 1
    assert seen > 10


def test_along_a_text_of_ones_own_each_prefix_is_read_as_if_alone(scanned_toy: Scanned) -> None:
    """Invariant 7: one pass gives what a pass for each prefix gives."""
    model, _ = scanned_toy
    text, lead = "I love dogs", int(model.bos is not None)
    for address in [Address(2, 5, sign) for sign in ("+-" if model.gated else ("",))]:  # type: ignore[arg-type]
        found = text_coefficients(model, address, text)
        assert "".join(found.tokens) == text
        whole = model.encode(text)
        alone = [
            float(record(model, whole[:, : lead + read], "m").layer(2).m[0, -1, address.index])
            for read in range(1, len(found.tokens) + 1)
        ]
        side = -1 if address.sign == "-" else 1
        assert found.coefficients == pytest.approx([side * m for m in alone], rel=2e-3, abs=1e-5)


def test_without_its_last_token_a_prefix_is_the_position_before(scanned_toy: Scanned) -> None:
    """Invariant 8: position p - 1 of the original run needs no pass of its own."""
    model, _ = scanned_toy
    text = "garden engine"
    ids = model.encode(text)[0, 1:].numpy().astype(np.int32)
    p, sign = len(ids), "+" if model.gated else ""
    asked = [
        CoefficientQuery(Address(2, i, sign), ShortenedSentence(0, ids, p), p) for i in range(40)
    ]  # type: ignore[arg-type]
    found = shortened_coefficients(model, asked, budget=1000)
    before = record(model, text, "m").layer(2).m[0, p - 1, :40]
    assert torch.allclose(found, before, atol=1e-5)


def test_triggers_are_those_of_brute_force(scanned_toy: Scanned) -> None:
    """Invariant 9: streaming keeps what a full sort of all sentences' best prefixes keeps."""
    model, store = scanned_toy
    best: list[torch.Tensor] = []
    for line in lines(60, 1):
        m = record(model, line, "m").layer(2).m[0, 1:-1]  # no empty prefix, no whole sentence
        cells = torch.cat([m, -m], dim=1) if model.gated else m
        if len(cells):
            best.append(cells.max(dim=0).values)
    strongest = torch.stack(best).sort(dim=0, descending=True).values[:TOP]
    for cell in range(0, strongest.shape[1], 5):
        expected = [value for value in strongest[:, cell].tolist() if value > 0]
        found = [
            trigger.coefficient for trigger in store.triggers(store.cells.in_layer(2, [cell])[0])
        ]
        found, expected = (each + [0.0] * (TOP - len(each)) for each in (found, expected))
        assert found == pytest.approx(expected, rel=1e-3, abs=1e-5)
