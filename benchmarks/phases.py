"""Clocks on functions of the tool, put on from outside and taken off again."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from types import TracebackType
from typing import Any


class Phases:
    """Seconds and calls by name, as the calling thread sees them; use it as a context manager."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = defaultdict(float)
        self.calls: dict[str, int] = defaultdict(int)
        self._undo = ExitStack()

    def __enter__(self) -> Phases:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._undo.close()

    def function(self, owner: Any, name: str, label: str) -> None:
        """Time every call of `owner.name`."""
        real = getattr(owner, name)
        setattr(owner, name, self._timed(real, label))
        self._undo.callback(setattr, owner, name, real)

    method = function

    def iterator(self, owner: Any, name: str, label: str) -> None:
        """Time every step of the iterator that `owner.name` returns."""
        real = getattr(owner, name)

        def wrapped(*given: Any, **options: Any) -> Iterator[Any]:
            steps = real(*given, **options)
            step = self._timed(lambda: next(steps, None), label)
            while (item := step()) is not None:
                yield item

        setattr(owner, name, wrapped)
        self._undo.callback(setattr, owner, name, real)

    def _timed(self, real: Callable[..., Any], label: str) -> Callable[..., Any]:
        def timed(*given: Any, **options: Any) -> Any:
            began = time.perf_counter()
            try:
                return real(*given, **options)
            finally:
                self.seconds[label] += time.perf_counter() - began
                self.calls[label] += 1

        return timed

    def show(self, whole: float) -> None:
        """One line per phase, the longest first."""
        for label, took in sorted(self.seconds.items(), key=lambda pair: -pair[1]):
            print(f"  {label:38} {took:8.2f} s {took / whole:6.1%}  {self.calls[label]:6d} calls")
