"""What editing a set of memories does, as plain values; needs no torch."""

from __future__ import annotations

from dataclasses import dataclass

from ffmem.analyses.statistics import Interval


@dataclass(frozen=True)
class LossChange:
    """Per predicted token: change of the loss and KL(before || after) in nats, and of top-1.

    `top_1` is the change of the share of tokens that were the most likely one. Intervals resample
    sentences.
    """

    loss: Interval
    kl: Interval
    top_1: Interval


@dataclass(frozen=True)
class TextEffect:
    """An edit on a text; `random` are sets of as many memories of the same layers and rates.

    `stronger` counts the random sets that change the loss at least as much.
    """

    memories: int
    sentences: int
    tokens: int
    loss: float  # as the model is, in nats per token
    top_1: float
    edit: LossChange
    random: tuple[LossChange, ...]
    stronger: int


@dataclass(frozen=True)
class Task:
    """A question of a task file: what is read, and what should follow."""

    prompt: str
    answer: str


@dataclass(frozen=True)
class TaskChange:
    """Change of the share of right answers, and of an answer's log-probability in nats.

    Intervals resample tasks.
    """

    accuracy: Interval
    log_probability: Interval


@dataclass(frozen=True)
class TaskEffect:
    """Share of answers that the model gives word for word, and their mean log-probability.

    Both as it is; `edit` and `random`, sets as for a text, are changes. `stronger` counts the
    random sets that change the log-probability at least as much.
    """

    tasks: int
    accuracy: float
    log_probability: float
    edit: TaskChange
    random: tuple[TaskChange, ...]
    stronger: int


@dataclass(frozen=True)
class Continuation:
    """A text as the model goes on with it, and as it does with the edit."""

    prompt: str
    as_it_is: str
    edited: str


@dataclass(frozen=True)
class SetEffect:
    """An edit on a text, on the tasks of a file, and on what the model writes."""

    edits: tuple[str, ...]
    text: TextEffect
    task: TaskEffect | None
    generated: tuple[Continuation, ...]
