"""The tokenizer and the rows of tokens that training reads."""

from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from transformers import AutoTokenizer

from making.token_data import block_starts, encode, paragraphs, single_sentences, stream
from making.train_tokenizer import save, trained

LINES = [
    "The river rises in the hills. The river flows to the sea. It is 40 kilometres long.",
    "The town was founded in 1804. The mill was built in 1850.",
    "She was born in London.",
]
MARK = 2


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("tokenizer")
    save(trained(LINES * 5, 320), path, longest=64)
    return path


@pytest.fixture(scope="module")
def tokenizer(folder: Path) -> Any:
    return AutoTokenizer.from_pretrained(folder)


def test_automatic_loading_gives_a_fast_tokenizer_with_the_ids_of_opt(tokenizer: Any) -> None:
    assert tokenizer.is_fast
    names = ["<s>", "<pad>", "</s>", "<unk>"]
    assert tokenizer.convert_tokens_to_ids(names) == [0, 1, 2, 3]
    assert tokenizer.bos_token_id == tokenizer.eos_token_id == MARK
    assert tokenizer.pad_token_id == 1
    assert MARK not in tokenizer("The river").input_ids


SPECIAL = ["<s>", "<pad>", "</s>", "<unk>"]


@given(st.text().filter(lambda text: not any(name in text for name in SPECIAL)))
def test_any_text_comes_back_after_one_space(tokenizer: Any, text: str) -> None:
    back = tokenizer.decode(tokenizer(text).input_ids)
    assert back == (text if text == "" or text.startswith(" ") else " " + text)


def test_a_first_word_has_the_token_it_has_inside_a_sentence(tokenizer: Any) -> None:
    whole = tokenizer(LINES[0]).input_ids
    parts = [tokenizer(s).input_ids for s in LINES[0].replace(". ", ".|").split("|")]
    assert whole == sum(parts, [])


def test_encoding_does_not_depend_on_the_number_of_processes(tokenizer: Any) -> None:
    one, two = (encode(LINES, tokenizer.backend_tokenizer, MARK, n) for n in (1, 2))
    assert torch.equal(one.ids, two.ids)
    assert one.opens.tolist() == two.opens.tolist() == [True, False, False, True, False, True]


def test_pieces_alone_are_the_lines_and_the_sentences(tokenizer: Any) -> None:
    tokens = encode(LINES, tokenizer.backend_tokenizer, MARK)
    rows = [piece.tolist() for piece in paragraphs(tokens, 1000)]
    assert rows == [[MARK, *tokenizer(line).input_ids] for line in LINES]
    singles = [tokenizer.decode(piece[1:]) for piece in single_sentences(tokens, 1000)]
    assert singles[1] == " The river flows to the sea."
    assert len(singles) == 6


@pytest.mark.parametrize("share", [0.0, 0.5, 1.0])
def test_a_stream_holds_every_paragraph_once_in_another_order(tokenizer: Any, share: float) -> None:
    lines = [f"{line} Number {n}." for n in range(30) for line in LINES]
    tokens = encode(lines, tokenizer.backend_tokenizer, MARK)
    row = stream(tokens, share, torch.Generator().manual_seed(0)).tolist()
    text = tokenizer.decode(row)
    if share == 0.0:
        back = text.split("</s>")[1:]
        assert back != [" " + line for line in lines]
        assert sorted(back) == sorted(" " + line for line in lines)
    marks = row.count(MARK)
    least, most = len(lines), len(tokens.starts)
    assert abs(marks - (least + share * (most - least))) <= 0.15 * (most - least) * (0 < share < 1)


def test_blocks_begin_at_the_last_mark_and_leave_no_token_out() -> None:
    torch.manual_seed(0)
    row = torch.where(torch.rand(500) < 0.1, MARK, 9)
    row[0] = MARK
    row[200:300] = 9  # longer than a block: goes on where it was cut
    starts = block_starts(row, MARK, 20).tolist()
    assert starts[0] == 0
    assert starts[-1] + 40 >= 500
    for before, start in zip(starts, starts[1:], strict=False):
        inside = row[before + 1 : before + 21].tolist()
        marks = [before + 1 + offset for offset, token in enumerate(inside) if token == MARK]
        assert start == (marks[-1] if marks else before + 20)
