"""What cleaning takes away and what it leaves."""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from making.clean_rules import clean, fault, normal, text_fault, whole_sentences
from making.clean_text import distinct
from making.sentences import sentences

GOOD = (
    "Millford is a town in the north of Scotland, about 40 kilometres from Perth. It was founded "
    "in 1804 by Dr. J. Fraser, who built a mill on the river. The population was 3,400 in 1990."
)


def test_a_good_text_passes_unchanged() -> None:
    gone: Counter[str] = Counter()
    assert clean(GOOD, gone) == [GOOD]
    assert not gone


@pytest.mark.parametrize(
    ("paragraph", "rule"),
    [
        ("Sure, here is the text about the town that you asked me for.", "chat or meta"),
        ("As an AI language model, I have never been to the town of Millford.", "chat or meta"),
        ("This article is about a town in the north of Scotland and its mill.", "chat or meta"),
        ("In conclusion, the town of Millford has a long and rich history indeed.", "chat or meta"),
        ("- The town has a mill and a bridge and a church and a school.", "list or heading"),
        ("1. The town has a mill and a bridge and a church and a school.", "list or heading"),
        ("# The town has a mill and a bridge and a church and a school.", "list or heading"),
        ("The town has a mill, a church, a school and the following buildings:", "list or heading"),
        ("The town has a mill.", "too short"),
        ("The town of 東京 has a mill and a bridge and a church and a school.", "odd character"),
        ("The town has [a mill] and a bridge and a church and a school.", "odd character"),
        ('He said, "the town has a mill and a bridge and a church.', "unbalanced marks"),
        ("The town (north of Perth has a mill and a bridge and a church.", "unbalanced marks"),
        ("The town of the the north has a mill and a bridge and a church.", "stutter"),
        ("and then the town had a mill and a bridge and a church.", "small start"),
    ],
)
def test_each_rule_finds_its_own_fault(paragraph: str, rule: str) -> None:
    assert fault(paragraph) == rule


@pytest.mark.parametrize(
    "paragraph",
    [
        "In the following year, she became an assistant professor at the University of Leeds.",
        "The song was released on 3 May 1987 and reached number 12 in the charts in Sweden.",
        "He lived in Kraków, Malmö and São Paulo (1902–1911) before the war began again.",
    ],
)
def test_ordinary_prose_has_no_fault(paragraph: str) -> None:
    assert fault(paragraph) is None


def test_an_unfinished_last_sentence_is_cut_off() -> None:
    assert whole_sentences(GOOD + " In 1995, the town") == GOOD
    assert whole_sentences("In 1995, the town") == ""


def test_a_text_ends_where_the_model_starts_to_chat() -> None:
    text = (
        f"{GOOD}\n\nLet me know if you need more about the town of Millford.\n\nThe river is long."
    )
    gone: Counter[str] = Counter()
    assert clean(text, gone) == [GOOD]
    assert gone == {"paragraph: chat or meta": 1}


def test_a_text_that_repeats_itself_is_dropped() -> None:
    last = sentences(GOOD)[-1]
    assert text_fault([GOOD, last]) == "repeated sentence"
    turns = " ".join(
        f"The town of Millford has a very large number of {n} houses." for n in "abcdef"
    )
    assert text_fault([turns]) == "sentences that begin alike"
    assert text_fault([GOOD]) is None


def test_marks_are_made_plain() -> None:
    assert normal("“It’s”\u00a0here , now…") == '"It\'s" here, now...'


def test_sentences_end_at_stops_but_not_after_titles_and_initials() -> None:
    assert sentences(GOOD) == [
        "Millford is a town in the north of Scotland, about 40 kilometres from Perth.",
        "It was founded in 1804 by Dr. J. Fraser, who built a mill on the river.",
        "The population was 3,400 in 1990.",
    ]
    assert sentences('He said, "Go." She went. In World War I. He left') == [
        'He said, "Go."',
        "She went.",
        "In World War I.",
        "He left",
    ]


@given(st.lists(st.sampled_from(["a", "Dr.", "I.", 'B."', "c?", "D", "3.5", "(E.)", "f!"])))
def test_sentences_joined_are_the_paragraph(words: list[str]) -> None:
    paragraph = " ".join(words)
    assert " ".join(sentences(paragraph)) == paragraph


def test_texts_seen_before_go_and_sentences_recur_only_so_often() -> None:
    same = "The town has a mill."
    texts = [
        (n, [f"Text {n} is about a town with some number of houses. {same}"]) for n in range(5)
    ]
    gone: Counter[str] = Counter()
    kept = list(distinct(iter([*texts, texts[0]]), 3, gone))
    assert [prompt for prompt, _ in kept] == [0, 1, 2]
    assert gone == {"paragraph: sentence seen too often": 2, "text: seen before": 1}
