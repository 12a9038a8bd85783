"""The model behind a study: one run at a time, a queue with an end, a time limit that holds."""

from __future__ import annotations

import asyncio
import threading
from time import sleep

import pytest
import torch

from ffmem.errors import FfmemError, LiveError, ModelError, StoreError
from ffmem.explorer.live_model import LiveModel
from ffmem.models.language_model import LanguageModel
from ffmem.store.scan_store import ScanStore
from tests.waiting import LONGEST, in_a_loop


def test_the_model_is_loaded_by_the_first_question_and_stays(study: ScanStore) -> None:
    live = LiveModel(study)
    assert not live.ready

    async def twice() -> tuple[int, int]:
        return await live.ask(id), await live.ask(id)

    first, second = in_a_loop(twice())
    assert live.ready
    assert first == second


def test_questions_run_one_at_a_time(study: ScanStore) -> None:
    live, running, most = LiveModel(study), 0, 0
    lock = threading.Lock()

    def question(_model: LanguageModel) -> None:
        nonlocal running, most
        with lock:
            running += 1
            most = max(most, running)
        sleep(0.01)
        with lock:
            running -= 1

    async def many() -> None:
        await asyncio.gather(*(live.ask(question) for _ in range(8)))

    in_a_loop(many())
    assert most == 1


def test_a_full_queue_is_a_sentence_and_empties_again(study: ScanStore) -> None:
    live, hold = LiveModel(study, waiting=2), threading.Event()

    async def crowd() -> None:
        first = [asyncio.ensure_future(live.ask(lambda _m: hold.wait(LONGEST))) for _ in range(2)]
        await asyncio.sleep(0)
        with pytest.raises(LiveError, match="busy with other questions"):
            await live.ask(lambda _m: None)
        hold.set()
        await asyncio.gather(*first)
        assert await live.ask(lambda _m: "free") == "free"

    in_a_loop(crowd())


def test_a_run_without_end_is_stopped_inside_the_model(study: ScanStore) -> None:
    """The asker hears of it, the worker is free again, and no hook is left behind."""
    live, ended = LiveModel(study), threading.Event()

    def endless(model: LanguageModel) -> None:
        try:
            while True:
                model.model(input_ids=torch.tensor([[1, 2, 3]]))
        finally:
            ended.set()

    async def ask() -> LanguageModel:
        await live.ask(lambda _m: None)  # loads the model, however long that takes
        live._patience = 0.4
        with pytest.raises(LiveError, match="not answered within"):
            await live.ask(endless)
        assert ended.wait(LONGEST)
        live._patience = LONGEST
        return await live.ask(lambda model: model)

    model = in_a_loop(ask())
    assert not any(layer.block._forward_pre_hooks for layer in model.layers)


def test_a_question_that_waited_too_long_is_never_begun(study: ScanStore) -> None:
    live, hold, begun = LiveModel(study), threading.Event(), []

    async def ask() -> None:
        await live.ask(lambda _m: None)
        live._patience = 0.2
        slow = asyncio.ensure_future(live.ask(lambda _m: hold.wait(LONGEST)))
        late = asyncio.ensure_future(live.ask(lambda _m: begun.append("late")))
        found = await asyncio.gather(slow, late, return_exceptions=True)
        assert [type(one) for one in found] == [LiveError, LiveError]
        hold.set()
        live._patience = LONGEST
        assert await live.ask(lambda _m: "next") == "next"  # the one before has had its turn

    in_a_loop(ask())
    assert begun == []


@pytest.mark.parametrize(
    ("name", "error", "says"),
    [
        ("no-such/model", ModelError, "no-such/model"),
        ("tiny:gpt2", StoreError, "not those that"),
    ],
)
def test_a_model_that_cannot_be_had_is_a_sentence(
    study: ScanStore, name: str, error: type[FfmemError], says: str
) -> None:
    with pytest.raises(error, match=says):
        in_a_loop(LiveModel(study, name).ask(lambda _m: None))
