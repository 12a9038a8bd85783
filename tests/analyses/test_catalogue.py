"""What every analysis has in common: a record of plain values, figures that draw, claims."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
import types
from collections import Counter
from dataclasses import fields, is_dataclass
from functools import cache
from pathlib import Path
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

import pytest

import ffmem
from ffmem.address import Address
from ffmem.analyses.catalogue import ANALYSES, CLAIMS, parse_names
from ffmem.analyses.study import Study
from ffmem.records import restore, to_plain

NAMES = list(ANALYSES)


@pytest.fixture
def record(request: pytest.FixtureRequest) -> Any:
    """The record of an analysis in the first study that has one."""
    name = request.param
    studies = (request.getfixturevalue(study) for study in ("toy_study", "mixture_study"))
    return next(study.result(name) for study in studies if name in study.names)


@cache
def is_plain(kind: Any) -> bool:
    """Whether values of a type can be written as JSON and read back."""
    if kind in (int, float, str, bool, Address, types.NoneType):
        return True
    if get_origin(kind) is Literal:
        return all(isinstance(one, str | int) for one in get_args(kind))
    if get_origin(kind) in (tuple, dict, Union, types.UnionType):
        return all(is_plain(one) for one in get_args(kind) if one is not Ellipsis)
    return is_dataclass(kind) and all(map(is_plain, get_type_hints(kind).values()))


@pytest.mark.parametrize("name", NAMES)
def test_a_record_is_made_of_plain_values(name: str) -> None:
    kind = ANALYSES[name].record
    wrong = {field.name for field in fields(kind) if not is_plain(get_type_hints(kind)[field.name])}
    assert not wrong
    assert kind.__dataclass_params__.frozen


@pytest.mark.parametrize(("name", "record"), [(name, name) for name in NAMES], indirect=["record"])
def test_a_record_survives_its_file_and_every_figure_of_it_draws(name: str, record: Any) -> None:
    row = ANALYSES[name]
    plain = json.loads(json.dumps(to_plain(record)))
    again = restore(row.record, plain)
    assert json.loads(json.dumps(to_plain(again))) == plain
    for figure in row.figures():
        assert figure.drawn_if(record) == figure.drawn_if(again)
        if figure.drawn_if(again):
            assert figure.chart(again).to_dict(validate=True)["title"]["text"]


def test_figures_are_named_after_their_analysis_and_no_two_alike() -> None:
    names = [(row.name, figure.name) for row in ANALYSES.values() for figure in row.figures()]
    assert all(figure.startswith(row) for row, figure in names)
    assert not [figure for figure, n in Counter(name for _, name in names).items() if n > 1]


def test_a_claim_stands_in_the_row_of_its_analysis() -> None:
    assert all(claim.analysis == row.name for row in ANALYSES.values() for claim in row.claims)
    assert len({claim.name for claim in CLAIMS}) == len(CLAIMS)


def test_a_claim_names_a_figure_of_its_own_analysis() -> None:
    for claim in CLAIMS:
        shown = {figure.name for figure in ANALYSES[claim.analysis].figures()}
        assert not claim.figure or claim.figure in shown, claim.name


def test_a_claim_takes_the_records_of_its_analyses(toy_study: Study) -> None:
    """Whatever a rule measured: a finding, or an error here and not in a report."""
    for claim in CLAIMS:
        assert claim.find({name: toy_study.result(name) for name in claim.analyses}) is not None


def test_rows_records_and_claims_import_neither_torch_nor_altair() -> None:
    code = "import sys, ffmem.analyses.catalogue; print({'torch', 'altair'} & set(sys.modules))"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "set()"


def test_no_analysis_imports_the_internals_of_another() -> None:
    """What two of them need is in `inputs`; a record or a claim is for all."""
    home = Path(ffmem.__file__).parent / "analyses"
    folders = {path.parent.name for path in home.glob("*/record.py")}
    wrong = []
    for path in home.glob("*/*.py"):
        if path.parent.name not in folders:
            continue
        for node in ast.walk(ast.parse(path.read_text())):
            parts = (getattr(node, "module", None) or "").split(".")
            if parts[:2] == ["ffmem", "analyses"] and parts[2] in folders - {path.parent.name}:
                wrong += [f"{path}: {node.module}"] * (parts[-1] not in ("record", "claims"))
    assert folders >= {name.replace("-", "_") for name in ANALYSES}
    assert not wrong


def test_what_no_claim_needs_and_takes_long_is_measured_on_request() -> None:
    assert set(ANALYSES) - set(parse_names(None)) == {"attribution", "coefficients"}
    assert parse_names("values,coefficients") == ("values", "coefficients")
