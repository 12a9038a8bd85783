import re
import sys
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ffmem.corpus import splitters
from ffmem.corpus.splitters import SPLITTERS, splitter
from ffmem.errors import CorpusError

LIKELY = st.text(st.sampled_from("aBé1日 .!?…\"')(。\n\t,;<>@=🎉\u2028"), max_size=60)
ANY_TEXT = st.one_of(st.text(), LIKELY)


def split(name: str, text: str) -> list[str]:
    return [text[start:end] for start, end in SPLITTERS[name](text)]


@pytest.mark.parametrize("name", SPLITTERS)
@given(text=ANY_TEXT)
def test_only_white_space_lies_between_the_sentences(name: str, text: str) -> None:
    last, between = 0, []
    for start, end in SPLITTERS[name](text):
        assert last <= start < end
        assert text[start:end] == text[start:end].strip()
        between.append(text[last:start])
        last = end
    assert "".join([*between, text[last:]]).strip() == ""


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Dr. Ode left. He slept.", ["Dr. Ode left.", "He slept."]),
        ("It is 2.5 m. Not more.", ["It is 2.5 m.", "Not more."]),
        ("By J. R. Vane. See p. 3 there.", ["By J. R. Vane.", "See p. 3 there."]),
        ('"Go!" he said. "Now."', ['"Go!" he said.', '"Now."']),
        ("By W. A. Vane (r. 9 to 14).", ["By W. A. Vane (r. 9 to 14)."]),
        ('In "Who?" (1957) she sang.', ['In "Who?" (1957) she sang.']),
        ("A form of art. Another form.", ["A form of art.", "Another form."]),
        ("We chose C. If not, B.", ["We chose C.", "If not, B."]),
        ("It fell.[3] Then (it rose.) No.", ["It fell.[3]", "Then (it rose.)", "No."]),
        ("雨。「行こう。」母。", ["雨。", "「行こう。」", "母。"]),
        ("Heading\n\nText here.", ["Heading", "Text here."]),
        ("a long\nline of text", ["a long\nline of text"]),
        ("1. Wash.\n2. Dry.", ["1. Wash.", "2. Dry."]),
    ],
)
def test_the_rule_ends_sentences_where_a_reader_would(text: str, expected: list[str]) -> None:
    assert split("rule", text) == expected


def test_the_rule_reads_wikitext() -> None:
    text = ' It is 2 @.@ 5 m , she wrote . " No one came . We left . " The M. <unk> is rare . '
    assert split("rule", text) == [
        "It is 2 @.@ 5 m , she wrote .",
        '" No one came .',
        'We left . "',
        "The M. <unk> is rare .",
    ]
    once = ' A single , " Run ! " , failed on Impact ! . '
    assert split("rule", once) == [once.strip()]
    assert split("rule", " = = Early life = = ") == ["= = Early life = ="]


@pytest.mark.parametrize("unit", [".", ". ", '" ', "a. ", "\n", "\n a", ' . " ', "1. A ", "?a"])
def test_the_rule_takes_linear_time_on_hostile_text(unit: str) -> None:
    text = "x" + unit * (200_000 // len(unit)) + "x"
    start = time.process_time()  # of this process alone, so load does not count
    SPLITTERS["rule"](text)
    assert time.process_time() - start < 30.0  # quadratic time would be many minutes


def test_line_and_none_keep_to_their_names() -> None:
    text = " One. Two.\n\n\tThree \n"
    assert split("line", text) == ["One. Two.", "Three"]
    assert split("none", text) == ["One. Two.\n\n\tThree"]
    assert split("line", " \n ") == split("none", " \n ") == []


def test_an_unknown_splitter_is_refused_with_the_known_ones() -> None:
    with pytest.raises(CorpusError, match=r"no splitter 'x'; .*rule, line, none"):
        splitter("x")


def test_a_missing_library_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "sentencex", None)
    with pytest.raises(CorpusError, match="pip install sentencex"):
        SPLITTERS["sentencex"]("One. Two.")


def test_no_group_of_the_rule_is_repeated_possessively() -> None:
    """Python 3.11.2 goes wrong there, so that the same text would be cut differently."""
    patterns = [p.pattern for p in vars(splitters).values() if isinstance(p, re.Pattern)]
    assert len(patterns) >= 4
    assert [p for p in patterns if re.search(r"\)(?:[*+?]|\{[\d,]+\})\+", p)] == []
