from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from ffmem.analyses.analysis import Sizes
from ffmem.analyses.inputs.blind_readings import READER, ReadCase, read_cases
from ffmem.analyses.inputs.layer_readings import (
    DEFAULT_CONVENTION,
    NO_CHANGE,
    UNKNOWN,
    VETO,
    VOTE,
    SampleRecord,
    conventions_of,
    kind_of_change,
    predictions_of,
    record_sample,
)
from ffmem.analyses.inputs.prefix_sample import prefix_batches
from ffmem.analyses.inputs.study_inputs import (
    StudyInputs,
    prefix_control_inputs,
    scanned_control_inputs,
)
from ffmem.analyses.last_layer import measure as last_layer_module
from ffmem.analyses.last_layer.measure import (
    Judge,
    blind_cases,
    calibrate_nearness,
    edit_distance,
    foreign_tokens,
    nearness,
    spelling_relation,
)
from ffmem.analyses.last_layer.measure import (
    measure as last_layer,
)
from ffmem.analyses.last_layer.record import Case
from ffmem.analyses.refinement.measure import measure, share_elsewhere
from ffmem.analyses.refinement.record import Refinement
from ffmem.memories.projection import logits
from ffmem.memories.prompt_explanation import winner
from ffmem.memories.recording import record
from ffmem.models.language_model import LanguageModel
from ffmem.records import to_plain
from ffmem.store.scan_store import ScanStore
from tests.analyses.test_prefix_sample import sample_for
from tests.near_ties import assert_best, assert_rank

Scanned = tuple[LanguageModel, ScanStore]
Read = tuple[LanguageModel, SampleRecord, Refinement]


@pytest.fixture(scope="module")
def refined(scanned_toy: Scanned) -> Read:
    model, _ = scanned_toy
    reading = record_sample(model, sample_for(model, 40))
    return model, reading, measure(reading, model.vocab_size, torch.Generator().manual_seed(0))


def test_what_verdicts_rest_on_is_the_same_where_nothing_else_is_read(
    refined: Read, scanned_toy: Scanned, tmp_path: Path
) -> None:
    model, reading, found = refined
    one = record_sample(model, reading.sample, for_verdicts=True)
    alone = measure(one, model.vocab_size, torch.Generator().manual_seed(0))
    assert to_plain(alone.effects) == to_plain(found.effects)  # with those that are unknown
    assert to_plain(alone.conventions) == to_plain(found.conventions[:1])
    assert all(
        torch.equal(a, b)
        for a, b in zip(
            vars(one.coefficients).values(), vars(reading.coefficients).values(), strict=True
        )
    )
    assert one.normalised.cosine.isnan().all()
    study = StudyInputs(model, scanned_toy[1], Sizes(sample=5))
    control = scanned_control_inputs(study, "permuted-weights", tmp_path)
    for subject, count in ((study, len(conventions_of(model))), (control, 1)):
        assert len(subject.reading.predictions) == count
    assert len(prefix_control_inputs(study, "random-weights").reading.predictions) == 1


def test_shares_add_up_and_are_the_winners_of_each_place(refined: Read) -> None:
    _, reading, found = refined
    for predictions, rows in zip(reading.predictions, found.conventions, strict=True):
        for place, step in enumerate(rows.steps):
            names = ("residual", "agreement", "composition", "ffn")
            shares = [getattr(step, name).estimate for name in names]
            assert sum(shares) == pytest.approx(1)
            won = [
                winner(*(int(t[row, place]) for t in top))
                for top in [(predictions.residual, predictions.feedforward, predictions.output)]
                for row in range(40)
            ]
            assert shares == pytest.approx([won.count(name) / 40 for name in names])
            assert step.veto_both.estimate <= step.composition.estimate


def test_the_last_layers_residual_has_settled_where_it_wins(refined: Read) -> None:
    """Invariant 4: Figure 9 at the last layer = residual + agreement of Figure 11."""
    for rows in refined[2].conventions:
        last = rows.steps[-1]
        assert last.settled.estimate == pytest.approx(
            last.residual.estimate + last.agreement.estimate
        )


def test_nobody_is_outvoted_by_a_sum_without_constants(refined: Read) -> None:
    """Invariant 5: under a linear projection of r, y and r + y, R = F implies O."""
    model, _, found = refined
    linear = "sum" if model.name == "post-norm" else "no final norm"
    rows = next(rows for rows in found.conventions if rows.convention == linear)
    assert all(step.veto_both.estimate == 0 for step in rows.steps)


def test_the_default_convention_ends_at_what_the_model_says(refined: Read) -> None:
    model, reading, found = refined
    assert found.conventions[0].convention == "default"
    differ = reading.predictions[0].last != reading.output
    for row in differ.nonzero().flatten().tolist():  # ties, which rounding decides
        assert_best(reading.predictions[0].last[row], own_logits(model, reading, row))


def test_only_changes_are_looked_at_for_a_veto(refined: Read) -> None:
    _, reading, found = refined
    predictions = reading.predictions[0]
    for place, row in enumerate(found.conventions[0].veto):
        changed = predictions.output[:, place] != predictions.residual[:, place]
        assert row.changes == int(changed.sum()) == row.old_pushed_down.n
        if row.changes:
            old = predictions.push_on_old[:, place][changed]
            assert row.old_pushed_down.estimate == pytest.approx(float((old < 0).double().mean()))
            moved = predictions.new_change[:, place] - predictions.old_change[:, place]
            assert (moved[changed] > -1e-4).all()  # the new token overtook the old one
            assert row.old_change[2] < row.new_change[2] + 1e-4


def test_a_token_is_looked_for_among_those_of_other_sentences() -> None:
    draw = torch.Generator().manual_seed(0)
    tokens, among = torch.randint(4, (2, 12), generator=draw)
    sentences = torch.tensor([0, 0, 0, 1, 2, 2, 3, 3, 1, 4, 4, 0])
    expected = []
    for token, sentence in zip(tokens.tolist(), sentences.tolist(), strict=True):
        others = among[sentences != sentence].tolist()
        expected.append(others.count(token) / len(others))
    assert share_elsewhere(tokens, among, sentences).tolist() == pytest.approx(expected)


def test_a_veto_is_a_fall_and_a_vote_a_rise() -> None:
    before = torch.tensor([[5.0, 4.0, 0.0, 0.0]]).expand(4, -1)
    falls, rises = [1.0, 4.0, 0.0, 0.0], [5.0, 9.0, 0.0, 0.0]
    after = torch.tensor([falls, rises, before[0].tolist(), falls])
    after[3] += 100  # a shift of all logits is nothing
    assert kind_of_change(before, after).tolist() == [VETO, VOTE, NO_CHANGE, VETO]


def test_a_foreign_output_is_another_prefixs(scanned_toy: Scanned) -> None:
    """The slow way: each residual with the output of the next row of its batch."""
    model, _ = scanned_toy
    sample = sample_for(model, 6)
    prefixes = [sample.prefix_tokens(row) for row in range(6)]
    (batch,) = prefix_batches(prefixes, model.bos, 6)
    readings = record(model, batch.tokens, "hramyo", at=batch.columns + 1).layers
    before = torch.arange(6).roll(1)
    found = predictions_of(model, readings, DEFAULT_CONVENTION, before)["foreign_change"]
    for place, reading in enumerate(readings):
        if reading.layer.form == "post-norm":
            assert (found[:, place] == UNKNOWN).all()
            continue
        for row in range(6):
            state = (reading.r[row] + reading.y[row - 1]) * reading.layer.output_scale
            pair = torch.stack([reading.r[row], state])
            before, after = logits(model, pair, "residual")
            expected = kind_of_change(before[None], after[None])
            assert int(found[row, place]) == int(expected)


def own_logits(model: LanguageModel, reading: SampleRecord, row: int) -> torch.Tensor:
    tokens = torch.cat([torch.tensor([model.bos]), reading.sample.prefix_tokens(row)])[None]
    with torch.no_grad():
        return model.model(tokens).logits[0, -1, : model.vocab_size].float()


def test_entropy_is_that_of_the_models_own_distribution(refined: Read) -> None:
    model, reading, found = refined
    own = []
    for row in range(len(reading.sample)):
        said = own_logits(model, reading, row)
        own.append(float(torch.distributions.Categorical(logits=said).entropy()))
    assert sum(group.mean.n for group in found.entropy) == len(own)
    for group in found.entropy:
        mine = [
            entropy
            for entropy, size in zip(own, reading.sample.positions.tolist(), strict=True)
            if group.shortest <= size <= group.longest
        ]
        assert group.mean.n == len(mine)
        assert group.mean.estimate == pytest.approx(sum(mine) / len(mine), rel=1e-3)


def test_blind_pairs_are_cases_with_another_prefixs_old_token(refined: Read) -> None:
    model, reading, _ = refined
    found = last_layer(model, reading, torch.Generator().manual_seed(0), count=3)
    own = {case.sentence: case for case in all_cases(model, reading)}
    olds = {other.residual for other in own.values()}
    for control in found.controls:
        case = own[control.sentence]
        assert (control.prefix, control.output) == (case.prefix, case.output)
        assert control.residual in olds
    if found.found >= 6:
        drawn = {case.sentence for case in found.cases}
        assert drawn.isdisjoint({case.sentence for case in found.controls[:3]})


def test_a_foreign_token_is_neither_the_old_nor_the_new_one() -> None:
    draw = torch.Generator().manual_seed(0)
    old, new = (torch.randint(6, (40,), generator=draw) for _ in range(2))
    chosen = torch.arange(10, 40)
    rows, tokens = foreign_tokens(old, new, chosen, draw)
    assert rows.tolist() == chosen.tolist()
    assert (tokens != old[rows]).all()
    assert (tokens != new[rows]).all()
    assert set(tokens.tolist()) <= set(old[chosen].tolist())
    alone, none = foreign_tokens(old, new, torch.tensor([3]), draw)
    assert (len(alone), len(none)) == (0, 0)
    assert len(foreign_tokens(old, new, chosen[:0], draw)[0]) == 0


def all_cases(model: LanguageModel, reading: SampleRecord) -> tuple[Case, ...]:
    return last_layer(model, reading, torch.Generator().manual_seed(1), count=10**6).cases


def test_cases_are_compositions_of_the_last_layer(refined: Read) -> None:
    model, reading, _ = refined
    draw = torch.Generator().manual_seed(0)
    found = last_layer(model, reading, draw, count=5)
    top = reading.predictions[0]
    for case in found.cases:
        row = reading.sample.numbers.tolist().index(case.sentence)
        r, f, o = (int(t[row, -1]) for t in (top.residual, top.feedforward, top.output))
        assert o not in (r, f)
        assert [case.residual, case.feedforward, case.output] == [
            model.token_text(t) for t in (r, f, o)
        ]
        assert case.prefix == reading.sample.prefix(row)
    assert len(found.cases) == min(5, found.found)


@pytest.mark.parametrize(
    ("one", "other", "related"),
    [
        (" later", " earlier", False),
        (" play", " played", True),
        (" June", " March", True),
        (" 12", " 1998", True),
        (" 1,000", " .5", True),
        (" .", " ,", False),
        (" he", " they", True),
        (" people", " same", False),
        (" colour", " color", True),
        (" the", " then", False),
    ],
)
def test_spelling_and_lists_relate_words(one: str, other: str, related: bool) -> None:
    assert bool(spelling_relation(one, other)) is related
    assert bool(spelling_relation(other, one)) is related


def test_distance_counts_letters() -> None:
    assert edit_distance("kitten", "sitting") == 3
    assert edit_distance("", "abc") == 3


def test_nearness_is_the_share_of_nearer_tokens(relu: LanguageModel) -> None:
    embedding = relu.head.embedding[: relu.vocab_size]
    cosine = torch.nn.functional.cosine_similarity(embedding[5][None], embedding)
    order = [t for t in cosine.argsort(descending=True).tolist() if t != 5]
    for place in (0, 7, 100):
        found = nearness(relu, torch.tensor([5]), torch.tensor([order[place]]))
        rank = round(float(found) * relu.vocab_size)
        assert float(found) == pytest.approx(rank / relu.vocab_size)
        assert_rank(rank + 1, order[place], cosine)  # the token itself is the nearest of all


def test_the_judge_calls_few_random_pairs_related(relu: LanguageModel) -> None:
    pairs = torch.randint(relu.vocab_size, (2, 400), generator=torch.Generator().manual_seed(0))
    near = calibrate_nearness(relu, pairs[0], pairs[1])
    assert near == 0.05  # of random pairs, a share x of the vocabulary holds a share x
    by_distance = [r for r in Judge(relu, near).reasons(pairs[0], pairs[1]) if r.startswith("near")]
    assert len(by_distance) <= 0.07 * 400


def test_the_share_by_chance_is_of_pairs_that_did_not_set_the_distance(
    refined: Read, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, reading, _ = refined
    sets: list[int] = []
    calibrate = last_layer_module.calibrate_nearness

    def note(model: LanguageModel, one: torch.Tensor, other: torch.Tensor) -> float:
        sets.append(len(one))
        return calibrate(model, one, other)

    monkeypatch.setattr(last_layer_module, "calibrate_nearness", note)
    found = last_layer(model, reading, torch.Generator().manual_seed(0))
    assert sets[0] + found.shuffled.n <= found.found
    assert found.shuffled.n >= found.found // 2


def as_drawn(read: ReadCase) -> Case:
    """A case that was read, as a study of the demo draws it."""
    return Case(0, 1, read.prefix, read.old, "", read.new, None, False, "distant")


def test_cases_that_were_read_are_found_by_their_texts_and_others_count_nowhere() -> None:
    read = [one for one in read_cases() if not one.control]
    blind = [as_drawn(one) for one in read_cases() if one.control]
    cases = [as_drawn(one) for one in read]
    found = blind_cases(cases, blind)
    assert found is not None
    assert (found.read, found.found) == (150, 150)
    assert found.judged == tuple(one.answers[READER] for one in read)
    other = [replace(one, prefix="of another text") for one in cases[:30]]
    found = blind_cases([*other, *cases[30:]], blind[:40])
    assert found is not None
    assert (found.read, found.found) == (150, 110)
    assert found.judged[:30] == (None,) * 30
    assert found.related.n == 70
    assert found.related.estimate == pytest.approx(found.judged.count("related") / 70)
    assert found.controls.n == 40
    assert blind_cases(other, blind) is None
