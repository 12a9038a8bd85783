"""The case of the paper's Table 3, in sentences of our own, by words of the demo's text."""

from __future__ import annotations

import random
from itertools import islice

import pytest

from ffmem import demo
from ffmem.address import Address
from ffmem.analyses.patterns.prefixes import Prefix, PseudoKeys
from ffmem.analyses.patterns.record import trigger_labels
from ffmem.analyses.patterns.rule_annotator import RuleAnnotator
from ffmem.analyses.patterns.semantic_patterns import TopicFinder, WordContexts
from ffmem.analyses.patterns.surface_patterns import Background
from ffmem.corpus.sources import Source, documents
from ffmem.corpus.token_ends import tokens_and_ends
from ffmem.models.language_model import LanguageModel
from ffmem.models.loading import load

PRESS = """
The vineyard is known for its wine, and its grapes are still crushed in a medieval press
The weightlifter won a bronze medal at the Olympic Games after a failed bench press
In 1871 the factory built a steam engine and a hydraulic press
The species was first described from leaves that a botanist kept in a flower press
The album was delayed because the record company owned only one vinyl press
The army captured the castle and melted the metal of the coin press
The protein is purified from broken cells with the help of a French press
"""
BOTH = """
The journalist and the editor were admired by the rest of the press
Every newspaper and television reporter complained about the freedom of the press
The magazine told its readers that the story was invented by the press
"""
NEWS = """
The editor told the young reporter that her article would be on the front page if she
A journalist of the daily newspaper wrote an article which said that he
The television channel sent its news reporter to the capital, and in the evening it
The magazine published a long interview by a well known journalist, but many people
The newspaper was bought by a broadcaster who wanted its editor to leave when
In his column the journalist wrote that the report on the radio news was not
Readers sent letters to the newspaper after its reporter published a story that
The news programme was shown on television while the journalist who made it
"""
OTHER = """
The planet orbits its star at a distance of
The goalkeeper joined the football club on loan in
The king married the daughter of a duke, and in the same year
The frog lives in forests and its eggs are
The bridge crosses the river south of
The band released a second single from their debut
Patients with the disease have a fever and
"""
SENTENCES = [line for part in (PRESS, BOTH, NEWS, OTHER) for line in part.strip().splitlines()]


@pytest.fixture(scope="module")
def model() -> LanguageModel:
    return load("demo")


def prefix(model: LanguageModel, text: str, sentence: int) -> Prefix:
    """A text as the model's tokens."""
    assert model.tokenizer is not None
    tokens, _, ends = tokens_and_ends([text], model.tokenizer.backend_tokenizer)
    return Prefix(sentence, text, tuple(map(int, tokens)), tuple(map(int, ends)))


@pytest.fixture(scope="module")
def annotator(model: LanguageModel) -> RuleAnnotator:
    """The default annotator, calibrated on random prefixes of the demo's own text."""
    draw, found = random.Random(0), list[Prefix]()
    lines = list(islice(documents(Source(str(demo.VALID))), 1200))
    for number, line in enumerate(lines):
        whole = prefix(model, line.split(". ")[0], number)
        size = draw.randint(1, len(whole.ids))
        text = whole.text[: whole.ends[size - 1]]
        found.append(Prefix(number, text, whole.ids[:size], whole.ends[:size]))
    background, pool = Background.of(found), found[:600]
    pseudo = PseudoKeys(pool, seed=0)
    keys = [pseudo.random(0).shown for _ in range(200)]
    texts = (text for path in (demo.TRAIN, demo.VALID) for text in documents(Source(str(path))))
    words = WordContexts(texts, background)
    return RuleAnnotator(
        background, TopicFinder.calibrate(words, background, pool, {"random": keys})
    )


def test_triggers_on_press_and_on_news_have_these_two_patterns(
    model: LanguageModel, annotator: RuleAnnotator
) -> None:
    triggers = [prefix(model, text, 10**6 + n) for n, text in enumerate(SENTENCES)]
    found = annotator.patterns(Address(5, 895), triggers)
    assert [pattern.kind for pattern in found] == ["shallow", "semantic"]
    press, news = found
    assert press.description == "ends with ‘press’"
    assert press.ranks == tuple(range(1, 11))
    words = set(news.description.removeprefix("about: ").split(", "))
    assert words <= {"editor", "journalist", "magazine", "news", "newspaper", "reporter"}
    assert set(range(8, 19)) <= set(news.ranks)
    assert len(set(news.ranks) - set(range(8, 19))) <= 5  # a wide cluster draws in some others
    labels = trigger_labels(found, len(triggers))
    assert labels[7:10] == ["shallow + semantic"] * 3
    assert labels[10:18] == ["semantic"] * 8
    assert labels[18:].count("not covered") >= 5


def test_without_the_press_and_the_news_there_is_no_pattern(
    model: LanguageModel, annotator: RuleAnnotator
) -> None:
    plain = [line.removesuffix(" press") for line in PRESS.strip().splitlines()]
    plain += OTHER.strip().splitlines()
    triggers = [prefix(model, text, 10**7 + n) for n, text in enumerate(plain)]
    assert annotator.patterns(Address(5, 895), triggers) == ()
