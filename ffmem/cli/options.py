"""Options that several commands share."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypedDict

import click

from ffmem.address_space import MODEL, address_space, check_address_space
from ffmem.cli.output import say
from ffmem.cli.parameters import ANY, POSITIVE, SEED, SOME
from ffmem.errors import shorten
from ffmem.text import size_text

if TYPE_CHECKING:
    from ffmem.execution.executor import Cluster
    from ffmem.models.language_model import LanguageModel


class ModelOptions(TypedDict):
    """Options that decide how a command loads its model."""

    revision: str | None
    dtype: str
    device: str
    trust_remote_code: bool
    tokenizer: str | None


json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON for machines.")
figures_option = click.option(
    "--figures/--no-figures", default=True, help="Draw the figures, or save numbers only."
)
claims_option = click.option(
    "--claims", is_flag=True, help="Print every claim with its numbers, not only those decided."
)
position_option = click.option(
    "--position", type=int, help="Tokens read, from 1; negative counts from the end."
)
device_option = click.option(  # of commands that load the model of a scan
    "--device", default="auto", show_default=True, help="auto, cpu, cuda, cuda:1 ..."
)
database_option = click.option(
    "--database",
    help="Database of annotations: a file, or a URL such as postgresql://user@host/name; "
    "FOLDER/annotations.sqlite by default.",
)
edits_option = click.option(
    "--set",
    "edits",
    multiple=True,
    required=True,
    metavar="EDIT",
    help="@FILE=0 (silence the set), @FILE=mean, @FILE*2, or one memory: L7.1034=0. Repeatable.",
)


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
        f"ffmem: {shorten(model)} takes {size_text(size)}, so its layers are spread over all "
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
