"""The scan on one page: a model and a corpus in, a store out."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path

from ffmem.errors import ScanError, StoreError
from ffmem.execution.checkpoint import read_checkpoint
from ffmem.execution.distributed import DistributedScan, ExecutorFactory
from ffmem.execution.executor import Cluster
from ffmem.execution.finish import prepare_store, write_store
from ffmem.execution.plan import ScanPlan, refuse_other_checkpoint, scan_key, token_budget
from ffmem.execution.ranked_values import rank_values
from ffmem.execution.ready_shards import background_shards
from ffmem.execution.single_process import ScanRun, ScanWatch, new_checkpoint
from ffmem.execution.worker import ModelChoice, ModelFacts
from ffmem.locations import location
from ffmem.models.language_model import LanguageModel
from ffmem.scan.scanner import Scanner
from ffmem.store.folder import StudyFolder, writing
from ffmem.store.manifest import ScanKey, read_manifest, refuse_other_scan
from ffmem.store.scan_store import ScanStore


def run_scan(
    model: LanguageModel,
    plan: ScanPlan,
    out: Path,
    watch: ScanWatch = lambda _progress, _share: None,
    cluster: Cluster | None = None,
) -> ScanStore:
    """Find the strongest triggers of every key and keep them in the folder `out`.

    A folder with the same scan, finished, is opened as it is; unfinished, the scan goes on where
    it was; a folder with another scan is refused. `watch` is called after every batch, with the
    share of the work that is done if that is known. Stopping with Ctrl-C saves what was found. The
    scan is whole when all text is read; if the plan says so its values are ranked after that. On a
    `cluster` the workers load the model again by its name; to have it nowhere else, see
    `run_scan_on_ray`.
    """
    if cluster is not None:
        return run_scan_on_ray(cluster, ModelChoice.of(model), plan, out, watch)
    model = model.with_experts(plan.experts)
    folder, key = StudyFolder(location(out)), scan_key(model, plan)
    if not _is_complete(folder, plan):
        with writing(folder, key.digest):
            _scan(model, plan, folder, key, watch)
            if plan.values:
                rank_values(model, folder)
    refuse_other_scan(folder, read_manifest(folder).key, key)
    return ScanStore.open(out)


def _is_complete(folder: StudyFolder, plan: ScanPlan) -> bool:
    """Whether a folder holds all that a plan writes, of whatever scan."""
    if folder.checkpoint.exists() or not folder.manifest.exists():
        return False
    return read_manifest(folder).has_rankings or not plan.values


def _scan(
    model: LanguageModel, plan: ScanPlan, folder: StudyFolder, key: ScanKey, watch: ScanWatch
) -> None:
    """Begin the scan, or go on with it, unless it is finished."""
    if folder.manifest.exists():
        refuse_other_scan(folder, read_manifest(folder).key, key)
        folder.checkpoint.unlink(missing_ok=True)
        return
    if folder.parts.exists():
        raise StoreError(
            f"{folder.root} holds a scan that several processes began; let it finish there (with "
            "--ray or --devices), or choose another folder"
        )
    start = read_checkpoint(folder.checkpoint) if folder.checkpoint.exists() else None
    if start is not None:
        refuse_other_checkpoint(folder.root, start.key, key)
    with Scanner(model, plan.settings, plan.layers) as scanner:
        run = ScanRun(scanner, folder, key, start or new_checkpoint(key, token_budget(model, plan)))
        try:
            shards = background_shards(model, plan, run.progress, prepare_store(model))
            run.read(shards, watch)
            write_store(model, run.finish(), folder)
        except KeyboardInterrupt:
            run.save()
            raise
    folder.checkpoint.unlink(missing_ok=True)


def run_scan_on_ray(
    cluster: Cluster,
    model: ModelChoice,
    plan: ScanPlan,
    out: Path,
    watch: ScanWatch = lambda _progress, _share: None,
) -> ScanStore:
    """The same scan on Ray: each worker loads the model and reads its share of the shards.

    On the CPU, with one thread per worker, the store is the same to the byte. Workers, driver and
    cluster may be lost: the same call goes on from what was saved. The model says whether a
    memory has two signs, whatever the plan's settings say.
    """
    try:
        from ffmem.execution.ray_executor import RayExecutor  # slow, and an optional package
    except ImportError as error:
        raise ScanError(
            "a scan by several processes needs Ray: run `pip install 'ffmem[ray]'`"
        ) from error
    placed = replace(model, devices=cluster.devices) if cluster.devices else model
    return run_scan_by(partial(RayExecutor, cluster), placed, plan, out, watch)


def run_scan_by(
    staff: ExecutorFactory,
    model: ModelChoice,
    plan: ScanPlan,
    out: Path,
    watch: ScanWatch = lambda _progress, _share: None,
) -> ScanStore:
    """The scan by workers of any kind."""
    folder = StudyFolder(location(out))
    if folder.checkpoint.exists() and not folder.manifest.exists():
        raise StoreError(
            f"{out} holds a scan that one process began; let it finish there (without --ray and "
            "--devices), or choose another folder"
        )

    def is_missing(facts: ModelFacts) -> bool:
        if not folder.manifest.exists():
            return True
        refuse_other_scan(folder, read_manifest(folder).key, facts.key)
        return False

    with writing(folder):
        DistributedScan(model, plan, folder, watch).run(staff, is_missing)
    return ScanStore.open(out)
