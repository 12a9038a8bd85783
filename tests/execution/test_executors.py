"""What every executor promises, and what Ray's does when workers are lost."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from ffmem.errors import CorpusError, ScanError
from ffmem.execution.executor import (
    Cluster,
    Executor,
    JobAnswer,
    Resources,
    WorkerFactories,
)
from tests.execution.local_executor import LocalExecutor
from tests.execution.toy_workers import Square, hire
from tests.waiting import LONGEST

MakeExecutor = Callable[[WorkerFactories], AbstractContextManager[Executor]]


def on_ray(workers: int = 2) -> MakeExecutor:
    from ffmem.execution.ray_executor import RayExecutor

    return lambda hire: RayExecutor(Cluster(workers=workers, cpus_per_worker=1), hire)


@pytest.fixture(params=["local", "ray"])
def make_executor(request: pytest.FixtureRequest) -> MakeExecutor:
    if request.param == "local":
        return LocalExecutor
    request.getfixturevalue("ray_cluster")
    return on_ray(1)


@pytest.fixture(scope="class", params=["local", "ray"])
def executor(request: pytest.FixtureRequest) -> Iterator[Executor]:
    """One for several tests: the processes of its workers take long to start."""
    if request.param == "ray":
        request.getfixturevalue("ray_cluster")
    with (on_ray() if request.param == "ray" else LocalExecutor)(hire) as found:
        yield found


def settled(executor: Executor, jobs: Iterator[Square]) -> list[tuple[int, int]]:
    """All squares in order; each answer's jobs are those of its report."""
    found: list[tuple[int, int]] = []
    for done in executor.run(jobs):
        assert [number for number, _ in done.report] == list(done.settled)
        found += done.report
    return sorted(found)


def collect(answers: Iterator[JobAnswer], found: list[tuple[int, int]]) -> None:
    for done in answers:
        found += done.report


def squares(numbers: range) -> list[tuple[int, int]]:
    return [(number, number**2) for number in numbers]


class TestWorkersThatStay:
    """What is asked of them one run after the other; no run ends their work."""

    def test_every_job_is_settled_once(self, executor: Executor) -> None:
        for size in (10, 1, 0):
            expected = squares(range(size))
            assert settled(executor, map(Square, range(size))) == expected

    def test_jobs_are_taken_as_there_is_room(self, executor: Executor) -> None:
        taken = 0

        def jobs() -> Iterator[Square]:
            nonlocal taken
            for number in range(40):
                taken += 1
                yield Square(number)

        for answered, _ in enumerate(executor.run(jobs())):
            assert taken <= answered + 1 + 2 * 2  # two workers with two jobs each
        assert taken == 40

    def test_an_error_among_the_jobs_is_raised_when_all_before_it_is_settled(
        self, executor: Executor
    ) -> None:
        def jobs() -> Iterator[Square]:
            yield from map(Square, range(4))
            raise CorpusError("the file y.txt is broken")

        found: list[tuple[int, int]] = []
        with pytest.raises(CorpusError, match=r"y\.txt"):
            collect(executor.run(jobs()), found)
        assert sorted(found) == squares(range(4))

    def test_after_a_stop_what_is_under_way_settles(self, executor: Executor) -> None:
        """As after Ctrl-C: the jobs that were given out and no other."""
        given = []

        def jobs() -> Iterator[Square]:
            for number in range(100):
                given.append(number)
                yield Square(number)

        found: list[tuple[int, int]] = []
        for done in executor.run(jobs()):
            found += done.report
            if len(given) > 10:
                break
        for done in executor.run((), patience=LONGEST):
            found += done.report
        assert sorted(found) == squares(range(len(given)))
        assert len(given) < 20


def test_what_a_user_can_fix_is_not_tried_again(make_executor: MakeExecutor) -> None:
    jobs = [Square(1), Square(2, "user"), Square(3)]
    with (
        make_executor(hire) as executor,
        pytest.raises(CorpusError, match=r"x\.txt is broken; fix it"),
    ):
        list(executor.run(jobs))


def test_lost_workers_lose_nothing(ray_cluster: str, tmp_path: Path) -> None:
    """One killed, one out of memory, in the middle of jobs that others had not settled."""
    kill, memory = tmp_path / "kill", tmp_path / "memory"
    kill.touch()
    memory.touch()
    jobs = [
        Square(n, *{5: ("kill", kill), 11: ("memory", memory)}.get(n, ("", None)))
        for n in range(20)
    ]
    with on_ray()(hire) as executor:
        assert settled(executor, iter(jobs)) == squares(range(20))
    assert not kill.exists()
    assert not memory.exists()


@pytest.mark.parametrize(("trouble", "reason"), [("kill", "died"), ("memory", "MemoryError: no")])
def test_a_job_that_always_fails_is_named_and_the_rest_is_settled(
    ray_cluster: str, trouble: str, reason: str
) -> None:
    found: list[tuple[int, int]] = []
    jobs = [Square(n, trouble if n == 3 else "") for n in range(8)]
    with (
        on_ray(1)(hire) as executor,
        pytest.raises(ScanError, match=rf"^square 3 failed 3 times; .*{reason}"),
    ):
        collect(executor.run(jobs), found)
    assert {number for number, _ in found} <= set(range(8)) - {3}
    assert len(set(found)) == len(found)


def test_a_worker_that_cannot_start_is_one_sentence(ray_cluster: str) -> None:
    def broken(_means: Resources) -> None:
        raise CorpusError("no such model; check the name")

    with (
        on_ray(1)(lambda _number: broken) as executor,  # type: ignore[arg-type, return-value]
        pytest.raises(CorpusError, match="^no such model; check the name$"),
    ):
        list(executor.run([Square(1)]))


def test_a_program_on_ray_keeps_what_it_does_at_sigterm(ray_cluster: str) -> None:
    """While Ray is there, and afterwards, when a study goes on without it."""
    code = (
        "import signal, sys\n"
        "from ffmem.execution.executor import Cluster\n"
        "from ffmem.execution.ray_executor import RayExecutor\n"
        "from tests.execution.toy_workers import hire\n"
        "signal.signal(signal.SIGTERM, lambda *_: print('noted', flush=True))\n"
        "with RayExecutor(Cluster(sys.argv[1], 1, 0, 1), hire):\n"
        "    signal.raise_signal(signal.SIGTERM)\n"
        "signal.raise_signal(signal.SIGTERM)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, ray_cluster], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout) == (0, "noted\nnoted\n"), done.stderr


def test_shares_of_a_cluster() -> None:
    gpus = {"GPU": 8.0, "CPU": 64.0}
    assert Cluster().share(gpus) == (8, Resources(8, 1.0))
    assert Cluster(gpus_per_worker=4).share(gpus) == (2, Resources(32, 4))
    assert Cluster(gpus_per_worker=0.5).share(gpus) == (16, Resources(4, 0.5))
    assert Cluster().share({"CPU": 2.0}) == (2, Resources(1, 0.0))
    assert Cluster(workers=1).share({"CPU": 2.0}) == (1, Resources(2, 0.0))
    assert Cluster(cpus_per_worker=2).share({"CPU": 5.0}) == (2, Resources(2, 0.0))
    with pytest.raises(ScanError, match="at least one worker"):
        Cluster(workers=0)
