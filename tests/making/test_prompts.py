"""Prompts: the same every time, all different, held out by id."""

import re

from making.prompts import is_validation, prompts


def test_a_seed_always_gives_the_same_prompts_and_a_larger_count_only_adds() -> None:
    assert prompts(300, seed=3) == prompts(400, seed=3)[:300]
    assert prompts(300, seed=3) != prompts(300, seed=4)


def test_no_prompt_occurs_twice_and_ids_count_up() -> None:
    made = prompts(5000, seed=0)
    assert len({prompt.chat for prompt in made}) == 5000
    assert [prompt.id for prompt in made] == list(range(5000))


def test_every_place_in_a_template_is_filled_in_and_articles_fit() -> None:
    for prompt in prompts(5000, seed=0):
        text = f"{prompt.instruction} {prompt.opening}"
        assert "{" not in text
        assert "  " not in text
        assert not re.search(r"\b[Aa] [aeio]", text), text
        assert prompt.chat.endswith(prompt.opening)


def test_about_one_and_a_half_per_cent_of_prompts_are_held_out() -> None:
    held_out = sum(map(is_validation, range(20_000)))
    assert 200 < held_out < 400
