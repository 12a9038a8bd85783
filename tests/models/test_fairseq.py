"""fairseq checkpoints: what is converted computes what the tensors say, and nothing else is run."""

from __future__ import annotations

import os
import pickle
import re
import warnings
from argparse import Namespace
from collections.abc import Callable
from enum import Enum
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors import SafetensorError
from torch import nn

import ffmem
from ffmem.cli.main import run
from ffmem.errors import FfmemError, ModelError
from ffmem.models.fairseq.adaptive_model import AdaptiveHead
from ffmem.models.fairseq.checkpoint_file import read_pickle
from ffmem.models.fairseq.conversion import convert
from ffmem.models.fairseq.word_list import SPECIAL, read_words, word_tokenizer
from tests.models.fairseq_files import (
    BANDS,
    WIDTH,
    WORDS,
    Variant,
    expected_logits,
    toy_tensors,
    write_toy,
    write_words,
)

IDS = torch.tensor([2, 5, 25, 59, 49, 50, 19, 20, 3])  # words of every band, and its ends
VARIANTS = {
    "the paper's": Variant(),
    "old names": Variant(old_names=True),
    "cfg": Variant(settings="cfg"),
    "untied projections": Variant(tied_projections=False),
    "untied": Variant(tied=False, tied_projections=False),
    "untied rows only": Variant(tied=False),
    "adaptive with a final norm": Variant(final_norm=True),
    "plain": Variant(adaptive=False, final_norm=True),
    "plain, cfg": Variant(adaptive=False, final_norm=True, settings="cfg"),
    "plain without final norm, old names": Variant(adaptive=False, old_names=True),
    "gelu, not scaled": Variant(changes={"activation_fn": "gelu", "no_scale_embedding": True}),
    "a final norm, which the default of the version denies": Variant(
        final_norm=True, ignored={"decoder_normalize_before": False}
    ),
    "bands as wide as states": Variant(square=True),
    "bands as wide as states, untied projections": Variant(square=True, tied_projections=False),
    "bands as wide as states, untied": Variant(square=True, tied=False, tied_projections=False),
    "a claim that means nothing for untied rows": Variant(
        tied=False, tied_projections=False, changes={"tie_adaptive_proj": True}
    ),
}


@pytest.mark.parametrize("name", VARIANTS)
@pytest.mark.parametrize("zipped", [True, False])
def test_a_converted_model_computes_what_the_tensors_say(
    name: str, zipped: bool, tmp_path: Path
) -> None:
    variant = VARIANTS[name]
    tensors = write_toy(tmp_path / "toy", variant, zipped)
    model = ffmem.load(str(convert(tmp_path / "toy", tmp_path / "out")), device="cpu")
    expected = expected_logits(tensors, variant, IDS)
    with torch.no_grad():
        found = model.model(IDS[None]).logits[0]
    torch.testing.assert_close(found.double(), expected, atol=2e-5, rtol=1e-5)
    through_head = ffmem.logits(model, ffmem.record(model, IDS, "o").layers[-1].o[0], "residual")
    torch.testing.assert_close(through_head.double(), expected, atol=2e-5, rtol=1e-5)
    assert model.head.tied == variant.tied
    assert len(model.layers) == 2
    assert model.layers[0].form == "sequential"
    written = model.model.generate(IDS[None], max_new_tokens=3, do_sample=False)[0]
    for place in range(len(IDS), len(written)):  # with keys and values of the past
        best = expected_logits(tensors, variant, written[:place])[-1]
        assert best[written[place]] > best.max() - 1e-4


def test_the_head_is_torchs_adaptive_softmax() -> None:
    torch.manual_seed(0)
    head = AdaptiveHead(BANDS, WIDTH)
    for weights in head.parameters():
        nn.init.normal_(weights)
    theirs = nn.AdaptiveLogSoftmaxWithLoss(WIDTH, WORDS, [20, 50], div_value=2.0, head_bias=False)
    with torch.no_grad():
        theirs.head.weight.copy_(torch.cat([head.rows_0, head.classes]))
        for number, tail in enumerate(theirs.tail, 1):
            tail[0].weight.copy_(head.projection(number).T)
            tail[1].weight.copy_(head.rows(number))
        h = torch.randn(7, WIDTH)
        found = head(h)
        torch.testing.assert_close(found, theirs.log_prob(h), atol=1e-6, rtol=1e-6)
        torch.testing.assert_close(found.exp().sum(dim=1), torch.ones(7))


@pytest.fixture(scope="module")
def toy(tmp_path_factory: pytest.TempPathFactory) -> ffmem.LanguageModel:
    folder = tmp_path_factory.mktemp("fairseq")
    write_toy(folder / "toy")
    return ffmem.load(str(convert(folder / "toy", folder / "out")), device="cpu")


def test_a_batch_is_its_rows_and_a_prefix_a_part_of_its_text(toy: ffmem.LanguageModel) -> None:
    rows = [IDS.tolist(), IDS[:4].tolist(), IDS[2:7].tolist()]
    for whole, *alone in zip(
        ffmem.record(toy, rows, "mo"), *(ffmem.record(toy, row, "mo") for row in rows), strict=True
    ):
        for number, single in enumerate(alone):
            count = len(rows[number])
            torch.testing.assert_close(whole.m[number, :count], single.m[0])
            torch.testing.assert_close(whole.o[number, :count], single.o[0])
    prefix = ffmem.record(toy, IDS[:4], "o").layers[-1].o[0]
    torch.testing.assert_close(ffmem.record(toy, IDS, "o").layers[-1].o[0, :4], prefix)


def test_no_embedding_of_full_width_is_ever_built(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_toy(tmp_path / "toy")
    built: list[tuple[int, ...]] = []
    make = nn.Embedding.__init__

    def watch(self: nn.Embedding, words: int, width: int, *rest: Any, **more: Any) -> None:
        built.append((words, width))
        make(self, words, width, *rest, **more)

    monkeypatch.setattr(nn.Embedding, "__init__", watch)
    ffmem.load(str(convert(tmp_path / "toy", tmp_path / "out")), device="cpu")
    assert all(words < WORDS for words, _ in built)


class Trap:
    """Writes a file when it is unpickled as pickles are."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[str]]:
        return os.mkdir, (str(self.path),)


@pytest.mark.parametrize("zipped", [True, False])
@pytest.mark.parametrize("place", ["args", "extra_state", "optimizer_history"])
def test_nothing_in_a_pickle_is_run(place: str, zipped: bool, tmp_path: Path) -> None:
    tensors = {f"decoder.{name}": t for name, t in toy_tensors(Variant()).items()}
    trap = tmp_path / "sprung"
    whole = {"args": None, "model": tensors, place: Trap(trap)}
    path = tmp_path / "model.pt"
    torch.save(whole, path, _use_new_zipfile_serialization=zipped)
    torch.load(path, weights_only=False)  # the trap works
    trap.rmdir()
    found = read_pickle(path)
    assert found["model"].keys() == tensors.keys()
    write_words(tmp_path, WORDS - 4)
    with pytest.raises(ModelError, match="attention heads"):
        convert(path, tmp_path / "out")
    assert not trap.exists()
    assert not (tmp_path / "out").exists()


CHANGES_OF_THE_PROGRAM = {  # pickles that set an attribute of what they name
    "a class": b"cargparse\nNamespace\n(N(dS'__eq__'\nS'x'\nstb.",
    "a function": b"ctorch._utils\n_rebuild_tensor_v2\n(N(dS'__defaults__'\n(tstb.",
}


@pytest.mark.parametrize("what", CHANGES_OF_THE_PROGRAM)
def test_nothing_in_a_pickle_changes_the_program(what: str, tmp_path: Path) -> None:
    write_toy(tmp_path)
    torch.save({}, tmp_path / "model.pt", _use_new_zipfile_serialization=False)
    head = (tmp_path / "model.pt").read_bytes().partition(pickle.dumps({}, protocol=2))[0]
    (tmp_path / "model.pt").write_bytes(head + CHANGES_OF_THE_PROGRAM[what])
    before = (Namespace.__eq__, torch._utils._rebuild_tensor_v2.__defaults__)
    try:
        with pytest.raises(ModelError):
            convert(tmp_path, tmp_path / "out")
        assert before == (Namespace.__eq__, torch._utils._rebuild_tensor_v2.__defaults__)
    finally:
        Namespace.__eq__, torch._utils._rebuild_tensor_v2.__defaults__ = before  # type: ignore[method-assign]


def test_a_program_is_refused_before_it_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """torch.load hands a TorchScript archive to torch.jit.load, which runs what it holds."""

    def run_it(*_args: Any, **_options: Any) -> None:
        raise AssertionError("the program was run")

    monkeypatch.setattr(torch.jit, "load", run_it)
    path = tmp_path / "model.pt"
    writer = torch._C.PyTorchFileWriter(str(path))
    for name in ("constants.pkl", "data.pkl"):
        writer.write_record(name, pickle.dumps(()), len(pickle.dumps(())))
    writer.write_end_of_file()
    warnings.filterwarnings("ignore", message=".*TorchScript")
    with pytest.raises(AssertionError, match="was run"):
        torch.load(path, weights_only=False)  # the trap works
    write_words(tmp_path, WORDS - 4)
    with pytest.raises(ModelError, match="holds a program"):
        convert(path, tmp_path / "out")


class AnyNode:
    """Like omegaconf's leaf: its value is in its state."""

    def __init__(self, value: Any) -> None:
        self._val = value


class DictConfig:
    """Like omegaconf's dictionary: its entries are in its state."""

    def __init__(self, **entries: Any) -> None:
        self._content = {
            name: one if isinstance(one, DictConfig) else AnyNode(one)
            for name, one in entries.items()
        }


class Activation(Enum):
    """Like a choice of fairseq's."""

    GELU = "gelu"

    def __reduce_ex__(self, _protocol: Any) -> tuple[Any, ...]:
        return type(self), (self.value,)


class Unknown:
    """Of which nothing is stored."""


def test_settings_of_omegaconf_are_read_without_it(tmp_path: Path) -> None:
    tensors = write_toy(tmp_path)
    settings = DictConfig(
        decoder_attention_heads=2,
        activation_fn=Activation.GELU,
        max_target_positions="${task.max_target_positions}",
        tokens_per_sample="${task.tokens_per_sample}",
    )
    whole = {
        "cfg": DictConfig(
            task=DictConfig(tokens_per_sample=17, max_target_positions=None), model=settings
        ),
        "model": {f"decoder.{name}": t for name, t in tensors.items()},
    }
    torch.save(whole, tmp_path / "model.pt")
    model = ffmem.load(str(convert(tmp_path, tmp_path / "out")), device="cpu")
    assert model.context_length == 17
    found = model.model(IDS[None]).logits[0].detach().double()
    gelu = Variant(changes={"activation_fn": "gelu"})
    torch.testing.assert_close(found, expected_logits(tensors, gelu, IDS), atol=2e-5, rtol=1e-5)


def damage(folder: Path, change: Callable[[dict[Any, Any]], Any]) -> None:
    whole = torch.load(folder / "model.pt", weights_only=False)
    change(whole["model"])
    torch.save(whole, folder / "model.pt")


def settings(**changes: Any) -> Callable[[Path], Any]:
    return lambda folder: write_toy(folder, Variant(changes=changes))


def replacement(name: str, change: Callable[[torch.Tensor], torch.Tensor]) -> Callable[[Path], Any]:
    name = f"decoder.{name}"
    return lambda folder: damage(folder, lambda model: model.update({name: change(model[name])}))


def removal(part: str) -> Callable[[Path], Any]:
    return lambda folder: damage(
        folder, lambda model: [model.pop(name) for name in list(model) if part in name]
    )


def loop() -> dict[str, Any]:
    found: dict[str, Any] = {}
    found["itself"] = found
    return found


DAMAGE: dict[str, tuple[Callable[[Path], Any], str]] = {
    "truncated": (
        lambda folder: os.truncate(folder / "model.pt", 3000),
        "not a whole checkpoint",
    ),
    "no dict.txt": (lambda folder: (folder / "dict.txt").unlink(), "there is no dict.txt"),
    "another dict.txt": (lambda folder: write_words(folder, 50), "50 words"),
    "a dict.txt of another kind": (
        lambda folder: (folder / "dict.txt").write_text("a 1\nb\n"),
        "line 2",
    ),
    "a tensor too many": (
        lambda folder: damage(
            folder, lambda model: model.update({"decoder.project_in_dim.weight": torch.ones(2)})
        ),
        "decoder.project_in_dim.weight",
    ),
    "an encoder": (
        lambda folder: damage(
            folder, lambda model: model.update({"encoder.version": torch.ones(1)})
        ),
        "encoder.version",
    ),
    "a tensor too few": (
        lambda folder: damage(folder, lambda model: model.pop("decoder.layers.1.fc2.weight")),
        "layers.1.fc2.weight is not there",
    ),
    "another shape": (
        lambda folder: damage(
            folder, lambda model: model.update({"decoder.layers.1.fc2.bias": torch.ones(3)})
        ),
        "layers.1.fc2.bias has the shape",
    ),
    "rows that differ": (
        lambda folder: damage(folder, lambda model: _spoil(model, "head.word_proj.weight")),
        "head.word_proj.weight is not the same as decoder.embed_tokens.embeddings.0.0.weight",
    ),
    "maps that differ": (
        lambda folder: damage(folder, lambda model: _spoil(model, "tail.1.0.weight")),
        "adaptive_softmax.tail.1.0.weight has the shape [16, 4] of a map that is shared",
    ),
    "maps that only claim to be shared": (
        lambda folder: write_toy(
            folder, Variant(tied_projections=False, changes={"tie_adaptive_proj": True})
        ),
        "says tie_adaptive_proj, but decoder.adaptive_softmax.tail.0.0.weight is not the same",
    ),
    "a tail too few": (
        lambda folder: damage(folder, _drop_tail),
        "reads 60 words and its softmax has 50",
    ),
    "not a checkpoint": (
        lambda folder: (folder / "model.pt").write_bytes(pickle.dumps([1, 2])),
        "not a whole checkpoint",
    ),
    "no weights": (
        lambda folder: torch.save({"args": None}, folder / "model.pt"),
        "no weights under `model`",
    ),
    "weights without names": (
        lambda folder: damage(folder, lambda model: model.update({7: torch.ones(1)})),
        "no weights under `model`",
    ),
    "NaN": (
        replacement("layers.1.fc1.weight", lambda t: t * torch.nan),
        "layers.1.fc1.weight has numbers that are infinite or NaN",
    ),
    "whole numbers": (
        replacement("layers.1.fc1.weight", lambda t: t.long()),
        "layers.1.fc1.weight holds int64",
    ),
    "a sparse tensor": (
        replacement("layers.1.fc1.weight", lambda t: t.to_sparse()),
        "layers.1.fc1.weight holds sparse_coo",
    ),
    "a flat tensor": (
        replacement("embed_tokens.embeddings.1.0.weight", lambda t: t.flatten()),
        "embeddings.1.0.weight has the shape [240], and two dimensions",
    ),
    "a number for a tensor": (
        replacement("layers.0.fc1.weight", lambda _: torch.tensor(1.0)),
        "layers.0.fc1.weight has the shape []",
    ),
    "a tensor under two names": (
        lambda folder: damage(
            folder,
            lambda model: model.update(
                {"decoder.layers.0.self_attn.in_proj_bias": torch.ones(3 * WIDTH)}
            ),
        ),
        "layers.0.self_attn.in_proj_bias is there twice",
    ),
    "a fused tensor of another size": (
        lambda folder: damage(
            folder,
            lambda model: model.update({"decoder.layers.0.self_attn.in_proj_bias": torch.ones(2)}),
        ),
        "layers.0.self_attn.in_proj_bias has 2 rows",
    ),
    "a layer too few": (
        lambda folder: (settings(decoder_layers=2)(folder), removal("layers.1.")(folder)),
        "layers.1.fc1.weight is not there",
    ),
    "a layer too many": (settings(decoder_layers=1), "layers.1 is beyond the last"),
    "a gap between layers": (
        lambda folder: damage(
            folder, lambda model: model.update({"decoder.layers.9.fc1.bias": torch.ones(3)})
        ),
        "layers.2.fc1.weight is not there",
    ),
    "no softmax": (
        lambda folder: (
            settings(adaptive_softmax_cutoff="20,50")(folder),
            removal("adaptive_softmax")(folder),
        ),
        "adaptive_softmax.head.word_proj.weight is not there",
    ),
    "a tail's map too few": (
        removal("adaptive_softmax.tail.0.0"),
        "adaptive_softmax.tail.0.0.weight is not there",
    ),
    "no final norm where the settings have one": (
        settings(no_decoder_final_norm=False),
        "decoder.layer_norm.weight is not there",
    ),
    "learned positions": (
        lambda folder: damage(
            folder,
            lambda model: model.update({"decoder.embed_positions.weight": torch.ones(26, WIDTH)}),
        ),
        "is a model with learned positions, which ffmem does not convert",
    ),
    "learned positions by the settings": (
        settings(decoder_learned_pos=True),
        "is a model with learned positions",
    ),
    "no positions": (
        settings(no_token_positional_embeddings=True),
        "is a model with no positions",
    ),
    "norms behind the sums": (
        settings(decoder_normalize_before=False),
        "is a model with norms behind the sums",
    ),
    "a plain output of its own": (
        lambda folder: write_toy(folder, Variant(adaptive=False, tied=False)),
        "is a model with an output matrix of its own that is not adaptive",
    ),
    "another activation": (
        settings(activation_fn="swish"),
        "the activation 'swish'; ffmem converts relu, gelu, gelu_accurate",
    ),
    "no output where the settings have their own": (
        lambda folder: write_toy(
            folder,
            Variant(
                adaptive=False,
                old_names=True,
                changes={"share_decoder_input_output_embed": False},
            ),
        ),
        "decoder.output_projection.weight is not there",
    ),
    "plain ends that differ": (
        lambda folder: write_toy(
            folder,
            Variant(adaptive=False, tied=False, changes={"share_decoder_input_output_embed": True}),
        ),
        "output_projection.weight is not the same as decoder.embed_tokens.weight",
    ),
    "an activation of an unknown object": (
        settings(activation_fn=Unknown()),
        "the activation an object",
    ),
    "an activation that is a list": (settings(activation_fn=["relu"]), "the activation ['relu']"),
    "a length that is no number": (settings(tokens_per_sample="many"), "it reads 'many' words"),
    "a length beyond reason": (settings(tokens_per_sample=10**15), "words at most"),
    "settings without end": (settings(itself=loop()), "nested without end"),
}


def _drop_tail(model: dict[str, torch.Tensor]) -> None:
    for part in (0, 2):
        del model[f"decoder.adaptive_softmax.tail.1.{part}.weight"]


def _spoil(model: dict[str, torch.Tensor], name: str) -> None:
    whole = f"decoder.adaptive_softmax.{name}"
    model[whole] = model[whole].clone()
    model[whole][0, 0] += 1


@pytest.mark.parametrize("what", DAMAGE)
def test_a_file_that_does_not_fit_is_refused_in_one_sentence(what: str, tmp_path: Path) -> None:
    write_toy(tmp_path / "toy")
    spoil, words = DAMAGE[what]
    spoil(tmp_path / "toy")
    with pytest.raises(ModelError, match=re.escape(words)) as refusal:  # exit code 2
        run(["models", "convert", str(tmp_path / "toy"), "-o", str(tmp_path / "out")])
    assert "\n" not in str(refusal.value)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["toy"]


def test_what_is_there_is_left_alone(tmp_path: Path) -> None:
    write_toy(tmp_path / "toy")
    for place in (tmp_path / "toy", tmp_path / "toy" / "dict.txt", tmp_path / "toy/dict.txt/out"):
        with pytest.raises(ModelError, match="is there already|is a file"):
            convert(tmp_path / "toy", place)
    assert sorted(path.name for path in (tmp_path / "toy").iterdir()) == ["dict.txt", "model.pt"]
    (tmp_path / "out.part").mkdir()
    (tmp_path / "out.part" / "notes").write_text("mine")
    (tmp_path / "empty").mkdir()
    (tmp_path / "out").symlink_to(tmp_path / "empty")
    convert(tmp_path / "toy", tmp_path / "out")
    assert (tmp_path / "out.part" / "notes").read_text() == "mine"
    assert (tmp_path / "empty" / "config.json").exists()
    assert (tmp_path / "empty").stat().st_mode & 0o777 == (tmp_path / "toy").stat().st_mode & 0o777
    assert len(list(tmp_path.iterdir())) == 4


@pytest.mark.parametrize(
    "part",
    [
        "ffmem.models.fairseq.conversion.save_file",
        "transformers.PreTrainedTokenizerFast.save_pretrained",
    ],
)
def test_a_full_disk_is_one_sentence_and_leaves_nothing(
    part: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: Any, **__: Any) -> None:  # as the libraries written in Rust say it
        raise SafetensorError("Error: I/O error: No space left on device (os error 28)")

    write_toy(tmp_path / "toy")
    monkeypatch.setattr(part, refuse)
    with pytest.raises(
        ModelError, match=r"cannot be written \(No space left on device\); make room"
    ):
        convert(tmp_path / "toy", tmp_path / "out")
    assert [path.name for path in tmp_path.iterdir()] == ["toy"]


def test_a_checkpoint_that_is_not_converted_says_what_to_do(tmp_path: Path) -> None:
    write_toy(tmp_path / "toy")
    for place in (tmp_path / "toy", tmp_path / "toy" / "model.pt"):
        with pytest.raises(
            ModelError, match=f"run `ffmem models convert {re.escape(str(place))} -o"
        ):
            run(["inspect", str(place)])


def test_places_that_are_no_files_are_refused(tmp_path: Path) -> None:
    write_toy(tmp_path / "toy")
    os.mkfifo(tmp_path / "pipe")
    for source, out, words in (
        (str(tmp_path / "pipe"), str(tmp_path / "out"), "is a pipe or a device"),
        ("memory://toy", str(tmp_path / "out"), "cannot be read from a URL"),
        (str(tmp_path / "toy"), "memory://out", "memory://out is a URL"),
    ):
        with pytest.raises(ModelError, match=re.escape(words)):
            run(["models", "convert", source, "-o", out])


def test_the_command_converts_and_says_what_is_next(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_toy(tmp_path / "toy")
    assert run(["models", "convert", str(tmp_path / "toy"), "-o", str(tmp_path / "out")]) == 0
    assert "ffmem inspect" in capsys.readouterr().out
    assert run(["inspect", str(tmp_path / "out"), "--device", "cpu"]) == 0
    said = capsys.readouterr().out
    assert "fairseq_lm" in said
    assert "tied; adaptive softmax over 20 + 30 + 10 words" in said


def test_words_have_the_ids_of_their_lines(tmp_path: Path) -> None:
    (tmp_path / "dict.txt").write_text("the 9\na b 8\n<unk> 7 #fairseq:overwrite\nend 1\n")
    words = read_words(tmp_path / "dict.txt")
    assert words == ["<s>", "<pad>", "</s>", "<unk>#3", "the", "a b", "<unk>", "end"]
    (tmp_path / "dict.txt").write_text("a 3 \na 2\r\na#4 1\n")  # the name of the first is taken
    words = read_words(tmp_path / "dict.txt")
    assert words[5:] == ["a", "a#4"]
    assert len(set(words)) == 7


def test_text_is_split_at_spaces(toy: ffmem.LanguageModel) -> None:
    assert toy.tokenizer is not None
    assert toy.bos == 2
    assert toy.unk == 3
    assert toy.encode("word0 word7\n nothing word55 <unk>")[0].tolist() == [2, 4, 11, 3, 59, 3]
    assert toy.tokenizer.decode([4, 11, 59]) == "word0 word7 word55"
    assert toy.vocab_size == WORDS
    assert [toy.token_id(text) for text in (" word7", "<unk>", "word0")] == [11, 3, 4]
    for text in ("river", "river word7", "word0 word7"):
        with pytest.raises(FfmemError, match="is not one token"):
            toy.token_id(text)


FORMS = {  # plain text, and WikiText's form of it
    "He said it's 1,000 well-known men (3.5%).": (
        "He said it 's 1 @,@ 000 well @-@ known men ( 3 @.@ 5 % ) ."
    ),
    'Mr. Smith of the U.S. "left"... She didn\'t': (
        'Mr. Smith of the U.S. " left " ... She didn \'t'
    ),
    "the dogs' den closed. He came in 1998. Then": "the dogs ' den closed . He came in 1998 . Then",
}


@pytest.mark.parametrize("text", FORMS)
def test_plain_text_is_brought_into_wikitexts_form_which_stays_as_it_is(text: str) -> None:
    expected = FORMS[text].split()
    words = [*SPECIAL, *dict.fromkeys(expected)]
    tokenizer = word_tokenizer(words, 64, wikitext=True)
    assert tokenizer.convert_ids_to_tokens(tokenizer.encode(text)) == expected
    assert tokenizer.convert_ids_to_tokens(tokenizer.encode(FORMS[text])) == expected
    ends = [end for _, end in tokenizer(text, return_offsets_mapping=True)["offset_mapping"]]
    assert ends == sorted(ends)
    assert ends[-1] == len(text)  # places are those of the text as it was typed
    plain = word_tokenizer(words, 64, wikitext=False)
    assert plain.convert_ids_to_tokens(plain.encode(FORMS[text])) == expected
    assert "<unk>" in plain.convert_ids_to_tokens(plain.encode(text))


@pytest.mark.parametrize(("setting", "first"), [(False, 2), (True, 0)])
def test_a_sentence_begins_as_in_training(setting: bool, first: int, tmp_path: Path) -> None:
    write_toy(tmp_path / "toy", Variant(changes={"add_bos_token": setting}))
    model = ffmem.load(str(convert(tmp_path / "toy", tmp_path / "out")), device="cpu")
    assert model.encode("word0")[0].tolist() == [first, 4]
    assert model.model.generation_config.bos_token_id == first
    assert model.model.generation_config.eos_token_id == 2


@pytest.mark.parametrize("wikitext", [True, False])
def test_fairseqs_own_words_stay_whole(wikitext: bool) -> None:
    listed = [*SPECIAL[:3], "<unk>#3", "the", "<unk>"]  # of a dict.txt with a line for <unk>
    for words, unknown in (([*SPECIAL, "the"], 3), (listed, 5)):
        tokenizer = word_tokenizer(words, 64, wikitext)
        found = tokenizer.encode("the <unk> <s> </s> <pad> river")
        assert found == [4, unknown, 0, 2, 1, 3]
        assert tokenizer.decode(found[:-1]) == "the <unk> <s> </s> <pad>"
        assert len(tokenizer) == len(words)


def test_the_form_is_an_option_of_the_conversion(tmp_path: Path) -> None:
    write_toy(tmp_path / "toy")
    place = str(tmp_path / "toy")
    run(["models", "convert", place, "-o", str(tmp_path / "out"), "--no-wikitext-form"])
    model = ffmem.load(str(tmp_path / "out"), device="cpu")
    assert model.encode("word0, word1")[0].tolist() == [2, 3, 5]
    toy = ffmem.load(str(convert(tmp_path / "toy", tmp_path / "other")), device="cpu")
    assert toy.encode("word0, word1")[0].tolist() == [2, 4, 3, 5]
