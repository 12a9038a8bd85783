"""Entry point of the command line, `ffmem` or `python -m ffmem`: Ctrl-C is one line at any moment.

The commands take a while to import, and Ctrl-C is most likely while nothing is seen yet. Those
that only read answer sooner: they start no threads for linear algebra.
"""

from __future__ import annotations

import gc
import os
import sys

from ffmem.interrupts import exit_code, stop_as_by_ctrl_c

READING = {"show", "search", "compare"}


def main() -> None:
    """Import the commands and run the one that was asked for."""
    if READING & set(sys.argv[1:2]):
        os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    stop_as_by_ctrl_c()
    try:
        from ffmem.cli.main import main as run

        run()
    except KeyboardInterrupt:
        sys.stderr.write("stopped\n")
        sys.exit(exit_code())
    finally:
        gc.freeze()  # else Python looks for garbage in all that was imported before it ends


if __name__ == "__main__":
    main()
