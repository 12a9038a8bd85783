"""Which tokens are stop words: a list of English function words of our own, or the commonest."""

from __future__ import annotations

import unicodedata
from typing import Literal

import torch
from torch import Tensor

from ffmem.models.language_model import LanguageModel

StopWords = Literal["function_words", "top100"]

_LIST = """
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
"""
FUNCTION_WORDS = frozenset(_LIST.split())


def stop_word_ids(
    model: LanguageModel, text: Tensor, stopwords: StopWords = "function_words"
) -> Tensor:
    """[token], true for stop words.

    `function_words` is our list; only tokens that begin a word count. `top100` are the 100
    commonest word tokens of `text`.
    """
    words = model.texts
    spaced = any(len(word) > 1 and word[0] == " " for word in words)
    if stopwords == "function_words":
        return torch.tensor([_is_function_word(word, spaced) for word in words])
    counts = torch.bincount(text, minlength=model.words)[: model.words]
    whole = torch.tensor([any(letter.isalnum() for letter in word) for word in words])
    found = torch.zeros(model.words, dtype=torch.bool)
    found[(counts * whole).topk(min(100, model.words)).indices] = True
    return found & (counts > 0) & whole


def punctuation_ids(model: LanguageModel) -> Tensor:
    """[token], true for tokens of punctuation marks alone."""
    words = (word.strip() for word in model.texts)
    return torch.tensor(
        [bool(word) and all(unicodedata.category(c)[0] == "P" for c in word) for word in words]
    )


def _is_function_word(word: str, spaced: bool) -> bool:
    begins = not spaced or word[:1] == " "
    return begins and word.strip().lower() in FUNCTION_WORDS
