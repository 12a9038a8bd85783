"""The scan on one page: a model and a corpus in, a store out."""

from __future__ import annotations

from pathlib import Path

from ffmem.errors import StoreError
from ffmem.models.language_model import LanguageModel
from ffmem.runs.finishing import write_store
from ffmem.runs.local import ScanRun, Watch, fresh, work
from ffmem.runs.plan import ScanPlan, scan_key, sentence_settings, token_budget
from ffmem.scan.scanner import Scanner
from ffmem.store.checkpoint import load_checkpoint
from ffmem.store.folder import ScanFolder
from ffmem.store.manifest import ScanKey, read_manifest
from ffmem.store.scan_store import ScanStore

__all__ = ["ScanPlan", "Watch", "scan", "sentence_settings"]


def scan(
    model: LanguageModel,
    plan: ScanPlan,
    out: Path,
    watch: Watch = lambda _progress, _share: None,
) -> ScanStore:
    """Find the strongest triggers of every key and keep them in the folder `out`.

    A folder with the same scan, finished, is opened as it is; unfinished, the scan goes on where
    it was; a folder with another scan is refused. `watch` is told of every batch, and which share
    of the work is done if that is known. Stopping with Ctrl-C saves what was found.
    """
    folder, key = ScanFolder(out), scan_key(model, plan)
    if folder.manifest.exists():
        refuse_another(folder, read_manifest(folder).key, key)
        return ScanStore.open(out)
    start = load_checkpoint(folder)
    if start is not None and start.key != key.digest:
        raise StoreError(
            f"{out} holds an unfinished scan of something else; choose another folder or delete it"
        )
    with Scanner(model, plan.settings, plan.layers) as scanner:
        run = ScanRun(scanner, folder, key, start or fresh(key, token_budget(model, plan)))
        try:
            run.read(work(model, plan, run.progress), watch)
        except KeyboardInterrupt:
            run.save()
            raise
        write_store(model, run.finished(), folder)
    folder.checkpoint.unlink(missing_ok=True)
    return ScanStore.open(out)


def refuse_another(folder: ScanFolder, found: ScanKey, wanted: ScanKey) -> None:
    """Never write one scan over another."""
    if found.digest != wanted.digest:
        where = ", ".join(found.differences(wanted)) or "something"
        raise StoreError(
            f"{folder.root} holds another scan (it differs in {where}); choose another folder"
        )
