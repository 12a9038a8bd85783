"""`ffmem explore DIR`: a study in the browser."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ffmem.cli.options import LOCATION, Whole, endpoint_options, names_damage
from ffmem.errors import FfmemError

if TYPE_CHECKING:
    from ffmem.annotations.llm_annotator import Explainer

LONGEST_REPLY = 1000  # tokens


@click.command()
@click.argument("folder", type=LOCATION)
@click.option("--model", help="The scanned model, if it cannot be found under its own name.")
@click.option(
    "--with",
    "others",
    multiple=True,
    type=LOCATION,
    help="Another study to compare with. Repeatable.",
)
@click.option("--port", default=8600, show_default=True, type=Whole(0, 65535))
@click.option(
    "--host",
    default="127.0.0.1",
    show_default=True,
    help="Address to bind to; a non-loopback one requires a token.",
)
@click.option("--token", help="Secret that visitors must present; generated if needed.")
@click.option(
    "--database",
    help="Database of annotations: a file, or a URL such as postgresql://user@host/name; "
    "FOLDER/annotations.sqlite by default.",
)
@click.option(
    "--llm",
    help="A language model that explains memories on their pages: its name at the endpoint, or "
    "without an endpoint a model on this machine.",
)
@endpoint_options
@click.option("--no-browser", is_flag=True, help="Only print the address.")
@names_damage
def explore(  # noqa: PLR0913 - one parameter per option
    folder: Path,
    model: str | None,
    others: tuple[Path, ...],
    port: int,
    host: str,
    token: str | None,
    database: str | None,
    llm: str | None,
    endpoint: str | None,
    key_from: str,
    no_browser: bool,
) -> None:
    r"""Browse, search and query the study in FOLDER in a web browser.

    By default it can only be opened on this machine. The model is loaded when a page first needs
    it. Stop with Ctrl-C.

    \b
    Example:
        ffmem explore out/scan
    """
    from ffmem.store.scan_store import ScanStore

    ScanStore.open(folder)  # a wrong folder is named before anything slow is imported
    from ffmem.explorer.app import ListenAddress, create_app, listen, serve
    from ffmem.explorer.context import open_context as opened

    place, door = listen(ListenAddress.with_token(host, port, token))
    study = opened(
        folder, model, lambda part: click.echo(f"preparing: {part} ..."), database, others
    )
    study = replace(study, explainer=load_explainer(llm, endpoint, key_from))
    app = create_app(study, place.token)
    serve(
        app,
        place,
        door,
        lambda: click.echo(f"{folder} at {place.url}   (Ctrl-C stops)"),
        not no_browser,
    )


def load_explainer(name: str | None, endpoint: str | None, key_from: str) -> Explainer | None:
    """The language model that explains memories; its replies are kept, so none is asked twice."""
    from ffmem.annotations.chat import open_chat
    from ffmem.annotations.llm_annotator import Explainer

    if name is None:
        if endpoint is not None:
            raise FfmemError("--endpoint needs --llm, the model's name there")
        return None
    chat = open_chat(name, endpoint, os.environ.get(key_from), LONGEST_REPLY, None)
    return Explainer(name, chat)
