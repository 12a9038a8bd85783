"""The scan by several workers: the store of one process, to the byte, whatever is lost."""

from __future__ import annotations

import pickle
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from ffmem.cli import main as cli
from ffmem.errors import CorpusError, ScanError, StoreError
from ffmem.execution.checkpoint import read_notes
from ffmem.execution.distributed import Ledger
from ffmem.execution.executor import Cluster
from ffmem.execution.plan import ScanPlan
from ffmem.execution.run import run_scan, run_scan_by, run_scan_on_ray
from ffmem.execution.worker import ModelChoice
from ffmem.models.language_model import LanguageModel
from ffmem.models.loading import load
from ffmem.store.folder import StudyFolder
from ffmem.store.scan_store import ScanStore
from tests.execution.faulty_worker import FaultyWorker
from tests.execution.local_executor import LocalExecutor
from tests.execution.small_scans import plan_for, same_store, sentences
from tests.waiting import wait_until

MODEL = ModelChoice("tiny:llama")
MIXTURE = ModelChoice("tiny:deepseek_v3")  # whose first layer is dense
ONE_THREAD = Cluster(workers=1, cpus_per_worker=1)


@pytest.fixture(scope="module")
def llama() -> LanguageModel:
    return load("tiny:llama")


@pytest.fixture(scope="module", autouse=True)
def many_small_shards() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("ffmem.corpus.shards.SHARD_BYTES", 2000)
        yield


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("text") / "corpus.txt"
    path.write_text("\n".join(sentences(600)) + "\n", encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def plan(llama: LanguageModel, corpus: Path) -> ScanPlan:
    return plan_for(llama, corpus)


@pytest.fixture(scope="module")
def single_store(
    llama: LanguageModel, plan: ScanPlan, tmp_path_factory: pytest.TempPathFactory
) -> Path:
    """The store that one process makes."""
    store = run_scan(llama, plan, tmp_path_factory.mktemp("one") / "expected")
    assert store.manifest.counts["sentences"] == 660
    return store.folder.root


@pytest.fixture
def faulty(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ffmem.execution.distributed.ScanWorker", FaultyWorker)


def test_local_work_agrees_to_the_byte(single_store: Path, plan: ScanPlan, tmp_path: Path) -> None:
    """Two workers are compared below: the start of each takes seconds."""
    shards: list[int] = []
    watch = lambda progress, _share: shards.append(progress.shards)  # noqa: E731
    run_scan_by(LocalExecutor, MODEL, plan, tmp_path / "local", watch)
    same_store(single_store, tmp_path / "local")
    assert shards == list(range(1, len(shards) + 1))
    assert len(shards) > 6


def test_devices_that_lose_a_worker_and_run_out_of_memory_make_the_store_of_one(
    ray_cluster: str, faulty: None, corpus: Path, tmp_path: Path
) -> None:
    """Nothing is lost and nothing counted twice: through the command line, with the CPU as two
    devices and jobs of several shards, of a mixture of experts, which has all that a dense model
    has and more.
    """
    one, two = tmp_path / "one", tmp_path / "two"
    words = ["scan", MIXTURE.name, str(corpus), "--splitter", "line", "--budget", str(2 * 8192)]
    assert cli.run([*words, "-o", str(one), "--devices", "cpu"]) == 0
    for folder in ("faults", "parts"):  # the second as of a scan that was begun
        (two / folder).mkdir(parents=True)
    for fault in ("kill-3", "memory-7"):
        (two / "faults" / fault).touch()
    assert cli.run([*words, "-o", str(two), "--devices", "cpu,cpu"]) == 0
    (two / "faults").rmdir()  # both have struck
    same_store(one, two)


def test_a_killed_driver_leaves_parts_that_another_goes_on_from(
    ray_cluster: str, faulty: None, single_store: Path, plan: ScanPlan, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    code = (
        "import pickle, sys\n"
        "import ffmem.corpus.shards, ffmem.execution.distributed\n"
        "from ffmem.execution.run import Cluster, ModelChoice, run_scan_on_ray\n"
        "from tests.execution.faulty_worker import StuckWorker\n"
        "ffmem.corpus.shards.SHARD_BYTES = 2000\n"
        "ffmem.execution.distributed.ScanWorker = StuckWorker\n"
        "address, plan, out = pickle.load(sys.stdin.buffer)\n"
        "run_scan_on_ray(Cluster(address, 1, 0, 1), ModelChoice('tiny:llama'), plan, out)\n"
    )
    driver = subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE)
    assert driver.stdin is not None
    driver.stdin.write(pickle.dumps((ray_cluster, plan, out)))
    driver.stdin.close()
    folder = StudyFolder(out)
    try:
        wait_until(lambda: saved_shards(folder) or driver.poll() is not None, "a saved part")
    finally:
        driver.kill()
        ended = driver.wait()
    assert ended == -signal.SIGKILL
    assert saved_shards(folder) == {0, 1}
    with pytest.raises(StoreError, match="not finished"):
        ScanStore.open(out)
    began: list[int] = []
    run_scan_on_ray(ONE_THREAD, MODEL, plan, out, lambda p, _: began.append(p.shards))
    assert began == list(range(3, began[-1] + 1))  # what was saved counts at once
    assert len(began) > 4
    same_store(single_store, out)


def saved_shards(folder: StudyFolder) -> set[int]:
    """Without changing anything: the driver may be alive."""
    try:
        return {s for path in folder.parts.glob("*.safetensors") for s in shards_in(path)}
    except FileNotFoundError:
        return set()


def shards_in(path: Path) -> set[int]:
    return set(read_notes(path).shards)


def test_a_broken_file_stops_the_scan_after_all_before_it_and_fixed_it_goes_on(
    faulty: None, llama: LanguageModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ffmem.corpus.sources._EDGE", 100)  # so the break is in the middle
    folder, out = tmp_path / "text", tmp_path / "out"
    folder.mkdir()
    for number in range(3):
        lines = sentences(150, seed=number)
        (folder / f"{number}.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")
    plan, middle = plan_for(llama, folder), folder / "1.txt"
    whole = middle.read_bytes()
    run_scan(llama, plan, tmp_path / "expected")
    middle.write_bytes(whole[:2000] + b"\xff" + whole[2001:])
    with pytest.raises(CorpusError, match=r"1\.txt line \d+ is not valid UTF-8"):
        run_scan_by(LocalExecutor, MODEL, plan, out)
    before = Ledger.open(StudyFolder(out)).safe_shards
    assert before == set(range(len(before)))
    assert len(before) >= 2
    middle.write_bytes(whole)
    run_scan_by(LocalExecutor, MODEL, plan, out)
    same_store(tmp_path / "expected", out)


def test_stopped_by_hand_it_saves_and_goes_on(
    single_store: Path, plan: ScanPlan, tmp_path: Path
) -> None:
    out = tmp_path / "out"

    def stop(progress: object, _share: object) -> None:
        if progress.shards == 3:  # type: ignore[attr-defined]
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_scan_by(LocalExecutor, MODEL, plan, out, stop)
    assert Ledger.open(StudyFolder(out)).safe_shards == {0, 1, 2}
    run_scan_by(LocalExecutor, MODEL, plan, out)
    same_store(single_store, out)


def test_a_cap_on_sentences_is_the_same_cap(
    llama: LanguageModel, plan: ScanPlan, corpus: Path, tmp_path: Path
) -> None:
    capped = plan_for(llama, corpus, max_sentences=301)
    run_scan(llama, capped, tmp_path / "expected")

    def stop(progress: object, _share: object) -> None:
        if progress.shards == 2:  # type: ignore[attr-defined]
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_scan_by(LocalExecutor, MODEL, capped, tmp_path / "out", stop)
    store = run_scan_by(LocalExecutor, MODEL, capped, tmp_path / "out")
    assert store.manifest.counts["sentences"] == 301
    same_store(tmp_path / "expected", tmp_path / "out")


def test_overlapping_parts_are_never_counted_together(
    faulty: None, single_store: Path, plan: ScanPlan, tmp_path: Path
) -> None:
    """A lost worker may have written a part that nobody heard of, or two drivers the same shard."""
    out = tmp_path / "out"

    def stop(progress: object, _share: object) -> None:
        if progress.shards == 4:  # type: ignore[attr-defined]
            raise KeyboardInterrupt

    for name in ("one", "other"):
        with pytest.raises(KeyboardInterrupt):
            run_scan_by(LocalExecutor, MODEL, plan, tmp_path / name, stop)
        (part,) = (tmp_path / name / "parts").glob("*.safetensors")
        (out / "parts").mkdir(parents=True, exist_ok=True)
        part.rename(out / "parts" / f"{name}.safetensors")
    assert len(Ledger.open(StudyFolder(out)).parts) == 1
    run_scan_by(LocalExecutor, MODEL, plan, out)
    same_store(single_store, out)


def test_what_is_already_there_is_opened_or_refused(
    llama: LanguageModel, single_store: Path, plan: ScanPlan, corpus: Path, tmp_path: Path
) -> None:
    stamp = (single_store / "manifest.json").stat().st_mtime_ns
    run_scan_by(LocalExecutor, MODEL, plan, single_store)
    assert (single_store / "manifest.json").stat().st_mtime_ns == stamp
    another = plan_for(llama, corpus, max_sentences=50)
    with pytest.raises(StoreError, match=r"another scan \(it differs in corpus\.max_sentences\)"):
        run_scan_by(LocalExecutor, MODEL, another, single_store)

    def stop(_progress: object, _share: object) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_scan_by(LocalExecutor, MODEL, plan, tmp_path / "many", stop)
    with pytest.raises(
        StoreError, match=r"unfinished scan of something else \(it differs in corpus"
    ):
        run_scan_by(LocalExecutor, MODEL, another, tmp_path / "many")
    with pytest.raises(StoreError, match="several processes began"):
        run_scan(llama, plan, tmp_path / "many")
    with pytest.raises(KeyboardInterrupt):
        run_scan(llama, plan, tmp_path / "one", stop)
    with pytest.raises(StoreError, match="one process began"):
        run_scan_by(LocalExecutor, MODEL, plan, tmp_path / "one")
    with pytest.raises(ScanError, match="standard input"):
        run_scan_by(LocalExecutor, MODEL, plan_for(llama, Path("-")), tmp_path / "stdin")


@pytest.mark.parametrize("most", [None, 301])
def test_batches_of_several_shards_are_those_of_one_process(
    llama: LanguageModel, corpus: Path, tmp_path: Path, most: int | None
) -> None:
    """As on a GPU, where large batches are made of up to eight shards."""
    plan = plan_for(llama, corpus, budget=3 * 8192, max_sentences=most)
    run_scan(llama, plan, tmp_path / "expected")
    asked: list[int] = []

    def stop(progress: object, _share: object) -> None:
        asked.append(progress.shards)  # type: ignore[attr-defined]
        if len(asked) == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_scan_by(LocalExecutor, MODEL, plan, tmp_path / "out", stop)
    assert asked == [1, 3]  # one shard, then two, then three at a time
    run_scan_by(LocalExecutor, MODEL, plan, tmp_path / "out")
    same_store(tmp_path / "expected", tmp_path / "out")


def test_each_worker_has_a_device_of_its_own() -> None:
    choice = ModelChoice("tiny:llama", devices=("cuda:0", "cuda:1"))
    assert [choice.on_worker(number).device for number in range(4)] == [
        "cuda:0",
        "cuda:1",
        "cuda:0",
        "cuda:1",
    ]
    assert MODEL.on_worker(1) == MODEL
