"""The commands on patterns, end to end on a toy model."""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest

from ffmem.models.language_model import LanguageModel
from tests.analyses.conftest import scanned_lines
from tests.analyses.planted import filler
from tests.cli.test_commands import run

Capture = pytest.CaptureFixture[str]
pytestmark = pytest.mark.usefixtures("few_calibration_keys")


@pytest.fixture(scope="module")
def folder(relu: LanguageModel, tmp_path_factory: pytest.TempPathFactory) -> Path:
    draw = random.Random(0)
    lines = [" ".join(filler(draw))[:55] for _ in range(120)]
    out = tmp_path_factory.mktemp("commands") / "scan"
    scanned_lines(relu, out, lines, top=50, sample=32)
    return out


def test_patterns_leaves_numbers_and_a_figure(capsys: Capture, folder: Path) -> None:
    code, out, _ = run(capsys, "patterns", str(folder), "--keys", "2")
    assert code == 0
    assert "control keys of random prefixes" in out
    numbers = json.loads((folder / "analyses" / "patterns.json").read_text())["result"]
    assert [layer["layer"] for layer in numbers["summary"]["layers"]] == [1, 2, 3]
    assert (folder / "figures" / "patterns.png").read_bytes().startswith(b"\x89PNG")


def test_a_result_of_other_keys_is_replaced_only_when_asked(capsys: Capture, folder: Path) -> None:
    words, numbers = ["patterns", str(folder), "--keys"], folder / "analyses" / "patterns.json"
    numbers.unlink(missing_ok=True)
    run(capsys, *words, "2")
    before = numbers.read_bytes()
    for other, said in ((["1"], "pattern_keys 2"), (["2", "--seed", "4"], "seed 0")):
        code, _, err = run(capsys, *words, *other)
        assert code == 2
        assert f"results of other settings: patterns ({said}); " in err
        assert "or add --again to replace them" in err
        assert numbers.read_bytes() == before
    assert run(capsys, *words, "1", "--again")[0] == 0
    assert json.loads(numbers.read_text())["made_from"]["pattern_keys"] == 1


def test_saliency_has_a_number_a_token_and_the_last_is_position_before(
    capsys: Capture, folder: Path
) -> None:
    code, out, _ = run(capsys, "show", str(folder), "L2.7", "--saliency", "-n", "2", "--json")
    found = json.loads(out)
    triggers = found["triggers"]
    assert code == 0
    assert [one["rank"] for one in found["saliency"]] == [1, 2]
    for trigger, one in zip(triggers, found["saliency"], strict=False):
        places = one["tokens"]
        assert "".join(place["token"] for place in places) == trigger["before"] + trigger["last"]
        assert len(places) == trigger["position"]
    code, out, _ = run(capsys, "show", str(folder), "L2.7", "--saliency", "-n", "2")
    assert triggers[0]["before"] in out


def test_sheets_go_out_come_back_and_are_compared(
    capsys: Capture, folder: Path, tmp_path: Path
) -> None:
    sheets = tmp_path / "sheets"
    code, out, _ = run(capsys, "annotate", "sheets", str(folder), str(sheets), "--keys", "2")
    files = sorted(sheets.glob("*.md"))
    assert code == 0
    assert len(files) == 3 * 2 + 3 * 2
    assert out.startswith("12 sheets (6 keys and 6 control keys,")
    assert not any("control" in path.read_text() or "L1." in path.read_text() for path in files)
    for who, ranks in (("ana", "1, 2, 3"), ("bo", "2-4")):
        for path in files[:-1]:
            text = path.read_text().replace("Description: \n", "Description: same end\n", 1)
            text = text.replace("Class: \n", "Class: shallow\n", 1)
            (tmp_path / path.name).write_text(
                text.replace("Prefixes: \n", f"Prefixes: {ranks}\n", 1)
            )
        filled = [str(tmp_path / path.name) for path in files[:-1]]
        words = ["annotate", "import", str(folder), *filled, "--annotator", who]
        assert "11 new answers" in run(capsys, *words)[1]
        assert "0 new answers" in run(capsys, *words)[1]
    code, out, err = run(capsys, "annotate", "import", str(folder), str(sheets), "--annotator", "x")
    assert code == 2
    assert "line" in err
    assert "nothing is filled in" in err
    assert "12 new answers by rules" in run(capsys, "annotate", "rules", str(folder))[1]
    code, out, _ = run(capsys, "annotate", "agreement", str(folder))
    assert code == 0
    assert "ana and bo: kappa" in out
    assert "ana: a pattern on 100 % of" in out
    assert "prefix 1: ana: shallow, bo: not covered" in out
    assert "rules: a pattern on" in out
    code, out, _ = run(capsys, "patterns", str(folder), "--annotator", "ana")
    assert code == 0
    assert "keys, 100 % with a pattern; semantic patterns lead nowhere" in out
    assert (folder / "figures" / "patterns-ana.png").exists()
    code, _, err = run(capsys, "patterns", str(folder), "--annotator", "nobody")
    assert code == 2
    assert "answers are by: ana, bo, rules" in err


def test_cases_of_the_last_layer_go_out_come_back_and_are_compared(
    capsys: Capture, folder: Path, tmp_path: Path
) -> None:
    sheets = tmp_path / "cases"
    code, _, err = run(capsys, "annotate", "cases", str(folder), str(sheets))
    assert code == 2
    assert "--only last-layer" in err
    words = ["--only", "last-layer", "--sample", "60", "--no-figures"]
    assert run(capsys, "analyse", str(folder), *words)[0] == 0
    numbers = json.loads((folder / "analyses" / "last-layer.json").read_text())["result"]
    shown = len(numbers["cases"]) + len(numbers["controls"])
    code, out, _ = run(capsys, "annotate", "cases", str(folder), str(sheets))
    files = sorted(sheets.glob("cases-*.md"))
    assert code == 0
    assert f"sheets of {shown} cases" in out
    before = files[0].read_text()
    assert "0 sheets of 0 cases" in run(capsys, "annotate", "cases", str(folder), str(sheets))[1]
    take = ["annotate", "import", str(folder), str(sheets), "--annotator"]
    code, _, err = run(capsys, *take, "ana")
    assert code == 2
    assert "the judgement is empty" in err
    assert "0 sheets by ana: 0 new" in run(capsys, *take, "ana", "--skip-empty")[1]
    for who, judgement in (("ana", "related"), ("bo", "distant")):
        for path in files:
            text = path.read_text().replace(": related\n", ": \n")
            path.write_text(text.replace("Judgement: \n", f"Judgement: {judgement}\n"))
        assert f"{len(files)} new answers" in run(capsys, *take, who)[1]
        assert ": 0 new answers" in run(capsys, *take, who)[1]
    assert before == files[0].read_text().replace("Judgement: distant\n", "Judgement: \n")
    code, out, _ = run(capsys, "annotate", "agreement", str(folder))
    assert code == 0
    related = sum(case["related"] for case in numbers["cases"])
    share = 100 * related / len(numbers["cases"])
    assert f"rules: {share:.0f} %" in out
    assert "ana: 100 % (" in out
    assert "bo: 0 % (0 .. " in out
    assert f"ana and bo: kappa 0.00, the same on 0 % of {len(numbers['cases'])} cases" in out
    saved = json.loads((folder / "analyses" / "case-agreement.json").read_text())["result"]
    assert [share["annotator"] for share in saved["shares"]] == ["ana", "bo", "rules"]
    assert saved["shares"][0]["controls"]["n"] == len(numbers["controls"])
