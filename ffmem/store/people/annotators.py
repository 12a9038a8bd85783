"""Who an annotator is, by name: a person, the rules, or a language model."""

from __future__ import annotations

RULES = "rules"
LANGUAGE_MODEL = "llm:"  # begins the name of a language model
READ_BLIND = "language model, read blind"  # begins the name of a reader that comes with ffmem


def is_language_model(annotator: str) -> bool:
    """Whether an annotator's name is that of a language model."""
    return annotator.startswith((LANGUAGE_MODEL, READ_BLIND))


def is_person(annotator: str) -> bool:
    """Whether an annotator's name is that of a person."""
    return annotator != RULES and not is_language_model(annotator)
