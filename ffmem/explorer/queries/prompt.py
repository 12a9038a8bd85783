"""A prompt under the lens: layer by layer, memory by memory, as it is and with changes."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import Literal

import torch

from ffmem.address import Address
from ffmem.corpus.conversations import question_text
from ffmem.corpus.sentences import tokens_and_ends
from ffmem.errors import EditError, FfmemError, ModelError, shorten
from ffmem.explorer.context import StudyContext
from ffmem.memories.attribution import contributions
from ffmem.memories.edits import EDIT_PATTERN, Edit, edited
from ffmem.memories.projection import top_tokens
from ffmem.memories.prompt_explanation import (
    PromptExplanation,
    Step,
    Winner,
    continue_text,
    explain_prompt,
)
from ffmem.memories.value_vectors import value_vectors
from ffmem.models.language_model import LanguageModel

LONGEST_TEXT = 20_000  # characters, so that a request fits into an address
MOST_NEW_TOKENS = 64  # that a continuation has at most
MOST_EDITS = 256
MOST_POSITIONS = 4096  # of one edit
RANGE = r"[1-9][0-9]{0,6}(?:-[1-9][0-9]{0,6})?"
PLACED_EDIT_PATTERN = rf"{EDIT_PATTERN[:-1]}(?:@{RANGE}(?:,{RANGE})*)?$"  # `L7.3=0@2,5-7`
LARGEST_NUMBER = 1e6  # number in an edit
STRONGEST = 3  # memories of each layer
NEXT_TOKENS = 10  # next tokens
LOGIT_TERMS = 16  # memories with the largest terms of a logit
CONVERTED = ("fairseq_lm", "xglm")  # architectures that `ffmem models convert` writes
VALUE_TOKENS = 4  # tokens that a memory promotes, shown beside it


@dataclass(frozen=True)
class PromptQuestion:
    """What to look at; the token is given by its number, or as a text that begins with it."""

    text: str
    position: int | None = None
    token: int | None = None
    word: str = ""
    edits: tuple[str, ...] = ()
    write: int = 0
    chat: bool = False  # the text is what a user says, in the model's chat template
    wikitext_form: bool = True  # bring it into that form, where the model was converted to do so


@dataclass(frozen=True)
class TokenText:
    """A token and the text it stands for."""

    id: int
    text: str


@dataclass(frozen=True)
class TokenProbability:
    """A next token's probability, as the model is and with the changes."""

    id: int
    text: str
    plain: float
    edited: float | None


@dataclass(frozen=True)
class MemoryTerm:
    """A memory at this place; `amount` is its strength, or its term of the explained logit.

    `promotes` is in the direction in which it is added.
    """

    address: str
    coefficient: float
    amount: float
    promotes: tuple[str, ...]


@dataclass(frozen=True)
class StepView:
    """One layer: top tokens of residual, layer and output, and who made the output's."""

    layer: int
    residual: str
    feedforward: str
    output: str
    winner: Winner
    active: int
    strongest: tuple[MemoryTerm, ...]


@dataclass(frozen=True)
class LayerTerms:
    """One layer's terms of the explained logit."""

    layer: int
    attention: float
    memories: float
    bias: float
    rest: float


@dataclass(frozen=True)
class Explanation:
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


@dataclass(frozen=True)
class RunView:
    """One run of the model, as it is or changed."""

    steps: tuple[StepView, ...]
    explanation: Explanation | None  # None where a logit is not a sum, see `PromptAnswer.why_not`
    continuation: str


@dataclass(frozen=True)
class PromptAnswer:
    """Everything that the page shows."""

    model: str
    most_tokens: int  # that the model's context allows
    tokens: tuple[str, ...]  # of the text, in order
    position: int  # how many of them have been read, from 1
    token: TokenText  # whose logit is explained
    edits: tuple[str, ...]
    chances: tuple[TokenProbability, ...]
    plain: RunView
    edited: RunView | None
    moved: float | None  # nats, KL of the changed distribution from the plain one
    why_not: str | None


def prompt_answer(model: LanguageModel, question: PromptQuestion) -> PromptAnswer:
    """Look at a prompt as the model is, and, where there are edits, with them."""
    if not question.wikitext_form:
        model = model.without_wikitext_form()
    if question.chat:
        text = question_text(question.text, model.tokenizer, model.name)
        question = replace(question, text=text, chat=False)
    pieces, edits = token_texts(model, question.text), parse_edits(question.edits, lead_of(model))
    plain = explain_prompt(model, question.text, question.position, STRONGEST)
    token = target_token(model, question, plain)
    before, why_not = run_view(model, question, plain, token)
    watched = () if before.explanation is None else tuple(before.explanation.terms)
    changed = after = None
    if edits:
        with edited(model, edits):
            changed = explain_prompt(model, question.text, plain.position, STRONGEST)
            if not bool(torch.isfinite(changed.distribution).all()):
                raise EditError("these changes make numbers overflow; use smaller ones")
            after, _ = run_view(model, question, changed, token, watched)
    return PromptAnswer(
        model=model.name,
        most_tokens=most_tokens(model),
        tokens=pieces,
        position=plain.position,
        token=TokenText(token, model.token_text(token)),
        edits=tuple(edit_text(edit, lead_of(model)) for edit in edits),
        chances=chances(model, plain, changed, token),
        plain=before,
        edited=after,
        moved=None if changed is None else changed.divergence_from(plain),
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


def lead_of(model: LanguageModel) -> int:
    """Columns of an input before its first token of text."""
    return 0 if model.bos is None else 1


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


def parse_edits(texts: tuple[str, ...], lead: int) -> list[Edit]:
    """Edits that are understood and not absurdly large; `lead` columns come before the text."""
    edits = [parse_edit(text, lead) for text in texts]
    for edit in edits:
        if abs(edit.amount) > LARGEST_NUMBER:
            raise EditError(f"the number in {edit} is too large; at most {LARGEST_NUMBER:,.0f}")
    return edits


def parse_edit(text: str, lead: int) -> Edit:
    """Read `L7.1034=0`, or `L7.1034=0@2,5-7` for an edit at some tokens of the text, from 1."""
    change, mark, places = text.partition("@")
    edit = Edit.parse(change)
    if not mark:
        return edit
    if re.fullmatch(rf"{RANGE}(?:,{RANGE})*", places) is None:
        raise EditError(f"{shorten(text)!r} is not an edit; write positions as in {change}@2,5-7")
    found: list[int] = []
    for part in places.split(","):
        first, _, last = part.partition("-")
        found += range(int(first), min(int(last or first), int(first) + MOST_POSITIONS) + 1)
    return replace(edit, positions=tuple(sorted({place - 1 + lead for place in found})))


def edit_text(edit: Edit, lead: int) -> str:
    """An edit as `parse_edit` reads it."""
    if edit.positions is None:
        return str(edit)
    stretches: list[list[int]] = []
    for place in (column + 1 - lead for column in edit.positions):
        if stretches and place == stretches[-1][1] + 1:
            stretches[-1][1] = place
        else:
            stretches.append([place, place])
    parts = (str(first) if first == last else f"{first}-{last}" for first, last in stretches)
    return f"{edit}@{','.join(parts)}"


def may_have_wikitext_form(context: StudyContext) -> bool:
    """Whether the scanned model may be one that was converted from fairseq; it is not loaded."""
    return context.store.manifest.key.model["type"] in CONVERTED


def target_token(model: LanguageModel, question: PromptQuestion, plain: PromptExplanation) -> int:
    """The token whose logit is explained: by number, by text, or the likeliest."""
    if question.token is not None:
        if not 0 <= question.token < model.vocab_size:
            raise FfmemError(f"there is no token {question.token}; there are {model.vocab_size:,}")
        return question.token
    return model.first_token(question.word) if question.word else plain.likeliest(1)[0]


def run_view(
    model: LanguageModel,
    question: PromptQuestion,
    view: PromptExplanation,
    token: int,
    watched: tuple[str, ...] = (),
) -> tuple[RunView, str | None]:
    """One run in the form that is shown, and why a logit is not explained where it is not."""
    explained, why_not = None, None
    try:
        explained = explanation(model, view, token, watched)
    except ModelError as error:
        why_not = str(error)
    written = continue_text(model, question.text, view.position, question.write)
    return RunView(tuple(map(step_view, view.steps)), explained, written), why_not


def step_view(step: Step) -> StepView:
    """A layer's step with addresses as text."""
    return StepView(
        layer=step.layer,
        residual=step.residual,
        feedforward=step.feedforward,
        output=step.output,
        winner=step.winner,
        active=step.active,
        strongest=tuple(
            MemoryTerm(str(m.address), m.coefficient, m.strength, m.tokens[:VALUE_TOKENS])
            for m in step.strongest
        ),
    )


def explanation(
    model: LanguageModel, view: PromptExplanation, token: int, watched: tuple[str, ...] = ()
) -> Explanation:
    """The token's logit as a sum; terms of `watched` memories, or else of the strongest, too."""
    found = contributions(model, view.readings, token, LOGIT_TERMS)
    strongest = []
    for memory in found.strongest(LOGIT_TERMS):
        layer = model.layer_of(memory.address)
        value = value_vectors(layer, [model.index_of(memory.address)]).float()
        added = value if memory.coefficient >= 0 else -value
        ids = top_tokens(model, added, "piece", VALUE_TOKENS).tokens[0].tolist()
        promoted = tuple(map(model.token_text, ids))
        strongest.append(
            MemoryTerm(str(memory.address), memory.coefficient, memory.amount, promoted)
        )
    return Explanation(
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
            for address in watched or (memory.address for memory in strongest)
        },
    )


def chances(
    model: LanguageModel, plain: PromptExplanation, changed: PromptExplanation | None, token: int
) -> tuple[TokenProbability, ...]:
    """The likeliest next tokens of either run, and the explained one."""
    views = [plain] if changed is None else [plain, changed]
    ids = {token, *(one for view in views for one in view.likeliest(NEXT_TOKENS))}
    found = [
        TokenProbability(
            one,
            model.token_text(one),
            float(plain.distribution[one]),
            None if changed is None else float(changed.distribution[one]),
        )
        for one in ids
    ]
    return tuple(sorted(found, key=lambda chance: -max(chance.plain, chance.edited or 0.0)))
