"""Every command that runs a model, on one whose layers are on disk and come to a device to run."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from ffmem.cli import main as cli
from ffmem.models import loading
from ffmem.models.loading import load
from ffmem.store.folder import StudyFolder
from tests.analyses.conftest import lines
from tests.spread import Split, device_map

pytest.importorskip("accelerate")
pytestmark = [
    pytest.mark.filterwarnings("ignore:The following device_map keys"),
    pytest.mark.usefixtures("few_calibration_keys"),
]

SPLIT = Split("cpu", ("disk", "cpu", "disk"), "cpu", "disk")
NUMBERS = {"rel": 1e-3, "abs": 1e-4}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A saved toy, a text, and a scan of it by the model as a whole."""
    root = tmp_path_factory.mktemp("offloaded")
    toy = load("tiny:llama")
    toy.model.save_pretrained(root / "model")
    assert toy.tokenizer is not None
    toy.tokenizer.save_pretrained(root / "model")
    (root / "corpus.txt").write_text("\n".join(lines(150, 1)) + "\n")
    words = ["scan", str(root / "model"), str(root / "corpus.txt"), "--splitter", "line"]
    assert cli.run([*words, "-o", str(root / "scan"), "--device", "cpu"]) == 0
    return root


@pytest.fixture
def weight_places(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[set[str]]:
    """`--device all` as on a machine with too little room; gives where weights were put."""
    places = device_map(load("tiny:llama"), SPLIT)
    through, found = loading.through_transformers, list[set[str]]()

    def place(name: str, source: str, options: dict[str, Any], *rest: Any) -> Any:
        if "device_map" in options:
            options = {**options, "device_map": places, "offload_folder": str(tmp_path / "disk")}
        model, tokenizer = through(name, source, options, *rest)
        found.append({one.device.type for one in model.parameters()})
        return model, tokenizer

    monkeypatch.setattr(loading, "through_transformers", place)
    return found


def assert_near(one: Any, other: Any) -> None:
    """The same answer but for rounding."""
    match one:
        case dict():
            assert one.keys() == other.keys()
            for name in one:
                assert_near(one[name], other[name])
        case list():
            assert len(one) == len(other)
            for pair in zip(one, other, strict=True):
                assert_near(*pair)
        case float():
            assert other == pytest.approx(one, **NUMBERS)
        case _:
            assert one == other


@pytest.mark.parametrize(
    "words",
    [
        ["prompt", "MODEL", "the river runs", "--set", "L1.3=2", "--json"],
        ["weights", "MODEL", "--no-figures", "--json"],
        ["effect", "MODEL", "CORPUS", "--set", "L2.3=0", "--generate", "the river", "--json"],
    ],
    ids=lambda words: words[0],
)
def test_a_command_says_the_same_of_an_offloaded_model(
    words: list[str],
    folder: Path,
    weight_places: list[set[str]],
    capsys: pytest.CaptureFixture[str],
) -> None:
    names = {"MODEL": str(folder / "model"), "CORPUS": str(folder / "corpus.txt")}
    said = []
    for device in ("cpu", "all"):
        assert cli.run([*(names.get(word, word) for word in words), "--device", device]) == 0
        said.append(json.loads(capsys.readouterr().out))
    assert weight_places == [{"cpu"}, {"cpu", "meta"}]
    assert_near(*said)


def test_analyse_leaves_results_of_an_offloaded_model(
    folder: Path, weight_places: list[set[str]]
) -> None:
    scan = StudyFolder(folder / "scan")
    words = ["--sample", "20", "--size", "small", "--no-figures", "--device", "all"]
    assert cli.run(["analyse", str(scan.root), *words]) == 0
    assert weight_places == [{"cpu", "meta"}]
    for name in ["values", "weights", "composition", "causal", "last-layer"]:
        assert scan.result(name).exists()
