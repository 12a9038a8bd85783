"""A scan that was stopped, killed or out of room loses nothing and ends as if it never had been."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from ffmem.cli import main as cli
from ffmem.corpus import splitters
from ffmem.corpus.sentences import SentenceSettings
from ffmem.errors import StoreError
from ffmem.execution import finish, shard_reader, single_process
from ffmem.execution.plan import scan_key, token_budget
from ffmem.execution.run import run_scan
from ffmem.memories import value_vectors
from ffmem.memories.value_vectors import ValueEnds
from ffmem.models.feedforward import FeedForward
from ffmem.models.language_model import LanguageModel
from ffmem.scan.settings import ScanSettings
from ffmem.store.scan_store import ScanStore
from tests.execution.small_scans import plan_for, same_store, sentences
from tests.full_disk import full_disk


def test_a_stopped_scan_goes_on_and_ends_as_if_never_stopped(
    relu: LanguageModel, corpus: Path, tmp_path: Path
) -> None:
    plan = plan_for(relu, corpus)
    run_scan(relu, plan, tmp_path / "whole")
    for stop_at in (1, 4, 7):
        out = tmp_path / f"stopped-{stop_at}"
        batches = 0

        def stop(_progress: object, _share: object) -> None:
            nonlocal batches
            batches += 1
            if batches == stop_at:  # noqa: B023
                raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            run_scan(relu, plan, out, stop)
        with pytest.raises(StoreError, match="not finished"):
            ScanStore.open(out)
        run_scan(relu, plan, out)
        same_store(tmp_path / "whole", out)


@pytest.fixture
def ctrl_c_stops() -> Iterator[None]:
    """As in the foreground; a shell starts what is in the background deaf to Ctrl-C."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.parametrize("layer", [0, 2])
def test_ctrl_c_inside_a_batch_waits_for_its_end(
    layer: int, ctrl_c_stops: None, relu: LanguageModel, corpus: Path, tmp_path: Path
) -> None:
    """Else the layers that have seen the batch would see it again when the scan goes on."""
    plan = plan_for(relu, corpus)
    run_scan(relu, plan, tmp_path / "whole")
    passes = 0

    def press(*_: object) -> None:
        nonlocal passes
        passes += 1
        if passes == 3:
            signal.raise_signal(signal.SIGINT)

    handle = relu.layers[layer].key_map.module.register_forward_hook(press)
    try:
        with pytest.raises(KeyboardInterrupt):
            run_scan(relu, plan, tmp_path / "out")
    finally:
        handle.remove()
    assert passes == 3
    run_scan(relu, plan, tmp_path / "out")
    same_store(tmp_path / "whole", tmp_path / "out")


@pytest.mark.parametrize("together", [1, 4])
def test_a_cap_on_sentences_survives_a_stop(
    relu: LanguageModel,
    corpus: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    together: int,
) -> None:
    monkeypatch.setattr("ffmem.corpus.shards.SHARD_BYTES", 2000)
    plan = plan_for(relu, corpus, max_sentences=97)
    monkeypatch.setattr(single_process, "SHARD_SHARE", token_budget(relu, plan) // together)
    whole = run_scan(relu, plan, tmp_path / "whole")
    assert whole.manifest.counts["sentences"] == 97
    monkeypatch.setattr(single_process, "SAVE_EVERY", 0.0)
    monkeypatch.setattr(single_process, "SAVE_SHARE", 0)
    count = 0

    def crash(_progress: object, _share: object) -> None:
        nonlocal count
        count += 1
        if count == 5:
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        run_scan(relu, plan, tmp_path / "out", crash)
    run_scan(relu, plan, tmp_path / "out")
    same_store(tmp_path / "whole", tmp_path / "out")


def test_a_killed_process_resumes_to_the_same_store(tmp_path: Path) -> None:
    path = tmp_path / "corpus.txt"
    path.write_text("\n".join(sentences(400, seed=3)) + "\n", encoding="utf-8")
    code = (
        "import os, signal, sys, torch; torch.set_num_threads(1); sys.argv[0] = 'ffmem'\n"
        "from ffmem.execution import single_process\n"
        "single_process.SAVE_EVERY, single_process.SAVE_SHARE = 0.0, 0\n"
        "from ffmem.cli.main import main\n"
        "save, saves = single_process.save_checkpoint, 0\n"
        "def save_and_die(*given):\n"
        "    global saves\n"
        "    save(*given)\n"
        "    saves += 1\n"
        "    if saves == 3: os.kill(os.getpid(), signal.SIGKILL)\n"
        "single_process.save_checkpoint = save_and_die\n"
        "main()\n"
    )
    words = ["--splitter", "line", "--max-tokens", "60", "--top", "6", "--budget", "800"]

    def scan(out: str) -> list[str]:
        return ["scan", "tiny:gpt2", str(path), *words, "-o", str(tmp_path / out)]

    assert cli.run(scan("whole")) == 0
    command = [sys.executable, "-c", code, *scan("killed")]
    assert subprocess.run(command, capture_output=True).returncode == -signal.SIGKILL
    assert (tmp_path / "killed" / "checkpoint.safetensors").exists()
    assert not (tmp_path / "killed" / "manifest.json").exists()
    assert cli.run(scan("killed")) == 0
    same_store(tmp_path / "whole", tmp_path / "killed")


def test_a_finished_scan_is_opened_and_another_is_refused(
    relu: LanguageModel, corpus: Path, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    run_scan(relu, plan_for(relu, corpus), out)
    stamp = (out / "manifest.json").stat().st_mtime_ns
    run_scan(relu, plan_for(relu, corpus), out)
    assert (out / "manifest.json").stat().st_mtime_ns == stamp
    with pytest.raises(StoreError, match=r"another scan \(it differs in settings\.top\)"):
        run_scan(relu, plan_for(relu, corpus, settings=ScanSettings(top=7, sample=5)), out)


def stop_at_once(_progress: object, _share: object) -> None:
    raise KeyboardInterrupt


def test_sentences_cut_by_another_version_of_the_rule_are_another_scan(
    relu: LanguageModel, corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = plan_for(relu, corpus, sentences=SentenceSettings("rule", max_tokens=60))
    run_scan(relu, plan, tmp_path / "whole")
    with pytest.raises(KeyboardInterrupt):
        run_scan(relu, plan, tmp_path / "begun", stop_at_once)
    monkeypatch.setattr(splitters, "RULE_VERSION", 2)
    for name in ("whole", "begun"):
        with pytest.raises(StoreError, match=r"\(it differs in corpus\.splitter_version\)"):
            run_scan(relu, plan, tmp_path / name)
    by_line = plan_for(relu, corpus)  # the rule does not decide where these end
    assert scan_key(relu, by_line).corpus["splitter_version"] == 1
    later = run_scan(relu, plan, tmp_path / "later")
    assert later.manifest.key.corpus["splitter_version"] == 2


def test_a_changed_bit_of_a_checkpoint_is_noticed(
    relu: LanguageModel, corpus: Path, tmp_path: Path
) -> None:
    """Wherever it is: in a number, a place, a sentence or a note."""
    plan, out = plan_for(relu, corpus), tmp_path / "scan"
    checkpoint = out / "checkpoint.safetensors"
    with pytest.raises(KeyboardInterrupt):
        run_scan(relu, plan, out, stop_at_once)
    whole = checkpoint.read_bytes()
    for place in range(8, len(whole), len(whole) // 40):
        damaged = bytearray(whole)
        damaged[place] ^= 4
        checkpoint.write_bytes(damaged)
        with pytest.raises(StoreError, match="is damaged .*; delete it to start the scan again"):
            run_scan(relu, plan, out)
    checkpoint.write_bytes(whole)
    run_scan(relu, plan, out)


def test_a_full_disk_is_one_sentence_and_loses_nothing(
    relu: LanguageModel, corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan, out = plan_for(relu, corpus), tmp_path / "out"
    run_scan(relu, plan, tmp_path / "whole")
    monkeypatch.setattr(single_process, "SAVE_EVERY", 0.0)
    monkeypatch.setattr(single_process, "SAVE_SHARE", 0)
    real, writes = Path.replace, 0

    def full(self: Path, target: Path) -> Path:
        nonlocal writes
        writes += 1
        if writes > 3:
            raise OSError(28, "No space left on device")
        return real(self, target)

    monkeypatch.setattr(Path, "replace", full)
    with pytest.raises(
        StoreError, match="No space left on device; what was saved before is intact"
    ):
        run_scan(relu, plan, out)
    monkeypatch.setattr(Path, "replace", real)
    assert (out / "checkpoint.safetensors").exists()
    assert not list(out.rglob("*.part"))
    run_scan(relu, plan, out)
    same_store(tmp_path / "whole", out)


@pytest.mark.parametrize("saves", [True, False])
def test_a_disk_that_takes_some_bytes_of_a_file_is_one_sentence_too(
    saves: bool, relu: LanguageModel, corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a checkpoint, or of a store whose parts several threads write."""
    plan, out = plan_for(relu, corpus), tmp_path / "out"
    run_scan(relu, plan, tmp_path / "whole")
    if saves:
        monkeypatch.setattr(single_process, "SAVE_EVERY", 0.0)
    file = r"checkpoint\.safetensors" if saves else r"\.(npy|parquet)"
    with (
        pytest.raises(StoreError, match=rf"cannot write .*{file}: .*what was saved before is"),
        full_disk(2000),
    ):
        run_scan(relu, plan, out)
    assert not list(out.rglob("*.part"))
    assert not (out / "manifest.json").exists()
    run_scan(relu, plan, out)
    same_store(tmp_path / "whole", out)


def test_a_scan_stopped_while_its_store_is_written_reads_nothing_again(
    relu: LanguageModel, corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan, out = plan_for(relu, corpus), tmp_path / "out"
    run_scan(relu, plan, tmp_path / "whole")

    def stop(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(finish, "versions", stop)
    with pytest.raises(KeyboardInterrupt):
        run_scan(relu, plan, out)
    monkeypatch.undo()
    run_scan(relu, plan, out, lambda *_: pytest.fail("a batch is read again"))
    same_store(tmp_path / "whole", out)


def test_a_scan_stopped_while_values_are_ranked_keeps_no_part_of_a_layer(
    relu: LanguageModel, corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In the cache."""
    plan, out = plan_for(relu, corpus), tmp_path / "out"
    run_scan(relu, plan, tmp_path / "whole")
    monkeypatch.setenv("FFMEM_CACHE", str(tmp_path / "cache"))
    rank = value_vectors.rank_in_parts

    def stop(model: LanguageModel, layer: FeedForward, k: int) -> Iterator[ValueEnds]:
        if layer.number == 2:
            raise KeyboardInterrupt
        yield from rank(model, layer, k)

    monkeypatch.setattr(value_vectors, "rank_in_parts", stop)
    with pytest.raises(KeyboardInterrupt):
        run_scan(relu, plan, out)
    assert len(list((tmp_path / "cache" / "values").iterdir())) == 1
    monkeypatch.setattr(value_vectors, "rank_in_parts", rank)
    run_scan(relu, plan, out)
    same_store(tmp_path / "whole", out)


def test_trouble_with_sentences_kept_in_the_background_ends_the_scan(
    relu: LanguageModel, corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan, out = plan_for(relu, corpus), tmp_path / "out"
    run_scan(relu, plan, tmp_path / "whole")
    keep, calls = shard_reader.keep_sentences, 0
    monkeypatch.setattr("ffmem.corpus.shards.SHARD_BYTES", 500)

    def fail(*given: object) -> object:
        nonlocal calls
        calls += 1
        if calls > 1:
            raise MemoryError
        return keep(*given)  # type: ignore[arg-type]

    monkeypatch.setattr(shard_reader, "keep_sentences", fail)
    with pytest.raises(MemoryError):
        run_scan(relu, plan, out)
    assert calls == 2
    assert not (out / "manifest.json").exists()
