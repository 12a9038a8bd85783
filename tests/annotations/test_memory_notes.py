"""What a study adds to the answer of why a token."""

from __future__ import annotations

import json
import sys

import pytest

from ffmem.address import Address
from ffmem.analyses.patterns.by_memory import study_patterns
from ffmem.analyses.study import Study
from ffmem.annotations.database import Annotations
from ffmem.annotations.memory_notes import memory_notes, with_notes
from ffmem.cli import main as cli
from ffmem.memories.why.answer import why
from ffmem.models.loading import load
from ffmem.store.people.memory_labels import Label


def test_every_memory_of_the_list_has_its_triggers_patterns_and_label(toy_study: Study) -> None:
    store = toy_study.store
    plain = why(load("tiny:opt"), "the river", top=5)
    address = plain.memories[0].address
    database = Annotations.open(str(store.folder.annotations))
    database.labels(store.manifest.key.digest).set_label(str(address), Label("rivers", "a note"))
    database.close()
    found = with_notes(plain, store)
    assert found.memories[0].notes is not None
    assert found.memories[0].notes.label == "rivers"
    for one in found.memories:
        assert one.notes is not None
        read = store.triggers(one.address)[:3]
        assert len(one.notes.triggers) == len(read)
        for text, trigger in zip(one.notes.triggers, read, strict=True):
            assert text.endswith(f"{trigger.last}[{trigger.next or 'end'}]")
    patterns = study_patterns(store.folder).by_address
    assert patterns
    key, expected = next(iter(patterns.items()))
    (cell,) = store.cells.resolve(type(address).parse(key))
    (notes,) = memory_notes(store, [cell, Address(99, 0)]).values()  # one was not scanned
    assert notes.patterns == tuple(dict.fromkeys(one.description for one in expected))


def test_the_command_shows_them_and_refuses_the_study_of_another_model(
    toy_study: Study, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    words = ["the river", "--top", "3", "--study", str(toy_study.folder)]
    for more in ([], ["--json"]):
        monkeypatch.setattr(sys, "argv", ["ffmem", "why", "tiny:opt", *words, *more])
        with pytest.raises(SystemExit) as end:
            cli.main()
        out = capsys.readouterr().out
        assert not end.value.code
        if more:
            assert json.loads(out)["memories"][0]["notes"]["triggers"]
        else:
            assert "    trigger  " in out
    monkeypatch.setattr(sys, "argv", ["ffmem", "why", "tiny:gpt2", *words])
    with pytest.raises(SystemExit) as end:
        cli.main()
    assert end.value.code == 2
    assert "weights" in capsys.readouterr().err
