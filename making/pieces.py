"""Cut a file into numbered pieces that are small enough to travel, and join them again.

    python -m making.pieces cut model.gguf --into out/gguf --mib 48
    python -m making.pieces join out/gguf/model.gguf --into out/model.gguf

`cut` writes `out/gguf/model.gguf.000`, `.001`, ... and `out/gguf/model.gguf.sha256`; `join` takes
the name without a number, puts the pieces together and refuses a result with another SHA-256.
"""

import argparse
import hashlib
from pathlib import Path

from making.files import write_whole


def cut(source: Path, folder: Path, piece_bytes: int) -> list[Path]:
    """Write the pieces of a file, in order, and its SHA-256 beside them."""
    data = source.read_bytes()
    folder.mkdir(parents=True, exist_ok=True)
    pieces = []
    for number, start in enumerate(range(0, max(len(data), 1), piece_bytes)):
        pieces.append(folder / f"{source.name}.{number:03d}")
        write_whole(pieces[-1], data[start : start + piece_bytes])
    digest = hashlib.sha256(data).hexdigest()
    write_whole(folder / f"{source.name}.sha256", digest.encode())
    return pieces


def join(stem: Path, target: Path) -> None:
    """Put the pieces `stem.000`, `stem.001`, ... together."""
    pieces = sorted(stem.parent.glob(stem.name + ".[0-9][0-9][0-9]"))
    if not pieces:
        raise SystemExit(f"no pieces named {stem}.000 and so on; cut them first")
    data = b"".join(piece.read_bytes() for piece in pieces)
    wanted = stem.with_name(stem.name + ".sha256").read_text().strip()
    if hashlib.sha256(data).hexdigest() != wanted:
        raise SystemExit(f"the pieces of {stem} do not add up to the file that was cut; copy again")
    write_whole(target, data)


def main() -> None:
    """Read the command line and cut or join."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("action", choices=["cut", "join"])
    parser.add_argument("file", type=Path)
    parser.add_argument("--into", type=Path, required=True, help="cut: a folder; join: a file")
    parser.add_argument("--mib", type=float, default=15, help="largest piece")
    given = parser.parse_args()
    if given.action == "cut":
        for piece in cut(given.file, given.into, int(given.mib * 2**20)):
            print(piece, piece.stat().st_size, flush=True)
    else:
        join(given.file, given.into)
        print(given.into, given.into.stat().st_size, flush=True)


if __name__ == "__main__":
    main()
