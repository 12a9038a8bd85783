"""Entry point of the command line: Ctrl-C is one line from the first moment on.

The commands take a while to import, and Ctrl-C is most likely while nothing is seen yet.
"""

from __future__ import annotations

import sys


def main() -> None:
    """Import the commands and run the one that was asked for."""
    try:
        from ffmem.cli.main import main as run

        run()
    except KeyboardInterrupt:
        print("stopped", file=sys.stderr)
        sys.exit(130)
