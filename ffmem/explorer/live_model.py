"""The model behind a study: loaded when first asked, one run at a time, each with a time limit."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from time import monotonic
from typing import TYPE_CHECKING, TypeVar

from ffmem.errors import FfmemError, LiveError, ModelError
from ffmem.store.scan_store import ScanStore

if TYPE_CHECKING:
    from ffmem.models.language_model import LanguageModel

Answer = TypeVar("Answer")
QUESTION_SECONDS = 60.0  # seconds until a question is given up, its wait for its turn included
MOST_QUESTIONS = 16  # questions that may wait or run


class LiveModel:
    """Questions to the model wait in a queue, because edits of one must not reach another."""

    def __init__(
        self,
        store: ScanStore,
        name: str | None = None,
        waiting: int = MOST_QUESTIONS,
    ) -> None:
        self.name: str = name or store.manifest.key.model["name"]
        self._store, self._given = store, name
        self._patience, self._most = QUESTION_SECONDS, waiting
        self._worker = ThreadPoolExecutor(max_workers=1, thread_name_prefix="live-model")
        self._waiting = 0
        self._model: LanguageModel | None = None

    @property
    def ready(self) -> bool:
        """Whether the first question has been asked."""
        return self._model is not None

    async def ask(self, question: Callable[[LanguageModel], Answer]) -> Answer:
        """Put a question to the model when its turn comes.

        A question that has waited too long is never begun, and one that runs too long is stopped
        at the next block of the model, so that the queue goes on.
        """
        if self._waiting >= self._most:
            raise LiveError("the model is busy with other questions; ask again in a minute")
        self._waiting += 1
        try:
            deadline = monotonic() + self._patience
            running = asyncio.wrap_future(self._worker.submit(self._run, question, deadline))
            return await asyncio.wait_for(running, self._patience)
        except TimeoutError:
            raise LiveError(self._late()) from None
        finally:
            self._waiting -= 1

    def _late(self) -> str:
        if not self.ready:
            return f"{self.name} is still being loaded; ask again in a minute"
        return f"the model has not answered within {self._patience:g} seconds; ask for less"

    def _run(self, question: Callable[[LanguageModel], Answer], deadline: float) -> Answer:
        if self._model is None:
            self._model = self._load()
        with stop_at_deadline(self._model, deadline, self._late()):
            return question(self._model)

    def _load(self) -> LanguageModel:
        from ffmem.analyses.inputs.study_inputs import scanned_model  # here: torch imports slowly

        try:
            return scanned_model(self._store, name=self._given)
        except FfmemError:
            raise
        except (RuntimeError, OSError, ValueError, MemoryError) as error:
            reason = str(error).strip().splitlines()[:1] or [type(error).__name__]
            raise ModelError(
                f"{self.name} cannot be loaded ({reason[0]}); start the explorer again with "
                "--model and a model that fits into memory"
            ) from None


@contextmanager
def stop_at_deadline(model: LanguageModel, deadline: float, message: str) -> Iterator[None]:
    """Let no block of the model begin after the deadline; hooks are gone on exit."""

    def look_at_the_clock(*_: object) -> None:
        if monotonic() > deadline:
            raise LiveError(message)

    with ExitStack() as hooks:
        for layer in model.layers:
            hooks.callback(layer.block.register_forward_pre_hook(look_at_the_clock).remove)
        yield
