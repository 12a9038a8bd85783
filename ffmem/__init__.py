"""ffmem shows what a language model's feed-forward layers remember.

Public names load on first use, so that `import ffmem` and `ffmem --help` cost nothing.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ffmem.address import Address as Address
    from ffmem.errors import FfmemError as FfmemError
    from ffmem.memories.attribution import contributions as contributions
    from ffmem.memories.edits import Edit as Edit
    from ffmem.memories.edits import edited as edited
    from ffmem.memories.projection import Lens as Lens
    from ffmem.memories.projection import logits as logits
    from ffmem.memories.projection import token_probabilities as token_probabilities
    from ffmem.memories.projection import token_ranks as token_ranks
    from ffmem.memories.projection import top_tokens as top_tokens
    from ffmem.memories.prompt_explanation import explain_prompt as explain_prompt
    from ffmem.memories.recording import record as record
    from ffmem.memories.value_vectors import value_tokens as value_tokens
    from ffmem.memories.value_vectors import value_vectors as value_vectors
    from ffmem.models.language_model import LanguageModel as LanguageModel
    from ffmem.models.loading import load as load
    from ffmem.models.wrapping import wrap as wrap
    from ffmem.studies.study import open_study as open_study

_HOME = {
    "Address": "address",
    "Edit": "memories.edits",
    "FfmemError": "errors",
    "LanguageModel": "models.language_model",
    "Lens": "memories.projection",
    "contributions": "memories.attribution",
    "edited": "memories.edits",
    "load": "models.loading",
    "logits": "memories.projection",
    "explain_prompt": "memories.prompt_explanation",
    "open_study": "studies.study",
    "record": "memories.recording",
    "wrap": "models.wrapping",
    "token_probabilities": "memories.projection",
    "token_ranks": "memories.projection",
    "top_tokens": "memories.projection",
    "value_tokens": "memories.value_vectors",
    "value_vectors": "memories.value_vectors",
}

__all__ = sorted(_HOME)  # noqa: PLE0605 - the names are the keys above


def __getattr__(name: str) -> object:
    """Load a public name when it is first used."""
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOME[name]}"), name)
