"""Options that several commands share."""

from __future__ import annotations

import gc
import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypedDict

import click

from ffmem.address_space import MODEL, STUDY, address_space, check_address_space
from ffmem.cli.output import say
from ffmem.errors import FfmemError, StoreError, shorten
from ffmem.locations import location

if TYPE_CHECKING:
    from ffmem.annotations.database import Annotations
    from ffmem.execution.executor import Cluster
    from ffmem.memories.edits import Means
    from ffmem.models.language_model import LanguageModel
    from ffmem.store.scan_store import ScanStore


class Location(click.ParamType[Path]):
    """A local file or folder, or one at a URL; refused if it can never be opened."""

    name = "path"

    def convert(
        self, value: str | Path, _param: click.Parameter | None, _ctx: click.Context | None
    ) -> Path:
        """Read the path."""
        return location(value)


class Output(Location):
    """A folder to write, in which what is written stays."""

    def convert(
        self, value: str | Path, param: click.Parameter | None, ctx: click.Context | None
    ) -> Path:
        """Read the path."""
        if str(value).startswith("memory:"):
            raise click.UsageError(
                f"{value} is gone when this command ends; choose a folder, or storage that stays"
            )
        return super().convert(value, param, ctx)


LOCATION, OUTPUT = Location(), Output()


class ModelOptions(TypedDict):
    """Options that decide how a command loads its model."""

    revision: str | None
    dtype: str
    device: str
    trust_remote_code: bool
    tokenizer: str | None


def model_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add --tokenizer, --revision, --dtype, --device and --trust-remote-code to a command."""
    for option in (
        click.option(
            "--trust-remote-code", is_flag=True, help="Run code that comes inside the checkpoint."
        ),
        click.option(
            "--device",
            default="auto",
            show_default=True,
            help="auto, cpu, cuda, cuda:1, all ...",
        ),
        click.option(
            "--dtype",
            default="auto",
            show_default=True,
            type=click.Choice(["auto", "float32", "bfloat16", "float16"]),
            help="Precision; auto is float32 on a CPU and the checkpoint's own on a GPU.",
        ),
        click.option("--revision", help="Branch, tag or commit of a hub model."),
        click.option(
            "--tokenizer",
            help="Folder or hub id of a tokenizer to use in place of the model's own.",
        ),
    ):
        command = option(command)
    return command


def endpoint_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add --endpoint and --key-from, the server of a language model, to a command."""
    for option in (
        click.option(
            "--key-from",
            default="OPENAI_API_KEY",
            show_default=True,
            help="Environment variable that holds the endpoint's key; never stored.",
        ),
        click.option(
            "--endpoint", help="URL of any OpenAI-compatible server, e.g. http://localhost:8000/v1."
        ),
    ):
        command = option(command)
    return command


def key_sample_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add --keys, --controls and --seed, which select keys for annotators, to a command."""
    for option in (
        click.option(
            "--seed", type=SEED, default=0, show_default=True, help="Seed of the drawn keys."
        ),
        click.option(
            "--controls",
            type=ANY,
            default=1,
            show_default=True,
            help="Control keys per layer, of each kind.",
        ),
        click.option(
            "--keys", type=SOME, default=10, show_default=True, help="Random keys per layer."
        ),
    ):
        command = option(command)
    return command


def edits_option(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add --set, a required edit of memories, to a command."""
    return click.option(
        "--set",
        "edits",
        multiple=True,
        required=True,
        metavar="EDIT",
        help="@FILE=0 (silence the set), @FILE=mean, @FILE*2, or one memory: L7.1034=0. "
        "Repeatable.",
    )(command)


def cluster_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add --devices, --ray and the resources of Ray workers to a command."""
    for option in (
        click.option(
            "--devices",
            help="Scan with a process on each of these: all (every GPU here), or a list such as "
            "cuda:0,cuda:1. With all, a model that is larger than a GPU is spread over them.",
        ),
        click.option(
            "--cpus-per-worker", type=SOME, help="With --ray: threads per worker; all by default."
        ),
        click.option(
            "--gpus-per-worker",
            type=POSITIVE,
            help="With --ray: 1 by default where there are GPUs; more spread one model over them.",
        ),
        click.option("--workers", type=SOME, help="With --ray: by default as many as fit."),
        click.option(
            "--ray",
            "address",
            is_flag=False,
            flag_value="",
            metavar="[ADDRESS]",
            help="Scan on Ray: at ADDRESS, or on this machine's cluster, or all of this machine.",
        ),
    ):
        command = option(command)
    return command


def placement(
    model: str, options: dict[str, Any], copies: int = 1
) -> tuple[ModelOptions, Cluster | None]:
    """Remove and return the options on loading the model and, if given, on workers.

    `copies` is the number of copies of the model on one device while the command runs.
    """
    choice: ModelOptions = {
        name: options.pop(name)
        for name in ModelOptions.__annotations__  # type: ignore[assignment]
    }
    cluster, text = _cluster_of(options), options.pop("devices")
    if text is None:
        return choice, cluster
    if cluster is not None or choice["device"] != "auto":
        raise click.UsageError("--devices says where to scan; leave --ray and --device out")
    from ffmem.execution.executor import Cluster
    from ffmem.models.device_placement import list_devices  # here: torch is slow to import

    devices = list_devices(text)
    if len(devices) == 1:
        return {**choice, "device": devices[0]}, None
    if text == "all" and _is_larger_than_a_gpu(model, choice, copies):
        return {**choice, "device": "all"}, None
    return choice, Cluster.on_devices(devices)


def _is_larger_than_a_gpu(model: str, choice: ModelOptions, copies: int) -> bool:
    """Whether a model must be spread over several GPUs; prints a line if so."""
    from ffmem.models.device_placement import fits_one_gpu

    size = _weight_bytes(model, choice)
    if fits_one_gpu(copies * size):
        return False
    say(
        f"ffmem: {shorten(model)} takes {size / 1e9:,.0f} GB, so its layers are spread over all "
        "GPUs, and what is left over stays in memory",
        err=True,
    )
    return True


def _weight_bytes(name: str, options: ModelOptions) -> int:
    """The room that a model's weights take, without loading them."""
    from ffmem.models.loading import weight_bytes

    return weight_bytes(
        name,
        revision=options["revision"],
        dtype=options["dtype"],
        trust_remote_code=options["trust_remote_code"],
    )


def _cluster_of(options: dict[str, Any]) -> Cluster | None:
    """Remove and return the Ray cluster from a command's options, if one is named."""
    from ffmem.execution.executor import Cluster

    address = options.pop("address")
    wanted = {n: options.pop(n) for n in ("workers", "gpus_per_worker", "cpus_per_worker")}
    if address is None and any(number is not None for number in wanted.values()):
        raise click.UsageError("workers and what they get are for a scan on Ray; add --ray")
    return None if address is None else Cluster(address or None, **wanted)


def load_model(name: str, options: ModelOptions) -> LanguageModel:
    """Load the model that a command names."""
    with while_loading(name):
        from ffmem.models.loading import load  # here: --help must not wait for torch

        if address_space() is not None:  # a file of weights is mapped, then copied
            weights = _weight_bytes(name, options)
            check_address_space(MODEL + 2 * weights, f"the model {name}")
        return load(name, **options)


@contextmanager
def while_loading(name: str) -> Iterator[None]:
    """Show a line on the terminal while a model loads."""
    check_address_space(MODEL, "a model")
    from rich.console import Console
    from rich.text import Text

    with Console(stderr=True).status(Text(f"loading {shorten(name)} ...")):
        from ffmem.models.loading import import_transformers

        import_transformers()
        gc.freeze()  # nothing that was imported is garbage
        yield


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


def database_option(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add --database to a command."""
    return click.option(
        "--database",
        help="A file, or a URL such as postgresql://user@host/name; by default "
        "FOLDER/annotations.sqlite.",
    )(command)


def open_database(folder: Path, database: str | None) -> Annotations:
    """The database of a scan's annotations."""
    from ffmem.annotations.database import Annotations
    from ffmem.store.folder import StudyFolder
    from ffmem.store.scan_store import ScanStore

    ScanStore.open(folder)  # refuses a folder that is not a scan before anything is made in it
    return Annotations.open(database or str(StudyFolder(folder).annotations))


class Whole(click.ParamType[int]):
    """A whole number between two others, both included."""

    name = "integer"

    def __init__(self, least: int, most: int = 2**32) -> None:
        self.least, self.most = least, most

    def convert(
        self, value: str | int, param: click.Parameter | None, ctx: click.Context | None
    ) -> int:
        """Read the number."""
        try:
            number = int(value)
        except ValueError:
            number = self.least - 1
        if not self.least <= number <= self.most:
            shown = shorten(str(value))
            wanted = f"write a whole number from {self.least} to {self.most}"
            self.fail(f"{shown!r} is not one it can take; {wanted}.", param, ctx)
        return number


class Positive(click.ParamType[float]):
    """A number above 0 and below another."""

    name = "float"

    def __init__(self, bound: float = math.inf) -> None:
        self.bound = bound

    def convert(
        self, value: str | float, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        """Read the number."""
        try:
            number = float(value)
        except ValueError:
            number = math.nan
        if not 0 < number < self.bound:
            shown = shorten(str(value))
            wanted = "write a number above 0" + (
                f" and below {self.bound:g}" if self.bound < math.inf else ""
            )
            self.fail(f"{shown!r} is not one it can take; {wanted}.", param, ctx)
        return number


SOME = Whole(1)
ANY = Whole(0)
SEED = Whole(0, 2**63 - 1)
POSITIVE = Positive()
SHARE_TYPE = Positive(1)


def scan_means(folder: Path, model: LanguageModel, dtype: str) -> Means:
    """Mean coefficients of a model's memories from a scan of the same model."""
    return scan_of(folder, model, dtype).mean_coefficients


def scan_of(folder: Path, model: LanguageModel, dtype: str) -> ScanStore:
    """A scan of this very model."""
    from ffmem.analyses.inputs.study_inputs import (
        refuse_other_weights,  # here: torch is slow to import
    )
    from ffmem.store.scan_store import ScanStore

    store = ScanStore.open(folder)
    refuse_other_weights(store, model, dtype)
    return store
