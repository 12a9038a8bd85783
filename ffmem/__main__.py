"""Entry point of the command line, `ffmem` or `python -m ffmem`: Ctrl-C is one line at any moment.

The commands take a while to import, and Ctrl-C is most likely while nothing is seen yet. Those
that only read answer sooner: they start no threads for linear algebra, and end at once.
"""

from __future__ import annotations

import os
import sys

from ffmem.interrupts import exit_code, stop_as_by_ctrl_c

READING = {"show", "search", "compare"}


def main() -> None:
    """Import the commands and run the one that was asked for."""
    only_reads = bool(READING & set(sys.argv[1:2]))
    if only_reads:
        os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    stop_as_by_ctrl_c()
    try:
        from ffmem.cli.main import main as run

        run()
    except KeyboardInterrupt:
        sys.stderr.write("stopped\n")
        sys.exit(exit_code())
    except SystemExit as end:
        if only_reads and isinstance(end.code, int):
            leave(end.code)
        raise


def leave(code: int) -> None:
    """End the process at once; everything that was printed is out, and every file is closed."""
    for stream in (sys.stdout, sys.stderr):
        if stream is not None:  # as it is where a shell has closed it
            stream.flush()
    os._exit(code)


if __name__ == "__main__":
    main()
