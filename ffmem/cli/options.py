"""Options that several commands share."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypedDict

import click

if TYPE_CHECKING:
    from ffmem.models.language_model import LanguageModel


class ModelOptions(TypedDict):
    """How a command was told to load its model."""

    revision: str | None
    dtype: str
    device: str
    trust_remote_code: bool


def model_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add --revision, --dtype, --device and --trust-remote-code to a command."""
    for option in (
        click.option(
            "--trust-remote-code", is_flag=True, help="Run code that comes inside the checkpoint."
        ),
        click.option(
            "--device", default="auto", show_default=True, help="auto, cpu, cuda, cuda:1 ..."
        ),
        click.option(
            "--dtype",
            default="auto",
            show_default=True,
            type=click.Choice(["auto", "float32", "bfloat16", "float16"]),
            help="Precision; auto is float32 on a CPU and the checkpoint's own on a GPU.",
        ),
        click.option("--revision", help="Branch, tag or commit of a hub model."),
    ):
        command = option(command)
    return command


def loaded(name: str, options: ModelOptions) -> LanguageModel:
    """Load the model a command was asked for."""
    from ffmem.models.loading import load  # here, not above: --help must not wait for torch

    return load(name, **options)
