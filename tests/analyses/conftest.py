"""Toys of five kinds of layer, each with a small scan, and one toy with planted memories."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
import torch

from ffmem.analyses.inputs.prefix_sample import PrefixSample, draw_sample
from ffmem.corpus.sentences import Sentences, SentenceSettings, tokenise
from ffmem.corpus.shards import shards
from ffmem.corpus.sources import Source
from ffmem.execution.plan import ScanPlan
from ffmem.execution.run import run_scan
from ffmem.models.language_model import LanguageModel
from ffmem.models.tiny import tiny_model, tiny_tokenizer
from ffmem.models.wrapping import wrap
from ffmem.scan.settings import ScanSettings
from ffmem.store.scan_store import ScanStore

KINDS = ["opt", "gpt2", "llama", "gpt_neox", "post-norm"]
WORDS = ["river", "stone", "light", "winter", "market", "garden", "engine", "harbour"]
LINES = SentenceSettings(splitter="line", max_tokens=60)


def toy_named(kind: str) -> LanguageModel:
    """OPT with its norm behind the layer has no name of its own among the toys."""
    if kind == "post-norm":
        model = tiny_model("opt", do_layer_norm_before=False)
        return wrap(model, tiny_tokenizer(), kind)
    return wrap(tiny_model(kind), tiny_tokenizer(), kind)


def lines(count: int, seed: int) -> list[str]:
    draw = random.Random(seed)
    return [" ".join(draw.choices(WORDS, k=draw.randint(1, 4))) + "." for _ in range(count)]


def sentences_of(model: LanguageModel, texts: list[str]) -> Sentences:
    (shard,) = shards(texts)
    return tokenise(shard, model.tokenizer, LINES)


def draw_prefixes(model: LanguageModel, texts: list[str]) -> PrefixSample:
    return draw_sample([sentences_of(model, texts)], 60)


def scanned(model: LanguageModel, texts: list[str], out: Path, top: int = 6) -> ScanStore:
    path = out / "corpus.txt"
    path.write_text("\n".join(texts) + "\n")
    settings = ScanSettings(top=top, sample=2, signed=model.gated)
    return run_scan(model, ScanPlan(Source(str(path)), settings, LINES), out / "scan")


@pytest.fixture(scope="session", params=KINDS)
def scanned_toy(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> tuple[LanguageModel, ScanStore]:
    model = toy_named(request.param)
    return model, scanned(model, lines(60, 1), tmp_path_factory.mktemp(request.param))


PLANTED = {"r": "i", "s": "t", "l": "g", "w": "n", "m": "a"}  # letter read -> letter promised


def planted_model() -> tuple[LanguageModel, dict[int, tuple[int, int]]]:
    """An OPT whose layer 3 has one memory a letter: key its embedding, value the next one's.

    Attention and positions are silenced, so that what layer 3 reads is the last token alone.
    Returns the model and (letter, promised letter) as token ids by memory.
    """
    hf = tiny_model("opt", tie_word_embeddings=True, _remove_final_layer_norm=True)
    tokenizer = tiny_tokenizer()
    with torch.no_grad():
        decoder = hf.model.decoder
        decoder.embed_positions.weight.zero_()
        embedding = decoder.embed_tokens.weight
        embedding.copy_(torch.nn.functional.normalize(torch.randn_like(embedding), dim=1))
        embedding.sub_(embedding.mean(dim=1, keepdim=True))
        for block in decoder.layers:
            block.self_attn.out_proj.weight.zero_()
            block.self_attn.out_proj.bias.zero_()
            block.fc2.weight.zero_()
            block.fc2.bias.zero_()
            block.final_layer_norm.weight.fill_(1)
            block.final_layer_norm.bias.zero_()
        block = decoder.layers[2]
        block.fc1.weight.zero_()
        block.fc1.bias.fill_(-1)
        planted = {}
        for index, (letter, promised) in enumerate(PLANTED.items()):
            one, other = (tokenizer.convert_tokens_to_ids(text) for text in (letter, promised))
            key = embedding[one] / embedding[one].norm()
            block.fc1.weight[index] = key
            block.fc1.bias[index] = -0.8 * embedding.shape[1] ** 0.5
            block.fc2.weight[:, index] = embedding[other]
            planted[index] = (one, other)
    return wrap(hf, tokenizer, "planted"), planted


@pytest.fixture(scope="session")
def planted(
    tmp_path_factory: pytest.TempPathFactory,
) -> tuple[LanguageModel, ScanStore, dict[int, tuple[int, int]]]:
    model, memories = planted_model()
    texts = [f"{a}{b}" * 2 + f"{a}{b}." for a, b in PLANTED.items()] * 8
    texts += [f"xx{a}{b} q" for a, b in PLANTED.items()]
    return model, scanned(model, texts, tmp_path_factory.mktemp("planted")), memories


FEW_LINES = [
    "the river runs to the sea",
    "a fox sat near the stone",
    "rain came over the hill",
    "we saw a boat at noon",
    "no one came",
    "the bell rang in the old town",
    "ships pass by night",
    "x",
]


def scanned_lines(model: LanguageModel, out: Path, lines: list[str], **settings: int) -> ScanStore:
    """Scan a model over lines, one sentence each."""
    corpus = out.with_suffix(".txt")
    corpus.write_text("\n".join(lines) + "\n")
    choices = ScanSettings(**{"top": 6, "sample": 4, **settings}, signed=model.gated)
    plan = ScanPlan(Source(str(corpus)), choices, SentenceSettings(splitter="line", max_tokens=60))
    return run_scan(model, plan, out)


@pytest.fixture(scope="session")
def relu_store(relu: LanguageModel, tmp_path_factory: pytest.TempPathFactory) -> ScanStore:
    return scanned_lines(relu, tmp_path_factory.mktemp("relu") / "scan", FEW_LINES)


@pytest.fixture(scope="session")
def gated_store(gated: LanguageModel, tmp_path_factory: pytest.TempPathFactory) -> ScanStore:
    return scanned_lines(gated, tmp_path_factory.mktemp("gated") / "scan", FEW_LINES)
