"""Kinds of English words: function word or content, number or month, and its stem."""

from __future__ import annotations

import re
import unicodedata
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor

    from ffmem.models.language_model import LanguageModel

WORD = re.compile(r"\w+(?:[-'’]\w+)*|[^\w\s]")
FUNCTION_WORDS = frozenset(
    """
    a an the this that these those each every either neither both all any some no none another
    such other same own few fewer many more most much less least several enough
    i me my mine myself we us our ours ourselves you your yours yourself yourselves
    he him his himself she her hers herself it its itself they them their theirs themselves
    one who whom whose which what where when why how whoever whatever
    anyone anything everyone everything someone something nobody nothing
    and but or nor so yet for if unless because since although though while whereas whether than as
    of in on at by to from with without within into onto upon over under above below between among
    through throughout during before after until till against across along around about behind
    beside besides beyond near off out up down toward towards per via despite except
    am is are was were be been being have has had having do does did doing done
    will would shall should can could may might must ought cannot
    not n't never ever only also too very just even still again then there here now once
    s t d ll ve re m
    """.split()  # noqa: SIM905 - a list of words reads best as words
)
# Words that carry no topic either, although they are not function words.
TOPICLESS_WORDS = FUNCTION_WORDS | frozenset(
    """
    almost already always away back became become began called came else first former further get
    give given go goes going got however last later like made make makes next often others part
    perhaps put quite rather said see soon take three thus together two use used using well went
    """.split()  # noqa: SIM905
)
MONTHS = frozenset(
    """january february march april may june july august september october november december
    jan feb mar apr jun jul aug sep sept oct nov dec""".split()  # noqa: SIM905
)
NUMBER_WORDS = frozenset(
    """one two three four five six seven eight nine ten eleven twelve twenty thirty forty fifty
    hundred thousand million billion""".split()  # noqa: SIM905
)
_ENDINGS = ("ations", "ation", "ments", "ment", "ings", "ing", "edly", "ies", "ed", "es", "ly", "s")


def is_content(word: str) -> bool:
    """Whether a word can carry a topic: three letters or more, and not in the lists above."""
    return len(word) >= 3 and word[0].isalpha() and word.lower() not in TOPICLESS_WORDS


def stem(word: str) -> str:
    """The word without its ending, as far as letters alone tell: base, bases -> bas."""
    low = word.lower()
    for ending in _ENDINGS:
        left = low.removesuffix(ending)
        if left != low and len(left) >= 3 and not low.endswith("ss"):
            doubled = len(left) > 3 and left[-1] == left[-2] and left[-1] not in "ls"
            return (left[:-1] if doubled else left).removesuffix("e")
    return low.removesuffix("e") if len(low) > 3 else low


def word_classes(word: str) -> list[str]:
    """The classes a word belongs to: year, number, month."""
    found = []
    if re.fullmatch(r"(1[5-9]|20)\d\d", word):
        found.append("year")
    if re.fullmatch(r"\d[\d.,]*", word) or word.lower() in NUMBER_WORDS:
        found.append("number")
    if word.lower() in MONTHS and word[0].isupper():
        found.append("month")
    return found


def stop_word_ids(model: LanguageModel) -> Tensor:
    """[token], true for stop words: our list; only tokens that begin a word count."""
    import torch  # here: words can be told apart without it

    words = model.token_texts
    listed = torch.tensor([word.strip().lower() in FUNCTION_WORDS for word in words])
    return listed & word_starts(model)


def punctuation_ids(model: LanguageModel) -> Tensor:
    """[token], true for tokens of punctuation marks alone."""
    import torch  # here: words can be told apart without it

    words = (word.strip() for word in model.token_texts)
    return torch.tensor(
        [bool(word) and all(unicodedata.category(c)[0] == "P" for c in word) for word in words]
    )


# How vocabularies mark a token that begins a word: SentencePiece, byte-level BPE, plain spaces.
BEGIN_MARKS = ("\u2581", "\u0120", " ")
CONTINUE_MARK = "##"  # WordPiece marks the tokens that go on with a word instead


def word_starts(model: LanguageModel) -> Tensor:
    """[token], true for tokens that begin a word, by the tokenizer's own marks.

    The text of a single token does not tell: SentencePiece tokenizers leave the space out. The mark
    that most tokens carry is the vocabulary's; where none has one, every token begins a word.
    """
    import torch  # here: words can be told apart without it

    names = _vocabulary(model)
    carriers = {
        mark: torch.tensor([len(name) > len(mark) and name.startswith(mark) for name in names])
        for mark in (*BEGIN_MARKS, CONTINUE_MARK)
    }
    mark = max(carriers, key=lambda one: int(carriers[one].sum()))
    found = carriers[mark]
    return ~found if mark == CONTINUE_MARK or not found.any() else found


def _vocabulary(model: LanguageModel) -> list[str]:
    """Every token as its vocabulary writes it, marks included."""
    if model.tokenizer is None:
        return list(model.token_texts)
    names = model.tokenizer.convert_ids_to_tokens(list(range(model.vocab_size)))
    plain = (name.decode("utf-8", "replace") if isinstance(name, bytes) else name for name in names)
    return [name or "" for name in plain]
