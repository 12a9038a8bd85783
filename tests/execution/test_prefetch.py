import threading
import time
from collections.abc import Iterator

import pytest

from ffmem.execution.ready_shards import prefetch
from tests.waiting import LONGEST, wait_until


def running() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "ffmem-prefetch"]


def test_items_come_in_order() -> None:
    assert list(prefetch(iter(range(100)))) == list(range(100))
    assert list(prefetch(iter(()))) == []
    wait_until(lambda: not running(), "the end of the threads")


def test_no_more_than_two_items_wait_for_the_reader() -> None:
    made = []

    def source() -> Iterator[int]:
        for number in range(50):
            made.append(number)
            yield number

    reader = prefetch(source())
    assert next(reader) == 0
    most = 4  # one read, two waiting, one in the thread's hand
    wait_until(lambda: len(made) >= most, "items made ahead")
    time.sleep(0.2)  # time enough to make more; on a slow machine the test sees less
    assert len(made) == most
    reader.close()


def test_an_error_comes_where_it_happened() -> None:
    def source() -> Iterator[int]:
        yield 1
        raise ValueError("broken")

    reader = prefetch(source())
    assert next(reader) == 1
    with pytest.raises(ValueError, match="broken"):
        next(reader)
    wait_until(lambda: not running(), "the end of the thread")


def test_the_thread_ends_and_closes_the_source_when_the_reader_stops() -> None:
    closed = threading.Event()

    def source() -> Iterator[int]:
        try:
            while True:
                yield 1
        finally:
            closed.set()

    reader = prefetch(source())
    next(reader)
    reader.close()
    assert closed.wait(LONGEST)
    wait_until(lambda: not running(), "the end of the thread")


def test_until_the_first_item_is_there_steps_of_other_work_are_taken() -> None:
    asked, steps = threading.Event(), []

    def source() -> Iterator[int]:
        assert asked.wait(LONGEST)
        yield 1
        yield 2

    def work() -> Iterator[None]:
        while True:
            steps.append(1)
            if len(steps) == 3:
                asked.set()
            yield

    assert list(prefetch(source(), meanwhile=work())) == [1, 2]
    assert len(steps) >= 3


def test_other_work_that_ends_before_the_first_item_is_waited_for_no_longer() -> None:
    done = threading.Event()

    def source() -> Iterator[int]:
        assert done.wait(LONGEST)
        yield 1

    def work() -> Iterator[None]:
        yield
        done.set()

    assert list(prefetch(source(), meanwhile=work())) == [1]
