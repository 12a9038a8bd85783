"""Toys spread over devices, and all that must come out as on one device."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch
from torch import Tensor

from ffmem.address import Address
from ffmem.analyses import estimate
from ffmem.analyses.causal.one_memory import effect_view
from ffmem.analyses.controls import untrained_model
from ffmem.analyses.last_layer.measure import nearness
from ffmem.analyses.lenses.measure import lenses_of
from ffmem.analyses.study import Study
from ffmem.analyses.weights.nearest import nearest
from ffmem.execution.ready_shards import shard_batches
from ffmem.memories.attribution import contributions
from ffmem.memories.edits import Edit, edited
from ffmem.memories.projection import Lens, logits
from ffmem.memories.prompt_answer import PromptQuestion, prompt_answer
from ffmem.memories.prompt_explanation import explain_prompt
from ffmem.memories.recording import record
from ffmem.memories.value_vectors import rank_in_parts, value_tokens, value_vectors
from ffmem.models.device_placement import own_parameters
from ffmem.models.fingerprint import weights_digest
from ffmem.models.language_model import LanguageModel
from ffmem.models.loading import load
from ffmem.models.wrapping import wrap
from ffmem.scan.scanner import Scanner, ScanState
from ffmem.scan.settings import UNIT, ScanSettings
from ffmem.scan.tallies import Tallies
from tests.analyses.conftest import lines, sentences_of
from tests.small_study import small_results

KINDS = ("llama", "gpt2", "phi", "gemma2", "olmo2", "openai-gpt", "fairseq_lm")
TEXT = "the river runs"
NEAR = {"rtol": 1e-3, "atol": 1e-4}  # what two devices may round differently


@dataclass(frozen=True)
class Split:
    """Where each part goes; `main` is where parts on "cpu" run, or None: on the first GPU."""

    start: str  # embeddings
    layers: tuple[str, str, str]
    norm: str
    head: str
    main: str | None = None


def device_map(model: LanguageModel, split: Split) -> dict[str, str]:
    """The split by module names; a head that shares the input embedding goes where that is."""
    names = {module: name for name, module in model.model.named_modules()}
    found = {
        names[layer.block]: device for layer, device in zip(model.layers, split.layers, strict=True)
    }
    found |= {names[module]: split.norm for module in model.head.chain if module in names}
    found[names[model.head.output]] = split.start if model.head.tied else split.head
    for path, _ in [*model.model.named_parameters(), *model.model.named_buffers()]:
        owner = path.rpartition(".")[0]
        alone = not any(model.model.get_submodule(owner).children())
        if alone and not any(owner == name or owner.startswith(name + ".") for name in found):
            found[owner] = split.start
    return found


def spread(kind: str, split: Split, folder: Path) -> LanguageModel:
    """A toy placed by accelerate, as transformers does it for a `device_map`."""
    from accelerate import dispatch_model

    whole = load(f"tiny:{kind}", device="cpu")
    placed = dispatch_model(
        whole.model,
        device_map(whole, split),
        main_device=split.main,
        offload_dir=str(folder),
        skip_keys=whole.model._skip_keys_device_placement,
    )
    return wrap(placed, whole.tokenizer)


def assert_same_weights(expected: LanguageModel, found: LanguageModel) -> None:
    """Every weight can be read, once, and is the one that it was."""
    assert weights_digest(found.model) == weights_digest(expected.model)
    assert [name for name, _ in own_parameters(found.model)] == [
        name for name, _ in own_parameters(expected.model)
    ]
    assert (found.hidden_size, found.memories, found.vocab_size) == (
        expected.hidden_size,
        expected.memories,
        expected.vocab_size,
    )
    for one, other in zip(expected.layers, found.layers, strict=True):
        assert other.parameters == one.parameters
        assert other.values.device == other.keys.device == other.device
        assert torch.equal(other.values.cpu(), one.values)
        assert torch.equal(other.keys.cpu(), one.keys)
        same(value_vectors(one), value_vectors(other))
    for embed in ("output", "input"):
        mine, own = found.head.vectors(embed), expected.head.vectors(embed)  # type: ignore[arg-type]
        same(own.of(torch.arange(len(own))), mine.of(torch.arange(len(own))))
        assert mine.device == found.head.device
    assert found.head.tied == expected.head.tied


def assert_same_memories(expected: LanguageModel, found: LanguageModel) -> None:
    """Readings, projections, contributions and edits are those of one device."""
    for one, other in zip(
        record(expected, TEXT, "hrxamyo"), record(found, TEXT, "hrxamyo"), strict=True
    ):
        for letter in "hrxamyo":
            assert getattr(other, letter).device == other.layer.device
            same(getattr(one, letter), getattr(other, letter))
    assert_same_projections(expected, found)
    before, after = explain_prompt(expected, TEXT), explain_prompt(found, TEXT)
    same(before.distribution, after.distribution)
    token = before.likeliest(1)[0]
    terms, same_terms = (
        contributions(model, view.records, token)
        for model, view in ((expected, before), (found, after))
    )
    assert same_terms.logit == pytest.approx(terms.logit, abs=1e-4)
    assert same_terms.total == pytest.approx(terms.logit, abs=1e-3)
    for one, other in zip(terms.layers, same_terms.layers, strict=True):
        same(one.terms, other.terms)
    assert found.generate(TEXT, 4, 3) == expected.generate(TEXT, 4, 3)
    edits = ["L1.3=2", "L3.5*-4"]
    with edited(expected, edits), edited(found, edits):
        assert explain_prompt(expected, TEXT).divergence_from(before) > 1e-6
        same(explain_prompt(expected, TEXT).distribution, explain_prompt(found, TEXT).distribution)


def assert_same_projections(expected: LanguageModel, found: LanguageModel) -> None:
    """Every lens, from whatever device a vector comes."""
    states = torch.randn(4, expected.hidden_size, generator=torch.Generator().manual_seed(1))
    targets = torch.tensor([1, 5, 9, 13])
    sizes = states.norm(dim=1, keepdim=True)
    ways = [Lens(), *lenses_of(expected).values(), Lens(head_bias="all")]
    assert list(lenses_of(found)) == list(lenses_of(expected))
    for lens in ways:
        for kind in ("residual", "direction"):
            one = logits(expected, states, kind, lens)  # type: ignore[arg-type]
            for device in found.devices:
                other = logits(found, states.to(device), kind, lens)  # type: ignore[arg-type]
                assert other.device == found.head.device
                same(one, other)
    frozen = Lens(final_norm="frozen")
    for device in found.devices:
        moved = logits(found, states.to(device), "direction", frozen, sizes.to(device))
        same(logits(expected, states, "direction", frozen, sizes), moved)
    same(nearness(expected, targets, targets + 1), nearness(found, targets, targets + 1), atol=0.02)
    for layer in (1, 3):
        one_end, other_end = (next(rank_in_parts(m, m.layer(layer), 3)) for m in (expected, found))
        same(one_end.promoted_logits, other_end.promoted_logits)
        same(one_end.suppressed_probability, other_end.suppressed_probability)
        address = Address(layer, 4)
        same(value_tokens(expected, address).logits, value_tokens(found, address).logits)


def scan_of(model: LanguageModel, rows: slice = slice(None)) -> ScanState:
    """What a scan of some sentences keeps, in several batches."""
    sentences = sentences_of(model, lines(16, 3))
    settings = ScanSettings(top=5, sample=3, signed=model.gated)
    with Scanner(model, settings) as scanner:
        for batch in shard_batches(model, sentences, 96)[rows]:
            scanner.read(batch)
        return scanner.state()


def rate(tallies: Tallies) -> Tensor:
    """The share of prefixes that fired."""
    return tallies.fires.double() / tallies.prefixes


def mean(tallies: Tallies) -> Tensor:
    """The mean of every cell over all prefixes, 0 where it does not fire."""
    return tallies.totals.double() * UNIT / tallies.prefixes


def assert_same_scan(expected: LanguageModel, found: LanguageModel) -> None:
    """Triggers and tallies of every layer, each kept on the device of its layer."""
    one, other = scan_of(expected), scan_of(found)
    first, rest = scan_of(found, slice(0, 2)), scan_of(found, slice(2, None))
    on_cpu = {number: state.to("cpu") for number, state in rest.items()}
    joined = {number: on_cpu[number].merge(first[number]) for number in first}
    for number, layer in one.items():
        assert other[number].triggers.places.device == found.layer(number).device
        for state in (other[number], joined[number]):
            same(layer.triggers.coefficients, state.triggers.coefficients)
            same(mean(layer.tallies), mean(state.tallies))
            same(rate(layer.tallies), rate(state.tallies), atol=0.02)
            assert state.tallies.prefixes == layer.tallies.prefixes


def assert_same_controls(expected: LanguageModel, found: LanguageModel) -> None:
    """An untrained model of the same shape is spread alike; the machine's speed can be probed."""
    fresh, other = untrained_model(expected), untrained_model(found)
    assert [layer.device for layer in other.layers] == [layer.device for layer in found.layers]
    assert weights_digest(fresh.model) == weights_digest(other.model)
    same(explain_prompt(fresh, TEXT).distribution, explain_prompt(other, TEXT).distribution)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(estimate, "LONG_ENOUGH", 0.0)  # any rate will do
        assert estimate.probe(found).projections > 0


CHECKS: tuple[Callable[[LanguageModel, LanguageModel], None], ...] = (
    assert_same_weights,
    assert_same_memories,
    assert_same_scan,
    assert_same_controls,
)


def assert_same_study(kind: str, one: Study, found: LanguageModel, folder: Path) -> None:
    """Scan, every analysis, and what the explorer asks the model live; `one` is on one device."""
    expected = load(f"tiny:{kind}", device="cpu")
    other = small_results(found, folder / "other")
    assert other.names == one.names
    assert not other.failures
    for name in ("largest", "fires"):
        arrays = [torch.from_numpy(study.store.array(name) + 0.0) for study in (one, other)]
        same(*arrays, atol=2 if name == "fires" else NEAR["atol"])
    for mine, theirs in zip(
        one.result("composition").activity, other.result("composition").activity, strict=True
    ):
        assert theirs.mean_active == pytest.approx(mine.mean_active, abs=1)
    for mine, theirs in zip(one.result("lenses").rows, other.result("lenses").rows, strict=True):
        assert (theirs.layer, theirs.lens) == (mine.layer, mine.lens)
        assert theirs.agreement.estimate == pytest.approx(mine.agreement.estimate, abs=0.1)
    cell = Address.parse("L3.2+" if found.gated else "L3.2")
    mine, theirs = nearest(expected, one.store, cell), nearest(found, other.store, cell)
    for near, nearby in ((mine.by_key, theirs.by_key), (mine.by_value, theirs.by_value)):
        assert [n.cosine for n in nearby] == pytest.approx([n.cosine for n in near], abs=1e-3)
    question = PromptQuestion(
        text=TEXT,
    )
    before, after = (
        prompt_answer(model, question, [Edit.parse("L1.3=2")]) for model in (expected, found)
    )
    assert [c.plain for c in after.chances] == pytest.approx(
        [c.plain for c in before.chances], abs=1e-4
    )
    assert after.plain.explanation.total == pytest.approx(  # type: ignore[union-attr]
        before.plain.explanation.total,
        abs=1e-3,  # type: ignore[union-attr]
    )
    views = [
        effect_view(model, study.store, cell, ([1, 2], 3))
        for model, study in ((expected, one), (found, other))
    ]
    assert [view is None for view in views] == [False, False]


def same(one: Tensor, other: Tensor, atol: float = NEAR["atol"]) -> None:
    """Numbers of one device and of another, but for rounding."""
    torch.testing.assert_close(
        other.detach().cpu(), one.detach().cpu(), rtol=NEAR["rtol"], atol=atol, check_dtype=False
    )
