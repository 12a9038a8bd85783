"""Put together the prompts: seeded, distinct, each with an id that decides its split.

    python -m making.prompts --count 200000 --show 20

A prompt is an instruction in the chat template of the model and the opening of its answer. The
numbers, names and places in it are drawn from our own lists; country, city and names are drawn
together, so that a text stays in one place.
"""

import argparse
import hashlib
import random
import re
from dataclasses import dataclass

from making import topics
from making.genres import GENRES
from making.word_lists import (
    CENTURIES,
    COUNTRIES,
    DIRECTIONS,
    FEW,
    MONTHS,
    ORDINALS,
    WEEKDAYS,
)

SYSTEM = "You write clear, factual prose in long paragraphs, without lists or headings."
VALIDATION_PERCENT = 1.5


@dataclass(frozen=True)
class Prompt:
    """One thing to write about."""

    id: int
    genre: str
    instruction: str
    opening: str

    @property
    def chat(self) -> str:
        """The text that the model continues."""
        return (
            f"<|im_start|>system\n{SYSTEM}<|im_end|>\n"
            f"<|im_start|>user\n{self.instruction}<|im_end|>\n"
            f"<|im_start|>assistant\n{self.opening}"
        )


def prompts(count: int, seed: int) -> list[Prompt]:
    """The first `count` distinct prompts of a seed; a larger count only adds to the end."""
    made: list[Prompt] = []
    seen: set[tuple[str, str]] = set()
    for draw in range(count * 20):
        source = random.Random(f"{seed}/{draw}")
        genre = source.choice(GENRES)
        words = _words(source)
        instruction = _filled(source.choice(genre.instructions), words)
        opening = _filled(source.choice(genre.openings), words)
        if (instruction, opening) in seen:
            continue
        seen.add((instruction, opening))
        made.append(Prompt(len(made), genre.name, instruction, opening))
        if len(made) == count:
            return made
    raise ValueError(f"the lists give only {len(made)} distinct prompts, not {count}; add to them")


def is_validation(prompt: int) -> bool:
    """Whether all texts of a prompt are held out; decided by its id alone."""
    digest = hashlib.sha256(f"split/{prompt}".encode()).digest()
    return int.from_bytes(digest[:4], "big") / 2**32 < VALIDATION_PERCENT / 100


def _filled(template: str, words: dict[str, str]) -> str:
    text = re.sub(r"\b([Aa]) (?=[aeio]|X-ray)", r"\1n ", template.format(**words))
    return text[0].upper() + text[1:]


def _words(source: random.Random) -> dict[str, str]:
    """One draw of everything that a template may name."""
    one = source.choice
    words = _people_and_places(source) | _times_and_numbers(source)
    named = {
        "role": topics.ROLES,
        "player": topics.PLAYERS,
        "sport": topics.SPORTS,
        "animal": topics.ANIMALS,
        "plant": topics.PLANTS,
        "habitat": topics.HABITATS,
        "machine": topics.MACHINES,
        "science": topics.SCIENCES,
        "music": topics.MUSIC,
        "screen": topics.SCREEN,
        "ship": topics.SHIPS,
        "ship_name": topics.SHIP_NAMES,
        "crime": topics.CRIMES,
        "food": topics.FOODS,
        "figure": topics.STORY_FIGURES,
        "disaster": topics.DISASTERS,
        "news": topics.NEWS,
        "building": topics.BUILDINGS,
        "field": topics.FIELDS,
        "company": topics.COMPANIES,
        "direction": DIRECTIONS,
        "weekday": WEEKDAYS,
    }
    words |= {name: one(choices) for name, choices in named.items()}
    words["title"] = f"The {one(topics.QUALITIES)} {one(topics.NOUNS)}"
    words["latin"] = f"{one(topics.GENERA)} {one(topics.EPITHETS)}"
    return words


def _people_and_places(source: random.Random) -> dict[str, str]:
    one = source.choice
    country = one(COUNTRIES)
    city, city2 = source.sample(country.cities, 2)
    is_man = source.random() < 0.6
    forename = one(country.men if is_man else country.women)
    surname = one(country.surnames)
    stem = one(topics.START)
    article = "an" if country.adjective[0] in "AEIO" else "a"
    return {
        "country": country.name,
        "country2": one([other.name for other in COUNTRIES if other is not country]),
        "adjective": country.adjective,
        "an_adjective": f"{article} {country.adjective}",
        "city": city,
        "city2": city2,
        "forename": forename,
        "surname": surname,
        "person": f"{forename} {surname}",
        "man": one(country.men),
        "he": "he" if is_man else "she",
        "his": "his" if is_man else "her",
        "child": "son" if is_man else "daughter",
        "town_stem": stem + one(topics.END),
        "town": stem + one(topics.END),
    }


def _times_and_numbers(source: random.Random) -> dict[str, str]:
    one, whole = source.choice, source.randint
    year = whole(1800, 2010)
    season = whole(1890, 2015)
    return {
        "year": str(year),
        "modern": str(whole(1930, 2015)),
        "later": str(year + whole(3, 70)),
        "early": str(whole(1350, 1945)),
        "census": str(whole(180, 201) * 10),
        "games": str(whole(25, 50) * 4 + 1820),
        "season": f"{season}–{(season + 1) % 100:02d}",
        "century": one(CENTURIES),
        "day": str(whole(1, 28)),
        "day2": str(whole(1, 28)),
        "month": one(MONTHS),
        "month2": one(MONTHS),
        "number": str(whole(11, 99)),
        "thousands": str(whole(2, 90)),
        "goals": str(whole(2, 5)),
        "goals2": str(whole(0, 2)),
        "few": one(FEW),
        "nth": one(ORDINALS),
    }


def main() -> None:
    """Show some prompts, how many there are and how many are held out."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--count", type=int, default=200_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--show", type=int, default=20)
    given = parser.parse_args()
    made = prompts(given.count, given.seed)
    for prompt in random.Random(given.seed).sample(made, given.show):
        print(f"[{prompt.id}] {prompt.instruction} | {prompt.opening}")
    held_out = sum(is_validation(prompt.id) for prompt in made)
    print(f"{len(made):,} prompts, {held_out:,} held out")


if __name__ == "__main__":
    main()
