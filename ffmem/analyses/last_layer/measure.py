"""Where the last layer composes a new token: cases to judge, and a judge by rule as a stand-in."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from ffmem.analyses.controls import random_rows, shuffle_rows
from ffmem.analyses.inputs.blind_readings import READER, read_cases, reader_name
from ffmem.analyses.inputs.english import FUNCTION_WORDS, MONTHS, NUMBER_WORDS, stem
from ffmem.analyses.inputs.layer_readings import SampleRecord
from ffmem.analyses.last_layer.record import (
    BlindCases,
    Case,
    Judgement,
    LastLayer,
)
from ffmem.analyses.statistics import Interval, cohen_kappa, wilson
from ffmem.memories.projection import CHUNK_BYTES
from ffmem.models.language_model import LanguageModel

SHARES = (0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05)  # how near counts as near, as a share
BLIND_PAIRS = 50  # blind pairs for people
TOKEN_TRIES = 20  # tokens of other prefixes tried for a blind pair
MOST_BY_CHANCE = 0.05  # of frequency-matched pairs that may be called near
CLASSES: dict[str, frozenset[str]] = {"months": MONTHS} | {
    name: frozenset(words.split())
    for name, words in {
        "days": "monday tuesday wednesday thursday friday saturday sunday",
        "numbers": " ".join(NUMBER_WORDS) + " first second third fourth fifth",
        "pronouns": "i you he she it we they me him her us them his hers its our their my your",
        "articles": "a an the this that these those",
        "prepositions": "of in on at by to from with into over under between through during",
        "be": "is are was were be been being",
        "have": "has have had having",
        "directions": "north south east west northern southern eastern western",
    }.items()
}


def measure(
    model: LanguageModel,
    reading: SampleRecord,
    generator: torch.Generator,
    count: int = 100,
) -> LastLayer:
    """Draw `count` composition cases of the last layer, one prefix a sentence; judge each by rule.

    Fewer cases than `count` are all taken. The distance that counts as near is the largest of a
    few that calls at most 5 % of half of the shuffled pairs near; the other half shows what the
    rule then says of pairs by chance.
    """
    found, first = reading.predictions[0], reading.sample.count
    r, f, o = (t[:first, -1] for t in (found.residual, found.feedforward, found.output))
    rows = ((o != r) & (o != f)).nonzero().flatten()
    order = random_rows(len(rows), len(rows), generator)
    chosen = rows[order[:count]]
    old, new = r[chosen], o[chosen]
    many = random_rows(len(rows), len(rows), generator)
    pairs = r[rows][many], shuffle_rows(o[rows][many], generator)
    half = len(rows) // 2
    near = calibrate_nearness(model, *(side[:half] for side in pairs))
    judge = Judge(model, near)
    chance = torch.randint(model.vocab_size, (2, 500), generator=generator)
    reasons = judge.reasons(old, new)
    blind, foreign = foreign_tokens(r, o, rows[order.roll(-count)], generator)
    cases = tuple(
        _case(model, reading, int(row), reason)
        for row, reason in zip(chosen.tolist(), reasons, strict=True)
    )
    controls = tuple(
        replace(_case(model, reading, row, reason), residual=model.token_text(token))
        for row, token, reason in zip(
            blind.tolist(), foreign.tolist(), judge.reasons(foreign, o[blind]), strict=True
        )
    )
    return LastLayer(
        cases=cases,
        controls=controls,
        found=len(rows),
        related=_share(reasons),
        random=_share(judge.reasons(chance[0], chance[1])),
        shuffled=_share(judge.reasons(*(side[half:][:500] for side in pairs))),
        readings=blind_cases(cases, controls),
    )


def blind_cases(cases: Sequence[Case], controls: Sequence[Case]) -> BlindCases | None:
    """What a language model judged that read cases blind; None where none of these is among them.

    A case is the same if its prefix and its old and new token are.
    """
    read = {(one.prefix, one.old, one.new, one.control): one.answers for one in read_cases()}

    def answers(some: Sequence[Case], control: bool) -> list[Judgement | None]:
        places = [(one.prefix, one.residual, one.output, control) for one in some]
        return [read[place][READER] if place in read else None for place in places]

    judged, blind = answers(cases, False), answers(controls, True)
    pairs = [(one, case.related) for one, case in zip(judged, cases, strict=True) if one]
    if not pairs:
        return None
    rule = ["related" if related else "distant" for _, related in pairs]
    known = [one for one in blind if one]
    return BlindCases(
        annotator=reader_name(READER),
        related=wilson(judged.count("related"), len(pairs)),
        controls=wilson(known.count("related"), len(known)),
        read=len(read_cases()),
        found=len(pairs) + len(known),
        judged=tuple(judged),
        kappa=cohen_kappa([one for one, _ in pairs], rule),
    )


def foreign_tokens(
    old: Tensor, new: Tensor, rows: Tensor, generator: torch.Generator
) -> tuple[Tensor, Tensor]:
    """The first of `rows`, and for each another row's old token: neither its own old nor its new.

    A row for which no such token turns up in a few tries is left out.
    """
    first = rows[:BLIND_PAIRS]
    tries = torch.randint(max(len(rows), 1), (len(first), TOKEN_TRIES), generator=generator)
    tried = old[rows[tries]] if len(rows) else tries
    fits = (tried != old[first, None]) & (tried != new[first, None])
    known = fits.any(dim=1)
    taken = tried.gather(1, fits.long().argmax(dim=1, keepdim=True))[:, 0]
    return first[known], taken[known]


def _share(reasons: list[str]) -> Interval:
    return wilson(sum(bool(reason) for reason in reasons), len(reasons))


def _case(model: LanguageModel, reading: SampleRecord, row: int, reason: str) -> Case:
    found, sample = reading.predictions[0], reading.sample
    gold = int(sample.gold[row])
    return Case(
        sentence=int(sample.numbers[row]),
        position=int(sample.positions[row]),
        prefix=sample.prefix(row),
        residual=model.token_text(int(found.residual[row, -1])),
        feedforward=model.token_text(int(found.feedforward[row, -1])),
        output=model.token_text(int(found.output[row, -1])),
        gold=model.token_text(gold) if gold >= 0 else None,
        related=bool(reason),
        because=reason or "distant",
    )


@dataclass(frozen=True)
class Judge:
    """Says why two tokens are related, or nothing: a stand-in for a person."""

    model: LanguageModel
    near: float

    def reasons(self, one: Tensor, other: Tensor) -> list[str]:
        """A reason per pair, empty where the rule finds none."""
        close = nearness(self.model, one, other) <= self.near
        return [
            spelling_relation(self.model.token_text(int(a)), self.model.token_text(int(b)))
            or ("near in embedding" if is_close else "")
            for a, b, is_close in zip(one, other, close, strict=True)
        ]


def spelling_relation(one: str, other: str) -> str:
    """Why two tokens are related by their letters or by a list, or an empty string."""
    one, other = one.strip().lower(), other.strip().lower()
    if "\ufffd" in one + other:  # pieces of characters
        return ""
    if one == other:
        return "same word"
    for name, words in CLASSES.items():
        if one in words and other in words:
            return name
    if all(re.fullmatch(r"[.,]?\d[\d.,]*", word) for word in (one, other)):
        return "numbers"
    if one in FUNCTION_WORDS or other in FUNCTION_WORDS or min(len(one), len(other)) < 4:
        return ""
    if stem(one) == stem(other):
        return "same stem"
    return "like spelling" if edit_distance(one, other) <= max(1, len(one) // 5) else ""


def edit_distance(one: str, other: str) -> int:
    """Letters to insert, delete or replace to turn one word into the other."""
    row = list(range(len(other) + 1))
    for i, a in enumerate(one, 1):
        last, row[0] = row[0], i
        for j, b in enumerate(other, 1):
            last, row[j] = row[j], min(row[j] + 1, row[j - 1] + 1, last + (a != b))
    return row[-1]


def nearness(model: LanguageModel, one: Tensor, other: Tensor) -> Tensor:
    """Share of the vocabulary that is nearer to `one` than `other` is, by cosine of embeddings."""
    vectors = model.head.vectors().first(model.vocab_size)
    a, b = (unit(vectors.of(tokens)) for tokens in (one, other))
    limit = (a * b).sum(dim=1)
    nearer = torch.zeros(len(one), dtype=torch.long, device=vectors.device)
    rows = max(1, CHUNK_BYTES // (4 * max(len(one), vectors.width)))
    for ids, part in vectors.chunks(rows):
        some = torch.arange(ids.start, ids.stop, device=vectors.device)
        pair = (some == one.to(some.device)[:, None]) | (some == other.to(some.device)[:, None])
        nearer += ((a @ unit(part).T > limit[:, None]) & ~pair).sum(dim=1)
    return nearer.double().cpu() / model.vocab_size


def unit(vectors: Tensor) -> Tensor:
    """Vectors of length one, in float32."""
    return torch.nn.functional.normalize(vectors.float(), dim=1)


def calibrate_nearness(model: LanguageModel, one: Tensor, other: Tensor) -> float:
    """The largest share that calls few enough of these unrelated pairs near."""
    different = one != other
    apart = nearness(model, one[different], other[different])
    fits = [s for s in SHARES if not len(apart) or (apart <= s).double().mean() <= MOST_BY_CHANCE]
    return max(fits, default=SHARES[0])
