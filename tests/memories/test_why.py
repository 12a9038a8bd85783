"""Why a token: true effects against a slow loop, predicted ones against autograd by hand."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, get_args

import pytest
import torch
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

from ffmem.address import Address
from ffmem.errors import FfmemError, ModelError
from ffmem.memories.attribution import contributions
from ffmem.memories.edits import Edit, edited
from ffmem.memories.projection import top_tokens
from ffmem.memories.prompt_explanation import explain_prompt
from ffmem.memories.recording import record
from ffmem.memories.value_vectors import value_vectors
from ffmem.memories.why.answer import Method, why
from ffmem.memories.why.passes import LogitTarget, read_prompt
from ffmem.memories.why.proposal import correlation, upper_bound
from ffmem.memories.why.record import Why
from ffmem.memories.why.silencing import Plan, Replacement, true_effects
from ffmem.models.language_model import LanguageModel
from ffmem.models.loading import load
from ffmem.models.tiny import tiny_model, tiny_tokenizer
from ffmem.models.wrapping import wrap
from ffmem.records import json_text, restore, to_plain

TEXT, OTHER = "the river and", "the stone and"
KINDS = {  # every form of block
    "plain": ("opt", {}),
    "gated": ("llama", {}),
    "post-norm": ("opt", {"do_layer_norm_before": False}),
    "parallel": ("gpt_neox", {}),
    "soft-capped, norms around": ("gemma2", {}),
    "tied": ("gpt2", {}),
    "mixture": ("qwen2_moe", {}),
    "mixture beside a dense layer": ("deepseek_v3", {}),
    "scaled experts": ("llama4_text", {}),
    "adaptive head": ("fairseq_lm", {}),
}


@pytest.fixture(scope="module", params=KINDS)
def form(request: pytest.FixtureRequest) -> LanguageModel:
    kind, changes = KINDS[request.param]
    return wrap(tiny_model(kind, **changes), tiny_tokenizer(), request.param)


@pytest.fixture(scope="module")
def found(form: LanguageModel) -> Why:
    return why(form, TEXT, top=10)


def own_logit(model: LanguageModel, text: str, token: int, position: int = 10**9) -> float:
    """What the model says itself after some tokens of a text."""
    with torch.no_grad():
        tokens = model.encode(text)[:, : position + 1]
        return float(model.model(input_ids=tokens).logits[0, -1, token])


@pytest.mark.parametrize("kind", ["gpt2", "llama"])
def test_a_memory_promotes_in_the_direction_in_which_it_is_added(kind: str) -> None:
    """A smooth activation is negative without a sign in the address, and then lowers its token."""
    model = load(f"tiny:{kind}")
    effects = why(model, TEXT, top=200).effects
    for one in effects:
        layer = model.layer_of(one.address)
        value = value_vectors(layer, [model.index_of(one.address)]).float()
        expected = top_tokens(model, value * one.coefficient, "direction", 5).texts[0]
        assert list(one.promotes) == expected
    assert 20 < sum(one.coefficient < 0 for one in effects) < 180


def test_true_effects_are_those_of_one_edit_at_a_time(form: LanguageModel, found: Why) -> None:
    plain = own_logit(form, TEXT, found.token_id)
    assert found.target == pytest.approx(plain, abs=1e-5)
    for one in found.effects:
        edit = Edit(one.address.memory, "set", 0.0, positions=(one.place,))
        with edited(form, edit):
            expected = plain - own_logit(form, TEXT, found.token_id)
        assert one.true == pytest.approx(expected, abs=1e-5)
    assert max(abs(one.true) for one in found.effects) > 1e-3
    strongest = found.memories[0]
    with edited(form, Edit(strongest.address.memory, "set", 0.0, positions=tuple(range(1, 14)))):
        expected = plain - own_logit(form, TEXT, found.token_id)
    assert strongest.true == pytest.approx(expected, abs=1e-5)
    edits = [Edit(one.address.memory, "set", 0.0, (one.place,)) for one in found.effects]
    with edited(form, edits):
        expected = plain - own_logit(form, TEXT, found.token_id)
    assert found.joint == pytest.approx(expected, abs=1e-5)


def test_batches_of_any_size_give_the_same(form: LanguageModel, found: Why) -> None:
    prompt = read_prompt(form, TEXT, None)
    copies = [
        [Replacement(one.address.layer, one.place, form.index_of(one.address))]
        for one in found.effects
    ]
    target = LogitTarget(found.token_id)
    for batch in (1, 3, 64):
        effects = true_effects(form, prompt, target, copies, batch)
        assert effects == pytest.approx([one.true for one in found.effects], abs=1e-5)


def test_direct_effects_are_the_terms_of_the_logit(form: LanguageModel, found: Why) -> None:
    terms = contributions(form, explain_prompt(form, TEXT), found.token_id)
    last = len(found.tokens)
    for one in found.effects:
        expected = terms.of(one.address) if one.place == last else 0.0
        assert one.direct == pytest.approx(expected, abs=1e-5)


@pytest.mark.parametrize(("kind", "changes"), KINDS.values(), ids=KINDS)
def test_predicted_effects_are_the_slope_of_true_ones(
    kind: str, changes: dict[str, object]
) -> None:
    """A central difference in float64; norms of some types round to float32 inside."""
    model = in_float64(kind, **changes)
    share = 1e-4 if kind == "opt" else 0.01  # ReLU has kinks
    found = why(model, TEXT, token=77, top=6)

    def scaled(factor: float) -> list[float]:
        copies = [
            [Replacement(a.layer, one.place, model.index_of(a), factor * one.coefficient)]
            for one in found.effects
            for a in [one.address]
        ]
        return true_effects(model, read_prompt(model, TEXT, None), LogitTarget(77), copies)

    pairs = zip(scaled(1 - share), scaled(1 + share), strict=True)
    slopes = [(less - more) / (2 * share) for less, more in pairs]
    size = max(abs(one.predicted) for one in found.effects)
    assert [one.predicted for one in found.effects] == pytest.approx(slopes, abs=1e-3 * size)


def in_float64(kind: str, **changes: object) -> LanguageModel:
    """A toy that computes with 64 bits."""
    inner = tiny_model(kind, **changes).double()
    inner.set_experts_implementation("eager")  # the others have no 64 bits
    return wrap(inner, tiny_tokenizer(), kind)


class Toy(nn.Module):
    """`tiny:opt` written again, with coefficients that a gradient can be asked for."""

    def __init__(self, model: LanguageModel, frozen: bool = False) -> None:
        super().__init__()
        self.own, self.m, self.frozen = model.model.model.decoder, list[Tensor](), frozen
        self.embedding = model.model.lm_head.weight

    def forward(self, tokens: Tensor) -> Tensor:
        """Logits [column, token]."""
        places = torch.arange(tokens.shape[1])
        h = self.own.embed_tokens(tokens)[0] + self.own.embed_positions.weight[places + 2]
        for block in self.own.layers:
            h = h + self.attend(block, self.norm(block.self_attn_layer_norm, h))
            a = block.fc1(self.norm(block.final_layer_norm, h))
            m = a * (a > 0)
            self.m.append(m)
            h = h + block.fc2(m)
        return self.norm(self.own.final_layer_norm, h) @ self.embedding.T

    def norm(self, own: nn.LayerNorm, h: Tensor) -> Tensor:
        """A norm, or one that divides by a constant."""
        centred = h - h.mean(dim=-1, keepdim=True)
        size = (centred.pow(2).mean(dim=-1, keepdim=True) + own.eps).sqrt()
        return centred / (size.detach() if self.frozen else size) * own.weight + own.bias

    def attend(self, block: nn.Module, x: Tensor) -> Tensor:
        """Attention with a softmax over the places before."""
        own, heads = block.self_attn, block.self_attn.num_heads
        q, k, v = (
            part(x).view(len(x), heads, -1).transpose(0, 1)
            for part in (own.q_proj, own.k_proj, own.v_proj)
        )
        scores = q @ k.transpose(1, 2) / q.shape[-1] ** 0.5
        later = torch.ones(len(x), len(x), dtype=torch.bool).triu(1)
        pattern = scores.masked_fill(later, -math.inf).softmax(dim=-1)
        pattern = pattern.detach() if self.frozen else pattern
        return own.out_proj((pattern @ v).transpose(0, 1).reshape(len(x), -1))  # type: ignore[no-any-return]


@pytest.mark.parametrize("method", ["gradient", "linear"])
def test_predicted_effects_are_those_of_autograd_on_the_toy_written_again(method: Method) -> None:
    model = in_float64("opt")
    found = why(model, TEXT, top=30, method=method)
    toy = Toy(model, frozen=method == "linear")
    logit = toy(model.encode(TEXT))[-1, found.token_id]
    assert logit.item() == pytest.approx(found.target, abs=1e-9)
    gradients = torch.autograd.grad(logit, toy.m)
    close = 1e-9 if method == "gradient" else 1e-6  # norms are frozen in float32
    for one in found.effects:
        at = (one.place, one.address.index)
        m, slope = toy.m[one.address.layer - 1], gradients[one.address.layer - 1]
        assert one.coefficient == pytest.approx(m[at].item(), abs=1e-9)
        assert one.predicted == pytest.approx((m[at] * slope[at]).item(), abs=close)
    sums = [(m * slope)[1:].sum(dim=1).tolist() for m, slope in zip(toy.m, gradients, strict=True)]
    for layer, expected in zip(found.layers, sums, strict=True):
        assert layer.predicted == pytest.approx(expected, abs=10 * close)
    leading = sum((m * s)[0].sum().item() for m, s in zip(toy.m, gradients, strict=True))
    assert found.leading == pytest.approx(leading, abs=10 * close)


@pytest.mark.parametrize("method", ["gradient", "linear"])
def test_in_a_linear_model_predicted_and_true_effects_are_equal(method: Method) -> None:
    model = linear_toy()
    found = why(model, TEXT, token=77, top=30, method=method)
    assert max(abs(one.true) for one in found.effects) > 0.01
    for one in found.effects:
        assert one.predicted == pytest.approx(one.true, abs=1e-6)


def linear_toy() -> LanguageModel:
    """No norms, the identity as activation, attention that does not look at tokens."""
    inner = tiny_model("opt", activation_function="linear").double()
    for block in inner.model.decoder.layers:
        block.final_layer_norm = block.self_attn_layer_norm = nn.Identity()
        with torch.no_grad():
            block.self_attn.q_proj.weight.zero_()
            block.self_attn.q_proj.bias.zero_()
    inner.model.decoder.final_layer_norm = None
    return wrap(inner, tiny_tokenizer(), "linear")


LINEAR = ["opt", "llama", "gpt_neox", "gemma2", "olmo2", "granite", "phi3", "gpt2", "fairseq_lm"]
LINEAR_MIXTURES = ["qwen2_moe", "deepseek_v3", "gpt_oss", "axk1"]  # shared ones, biases, norms


@pytest.mark.parametrize("kind", LINEAR + LINEAR_MIXTURES)
def test_the_linear_reading_adds_up_and_changes_nothing(kind: str) -> None:
    """Also under a soft cap, norms around the sum, fused and parallel maps, an adaptive head."""
    model = wrap(tiny_model(kind), tiny_tokenizer(), kind)
    with as_it_was(model):
        found = why(model, TEXT, token=70, against=80, top=5, method="linear")
    reading = found.linear
    assert reading is not None
    assert reading.is_identical
    assert reading.total == pytest.approx(found.target, abs=1e-4)
    assert reading.covered["attentions"] == reading.covered["activations"] == 3
    norms = {one for one in model.model.modules() if "Norm" in type(one).__name__}
    assert reading.covered["norms"] == len(norms)
    plain = why(model, TEXT, token=70, against=80, top=5)
    assert plain.target == pytest.approx(found.target, abs=1e-5)
    assert plain.linear is None
    assert plain.layers != found.layers


@pytest.mark.parametrize(
    ("kind", "reason"),
    [
        ("llama4_text", "its experts do not run through transformers' interface"),
        (
            "bloom",
            r"3 of 3 blocks have no attention .* \(BloomBlock 0, BloomBlock 1, BloomBlock 2\)",
        ),
        ("bert", "the way from the last state of bert to the logits is not linear"),
        ("gemma4_text", "its parts add up to"),
        ("bailing_hybrid", "BailingHybridRMSNormGated is not a norm that can be frozen"),
    ],
)
def test_a_model_without_a_linear_reading_is_refused_by_name_and_reason(
    kind: str, reason: str
) -> None:
    model = wrap(tiny_model(kind), tiny_tokenizer(), kind)
    with as_it_was(model), pytest.raises(ModelError, match=f"{kind} has no linear.*{reason}"):
        why(model, TEXT, method="linear")


def test_a_product_that_has_no_rule_breaks_the_sum_and_is_refused() -> None:
    model = wrap(tiny_model("llama"), tiny_tokenizer(), "squares")
    model.layers[1].block.register_forward_hook(lambda _module, _args, o: o + 0.1 * o * o)
    with pytest.raises(ModelError, match="squares has no linear reading: its parts add up to"):
        why(model, TEXT, method="linear")


def test_a_difference_of_logits_is_the_difference_of_two_answers(gated: LanguageModel) -> None:
    found = why(gated, TEXT, token=70, against=80, top=2000)
    one, other = why(gated, TEXT, token=70, top=2000), why(gated, TEXT, token=80, top=2000)
    assert found.target == pytest.approx(one.target - other.target, abs=1e-5)
    assert (found.token, found.against) == (gated.token_text(70), gated.token_text(80))
    theirs = {(e.address, e.place): e for e in one.effects}
    minus = {(e.address, e.place): e for e in other.effects}
    assert len(found.effects) > 1000
    for effect in found.effects:
        at = (effect.address, effect.place)
        for name in ("direct", "predicted", "true"):
            expected = getattr(theirs[at], name) - getattr(minus[at], name)
            assert getattr(effect, name) == pytest.approx(expected, abs=1e-4)


def test_another_text_gives_its_coefficients(form: LanguageModel) -> None:
    found = why(form, TEXT, against_text=OTHER, top=8)
    other = record(form, OTHER, "m")
    plain = own_logit(form, TEXT, found.token_id)
    for one in found.effects:
        m = float(other.layer(one.address.layer).m[0, one.place, form.index_of(one.address)])
        assert one.replaced_by == pytest.approx(m, abs=1e-6)
        with edited(form, Edit(one.address.memory, "set", m, positions=(one.place,))):
            expected = plain - own_logit(form, TEXT, found.token_id)
        assert one.true == pytest.approx(expected, abs=1e-5)
    silenced = why(form, TEXT, top=400)
    slopes = {
        (e.address.memory, e.place): (e.predicted / e.coefficient, e.direct / e.coefficient)
        for e in silenced.effects
    }
    compared = 0
    for one in found.effects:
        if (one.address.memory, one.place) in slopes:
            change, compared = one.coefficient - one.replaced_by, compared + 1
            slope, term = slopes[one.address.memory, one.place]
            assert one.predicted == pytest.approx(change * slope, abs=1e-4)
            assert one.direct == pytest.approx(change * term, abs=1e-4)
    assert compared


def test_an_earlier_position_is_the_shorter_text(gated: LanguageModel) -> None:
    early = why(gated, TEXT, position=3, top=5, token=70)
    assert early.tokens == ("t", "h", "e")
    assert early == why(gated, "the", top=5, token=70)
    assert why(gated, TEXT, position=-11, top=5, token=70) == early


def test_two_texts_are_read_up_to_the_same_place(gated: LanguageModel) -> None:
    early = why(gated, TEXT, against_text=OTHER, position=5, top=5, token=70)
    shorter = why(gated, TEXT[:5], against_text=OTHER[:5], top=5, token=70)
    assert (early.effects, early.layers) == (shorter.effects, shorter.layers)


def test_the_answer_is_plain_values_in_order(found: Why) -> None:
    assert restore(Why, to_plain(found)) == found or has_nan(found)
    assert json_text(found).startswith("{")
    sizes = [abs(one.true) for one in found.effects]
    assert sizes == sorted(sizes, reverse=True)
    assert len({(one.address.memory, one.place) for one in found.effects}) == len(found.effects)
    assert all(1 <= one.place <= len(found.tokens) for one in found.effects)
    assert {one.address.memory for one in found.memories} == {
        one.address.memory for one in found.effects
    }
    assert len(found.layers[0].predicted) == len(found.tokens) == len(TEXT)
    assert found.missed.sampled == 10
    assert 0 < found.missed.bound <= 1


def has_nan(found: Why) -> bool:
    return any(one.direct != one.direct for one in found.effects)


def test_the_sample_is_of_other_pairs_and_the_same_every_time(gated: LanguageModel) -> None:
    one, again = why(gated, TEXT, top=5), why(gated, TEXT, top=5)
    assert one == again
    assert one.missed.largest is not None
    assert one.missed.largest not in one.effects
    every = why(gated, TEXT, top=100_000)
    assert every.missed.sampled == every.missed.pairs == 0
    assert one.missed.pairs == len(every.effects) - 5
    other = why(gated, TEXT, top=5, seed=1)
    assert (other.effects, other.missed) != (one.effects, one.missed)


def test_a_bound_from_no_case_is_the_rule_of_three() -> None:
    assert upper_bound(0, 100) == pytest.approx(1 - 0.05**0.01)
    assert upper_bound(3, 3) == 1.0
    assert upper_bound(1, 20) == pytest.approx(0.2161, abs=1e-4)


def test_a_correlation_of_few_or_equal_numbers_is_not_known() -> None:
    assert correlation([1.0, 2.0, 4.0], [2.0, 4.0, 8.0]) == pytest.approx(1.0)
    assert math.isnan(correlation([1.0, 2.0], [2.0, 4.0]))
    assert math.isnan(correlation([1.0, 1.0, 1.0], [2.0, 4.0, 3.0]))
    assert math.isnan(correlation([math.nan, 1.0, 2.0], [2.0, 4.0, 3.0]))


@contextmanager
def as_it_was(model: LanguageModel) -> Iterator[None]:
    """Whether hooks, gradients, modes and implementations are the same afterwards."""

    def state() -> list[object]:
        inner = model.model
        hooks = [
            (len(one._forward_hooks), len(one._forward_pre_hooks), len(one._backward_hooks))
            for one in inner.modules()
        ]
        learning = [(one.requires_grad, one.grad is None) for one in inner.parameters()]
        modes = [one.training for one in inner.modules()]
        config = inner.config
        return [
            hooks,
            learning,
            modes,
            [vars(one).keys() for one in inner.modules()],
            [config._attn_implementation, config._experts_implementation],
            torch.is_grad_enabled(),
            torch.get_rng_state().tolist(),  # no dropout has run
        ]

    before = state()
    yield
    assert state() == before


def of_a_user(kind: str) -> LanguageModel:
    """A model in training mode, in part frozen, with a hook of the user's own."""
    model = wrap(tiny_model(kind), tiny_tokenizer(), kind)
    model.model.train()
    next(iter(model.model.parameters())).requires_grad_(False)
    model.layers[1].block.register_forward_hook(lambda *_: None)
    return model


@pytest.mark.parametrize("kind", ["llama", "qwen2_moe", "gpt2"])
@pytest.mark.parametrize("method", get_args(Method))
def test_the_users_model_stays_as_it_is(kind: str, method: Method) -> None:
    model = of_a_user(kind)
    with as_it_was(model):
        why(model, TEXT, top=3, method=method)


@pytest.mark.parametrize("kind", ["llama", "qwen2_moe"])
@pytest.mark.parametrize("method", get_args(Method))
def test_gradients_flow_where_the_user_has_turned_them_off(kind: str, method: Method) -> None:
    model = wrap(tiny_model(kind), tiny_tokenizer(), kind)
    expected = why(model, TEXT, top=4, method=method, edges=True)
    for off in (torch.no_grad, torch.inference_mode):
        with off():
            assert why(model, TEXT, top=4, method=method, edges=True) == expected


@pytest.mark.parametrize("kind", ["llama", "qwen2_moe"])
@pytest.mark.parametrize("method", get_args(Method))
def test_also_where_it_is_interrupted(kind: str, method: Method) -> None:
    """In every forward pass: of the rules, of silencing, of edges."""
    model, passes, stop_in = of_a_user(kind), 0, 0

    def stop(*_: object) -> None:
        nonlocal passes
        passes += 1
        if passes == stop_in:
            raise KeyboardInterrupt

    model.layers[-1].block.register_forward_hook(stop)
    why(model, TEXT, top=8, method=method, edges=True)
    every = passes
    assert every >= 4
    for stop_in in range(1, every + 1):
        passes = 0
        with as_it_was(model), pytest.raises(KeyboardInterrupt):
            why(model, TEXT, top=8, method=method, edges=True)
        assert passes == stop_in


def test_what_is_announced_covers_what_runs(gated: LanguageModel) -> None:
    """Copies of the text, counted by rows that the last layer reads; edges and rules too."""
    rows = 0

    def count(_module: nn.Module, args: tuple[Tensor, ...]) -> None:
        nonlocal rows
        rows += args[0].numel() // (args[0].shape[-1] * (1 + len(TEXT)))

    last = gated.layers[-1].value_map.module
    for method in get_args(Method):
        for edges in (False, True):
            plans: list[Plan] = []
            with removed(last.register_forward_pre_hook(count)):
                rows = 0
                why(gated, TEXT, top=20, method=method, edges=edges, on_plan=plans.append)
            (plan,) = plans
            assert plan.tokens == 1 + len(TEXT)
            assert plan.copies >= 0.9 * rows - 5
            assert plan.seconds > 0


@contextmanager
def removed(handle: RemovableHandle) -> Iterator[None]:
    """A hook that is there inside the `with`."""
    try:
        yield
    finally:
        handle.remove()


def test_a_model_without_a_backward_pass_is_refused_in_one_sentence() -> None:
    class OneWay(torch.autograd.Function):
        @staticmethod
        def forward(_ctx: object, x: Tensor) -> Tensor:
            return x.clone()

    def one_way(_module: nn.Module, _args: object, output: Tensor) -> Tensor:
        return OneWay.apply(output)  # type: ignore[no-any-return]

    def cut(_module: nn.Module, _args: object, output: Tensor) -> Tensor:
        return output.detach()

    for hook, reason in ((one_way, "backward"), (cut, "no gradient comes through it")):
        model = wrap(tiny_model("opt"), tiny_tokenizer(), "no-backward")
        model.layers[1].block.register_forward_hook(hook)
        with pytest.raises(ModelError, match=f"no-backward has no backward pass.*{reason}"):
            why(model, TEXT)


@pytest.mark.filterwarnings("ignore")  # torch's own 8 bits are on their way to another package
@pytest.mark.parametrize("is_head_in_8_bits", [True, False])
def test_a_model_in_8_bits_is_refused_and_its_direct_terms_remain(is_head_in_8_bits: bool) -> None:
    """Also where gradients flow through the residual stream, past all that is in 8 bits."""

    def quantise(module: nn.Module) -> Any:
        return torch.ao.quantization.quantize_dynamic(module, {nn.Linear}, dtype=torch.qint8)

    toy: Any = tiny_model("opt")
    if is_head_in_8_bits:
        toy = quantise(toy)
    else:
        toy.model = quantise(toy.model)
    model = wrap(toy, tiny_tokenizer(), "eight-bit")
    for method in get_args(Method):
        with pytest.raises(ModelError, match="eight-bit has no backward pass.*`ffmem prompt`"):
            why(model, TEXT, method=method)
    terms = contributions(model, explain_prompt(model, TEXT), 7)
    assert math.isclose(terms.total, terms.logit, abs_tol=1e-3)


def test_edges_through_a_map_without_gradients_are_refused() -> None:
    model = wrap(tiny_model("opt"), tiny_tokenizer(), "no-backward")
    for layer in model.layers:
        layer.key_map.module.register_forward_hook(lambda _module, _args, output: output.detach())
    with pytest.raises(ModelError, match="no-backward has no backward pass"):
        why(model, TEXT, edges=True)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda m: why(m, ""), "nothing to read in ''"),
        (lambda m: why(m, TEXT, position=99), "positions 1 to 13, not 99"),
        (lambda m: why(m, TEXT, token=70, against=70), "compared with itself"),
        (lambda m: why(m, TEXT, against_text="the sea"), "has 7 tokens and the text 13"),
        (lambda m: why(m, TEXT, against_text="t"), "has 1 token and the text 13"),
        (lambda m: why(m, TEXT, against_text=TEXT), "no coefficient would change"),
        (lambda m: why(m, TEXT, top=0), "top is 0"),
        (lambda m: why(m, TEXT, method="lrp"), "no method 'lrp'"),
        (lambda m: why(m, "x" * 99), "reads at most 63"),
    ],
)
def test_what_cannot_be_explained_gets_one_sentence(
    gated: LanguageModel, call: Callable[[LanguageModel], Why], message: str
) -> None:
    with pytest.raises(FfmemError, match=message):
        call(gated)


def test_the_demo_is_explained_by_its_memories() -> None:
    """The example of the documentation: the gradient finds what silencing confirms."""
    found = why(load("demo"), "It was later discovered", top=20)
    assert found.token == " that"
    assert found.effects[0].address == Address.parse("L12.691")
    assert found.agreement > 0.95
    assert found.agreement > found.direct_agreement
    assert repr(found).startswith("<Why ' that' after 4 tokens: L12.691 at 4 +1.2")
