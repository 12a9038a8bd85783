"""What commands do with a study: open it, be its one writer, name the file behind a failure."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ffmem.address_space import STUDY, check_address_space
from ffmem.cli.options import ModelOptions, load_model
from ffmem.errors import FfmemError, StoreError

if TYPE_CHECKING:
    from ffmem.annotations.database import Annotations
    from ffmem.models.language_model import LanguageModel
    from ffmem.store.scan_store import ScanStore


def names_damage(command: Callable[..., Any]) -> Callable[..., Any]:
    """Make a failing command say which of the studies that it was given are to blame, if any.

    One that cannot have the libraries that it needs is refused before it imports them.
    """

    @wraps(command)
    def careful(**given: Any) -> Any:
        check_address_space(STUDY, "this command")
        try:
            return command(**given)
        except (FfmemError, click.ClickException, click.Abort, BrokenPipeError):
            raise
        except Exception as error:
            from ffmem.store.verification import damage_behind  # rarely needed

            values = [one for value in given.values() for one in _as_several(value)]
            found = damage_behind(error, [one for one in values if isinstance(one, Path)])
            if found is None:
                raise
            raise StoreError(found) from error

    return careful


def _as_several(value: object) -> tuple[object, ...]:
    """The values of a parameter, which can be one or several."""
    return value if isinstance(value, tuple) else (value,)


def writes_study(command: Callable[..., Any]) -> Callable[..., Any]:
    """Let a command be the only one that writes into the scan in its `folder`."""

    @wraps(command)
    def alone(folder: Path, **options: Any) -> Any:
        from ffmem.store.folder import StudyFolder, writing

        study = StudyFolder(folder)
        if not study.manifest.exists():  # the command says what is there instead
            return command(folder=folder, **options)
        with writing(study):
            return command(folder=folder, **options)

    return alone


def open_database(folder: Path, database: str | None) -> Annotations:
    """The database of a scan's annotations."""
    from ffmem.annotations.database import Annotations
    from ffmem.store.folder import StudyFolder
    from ffmem.store.scan_store import ScanStore

    ScanStore.open(folder)  # refuses a folder that is not a scan before anything is made in it
    return Annotations.open(database or str(StudyFolder(folder).annotations))


def load_beside(
    name: str, options: ModelOptions, folder: Path | None
) -> tuple[LanguageModel, ScanStore | None]:
    """A model and, where a folder is given, its scan there; a wrong folder is named first."""
    from ffmem.store.scan_store import ScanStore

    store = None if folder is None else ScanStore.open(folder)
    model = load_model(name, options)
    if store is not None:
        from ffmem.analyses.inputs.study_inputs import refuse_other_weights  # slow to import

        refuse_other_weights(store, model, options["dtype"])
    return model, store
