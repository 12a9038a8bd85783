"""A server in a process of its own, as a person starts it."""

from __future__ import annotations

import socket
import subprocess
import sys
from pathlib import Path

from ffmem.store.scan_store import ScanStore


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


def started(study: ScanStore, port: int, *options: str) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "ffmem", "explore", str(study.folder.root), "--no-browser"]
    server = subprocess.Popen([*command, "--port", str(port), *options], stdout=subprocess.PIPE)
    assert server.stdout is not None
    for line in server.stdout:
        if b"http://" in line:
            return server
    raise AssertionError("the server did not start")


def children(process: int) -> list[int]:
    return [
        int(one) for one in Path(f"/proc/{process}/task/{process}/children").read_text().split()
    ]
