"""A server in a process of its own, as a person starts it."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

from ffmem.store.scan_store import ScanStore


def started(study: ScanStore, *options: str) -> tuple[subprocess.Popen[bytes], int]:
    """The server's process and its port, which the system chooses."""
    command = [sys.executable, "-m", "ffmem", "explore", str(study.folder.root), "--no-browser"]
    server = subprocess.Popen([*command, "--port", "0", *options], stdout=subprocess.PIPE)
    assert server.stdout is not None
    for line in server.stdout:
        port = re.search(rb"http://[^/]*:(\d+)", line)
        if port is not None:
            return server, int(port[1])
    raise AssertionError("the server did not start")


def children(process: int) -> list[int]:
    return [
        int(one) for one in Path(f"/proc/{process}/task/{process}/children").read_text().split()
    ]
