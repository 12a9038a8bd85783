"""Training lowers the loss, what is saved loads, baselines are distributions."""

import argparse
import json
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from making import pack, train_model
from making.baselines import Trigram, grams_of, trigram_perplexity, unigram_perplexity
from making.evaluate import perplexity
from making.files import lines_of
from making.token_data import Tokens, encode, paragraphs
from making.train_tokenizer import save, trained

PLACES = ["north", "south", "east", "west"]
LINES = [
    f"The river {name} rises in the {place}. It flows to the {place} sea."
    for name in ["Ash", "Bram", "Clay", "Dun", "Elm", "Fair", "Glen", "Hart"]
    for place in PLACES
]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with text, tokenizer and a toy model, made by the scripts' own functions."""
    root = tmp_path_factory.mktemp("made")
    (root / "train.txt").write_text("\n".join(LINES * 3) + "\n")
    (root / "valid.txt").write_text("\n".join(LINES[::5]) + "\n")
    (root / "counts.json").write_text("{}")
    save(trained(LINES, 330), root / "tokenizer", longest=32)
    files = ["train.txt", "valid.txt", "--tokenizer=tokenizer", "--into=model"]
    sizes = "--layers 2 --width 32 --memories 48 --heads 4 --block 32 --batch-tokens 512"
    rounds = "--steps 60 --looks 4 --rate 0.01 --no-compile --device cpu"
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(root)
        patch.setattr("sys.argv", ["train_model", *files, *sizes.split(), *rounds.split()])
        train_model.main()
    return root


def test_training_lowers_the_loss_and_the_saved_model_is_the_measured_one(made: Path) -> None:
    record = json.loads((made / "model" / "curve.json").read_text())
    losses = [look["validation loss"] for look in record["curve"]]
    assert losses[-1] < losses[0] - 1
    model = AutoModelForCausalLM.from_pretrained(made / "model", dtype=torch.float32)
    assert model.config.model_type == "opt"
    assert model.model.decoder.final_layer_norm is None
    tokenizer = AutoTokenizer.from_pretrained(made / "model")
    tokens = encode(lines_of(made / "valid.txt"), tokenizer.backend_tokenizer, 2)
    found = perplexity(model, paragraphs(tokens, 32))
    assert found == pytest.approx(record["perplexity"]["model, paragraphs"], rel=0.02)  # bfloat16
    assert found < record["perplexity"]["unigram, paragraphs"] * 0.7


def test_perplexity_of_padded_batches_is_that_of_one_piece_at_a_time(made: Path) -> None:
    model = AutoModelForCausalLM.from_pretrained(made / "model", dtype=torch.float32)
    torch.manual_seed(0)
    texts = [torch.randint(4, 300, (n,)) for n in (5, 9, 9, 2, 12)]
    with torch.no_grad():
        losses = [
            torch.nn.functional.cross_entropy(model(t[None]).logits[0, :-1], t[1:], reduction="sum")
            for t in texts
        ]
    expected = (sum(losses) / sum(len(t) - 1 for t in texts)).exp()
    assert perplexity(model, texts, batch_tokens=25) == pytest.approx(float(expected), rel=1e-4)


def test_the_training_pass_gives_the_logits_of_the_model(made: Path) -> None:
    model: Any = AutoModelForCausalLM.from_pretrained(made / "model", dtype=torch.float32)
    tokens = torch.randint(4, 300, (3, 20))
    with torch.no_grad():
        torch.testing.assert_close(train_model.training_logits(model, tokens), model(tokens).logits)


def test_the_learning_rate_rises_then_falls_to_almost_nothing() -> None:
    rates = [train_model.rate_at(step / 100, 0.1) for step in range(101)]
    assert max(rates) == pytest.approx(rates[10]) == pytest.approx(1)
    assert rates[:11] == sorted(rates[:11])
    assert rates[10:] == sorted(rates[10:], reverse=True)
    assert rates[-1] == pytest.approx(0.03)


def test_trigram_probabilities_sum_to_one_in_every_context() -> None:
    torch.manual_seed(0)
    vocabulary = 11
    model = Trigram(torch.randint(0, 9, (200, 3)), vocabulary)  # tokens 9 and 10 are never seen
    for context in [(0, 1), (3, 3), (8, 2), (1, 10), (10, 10)]:
        grams = torch.tensor([[*context, token] for token in range(vocabulary)])
        found = model.probabilities(grams)
        assert (found > 0).all()
        assert float(found.sum()) == pytest.approx(1)


def test_a_trigram_beats_a_unigram_where_the_next_token_is_certain() -> None:
    row = torch.arange(7).repeat(50)
    grams = row.unfold(0, 3, 1)
    assert unigram_perplexity(grams, grams, 7) == pytest.approx(7, rel=0.01)
    assert trigram_perplexity(grams, grams, 7) < 1.2


def test_grams_see_nothing_across_a_mark() -> None:
    tokens = Tokens(
        torch.tensor([2, 5, 6, 2, 7, 2, 8, 9]),
        torch.tensor([0, 3, 5]),
        torch.tensor([True, False, True]),
    )
    by_sentence = [[2, 2, 5], [2, 5, 6], [2, 2, 7], [2, 2, 8], [2, 8, 9]]
    by_paragraph = [[2, 2, 5], [2, 5, 6], [5, 6, 7], [2, 2, 8], [2, 8, 9]]
    assert grams_of(tokens, 2, by_sentence=True).tolist() == by_sentence
    assert grams_of(tokens, 2, by_sentence=False).tolist() == by_paragraph


def test_a_pack_holds_model_and_text_and_a_part_keeps_the_order(made: Path) -> None:
    target = made / "demo"
    pack.pack(argparse.Namespace(model=made / "model", text=made, into=target, tokens=400, seed=0))
    assert list(lines_of(target / "valid.txt.xz")) == LINES[::5]
    shipped = list(lines_of(target / "train.txt.xz"))
    everything = iter(lines_of(made / "train.txt"))
    assert all(line in everything for line in shipped)  # a subsequence
    assert json.loads((target / "card.json").read_text())["training text shipped"]["tokens"] >= 400
    AutoModelForCausalLM.from_pretrained(target)
