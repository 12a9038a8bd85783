"""Keys without text: nearest tokens and wake-up links equal plain formulas."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

import ffmem
from ffmem.address import Address
from ffmem.errors import AddressError
from ffmem.memories.folded_weights import folded_weights, key_tokens, wake_up_link
from ffmem.models.language_model import LanguageModel
from ffmem.models.tiny import tiny_model, tiny_tokenizer
from ffmem.models.wrapping import wrap
from tests.analyses.conftest import FEW_LINES, planted_model, scanned_lines
from tests.cli.test_commands import run


def test_the_token_that_a_key_was_made_from_is_the_nearest() -> None:
    model, memories = planted_model()
    for index, (token, _) in memories.items():
        found = key_tokens(model, Address(3, index), 5)
        assert int(found.tokens[0, 0]) == token
        assert float(found.logits[0, 0]) == pytest.approx(1.0, abs=1e-3)


def test_nearest_tokens_are_those_of_the_largest_cosines(gated: LanguageModel) -> None:
    for side, rows in (("key", "keys"), ("gate", "gates")):
        one = getattr(folded_weights(gated, gated.layers[0]), rows)[5]
        embedding = gated.model.get_input_embeddings().weight.detach()[: gated.vocab_size]
        cosines = torch.stack([torch.cosine_similarity(row, one, dim=0) for row in embedding])
        found = key_tokens(gated, "L1.5", 4, side)
        torch.testing.assert_close(found.logits[0], cosines.topk(4).values, atol=1e-5, rtol=1e-5)
        assert found.tokens[0].tolist() == cosines.topk(4).indices.tolist()


def test_tokens_in_bands_are_compared_band_by_band() -> None:
    model = ffmem.load("tiny:fairseq_lm", device="cpu")
    tokens, one = torch.arange(model.vocab_size), folded_weights(model, model.layers[0]).keys[5]
    rows = model.head.vectors("input").of(tokens)  # all of them, which the function never builds
    cosines = torch.stack([torch.cosine_similarity(row, one, dim=0) for row in rows])
    found = key_tokens(model, "L1.5", 4)
    torch.testing.assert_close(found.logits[0], cosines.topk(4).values, atol=1e-5, rtol=1e-5)
    assert found.tokens[0].tolist() == cosines.topk(4).indices.tolist()


def test_keys_and_values_are_those_of_the_named_expert() -> None:
    model = wrap(tiny_model("qwen2_moe"), tiny_tokenizer())
    assert [layer.parts.size for layer in model.layers[:2]] == [16, 16]
    first, later = (folded_weights(model, layer) for layer in model.layers[:2])
    rows = model.model.get_input_embeddings().weight.detach()[: model.vocab_size]
    cosines = torch.cosine_similarity(rows, first.keys[2 * 16 + 3], dim=1)
    assert int(key_tokens(model, "L1.E2.3", 1).tokens) == int(cosines.argmax())
    for name, place in (("L1.E2.3", 2 * 16 + 3), ("L1.S.5", 4 * 16 + 5)):
        link = wake_up_link(model, name, "L2.E1.4")
        assert link.key == pytest.approx(float(first.values[place] @ later.keys[16 + 4]), abs=1e-5)


def test_a_link_is_the_value_times_the_later_key(gated: LanguageModel) -> None:
    value = folded_weights(gated, gated.layers[0]).values[3]
    later = folded_weights(gated, gated.layers[2])
    for first, sign in (("L1.3", 1), ("L1.3+", 1), ("L1.3-", -1)):
        link = wake_up_link(gated, first, "L3.9")
        assert link.key == pytest.approx(sign * float(value @ later.keys[9]), abs=1e-5)
        assert link.gate == pytest.approx(sign * float(value @ later.gates[9]), abs=1e-5)  # type: ignore[index]
    with pytest.raises(AddressError, match="later layer"):
        wake_up_link(gated, "L3.9", "L1.3")


def test_show_prints_what_a_key_waits_for(
    gated: LanguageModel, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = str(scanned_lines(gated, tmp_path / "scan", FEW_LINES).folder.root)
    code, out, _ = run(capsys, "show", folder, "L1.5", "--key", "--wakes", "L3.9")
    assert code == 0
    assert "key near:" in out
    assert "wakes L3.9: key " in out
    code, out, _ = run(capsys, "show", folder, "L1.5", "--key", "--json")
    assert len(json.loads(out)["key"]["gate"]) == 10
    code, _, err = run(capsys, "show", folder, "L3.5", "--wakes", "L1.2")
    assert (code, len(err.strip().splitlines())) == (2, 1)
