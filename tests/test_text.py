"""How text is cut and marked."""

from __future__ import annotations

from ffmem.text import Snippet, cut, cut_end, html_table, token_html, visible_token


def test_a_long_prefix_is_cut_at_a_word_and_one_without_spaces_anywhere() -> None:
    words = "one two three four five"
    assert cut(words, 100) == words
    assert cut(words, 12) == "…four five"
    assert cut("x" * 50, 12) == "…" + "x" * 12


def test_a_cut_text_ends_at_a_word_and_says_so() -> None:
    assert cut_end("the old river runs", 12) == "the old…"
    assert cut_end("short", 12) == "short"


def test_the_next_token_is_in_brackets() -> None:
    assert Snippet("the ", "end", "").following == "[end]"
    followed = Snippet.of(Snippet("the " * 50, "end", " of"), width=20)
    assert str(followed) == "…" + "the " * 4 + "end[ of]"


def test_what_cannot_be_seen_is_made_visible() -> None:
    assert visible_token(" a\nb") == "·a\\nb"
    assert visible_token("") == "∅"


def test_html_is_escaped() -> None:
    assert "<b>" not in html_table(["<b>"], [["<b>"]])
    assert token_html("<b>", 0.0) == "&lt;b&gt;"
    assert (
        token_html("<b>", 2.0) == "<span style='background:rgba(238,138,29,0.75)'>&lt;b&gt;</span>"
    )
