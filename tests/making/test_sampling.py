"""The sampling loop against transformers' own generation."""

from typing import Any

import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM

from making.llama_decode import LlamaDecoder
from making.sample_text import batches
from making.sampler import Choice, Sampler
from tests.near_ties import assert_best

VOCABULARY = 61
END = 60


@pytest.fixture(scope="module")
def llama() -> Any:
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=VOCABULARY,
        hidden_size=48,
        intermediate_size=64,
        num_hidden_layers=3,
        num_attention_heads=6,
        num_key_value_heads=2,
        initializer_range=0.3,
        tie_word_embeddings=True,
        bos_token_id=None,
        eos_token_id=None,
        pad_token_id=None,
    )
    return LlamaForCausalLM(config).eval()


def sampler_of(llama: Any, choice: Choice, batch: int, costs: torch.Tensor) -> Sampler:
    return Sampler(LlamaDecoder(llama, batch, 64), choice, costs, torch.tensor([END]))


def test_greedy_tokens_are_those_of_generate(llama: Any) -> None:
    prompts = torch.randint(0, END, (5, 7))
    expected = llama.generate(prompts, max_new_tokens=30, do_sample=False)[:, 7:]
    found = sampler_of(llama, Choice(0.0, 0.1, 0), 5, torch.zeros(VOCABULARY)).run(prompts, 30)
    for prompt, one, other in zip(prompts, found, expected, strict=True):
        if not torch.equal(one, other):  # from a tie on, either may be written
            place = int((one != other).nonzero()[0])
            with torch.no_grad():
                scores = llama(torch.cat([prompt, one[:place]])[None]).logits[0, -1]
            assert_best(one[place], scores)
            assert_best(other[place], scores)


def test_no_run_is_written_twice_and_nothing_else_is_forbidden(llama: Any) -> None:
    prompts = torch.randint(0, END, (4, 3))
    found = sampler_of(llama, Choice(0.0, 0.1, 2), 4, torch.zeros(VOCABULARY)).run(prompts, 25)
    for prompt, text in zip(prompts.tolist(), found.tolist(), strict=True):
        for place, token in enumerate(text):
            before = text[:place]
            last = before[-1:]
            used = {b for a, b in zip(before, before[1:], strict=False) if [a] == last}
            with torch.no_grad():
                logits = llama(torch.tensor([prompt + before])).logits[0, -1]
            logits[list(used)] = -torch.inf
            assert_best(token, logits)


def test_a_run_of_the_prompt_may_be_written_once_more(llama: Any) -> None:
    sampler = sampler_of(llama, Choice(0.0, 0.1, 3), 1, torch.zeros(VOCABULARY))
    sampler.history[0, :7] = torch.tensor([5, 6, 7, 8, 5, 6, 0])
    for prompt, forbidden in ((0, True), (4, False)):
        logits = torch.zeros(1, VOCABULARY)
        sampler.prompt_length.fill_(prompt)
        sampler._forbid_repeats(logits, 6)
        assert bool(logits[0, 7] == -torch.inf) is forbidden
        assert torch.isfinite(logits).sum() == VOCABULARY - forbidden


def test_logits_step_by_step_are_those_of_one_forward_pass(llama: Any) -> None:
    tokens = torch.randint(0, VOCABULARY, (4, 20))
    decoder = LlamaDecoder(llama, 4, 32)
    with torch.inference_mode():
        expected = llama(tokens).logits
        torch.testing.assert_close(decoder.logits(tokens[:, :7], 0), expected[:, 6])
        for position in range(7, 20):
            found = decoder.logits(tokens[:, position : position + 1], position)
            torch.testing.assert_close(found, expected[:, position], atol=1e-4, rtol=1e-4)


def test_a_batch_after_a_longer_batch_is_as_if_it_were_the_first(llama: Any) -> None:
    choice, costs = Choice(0.0, 0.1, 2), torch.full((VOCABULARY,), 0.5)
    long, short = torch.randint(0, END, (3, 9)), torch.randint(0, END, (3, 4))
    used = sampler_of(llama, choice, 3, costs)
    used.run(long, 20)
    assert torch.equal(used.run(short, 15), sampler_of(llama, choice, 3, costs).run(short, 15))


def test_draws_follow_the_probabilities_that_min_p_keeps(llama: Any) -> None:
    torch.manual_seed(1)
    rows, choice = 20_000, Choice(0.7, 0.2, 0)
    sampler = sampler_of(llama, choice, 1, torch.zeros(VOCABULARY))
    logits = torch.randn(VOCABULARY) * 2
    weights = (logits / choice.temperature).softmax(0)
    weights = torch.where(weights >= choice.least * weights.max(), weights, 0.0)
    drawn = torch.bincount(sampler._draw(logits.expand(rows, -1)), minlength=VOCABULARY)
    assert (drawn[weights == 0] == 0).all()
    assert (drawn / rows - weights / weights.sum()).abs().max() < 0.015


def test_every_earlier_use_costs_a_word_its_price(llama: Any) -> None:
    costs = torch.zeros(VOCABULARY)
    costs[7] = 3.0
    sampler = sampler_of(llama, Choice(0.0, 0.1, 0), 1, costs)
    logits = torch.zeros(1, VOCABULARY)
    logits[0, 7], logits[0, 9] = 5.0, 1.0
    for position in range(4):
        sampler._choose(logits, position)
    assert sampler.history[0, :4].tolist() == [7, 7, 9, 9]  # 5, 2, then -1 < 1


def test_batches_hold_prompts_of_one_length_and_are_full() -> None:
    lengths = {3: list(range(10)), 5: list(range(10, 13)), 6: list(range(13, 19))}
    made = batches(lengths, 4, seed=0)
    first_turn = [next(made) for _ in range(6)]
    assert all(len(batch) == 4 for batch in first_turn)
    homes = [
        {length for length, group in lengths.items() if set(b) <= set(group)} for b in first_turn
    ]
    assert all(len(home) == 1 for home in homes)
    assert {prompt for batch in first_turn for prompt in batch} == set(range(19))
