"""Toy models of several kinds of layer; no network, no GPU, nothing outside the repository."""

from __future__ import annotations

import gc
import os
import random
import re
import shlex
import shutil
import signal
import socket
import socketserver
import subprocess
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import hypothesis
import pytest
from xdist.scheduler import LoadFileScheduling

from tests.shared_folders import folder_once, shared_root
from tests.waiting import LONGEST

if TYPE_CHECKING:  # the process that only hands out tests need not wait for torch
    import torch

    from ffmem.models.language_model import LanguageModel

os.environ["HF_HUB_OFFLINE"] = "1"
# Some virtual machines announce AMX and then forbid it, which kills 16-bit matrix products.
os.environ.setdefault("ONEDNN_MAX_CPU_ISA", "AVX512_CORE_BF16")
gc.disable()  # until all is imported: next to nothing of it is garbage
hypothesis.settings.register_profile(  # how long an example takes says nothing about the law
    "any machine", deadline=None, suppress_health_check=[hypothesis.HealthCheck.too_slow]
)
hypothesis.settings.load_profile("any machine")

KINDS = ["opt", "gpt2", "llama", "gpt_neox", "gemma2", "granite", "olmo2", "phi3", "bloom"]


# Files that take long, the longest first, so that the processes end together.
LONG = (
    "store/test_study_files.py",
    "explorer/test_in_a_browser.py",
    "execution/test_distributed.py",
    "report/test_in_a_browser.py",
    "test_crash_points.py",
    "test_documentation.py",
    "analyses/test_study.py",
    "models/test_discovery.py",
    "annotations/test_llm.py",
    "explorer/test_api.py",
    "models/test_offloaded.py",
    "explorer/test_mixture_pages.py",
    "explorer/test_page_queue.py",
    "execution/test_expert_guarantees.py",
    "analyses/test_untrained_models.py",
    "scan/test_layer_scan.py",
    "execution/test_single_process.py",
    "cli/test_read_only.py",
    "store/test_token_search.py",
    "test_workflows.py",
)


# Files that run in one process with another one, whose Ray cluster they share.
TOGETHER = {"tests/execution/test_executors.py": "tests/execution/test_distributed.py"}


class FilesTogether(LoadFileScheduling):
    """Each file on one process, and those of `TOGETHER` on the same one."""

    def _split_scope(self, nodeid: str) -> str:
        file = super()._split_scope(nodeid)
        return TOGETHER.get(file, file)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    return FilesTogether(config, log) if config.getvalue("dist") == "loadfile" else None


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Begin with the long files; all others keep their order."""
    place = {config.rootpath / "tests" / name: at for at, name in enumerate(LONG)}
    assert all(path.is_file() for path in place), "a file of LONG has another name now"
    items.sort(key=lambda item: place.get(item.path, len(LONG)))


def pytest_collection_finish() -> None:
    """What is imported by now stays, so the collector of garbage need not look at it again."""
    import torch

    torch.set_num_threads(1)
    gc.collect()
    gc.freeze()
    gc.enable()


@pytest.fixture(scope="session", autouse=True)
def one_machine_as_another(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """The CPU where a GPU is too, and a cache of the tests' own; GPU tests name their device."""
    from ffmem.models import loading

    where = loading.resolve_device

    def by_name(device: str) -> torch.device:
        return where("cpu" if device == "auto" else device)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(loading, "resolve_device", by_name)
        patch.setenv("FFMEM_CACHE", str(shared_root(tmp_path_factory) / "cache"))
        yield


@pytest.fixture(autouse=True)
def same_chance_in_any_order() -> None:
    """What a test draws without a seed of its own does not depend on the tests before it."""
    import torch

    torch.manual_seed(0)
    random.seed(0)


@pytest.fixture(autouse=True)
def no_network(monkeypatch: pytest.MonkeyPatch) -> None:
    """A test that reaches for another machine fails at once."""
    connect = socket.socket.connect

    def only_here(self: socket.socket, address: object) -> None:
        host = address[0] if isinstance(address, tuple) else "localhost"
        if host not in ("127.0.0.1", "localhost", "::1"):
            raise AssertionError(f"a test tried to reach {host}")
        connect(self, address)  # type: ignore[arg-type]

    monkeypatch.setattr(socket.socket, "connect", only_here)


@pytest.fixture(scope="session")
def ray_cluster() -> Iterator[str]:
    """A real Ray on this machine, with two CPUs and little memory; gives its address."""
    reason = "ray is not installed; `pip install ffmem[ray]`"
    pytest.importorskip("ray", reason=reason)
    from ffmem.execution.ray_executor import ray  # with its settings

    # on a machine with much other work a new process needs more than Ray's minute to report
    os.environ["RAY_worker_register_timeout_seconds"] = "600"  # noqa: SIM112 - Ray's spelling
    terminate = signal.getsignal(signal.SIGTERM)
    context = ray.init(
        address="local",
        num_cpus=2,
        num_gpus=0,
        include_dashboard=False,
        object_store_memory=100 * 2**20,
        log_to_driver=False,
        logging_level="ERROR",
        _node_ip_address="127.0.0.1",
    )
    # with Ray's own, a child of a later test that is ended while it is forked goes on as pytest
    signal.signal(signal.SIGTERM, terminate)
    yield context.address_info["address"]
    ray.shutdown()


@pytest.fixture(scope="session", params=KINDS)
def toy(request: pytest.FixtureRequest) -> LanguageModel:
    """One toy after the other: ReLU, GELU, gated, parallel, sandwich norms, scaled, fused."""
    from ffmem.models.loading import load

    model = load(f"tiny:{request.param}")
    assert model.memories < 1000
    return model


@pytest.fixture(scope="session")
def relu() -> LanguageModel:
    from ffmem.models.loading import load

    return load("tiny:opt")


@pytest.fixture(scope="session")
def gated() -> LanguageModel:
    from ffmem.models.loading import load

    return load("tiny:llama")


@pytest.fixture
def few_calibration_keys() -> Iterator[None]:
    """For tests that run the rule annotator and do not ask how well it is set."""
    from tests.small_study import calibration_on_few_keys

    with calibration_on_few_keys():
        yield


@pytest.fixture
def few_figures() -> Iterator[None]:
    """For tests that study a toy and look at few of its figures: the others are not drawn."""
    from tests.small_study import drawing_few_figures

    with drawing_few_figures():
        yield


CHROMIUM = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
]


@pytest.fixture(scope="session")
def browser() -> Iterator[Any]:
    """A real browser without a window; skips where none is installed."""
    path = shutil.which("chromium") or shutil.which("google-chrome")
    if path is None:
        pytest.skip("no Chromium is installed; on Debian: apt install chromium")
    sync_playwright = pytest.importorskip("playwright.sync_api").sync_playwright
    with sync_playwright() as playwright:
        found = playwright.chromium.launch(executable_path=path, args=CHROMIUM)
        yield found
        found.close()


@pytest.fixture(scope="session")
def postgres() -> Iterator[str]:
    """The URL of a real server, started for these tests, reached through a socket file."""
    programs = sorted(Path("/usr/lib/postgresql").glob("*/bin"))  # where Debian puts them
    path = os.pathsep.join([os.environ["PATH"], *map(str, programs)])
    initdb, pg_ctl = (shutil.which(name, path=path) for name in ("initdb", "pg_ctl"))
    if initdb is None or pg_ctl is None:
        pytest.skip("no PostgreSQL server is installed here")
    if os.getuid() == 0 and shutil.which("runuser") is None:
        pytest.skip("PostgreSQL does not run as root and there is no runuser")
    home = Path(tempfile.mkdtemp(prefix="ffmem-pg-"))  # a path that another user can reach
    user: list[str] = []
    if os.getuid() == 0:
        shutil.chown(home, "nobody")
        user = ["runuser", "-u", "nobody", "--"]

    def call(*words: str) -> None:
        subprocess.run([*user, *words], check=True, capture_output=True, cwd=home, timeout=LONGEST)

    data = str(home / "data")
    options = f"-k {shlex.quote(str(home))} -c listen_addresses='' -c fsync=off"
    try:
        call(initdb, "-D", data, "-U", "ffmem", "-A", "trust", "-E", "UTF8", "--locale=C")
        call(pg_ctl, "-D", data, "-w", "-l", str(home / "log"), "-o", options, "start")
        yield f"postgresql://ffmem@/postgres?host={quote(str(home))}"
        call(pg_ctl, "-D", data, "-w", "-m", "immediate", "stop")
    finally:
        shutil.rmtree(home, ignore_errors=True)


@pytest.fixture
def silent_hub(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """A Hugging Face hub that replies to nothing; lists what it is asked about repositories."""
    from huggingface_hub import constants
    from huggingface_hub.utils import close_session

    requests: list[str] = []

    class Silence(socketserver.BaseRequestHandler):
        def handle(self) -> None:
            line = self.request.recv(1000).decode().partition("\r")[0]
            if re.search("/resolve/|/api/(models|datasets)/", line):  # not what it asks for itself
                requests.append(line)

    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Silence) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
        here = f"http://127.0.0.1:{server.server_address[1]}"
        pages = constants.HUGGINGFACE_CO_URL_TEMPLATE.replace(constants.ENDPOINT, here)
        monkeypatch.setattr(constants, "HUGGINGFACE_CO_URL_TEMPLATE", pages)
        monkeypatch.setattr(constants, "ENDPOINT", here)
        close_session()
        yield requests
        server.shutdown()
        close_session()


@pytest.fixture(scope="module")
def toy_study(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """A whole study of a toy; each file of tests has a copy of its own."""
    return shared_study(tmp_path_factory, "opt")


@pytest.fixture(scope="module")
def gated_study(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """The same of a gated toy."""
    return shared_study(tmp_path_factory, "llama")


@pytest.fixture(scope="module")
def mixture_study(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """A dense layer, then two mixtures of experts, through every analysis; without a report."""
    from ffmem.analyses.study import open_study
    from ffmem.models.loading import load
    from tests.small_study import small_results

    def make(root: Path) -> object:
        return small_results(load("tiny:deepseek_v3"), root / "mixture")

    return open_study(folder_once(tmp_path_factory, "study-mixture", make) / "mixture")


def shared_study(files: pytest.TempPathFactory, kind: str) -> Any:
    from ffmem.analyses.study import open_study
    from tests.small_study import small_study

    folder = folder_once(files, f"study-{kind}", lambda root: small_study(kind, root / kind))
    return open_study(folder / kind)
