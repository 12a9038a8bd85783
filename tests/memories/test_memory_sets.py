"""Sets of memories: files, edits of whole sets, their effect on a text, and patches of weights."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

import ffmem
from ffmem.address import Address
from ffmem.analyses.effect.measure import (
    CoefficientRates,
    coefficient_rates,
    continuation,
    log_probabilities,
    random_sets,
    read_tasks,
    task_effect,
    text_effect,
)
from ffmem.analyses.effect.record import Task
from ffmem.errors import AddressError, CorpusError, EditError, ModelError
from ffmem.memories.edits import Edit, edited, expand_edits, read_set, set_text
from ffmem.memories.recording import record
from ffmem.models.language_model import LanguageModel
from tests.cli.test_commands import run

TEXT = ["the river runs to the sea", "a fox sat near the stone", "x", "rain came over the hill"]


def rows(model: LanguageModel) -> list[torch.Tensor]:
    return [model.encode(line)[0, 1:] for line in TEXT]


def test_a_set_is_read_as_it_was_written(tmp_path: Path) -> None:
    addresses = (Address(2, 7), Address(1, 3, "+"), Address(2, 9))
    path = tmp_path / "set.txt"
    path.write_text(set_text(addresses, "two lines\nabout it") + "\n L2.7 # again\n")
    assert read_set(path) == addresses


@pytest.mark.parametrize(
    ("text", "said"),
    [("# nothing\n\n", "holds no address"), ("L2.7\nL0.1\n", "line 2"), (None, "cannot be read")],
)
def test_a_wrong_set_is_one_sentence(tmp_path: Path, text: str | None, said: str) -> None:
    path = tmp_path / "set.txt"
    if text is not None:
        path.write_text(text)
    with pytest.raises(AddressError, match=said):
        read_set(path)


@pytest.mark.parametrize("unknown", ["L99.1", "L2.99999", "L2.7+"])
def test_a_memory_that_the_model_lacks_is_named_with_its_set(
    tmp_path: Path, relu: LanguageModel, unknown: str
) -> None:
    path = tmp_path / "set.txt"
    path.write_text(f"L1.3\n{unknown}\n")
    with pytest.raises(AddressError) as refusal:
        expand_edits([f"@{path}=0"], relu)
    assert str(refusal.value).startswith(f"{unknown} in the set {path}: ")
    with pytest.raises(AddressError) as refusal:
        expand_edits([f"{unknown}=0"], relu)
    assert "in the set" not in str(refusal.value)


def test_texts_stand_for_edits_of_every_memory(tmp_path: Path, relu: LanguageModel) -> None:
    path = tmp_path / "a=set.txt"
    path.write_text("L2.7\nL1.3\n")
    two = [Address(2, 7), Address(1, 3)]
    assert expand_edits([f"@{path}=0"], relu) == [Edit(one, "set", 0.0) for one in two]
    assert expand_edits([f"@{path}×2", "L3.1*3"], relu) == [
        *(Edit(one, "scale", 2.0) for one in two),
        Edit(Address(3, 1), "scale", 3.0),
    ]
    means = {two[0]: 0.25, two[1]: -1.0}
    found = expand_edits([f"@{path}=mean"], relu, lambda all_: [means[one] for one in all_])
    assert found == [Edit(two[0], "set", 0.25), Edit(two[1], "set", -1.0)]
    with pytest.raises(EditError, match="--study"):
        expand_edits(["L2.7=mean"], relu)
    path.write_text("L99.7\n")
    with pytest.raises(AddressError, match="no layer 99"):
        expand_edits([f"@{path}=0"], relu)


@pytest.mark.parametrize("sign", ["", "+", "-"])
def test_a_set_is_edited_as_its_memories_one_by_one(gated: LanguageModel, sign: str) -> None:
    """The quick way for whole sets gives what each edit's own formula gives."""
    layer = 2
    edits = [
        Edit(Address(layer, index, sign), action, amount)  # type: ignore[arg-type]
        for index, action, amount in ((1, "set", 0.5), (4, "scale", -2.0), (9, "set", 0.0))
    ]
    tokens = gated.encode(TEXT[0])
    plain = record(gated, tokens, "m").layer(layer).m
    expected = plain.clone()
    for edit in edits:
        expected[..., edit.address.index] = edit.apply(plain[..., edit.address.index])
    summed = gated.layer(layer).value_map.module(expected).detach()
    with edited(gated, edits):
        torch.testing.assert_close(record(gated, tokens, "y").layer(layer).y, summed)


@torch.no_grad()
def plain_effect(model: LanguageModel, edits: list[Edit]) -> tuple[int, float, float, float]:
    """Tokens; change of loss, KL and change of top-1 for each, read one text at a time."""
    lost, moved, right, count = 0.0, 0.0, 0.0, 0
    for line in TEXT:
        tokens = model.encode(line)
        before = model.model(tokens).logits.float().log_softmax(-1)[0, :-1]
        with edited(model, edits):
            after = model.model(tokens).logits.float().log_softmax(-1)[0, :-1]
        for place, token in enumerate(tokens[0, 1:].tolist()):
            lost += float(before[place, token] - after[place, token])
            moved += float((before[place].exp() * (before[place] - after[place])).sum())
            right += float(after[place].argmax() == token) - float(before[place].argmax() == token)
            count += 1
    return count, lost / count, moved / count, right / count


@pytest.mark.parametrize("kind", ["relu", "gated"])
def test_the_effect_equals_a_plain_reading(
    kind: str, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    model: LanguageModel = request.getfixturevalue(kind)
    few = 4 * 264 * 40  # bytes of logits, so that there are several batches
    monkeypatch.setattr("ffmem.analyses.effect.measure.LOGIT_BYTES", few)
    edits = [Edit(Address(1, index), "set", 0.0) for index in range(30)]
    generator = torch.Generator().manual_seed(0)
    rates = coefficient_rates(model, rows(model))
    controls = random_sets(model, edits, rates, 2, generator)
    found = text_effect(model, rows(model), edits, controls, generator)
    assert len(found.random) == 2
    for change, variant in zip((found.edit, *found.random), (edits, *controls), strict=True):
        count, lost, moved, right = plain_effect(model, variant)
        assert found.tokens == count
        assert change.loss.estimate == pytest.approx(lost, abs=1e-5)
        assert change.kl.estimate == pytest.approx(moved, abs=1e-5)
        assert change.top_1.estimate == pytest.approx(right, abs=1e-9)
    own = abs(found.edit.loss.estimate)
    assert found.stronger == sum(abs(one.loss.estimate) >= own for one in found.random)
    for control in controls:
        memories = [edit.address for edit in control]
        assert len(set(memories)) == len(edits)
        assert not set(memories) & {edit.address for edit in edits}
        assert {one.layer for one in memories} == {1}


def test_rates_are_those_of_the_coefficients(gated: LanguageModel) -> None:
    found = coefficient_rates(gated, rows(gated))
    m = torch.cat(
        [record(gated, gated.encode(line), "m").layer(2).m[0, 1:] for line in TEXT]
    ).double()
    torch.testing.assert_close(found.positive[2], (m > 0).double().mean(0), atol=1e-9, rtol=0)
    torch.testing.assert_close(found.negative[2], (m < 0).double().mean(0), atol=1e-9, rtol=0)
    torch.testing.assert_close(found.mean[2], m.mean(0), atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(found.size[2], m.abs().mean(0), atol=1e-5, rtol=1e-5)
    assert found.means([Address(2, 5)]) == [pytest.approx(float(m[:, 5].mean()), abs=1e-5)]


def test_random_sets_have_nearly_the_same_rates(relu: LanguageModel) -> None:
    memories = relu.layers[0].memories
    rate = {1: torch.linspace(0, 1, memories).double()}
    rates = CoefficientRates({1: relu.layers[0].parts}, rate, rate, rate, rate)
    edits = [Edit(Address(1, index), "set", 0.0) for index in (10, 40)]
    for control in random_sets(relu, edits, rates, 20, torch.Generator().manual_seed(0)):
        for edit, other in zip(edits, control, strict=True):
            assert abs(edit.address.index - other.address.index) <= 12
    many = [Edit(Address(1, index), "set", 0.0) for index in range(memories)]
    with pytest.raises(EditError, match="too few"):
        random_sets(relu, many, rates, 1, torch.Generator().manual_seed(0))


def test_random_sets_are_held_at_their_own_means(relu: LanguageModel) -> None:
    rates = coefficient_rates(relu, rows(relu))
    edits = expand_edits(["L1.10=mean", "L1.40=2"], relu, rates.means)
    for mean, number in random_sets(relu, edits, rates, 5, torch.Generator().manual_seed(0)):
        assert [mean.amount] == rates.means([mean.address])
        assert number.amount == 2


def test_tasks_are_answered_word_for_word(relu: LanguageModel, tmp_path: Path) -> None:
    prompt = "the river"
    right = [Task(prompt, continuation(relu, prompt, [], 1).as_it_is), Task(prompt, "zq")]
    found = task_effect(relu, right, [])
    assert (found.tasks, found.accuracy, found.random) == (2, 0.5, ())
    assert found.edit.accuracy.estimate == found.edit.log_probability.estimate == 0
    path = tmp_path / "tasks.jsonl"
    path.write_text(json.dumps({"prompt": "a", "answer": "b"}) + "\n\n")
    assert read_tasks(path) == (Task("a", "b"),)
    path.write_text('{"prompt": "a"}\n')
    with pytest.raises(CorpusError, match="line 1"):
        read_tasks(path)


@torch.no_grad()
def test_an_edit_of_tasks_stands_beside_random_sets_with_intervals(relu: LanguageModel) -> None:
    """Every change equals the plain difference; none is surer than three tasks more would be."""
    prompts = ["the river", "a stone", "winter", "the old town"]
    edit, other = Edit(Address(1, 0), "set", 50.0), Edit(Address(2, 3), "set", 0.0)
    answers = [continuation(relu, one, [], 1).as_it_is for one in prompts]
    tasks = [
        Task(one, answer if answer.isascii() else "e")  # one byte, which is one token
        for one, answer in zip(prompts, answers, strict=True)
    ]
    found = task_effect(relu, tasks, [edit], [[other], [edit]])
    assert found.accuracy >= 0.5
    for change, edits in ((found.edit, [edit]), (found.random[0], [other])):
        right, lost = [], []
        for task in tasks:
            with edited(relu, edits):
                whole = relu.encode(task.prompt + task.answer)
                after = log_probabilities(relu, whole)[0, -2]
            before = log_probabilities(relu, whole)[0, -2]
            answer = whole[0, -1]
            right.append(float(after.argmax() == answer) - float(before.argmax() == answer))
            lost.append(float(after[answer] - before[answer]))
        assert change.accuracy.estimate == pytest.approx(sum(right) / 4)
        assert change.log_probability.estimate == pytest.approx(sum(lost) / 4, abs=1e-6)
        low, high = change.accuracy.low, change.accuracy.high
        assert high - low >= 0.75
        assert -1 <= low <= change.accuracy.estimate <= high <= 1
        assert change.log_probability.low <= change.log_probability.estimate
        assert change.accuracy.n == 4
    assert found.stronger == 1  # the set itself, and not the other one


def test_random_sets_of_a_mixture_are_other_memories_and_other_experts() -> None:
    model = ffmem.load("tiny:qwen2_moe")
    rates = coefficient_rates(model, rows(model))
    m = torch.cat(
        [record(model, model.encode(line), "m").layer(1).m[0, 1:] for line in TEXT]
    ).double()
    assert rates.means([Address(1, 3, part="E2")]) == [
        pytest.approx(float(m[:, 2 * 16 + 3].mean()), abs=1e-5)
    ]
    edits = expand_edits(["L1.E2=0", "L1.E0.3=0", "L1.S.1=0"], model)
    generator = torch.Generator().manual_seed(0)
    controls = random_sets(model, edits, rates, 10, generator)
    own = [place for edit in edits for place in model.places_of(edit.address)]
    for control in controls:
        places = [place for edit in control for place in model.places_of(edit.address)]
        assert len(set(places)) == len(own) == 18
        assert not set(places) & set(own)
        assert {edit.address.part for edit in control[:16]} in ({"E1"}, {"E3"})  # E0 is edited
        assert [edit.address.index for edit in control[:16]] == list(range(16))
    found = text_effect(model, rows(model), edits, controls[:1], generator)
    assert found.memories == 18
    for change, variant in zip((found.edit, *found.random), (edits, controls[0]), strict=True):
        assert change.loss.estimate == pytest.approx(plain_effect(model, variant)[1], abs=1e-5)
    with pytest.raises(EditError, match="too few experts"):
        random_sets(
            model,
            expand_edits(["L1.S=0"] + [f"L1.E{e}=0" for e in range(4)], model),
            rates,
            1,
            generator,
        )


def test_a_whole_expert_is_held_at_the_means_of_its_memories() -> None:
    """As each of them is when it is named alone; a control is held at its own means."""
    model = ffmem.load("tiny:qwen2_moe")
    rates = coefficient_rates(model, rows(model))
    edits = expand_edits(["L1.E2=mean"], model, rates.means)
    assert edits == expand_edits([f"L1.E2.{i}=mean" for i in range(16)], model, rates.means)
    m = torch.cat([record(model, model.encode(line), "m").layer(1).m[0, 1:] for line in TEXT])
    with edited(model, edits):
        held = record(model, TEXT[0], "m").layer(1).m[0]
    torch.testing.assert_close(held[:, 32:48], m[:, 32:48].mean(0).expand(len(held), -1))
    generator = torch.Generator().manual_seed(0)
    for control in random_sets(model, edits, rates, 5, generator):
        (expert,) = {edit.address.part for edit in control}
        assert expert in ("E0", "E1", "E3")
        assert [edit.amount for edit in control] == rates.means([e.address for e in control])
    shared = expand_edits(["L1.S=0"], model)
    (control,) = random_sets(model, shared, rates, 1, generator)
    assert len({edit.address for edit in control}) == 16  # no other expert reads every place
    assert not any(edit.address.part == "S" for edit in control)
    for wrong, advice in (("L1.E9", r"no expert L1\.E9; .* as in L1\.E0$"), ("L1.E2+", "L7.E3")):
        with pytest.raises((AddressError, EditError), match=advice):
            expand_edits([f"{wrong}=mean"], model, rates.means)
    with pytest.raises(AddressError, match="layer 1 has no experts, so name its memories"):
        expand_edits(["L1.E0=0"], ffmem.load("tiny:llama"))


@pytest.mark.parametrize("kind", ["qwen2_moe", "gpt_oss", "llama4_text"])
def test_a_patch_of_experts_does_what_the_edit_does(
    kind: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    edits = ["L2.E1=0", "L3.E2.3*-1.5", *(() if kind == "gpt_oss" else ["L2.S.5*2"])]
    words = [word for edit in edits for word in ("--set", edit)]
    code, _, said = run(capsys, "patch", f"tiny:{kind}", *words, "-o", str(tmp_path / "patch"))
    assert code == 0, said
    plain = ffmem.load(f"tiny:{kind}")
    tokens = plain.encode(TEXT[0])
    with torch.no_grad():
        before = plain.model(tokens).logits
        with edited(plain, edits):
            expected = plain.model(tokens).logits
        assert not torch.allclose(before, expected, atol=1e-4)
        changed = ffmem.apply_patch(plain, tmp_path / "patch")
        torch.testing.assert_close(changed.model(tokens).logits, expected, atol=1e-4, rtol=1e-4)
        back = ffmem.remove_patch(changed, tmp_path / "patch")
        assert torch.equal(back.model(tokens).logits, before)


@pytest.mark.parametrize("kind", ["opt", "gpt2", "llama", "phi3", "gemma2"])
def test_a_patch_does_what_the_edit_does_and_can_be_taken_back(
    kind: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "set.txt").write_text("L2.7\nL1.3\nL2.0\n")
    edits = [f"@{tmp_path}/set.txt*-1.5", "L3.1=0"]
    words = [word for edit in edits for word in ("--set", edit)]
    code, _, said = run(capsys, "patch", f"tiny:{kind}", *words, "-o", str(tmp_path / "patch"))
    assert code == 0, said
    plain = ffmem.load(f"tiny:{kind}")
    before = {name: one.clone() for name, one in plain.model.named_parameters()}
    tokens = plain.encode(TEXT[0])
    with torch.no_grad(), edited(plain, expand_edits(edits, plain)):
        expected = plain.model(tokens).logits
    changed = ffmem.load(f"tiny:{kind}", patch=tmp_path / "patch")
    assert changed.name != plain.name
    with torch.no_grad():
        torch.testing.assert_close(changed.model(tokens).logits, expected, atol=1e-4, rtol=1e-4)
        assert not torch.allclose(plain.model(tokens).logits, expected, atol=1e-4)
    with pytest.raises(ModelError, match="other weights"):
        ffmem.apply_patch(changed, tmp_path / "patch")
    back = ffmem.remove_patch(changed, tmp_path / "patch")
    for name, one in back.model.named_parameters():
        assert torch.equal(one, before[name]), name
    with pytest.raises(ModelError, match="is not in"):
        ffmem.remove_patch(back, tmp_path / "patch")


def test_a_patch_holds_a_memory_by_the_bias(tmp_path: Path, relu: LanguageModel) -> None:
    from ffmem.models.patches import ValueChange, apply_patch, remove_patch, write_patch

    write_patch(relu, {2: ValueChange({7: 0.0}, {7: 1.25})}, ["L2.7=1.25"], tmp_path / "patch")
    tokens = relu.encode(TEXT[0])
    with torch.no_grad():
        with edited(relu, ["L2.7=1.25"]):
            expected = relu.model(tokens).logits
        plain = relu.model(tokens).logits
        patched = apply_patch(relu, tmp_path / "patch")
        torch.testing.assert_close(patched.model(tokens).logits, expected, atol=1e-4, rtol=1e-4)
        remove_patch(patched, tmp_path / "patch")
        assert torch.equal(relu.model(tokens).logits, plain)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["patch", "tiny:llama", "--set", "L2.7=0.5"], "no bias"),
        (["patch", "tiny:llama", "--set", "L2.7+=0"], "one sign"),
        (["patch", "tiny:llama", "--set", "L2.7=0", "--set", "L2.7*2"], "twice"),
        (["patch", "tiny:llama", "--set", "L2.700=0"], "no memory"),
        (["patch", "tiny:llama", "--set", "@nowhere=0"], "cannot be read"),
        (["patch", "tiny:opt", "--set", "L1.1*-1e308"], "not finite in float32"),
        (["patch", "tiny:opt", "--set", "L1.1=1e39"], "not finite in float32"),
        (["patch", "tiny:opt", "--dtype", "float16", "--set", "L1.1=1e5"], "not finite in float16"),
    ],
)
def test_a_wrong_patch_is_one_sentence(
    words: list[str], said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, _, err = run(capsys, *words, "-o", str(tmp_path / "out"))
    assert code == 2
    assert said in err
    assert len(err.strip().splitlines()) == 1
    assert not (tmp_path / "out").exists()


def test_a_patch_with_infinite_weights_is_not_written(tmp_path: Path, relu: LanguageModel) -> None:
    from ffmem.models.patches import ValueChange, write_patch

    for change in (ValueChange({7: 1e300}, {}), ValueChange({7: 0.0}, {7: 1e300})):
        with pytest.raises(ModelError, match="layer 2 would not be finite"):
            write_patch(relu, {2: change}, ["L2.7"], tmp_path / "patch")
        assert not (tmp_path / "patch").exists()


def test_a_patch_for_another_model_and_a_damaged_one_are_refused(tmp_path: Path) -> None:
    from ffmem.models.patches import ValueChange, write_patch

    model = ffmem.load("tiny:opt")
    write_patch(model, {1: ValueChange({0: 2.0}, {})}, ["L1.0*2"], tmp_path / "patch")
    with pytest.raises(ModelError, match="other weights"):
        ffmem.load("tiny:gpt2", patch=tmp_path / "patch")
    with pytest.raises(ModelError, match="holds no patch"):
        ffmem.load("tiny:opt", patch=tmp_path)
    (tmp_path / "patch" / "patch.safetensors").write_bytes(b"broken")
    with pytest.raises(ModelError, match="damaged"):
        ffmem.load("tiny:opt", patch=tmp_path / "patch")


def test_the_effect_command_prints_the_edit_and_its_controls(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "c.txt").write_text("\n".join(TEXT))
    (tmp_path / "set.txt").write_text("L2.7\nL1.3\n")
    (tmp_path / "t.jsonl").write_text('{"prompt": "the", "answer": " sea"}\n')
    words = ["effect", "tiny:opt", str(tmp_path / "c.txt"), "--random", "2"]
    words += ["--task", str(tmp_path / "t.jsonl"), "--generate", "the sea", "--most", "3"]
    code, out, _ = run(capsys, *words, "--set", f"@{tmp_path}/set.txt=mean")
    assert code == 0
    assert "2 memories edited" in out
    assert "random 2" in out
    assert "1 tasks" in out
    code, out, _ = run(capsys, *words, "--set", f"@{tmp_path}/set.txt", "--json")
    data = json.loads(out)
    assert data["text"]["memories"] == 2
    assert len(data["text"]["random"]) == 2
    assert data["generated"][0]["prompt"] == "the sea"
