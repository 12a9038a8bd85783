import pytest

from ffmem.corpus.wikitext import detokenise, is_heading


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a well @-@ known 2 @.@ 5 and 1 @,@ 200 .", "a well-known 2.5 and 1,200."),
        ('He said , " Go ! " and left .', 'He said, "Go!" and left.'),
        ("( about a third ) , [ sic ]", "(about a third), [sic]"),
        ("the band 's song ; they don 't", "the band's song; they don't"),
        ("the <unk> of $ 5 , 3 % more", "the <unk> of $5, 3% more"),
        ("a dash – here : yes ?", "a dash – here: yes?"),
        ("Already plain, isn't it? Yes (it is).", "Already plain, isn't it? Yes (it is)."),
    ],
)
def test_detokenised_text_reads_as_printed(text: str, expected: str) -> None:
    assert detokenise(text) == expected


def test_headings_have_the_same_marks_on_both_sides() -> None:
    assert is_heading(" = Homarus = ")
    assert is_heading(" = = Early life = = ")
    assert not is_heading("x = y")
    assert not is_heading(" = not = = ")
    assert not is_heading("a plain line .")
