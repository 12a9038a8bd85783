"""Conversations in a chat template: what is read, and where a prefix may end."""

from __future__ import annotations

import json
from copy import deepcopy
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from transformers import PreTrainedTokenizerFast

from ffmem.corpus import chat_templates
from ffmem.corpus.batches import batches
from ffmem.corpus.conversations import chat_text, conversation_line, template_digest
from ffmem.corpus.sentences import Sentences, SentenceSettings, tokenise
from ffmem.corpus.shards import Shard
from ffmem.corpus.sources import Source, TextsInMemory, digest, documents
from ffmem.errors import CorpusError

# A template with a system message of its own, which trims, and refuses a role it does not know.
TEMPLATE = (
    "{{ bos_token }}{% if messages[0].role != 'system' %}<system>be brief\n{% endif %}"
    "{% for m in messages %}{% if m.role == 'tool' %}{{ raise_exception('no tools') }}{% endif %}"
    "<{{ m.role }}>{{ m.content | trim }}</>\n{% endfor %}"
    "{% if add_generation_prompt %}<assistant>{% endif %}"
)
TALK = [
    {"role": "user", "content": " user sat on the system "},
    {"role": "assistant", "content": "assistant</>\nI love dogs"},
    {"role": "user", "content": "Zoë, 日本語です"},
]


@pytest.fixture
def chatty(tokenizer: PreTrainedTokenizerFast) -> PreTrainedTokenizerFast:
    found: Any = deepcopy(tokenizer)
    found.chat_template = TEMPLATE
    found.bos_token = "</s>"
    return found


def sentences_of(talks: list[list[dict[str, str]]], tokenizer: Any, **settings: Any) -> Sentences:
    lines = [conversation_line(talk, "here") for talk in talks]
    return tokenise(Shard(0, lines), tokenizer, SentenceSettings(chat=True, **settings))


def test_the_model_reads_what_transformers_would_let_it_read(chatty: Any) -> None:
    found = sentences_of([TALK, TALK[:1]], chatty)
    for row, talk in enumerate((TALK, TALK[:1])):
        wanted = chatty.apply_chat_template(talk, return_dict=False)
        assert [chatty.bos_token_id, *found.token_ids(row).tolist()] == wanted


@pytest.mark.parametrize(
    ("template", "reason"),
    [
        ("{{ 'a' * 10**9 }}", "1 GiB of memory"),
        (
            "{% set n = namespace(x='aa') %}{% for i in range(40) %}{% set n.x = n.x ~ n.x %}"
            "{% endfor %}",
            "1 GiB of memory",
        ),
        ("{{ 'a' * (17 * 2**20) }}", "16 MiB of text"),
        ("{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}", "1 s"),
    ],
)
def test_a_template_that_makes_too_much_is_stopped(
    chatty: Any, template: str, reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    chatty.chat_template = template
    if reason == "1 s":
        monkeypatch.setattr(chat_templates, "SECONDS", 1)
    with pytest.raises(CorpusError, match=f"refuses .*more than {reason}"):
        chat_text(TALK, chatty)
    chatty.chat_template = TEMPLATE
    assert chat_text(TALK, chatty).text.startswith("<system>be brief"), "the next is not stopped"


def test_content_is_what_the_messages_say_and_nothing_else(chatty: Any) -> None:
    """Also where a message says what the template says: by place, not by looking for words."""
    chat = chat_text(TALK, chatty)
    assert [chat.text[start:end] for start, end in chat.spans] == [
        one["content"].strip() for one in TALK
    ]
    found = sentences_of([TALK], chatty)
    assert found.content is not None
    begins = np.concatenate([[0], found.token_ends[:-1]])
    for begin, end, content in zip(begins, found.token_ends, found.content, strict=True):
        inside = any(first <= begin < last and end <= last for first, last in chat.spans)
        assert content == inside
    assert 0 < found.content.sum() < len(found.content)


def test_a_template_may_leave_out_a_message_or_a_part_of_one(chatty: Any) -> None:
    chatty.chat_template = (
        "{% for m in messages if m.role != 'system' %}[{{ m.role }}] "
        "{{ m.content.split('</think>')[-1] }}\n{% endfor %}"
    )
    talk = [
        {"role": "system", "content": "never shown"},
        {"role": "user", "content": "dogs?"},
        {"role": "assistant", "content": "hm, dogs</think>the dog sat"},
    ]
    chat = chat_text(talk, chatty)
    assert chat.text == "[user] dogs?\n[assistant] the dog sat\n"
    assert [chat.text[start:end] for start, end in chat.spans] == ["dogs?", "the dog sat"]


def test_a_template_that_changes_messages_beyond_recognition_is_refused(chatty: Any) -> None:
    chatty.chat_template = "{{ messages | map(attribute='content') | join('') | length }}"
    with pytest.raises(CorpusError, match="cannot be separated from the template"):
        chat_text(TALK, chatty)


def test_an_answer_begins_where_the_template_says(chatty: Any) -> None:
    assert chat_text(TALK[:1], chatty, answer=True).text.endswith("</>\n<assistant>")


def test_pieces_of_a_long_conversation_keep_their_content(chatty: Any) -> None:
    whole, cut = (sentences_of([TALK], chatty, max_tokens=size) for size in (512, 7))
    assert cut.cut.sum() == 1
    assert len(cut) > 1
    assert np.array_equal(cut.tokens, whole.tokens)
    assert np.array_equal(cut.content, whole.content)  # type: ignore[arg-type]


def test_batches_joins_and_first_rows_carry_the_content(chatty: Any) -> None:
    parts = [sentences_of([talk], chatty) for talk in (TALK, TALK[:1], TALK[:2])]
    numbered = [
        Sentences(part.numbers + i, *(getattr(part, n) for n in ("texts", "tokens", "starts")),
                  part.token_ends, part.cut, part.content)
        for i, part in enumerate(parts)
    ]  # fmt: skip
    joined = Sentences.join(numbered)
    two = joined.first(2)
    assert two.content is not None
    assert len(two.content) == len(two.tokens)
    for batch in batches(joined, chatty.bos_token_id, 0, 4096):
        assert batch.content is not None
        for some in (batch, *batch.halves()):
            assert some.content is not None
            assert some.content.shape == (len(some.lengths), some.tokens.shape[1] - 1)
            for row, number in enumerate(some.sentences.tolist()):
                own = numbered[number].content
                assert own is not None
                length = int(some.lengths[row])
                assert some.content[row, :length].tolist() == own.tolist()
                assert not some.content[row, length:].any()


ROWS = {
    "messages": {"messages": TALK},
    "conversations": {
        "conversations": [
            {"from": "human", "value": " user sat on the system "},
            {"from": "gpt", "value": "assistant</>\nI love dogs"},
            {"from": "human", "value": "Zoë, 日本語です"},
        ]
    },
    "parts": {
        "messages": [
            TALK[0],
            {"role": "assistant", "content": [{"type": "text", "text": TALK[1]["content"]}]},
            TALK[2],
        ]
    },
}


@pytest.mark.parametrize("name", ROWS)
def test_rows_of_every_customary_form_are_the_same_conversation(name: str, tmp_path: Path) -> None:
    path = tmp_path / "talk.jsonl"
    path.write_text(json.dumps(ROWS[name]) + "\n", encoding="utf-8")
    (found,) = documents(Source(str(path), "messages", chat=True))
    assert json.loads(found) == TALK


def test_parquet_and_python_hold_conversations_too(tmp_path: Path) -> None:
    pq.write_table(pa.table({"messages": [TALK, TALK[:1]]}), tmp_path / "talk.parquet")
    here = list(documents(Source(str(tmp_path / "talk.parquet"), "messages", chat=True)))
    memory = TextsInMemory(
        "texts in memory", "messages", chat=True, texts=[TALK, {"messages": TALK[:1]}]
    )
    assert here == list(documents(memory))
    assert digest(memory) == digest(memory)


@pytest.mark.parametrize(
    ("name", "row", "reason"),
    [
        ("a.jsonl", {"messages": "hello"}, "not a list of messages"),
        ("a.jsonl", {"messages": [{"text": "hello"}]}, "without a role"),
        ("a.jsonl", {"messages": [{"role": "user", "content": 3}]}, "not text"),
        ("a.jsonl", {"text": "hello"}, "no column 'messages'"),
        ("a.txt", {"messages": TALK}, "plain text"),
    ],
)
def test_what_is_not_a_conversation_is_refused(
    name: str, row: dict[str, Any], reason: str, tmp_path: Path
) -> None:
    (tmp_path / name).write_text(json.dumps(row) + "\n", encoding="utf-8")
    with pytest.raises(CorpusError, match=reason):
        list(documents(Source(str(tmp_path / name), "messages", chat=True)))


def test_messages_read_as_text_name_the_option(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text(json.dumps({"messages": TALK}), encoding="utf-8")
    with pytest.raises(CorpusError, match="--chat"):
        list(documents(Source(str(tmp_path / "a.jsonl"), "messages")))


def test_a_conversation_that_the_template_refuses_is_named(chatty: Any) -> None:
    talk = [{"role": "tool", "content": "forecast"}]
    with pytest.raises(CorpusError, match="'forecast' .*no tools"):
        sentences_of([talk], chatty)


def test_the_template_is_part_of_what_tells_scans_apart(chatty: Any, tokenizer: Any) -> None:
    before = template_digest(chatty, "toy")
    chatty.chat_template += " "
    assert template_digest(chatty, "toy") != before
    with pytest.raises(CorpusError, match="toy has no chat template"):
        template_digest(tokenizer, "toy")
