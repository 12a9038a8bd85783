"""The model behind a study: loaded when first asked, one run at a time, each with a time limit."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, TypeVar

from ffmem.errors import LiveError
from ffmem.store.scan_store import ScanStore

if TYPE_CHECKING:
    from ffmem.models.language_model import LanguageModel

Answer = TypeVar("Answer")
PATIENCE = 60.0  # seconds until a question is given up, its wait for its turn included
WAITING = 16  # questions that may wait


class LiveModel:
    """Questions to the model wait in a queue, because edits of one must not reach another."""

    def __init__(self, store: ScanStore, name: str | None = None) -> None:
        key = store.manifest.key.model
        self.name: str = name or key["name"]
        self._revision = key["revision"] if name is None else None
        self._worker = ThreadPoolExecutor(max_workers=1, thread_name_prefix="live-model")
        self._waiting = 0
        self._model: LanguageModel | None = None

    @property
    def loaded(self) -> bool:
        """Whether the first question has been asked."""
        return self._model is not None

    async def ask(self, question: Callable[[LanguageModel], Answer]) -> Answer:
        """Put a question to the model when its turn comes."""
        if self._waiting >= WAITING:
            raise LiveError("the model is busy with other questions; ask again in a minute")
        self._waiting += 1
        try:
            running = asyncio.wrap_future(self._worker.submit(self._run, question))
            return await asyncio.wait_for(running, PATIENCE)
        except TimeoutError:
            raise LiveError(
                f"the model has not answered within {PATIENCE:.0f} seconds; ask for less"
            ) from None
        finally:
            self._waiting -= 1

    def _run(self, question: Callable[[LanguageModel], Answer]) -> Answer:
        if self._model is None:
            from ffmem.models.loading import load  # here: torch and transformers are slow to import

            self._model = load(self.name, revision=self._revision)
        return question(self._model)
