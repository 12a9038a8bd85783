"""ffmem shows what a language model's feed-forward layers remember.

Public names load on first use, so that `import ffmem` and `ffmem --help` cost nothing.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from ffmem.version import VERSION

if TYPE_CHECKING:
    from ffmem.address import Address as Address
    from ffmem.analyses.study import Study as Study
    from ffmem.analyses.study import open_study as open_study
    from ffmem.errors import FfmemError as FfmemError
    from ffmem.memories.attribution import Contributions as Contributions
    from ffmem.memories.attribution import contributions as contributions
    from ffmem.memories.coefficient_check import CoefficientCheck as CoefficientCheck
    from ffmem.memories.coefficient_check import check_coefficients as check_coefficients
    from ffmem.memories.edits import Edit as Edit
    from ffmem.memories.edits import edited as edited
    from ffmem.memories.edits import read_set as read_set
    from ffmem.memories.neural_memory import neural_memory as neural_memory
    from ffmem.memories.projection import TopTokens as TopTokens
    from ffmem.memories.projection import logits as logits
    from ffmem.memories.projection import top_tokens as top_tokens
    from ffmem.memories.prompt_explanation import PromptExplanation as PromptExplanation
    from ffmem.memories.prompt_explanation import explain_prompt as explain_prompt
    from ffmem.memories.recording import LayerRecord as LayerRecord
    from ffmem.memories.recording import Records as Records
    from ffmem.memories.recording import record as record
    from ffmem.memories.value_vectors import value_tokens as value_tokens
    from ffmem.memories.value_vectors import value_vectors as value_vectors
    from ffmem.memories.why.answer import why as why
    from ffmem.memories.why.record import Why as Why
    from ffmem.models.language_model import LanguageModel as LanguageModel
    from ffmem.models.loading import load as load
    from ffmem.models.patches import apply_patch as apply_patch
    from ffmem.models.patches import remove_patch as remove_patch
    from ffmem.models.wrapping import wrap as wrap
    from ffmem.store.memory_page import MemoryPage as MemoryPage
    from ffmem.workflows import run_scan as run_scan
    from ffmem.workflows import run_study as run_study

_HOME = {  # by the module of each
    "Address": "address",
    "CoefficientCheck": "memories.coefficient_check",
    "Contributions": "memories.attribution",
    "Edit": "memories.edits",
    "FfmemError": "errors",
    "LanguageModel": "models.language_model",
    "LayerRecord": "memories.recording",
    "MemoryPage": "store.memory_page",
    "PromptExplanation": "memories.prompt_explanation",
    "Records": "memories.recording",
    "Study": "analyses.study",
    "TopTokens": "memories.projection",
    "Why": "memories.why.record",
    "apply_patch": "models.patches",
    "check_coefficients": "memories.coefficient_check",
    "contributions": "memories.attribution",
    "edited": "memories.edits",
    "explain_prompt": "memories.prompt_explanation",
    "load": "models.loading",
    "logits": "memories.projection",
    "neural_memory": "memories.neural_memory",
    "open_study": "analyses.study",
    "read_set": "memories.edits",
    "record": "memories.recording",
    "remove_patch": "models.patches",
    "run_scan": "workflows",
    "run_study": "workflows",
    "top_tokens": "memories.projection",
    "value_tokens": "memories.value_vectors",
    "value_vectors": "memories.value_vectors",
    "why": "memories.why.answer",
    "wrap": "models.wrapping",
}

__version__ = VERSION
__all__ = sorted(_HOME)  # noqa: PLE0605 - the names are the keys above


def __getattr__(name: str) -> object:
    """Load a public name when it is first used."""
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOME[name]}"), name)


def __dir__() -> list[str]:
    """The public names, for tab completion."""
    return __all__
