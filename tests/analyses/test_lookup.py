from __future__ import annotations

import re
from pathlib import Path

import pytest
import torch
from click.testing import CliRunner

from ffmem.analyses.lookup.charts import VALUES, fit, lookup_chart, number
from ffmem.analyses.lookup.measure import LayerLookup, layer_lookup
from ffmem.cli import main as command_line
from ffmem.figures.saving import picture, spec_of
from ffmem.memories.edits import Edit
from ffmem.memories.prompt_answer import PromptQuestion
from ffmem.memories.recording import record
from ffmem.models.language_model import LanguageModel
from ffmem.models.tiny import tiny_model, tiny_tokenizer
from ffmem.models.wrapping import wrap
from ffmem.store.scan_store import ScanStore
from tests.analyses.conftest import KINDS, toy_named

TEXT = "the river and the stone"


def strengths(model: LanguageModel, layer: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Coefficients after the text, and how much each memory adds: one by one."""
    m = record(model, TEXT, "m").layer(layer).m[0, -1].detach()
    lengths = torch.stack([value.norm() for value in model.layer(layer).values.detach()])
    return m, m.abs() * lengths


@pytest.mark.parametrize("kind", KINDS)
def test_it_shows_the_strongest_a_weak_and_a_silent_memory(kind: str) -> None:
    model = toy_named(kind)
    found = layer_lookup(model, PromptQuestion(TEXT), 2)
    m, strength = strengths(model, 2)
    assert [one.role for one in found.shown] == ["strongest"] * 3 + ["weak", "silent"]
    assert len({one.address.index for one in found.shown}) == 5
    for one in found.shown:
        coefficient = float(m[one.address.index])
        assert one.coefficient == pytest.approx(coefficient, abs=1e-4)
        if model.gated:
            assert one.address.sign == ("-" if one.coefficient < 0 else "+")
        assert one.stands_for == ()
        assert len(one.tokens) == 4
    strongest, weak, silent = found.shown[:3], found.shown[3], found.shown[4]
    sizes = [float(strength[one.address.index]) for one in strongest]
    assert sizes == pytest.approx(strength.topk(3).values.tolist(), rel=1e-3)
    tenth = 0.1 * float(strength.max())
    others = [float(s) for i, s in enumerate(strength) if s > 0]
    nearest = min(abs(s - tenth) for s in others)
    assert abs(float(strength[weak.address.index]) - tenth) == pytest.approx(nearest, abs=1e-4)
    assert abs(silent.coefficient) == pytest.approx(float(m.abs().min()), abs=1e-6)
    assert "".join(found.read) == TEXT
    assert sum(one.probability for one in found.follows) <= 1


def words(found: LayerLookup) -> str:
    """The words of the picture."""
    return " | ".join(re.findall(r">([^<]+)</t", picture(spec_of(lookup_chart(found)))))


def test_a_scan_names_what_keys_fire_on_and_the_picture_has_all_of_it(
    relu: LanguageModel, relu_store: ScanStore
) -> None:
    found = layer_lookup(relu, PromptQuestion(TEXT, position=-2), 2, relu_store)
    assert "".join(found.read) == TEXT[:-1]
    for one in found.shown:
        first = relu_store.triggers(one.address)[:1]
        assert bool(one.stands_for) == bool(first)
        if first:
            assert one.stands_for[0].endswith(f"{first[0].last}[{first[0].next or 'end'}]".strip())
    assert found.shown[-1].stands_for  # of the silent ones the first that something fires
    said = words(found)
    for one in found.shown:
        assert str(one.address) in said
        assert one.role in said
        assert number(one.coefficient) in said
    assert "next word" in said
    assert f"{100 * found.follows[0].probability:.0f} %" in said


def test_a_long_text_is_cut_and_a_short_one_is_whole() -> None:
    model = toy_named("opt")
    for text, cut in (("the river", False), ("the river and the stone of the bridge", True)):
        said = words(layer_lookup(model, PromptQuestion(text), 2)).split(" | ")
        assert ("…" in said) == cut


def test_coefficients_are_short_and_tokens_stand_once() -> None:
    assert [number(one) for one in (4.9, -2.687, 0.2519, 0.0, 2e-5, -2e-5)] == [
        "4.90",
        "−2.69",
        "0.252",
        "0",
        "≈ 0",
        "≈ 0",
    ]
    assert fit((" this", "this", " that", "\n"), VALUES) == "this · that · \\n"


def test_a_picture_of_a_gated_layer_says_what_a_negative_coefficient_adds() -> None:
    for kind in ("opt", "llama"):
        found = layer_lookup(toy_named(kind), PromptQuestion(TEXT), 2)
        said = words(found)
        negative = any(one.coefficient < 0 for one in found.shown)
        assert negative == (kind == "llama")
        assert ("minus the value" in said) == negative


def test_edits_hold_in_the_picture() -> None:
    model = toy_named("opt")
    first = layer_lookup(model, PromptQuestion(TEXT), 2).shown[0]
    edits = [Edit(first.address, "set", 0.0)]
    after = layer_lookup(model, PromptQuestion(TEXT), 2, None, edits).shown
    assert first.address not in {one.address for one in after if one.role == "strongest"}


def test_a_mixture_shows_memories_of_experts_that_the_router_chose() -> None:
    model = wrap(tiny_model("mixtral"), tiny_tokenizer(), "mixture")
    found = layer_lookup(model, PromptQuestion(TEXT), 2)
    assert all(one.coefficient != 0 for one in found.shown[:4])
    assert found.shown[-1].coefficient == 0
    assert lookup_chart(found).to_dict(validate=True)


def test_the_command_draws_one_layer_and_wants_both_options(tmp_path: Path) -> None:
    path = tmp_path / "figure1.svg"
    asked = ["prompt", "tiny:opt", TEXT, "--layer", "2"]
    drawn = CliRunner().invoke(command_line.ffmem, [*asked, "--picture", str(path)])
    assert drawn.exit_code == 0, drawn.output
    assert path.read_text().startswith("<svg")
    refused = CliRunner().invoke(command_line.ffmem, asked)
    assert refused.exit_code == 2
    assert "--picture draws one layer; give both" in refused.stderr
