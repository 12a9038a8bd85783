"""A prompt under the lens as one record: as the model is and with edits, with a logit's terms.

`ffmem prompt --json` prints it, and the explorer answers with it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

import torch

from ffmem.address import Address
from ffmem.corpus.conversations import question_text
from ffmem.corpus.token_ends import tokens_and_ends
from ffmem.errors import EditError, FfmemError, ModelError
from ffmem.memories.attribution import MemoryContribution, contributions
from ffmem.memories.edit_controls import EditControl, edit_controls
from ffmem.memories.edits import Edit, edited
from ffmem.memories.projection import top_tokens
from ffmem.memories.prompt_explanation import (
    PromptExplanation,
    Step,
    explain_prompt,
    next_text,
    prompt_place,
)
from ffmem.memories.value_vectors import added_values
from ffmem.memories.why.record import MemoryNotes
from ffmem.models.language_model import LanguageModel

STRONGEST = 3  # memories of each layer
LOGIT_TERMS = 12  # memories with the largest terms of a logit
NEXT_TOKENS = 10  # next tokens
VALUE_TOKENS = 8  # tokens that a memory promotes, shown beside it


@dataclass(frozen=True)
class PromptQuestion:
    """What to look at: a text, a place in it, and the next token whose logit is explained."""

    text: str
    position: int | None = None  # tokens read, from 1; negative counts from the end
    token: int | str | None = None  # its number or its text; None is the likeliest
    chat: bool = False  # the text is what a user says, in the model's chat template
    write: int = 0  # tokens of a continuation
    strongest: int | None = STRONGEST  # memories of each layer; None leaves the layers out
    terms: int = LOGIT_TERMS  # memories of the logit


@dataclass(frozen=True)
class TokenText:
    """A token and the text it stands for."""

    id: int
    text: str


@dataclass(frozen=True)
class TokenProbability:
    """A next token's probability, as the model is, with the changes, and with their controls."""

    id: int
    text: str
    plain: float
    edited: float | None
    control: float | None


@dataclass(frozen=True)
class MemoryTerm:
    """A memory's term of the explained logit; `tokens` as in `StrongMemory`."""

    address: Address
    coefficient: float
    amount: float
    tokens: tuple[str, ...]
    notes: MemoryNotes | None = None  # where a study is at hand


@dataclass(frozen=True)
class LayerTerms:
    """One layer's terms of the explained logit."""

    layer: int
    attention: float
    memories: float
    bias: float
    rest: float


@dataclass(frozen=True)
class LogitTerms:
    """A logit and the terms that sum to it; `total` is that sum, `logit` what the model says.

    `quantity` is log-probability where the model's logits are those, as with an adaptive softmax.
    """

    quantity: Literal["logit", "log-probability"]
    logit: float
    total: float
    start: float
    constant: float
    layers: tuple[LayerTerms, ...]
    strongest: tuple[MemoryTerm, ...]
    terms: dict[str, float]  # of the memories that are strongest as the model is, by address

    @property
    def others(self) -> float:
        """What all memories beside those of `terms` add together."""
        return sum(layer.memories for layer in self.layers) - sum(self.terms.values())


@dataclass(frozen=True)
class PromptRun:
    """One run of the model, as it is or changed."""

    steps: tuple[Step, ...]
    explanation: LogitTerms | None  # None where a logit is not a sum, see `PromptAnswer.why_not`
    continuation: str


@dataclass(frozen=True)
class PromptAnswer:
    """Everything that is shown of a prompt."""

    model: str
    most_tokens: int  # that the model's context allows
    tokens: tuple[str, ...]  # of the text, in order
    position: int  # how many of them have been read, from 1
    token: TokenText  # whose logit is explained
    edits: tuple[str, ...]
    chances: tuple[TokenProbability, ...]  # likeliest first
    plain: PromptRun
    edited: PromptRun | None
    moved: float | None  # nats, KL of the changed distribution from the plain one
    controls: tuple[EditControl, ...]  # one for each edit; none where an edit can have none
    control_moved: float | None  # nats, with the controls edited instead
    why_not: str | None


def prompt_answer(
    model: LanguageModel, question: PromptQuestion, edits: Sequence[Edit] = ()
) -> PromptAnswer:
    """Look at a prompt as the model is, and, where there are edits, with them."""
    if question.chat:
        text = question_text(question.text, model.tokenizer, model.name)
        question = replace(question, text=text, chat=False)
    pieces = token_texts(model, question.text)
    plain = explain_prompt(model, question.text, question.position, question.strongest)
    token = plain.likeliest(1)[0] if question.token is None else model.token_id(question.token)
    before, why_not = _run(model, question, plain, token)
    watched = () if before.explanation is None else tuple(before.explanation.terms)
    changed = after = control = None
    controls: tuple[EditControl, ...] = ()
    if edits:
        with edited(model, edits):
            changed = explain_prompt(model, question.text, plain.position, question.strongest)
            if not bool(torch.isfinite(changed.distribution).all()):
                raise EditError("these changes make numbers overflow; use smaller ones")
            after, _ = _run(model, question, changed, token, watched)
        tokens, lead, wanted = prompt_place(model, question.text, plain.position)
        controls = edit_controls(model, tokens[:, : lead + wanted], lead, edits)
    if controls:
        with edited(model, [one.edit for one in controls]):
            control = explain_prompt(model, question.text, plain.position, None)
    return PromptAnswer(
        model=model.name,
        most_tokens=most_tokens(model),
        tokens=pieces,
        position=plain.position,
        token=TokenText(token, next_text(model, token)),
        edits=tuple(map(str, edits)),
        chances=_chances(model, token, plain, changed, control),
        plain=before,
        edited=after,
        moved=None if changed is None else changed.divergence_from(plain),
        controls=controls,
        control_moved=None if control is None else control.divergence_from(plain),
        why_not=why_not,
    )


def token_ids(model: LanguageModel, text: str) -> list[int]:
    """The text as tokens; refuses one that is empty or too long."""
    if model.tokenizer is None:
        raise ModelError(f"{model.name} comes without a tokenizer, so it cannot read text")
    ids: list[int] = model.tokenizer.encode(text, add_special_tokens=False)
    most = most_tokens(model)
    if not 1 <= len(ids) <= most:
        raise FfmemError(f"the text has {len(ids):,} tokens; give between 1 and {most:,}")
    return ids


def most_tokens(model: LanguageModel) -> int:
    """The longest prompt that leaves room for the next token."""
    return model.context_length - 1


def token_texts(model: LanguageModel, text: str) -> tuple[str, ...]:
    """The text cut into its tokens."""
    ids = token_ids(model, text)
    backend = getattr(model.tokenizer, "backend_tokenizer", None)
    if backend is None:
        return tuple(map(model.token_text, ids))
    ends = [0, *tokens_and_ends([text], backend)[2].tolist()]
    if len(ends) != len(ids) + 1:
        return tuple(map(model.token_text, ids))
    return tuple(text[start:end] for start, end in zip(ends, ends[1:], strict=False))


def _run(
    model: LanguageModel,
    question: PromptQuestion,
    view: PromptExplanation,
    token: int,
    watched: tuple[str, ...] = (),
) -> tuple[PromptRun, str | None]:
    """One run, and why a logit is not explained where it is not."""
    explained, why_not = None, None
    try:
        explained = _terms(model, view, token, question.terms, watched)
    except ModelError as error:
        why_not = str(error)
    written = model.generate(question.text, question.write, view.position)
    return PromptRun(view.steps, explained, written), why_not


def _terms(
    model: LanguageModel, view: PromptExplanation, token: int, count: int, watched: tuple[str, ...]
) -> LogitTerms:
    """The token's logit as a sum; terms of `watched` memories, or else of the strongest, too."""
    found = contributions(model, view, token, count)
    memories = found.strongest(count)
    strongest = [
        MemoryTerm(memory.address, memory.coefficient, memory.amount, tuple(texts))
        for memory, texts in zip(memories, _added_tokens(model, memories), strict=True)
    ]
    return LogitTerms(
        quantity=found.quantity,
        logit=found.logit,
        total=found.total,
        start=found.start,
        constant=found.constant,
        layers=tuple(
            LayerTerms(part.layer, part.attention, part.memories, part.bias, part.rest)
            for part in found.layers
        ),
        strongest=tuple(strongest),
        terms={
            address: found.of(Address.parse(address))
            for address in watched or (str(memory.address) for memory in strongest)
        },
    )


def _added_tokens(model: LanguageModel, memories: list[MemoryContribution]) -> list[list[str]]:
    """What each memory's value promotes, in the direction in which it is added."""
    if not memories:
        return []
    added = []
    for memory in memories:
        layer = model.layer_of(memory.address)
        coefficient = torch.tensor([memory.coefficient])
        value = added_values(layer, [model.index_of(memory.address)], coefficient)
        added.append(value.to(model.head.device))
    rows = top_tokens(model, torch.cat(added), "direction", VALUE_TOKENS).tokens.tolist()
    return [[next_text(model, one) for one in row] for row in rows]


def _chances(
    model: LanguageModel,
    token: int,
    plain: PromptExplanation,
    changed: PromptExplanation | None,
    control: PromptExplanation | None,
) -> tuple[TokenProbability, ...]:
    """The likeliest next tokens as it is and with changes, and the explained one."""
    views = [plain] if changed is None else [plain, changed]
    ids = {token, *(one for view in views for one in view.likeliest(NEXT_TOKENS))}
    found = [
        TokenProbability(
            one,
            next_text(model, one),
            float(plain.distribution[one]),
            None if changed is None else float(changed.distribution[one]),
            None if control is None else float(control.distribution[one]),
        )
        for one in ids
    ]
    return tuple(sorted(found, key=lambda chance: -max(chance.plain, chance.edited or 0.0)))
