"""The effect of editing a set of memories on a model and a text, beside random sets."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from torch import Tensor

from ffmem.address import Address, Parts
from ffmem.analyses.effect.record import (
    Continuation,
    LossChange,
    SetEffect,
    Task,
    TaskChange,
    TaskEffect,
    TextEffect,
)
from ffmem.analyses.inputs.next_tokens import divergences
from ffmem.analyses.statistics import pool_by_key, resample
from ffmem.corpus.sentences import SentenceSettings, tokenise
from ffmem.corpus.shards import shards
from ffmem.corpus.sources import Source, documents
from ffmem.errors import CorpusError, EditError, ModelError, shorten
from ffmem.locations import file_text
from ffmem.memories.edits import Edit, edited, expand_edits
from ffmem.memories.recording import record_forward
from ffmem.models.blocks.trace import evaluation_mode
from ffmem.models.feedforward import FeedForward
from ffmem.models.language_model import LanguageModel

LOGIT_BYTES = 128 << 20  # logits of a batch in float32; about four such tensors live at once
NEIGHBOURS = 20  # memories of nearly the same rate among which a control is drawn


@dataclass(frozen=True)
class CoefficientRates:
    """Of every memory by layer: shares of places with m > 0 and m < 0, mean of m and of |m|.

    `parts` are each layer's, by which an address has its place there.
    """

    parts: dict[int, Parts]
    positive: dict[int, Tensor]
    negative: dict[int, Tensor]
    mean: dict[int, Tensor]
    size: dict[int, Tensor]

    def of(self, address: Address, gated: bool) -> Tensor:
        """The rate by which a cell finds its like: how often it fires.

        A gated memory as a whole is hardly ever at zero, so there it is the mean size.
        """
        if address.sign == "-":
            return self.negative[address.layer]
        whole = gated and not address.sign
        return (self.size if whole else self.positive)[address.layer]

    def means(self, addresses: Sequence[Address]) -> list[float]:
        """Mean coefficients."""
        return [float(self.mean[one.layer][self.parts[one.layer].index(one)]) for one in addresses]


def _row_batches(model: LanguageModel, rows: Sequence[Tensor]) -> Iterator[tuple[Tensor, Tensor]]:
    """Token rows with the BOS in front, padded, and their lengths; bounded by their logits."""
    most = max(1, LOGIT_BYTES // (4 * model.head.vocabulary))
    lead = [] if model.bos is None else [model.bos]
    ready = sorted((torch.cat([torch.tensor(lead), row.cpu()]).long() for row in rows), key=len)
    while ready:
        count = 1
        while count < len(ready) and (count + 1) * len(ready[count]) <= most:
            count += 1
        part, ready = ready[:count], ready[count:]
        lengths = torch.tensor([len(row) for row in part])
        tokens = torch.nn.utils.rnn.pad_sequence(part, batch_first=True)
        yield tokens.to(model.device), lengths.to(model.device)


def log_probabilities(model: LanguageModel, tokens: Tensor) -> Tensor:
    """Log-probabilities of the token after every column [row, column, token], in float32."""
    with evaluation_mode(model.model):
        scores = model.model(input_ids=tokens, use_cache=False).logits
    return scores[..., : model.head.vocabulary].float().log_softmax(dim=-1)


@torch.no_grad()
def coefficient_rates(model: LanguageModel, rows: Sequence[Tensor]) -> CoefficientRates:
    """How often and how strongly every memory fires on a text."""
    sums: dict[int, Tensor] = {}
    places = 0
    for tokens, lengths in _row_batches(model, rows):
        with record_forward(model.layers, "m", lambda m: m) as readings:
            model.run_blocks(tokens)
        real = torch.arange(tokens.shape[1], device=lengths.device) < lengths[:, None]
        if model.bos is not None:
            real[:, 0] = False
        places += int(real.sum())
        for reading in readings:
            m = reading.m.reshape(*tokens.shape, -1)[real.to(reading.m.device)].float()
            found = torch.stack([(m > 0).sum(0), (m < 0).sum(0), m.sum(0), m.abs().sum(0)])
            number = reading.layer.number
            sums[number] = sums.get(number, 0) + found.double().cpu()
    shares = {number: found / max(places, 1) for number, found in sums.items()}
    return CoefficientRates(
        {layer.number: layer.parts for layer in model.layers},
        *({n: found[part] for n, found in shares.items()} for part in range(4)),
    )


def random_sets(
    model: LanguageModel,
    edits: Sequence[Edit],
    rates: CoefficientRates,
    count: int,
    generator: torch.Generator,
) -> list[list[Edit]]:
    """The same edits on other memories: of the same layer, with nearly the same rate.

    For an expert whose memories are all edited another one of the layer is taken, memory for
    memory. What is edited to its mean is another memory's own mean there.
    """
    single = [
        replace(edit, address=one) for edit in edits for one in model.memories_of(edit.address)
    ]
    taken: dict[int, Tensor] = {}
    for edit in single:
        number = edit.address.layer
        layer = taken.setdefault(number, torch.zeros(model.layer(number).memories).bool())
        layer[model.index_of(edit.address)] = True
    return [_random_set(model, single, rates, taken, generator) for _ in range(count)]


def _random_set(
    model: LanguageModel,
    edits: Sequence[Edit],
    rates: CoefficientRates,
    taken: dict[int, Tensor],
    generator: torch.Generator,
) -> list[Edit]:
    used = {number: places.clone() for number, places in taken.items()}
    others = {
        number: _other_experts(model.layer(number), places, generator)
        for number, places in used.items()
    }
    found = []
    for edit in edits:
        layer, own = model.layer(edit.address.layer), model.index_of(edit.address)
        other = others[layer.number].get(own)
        if other is None:
            rate = rates.of(edit.address, layer.gated)
            away = (rate - rate[own]).abs().masked_fill(used[layer.number], torch.inf)
            near = away.topk(min(NEIGHBOURS, len(away)), largest=False)
            able = near.indices[near.values < torch.inf].tolist()
            other = able[_draw(len(able), layer, "memories", generator)]
            used[layer.number][other] = True
        address = layer.parts.address(layer.number, other, edit.address.sign)
        amount = rates.means([address])[0] if edit.is_mean else edit.amount
        found.append(replace(edit, address=address, amount=amount))
    return found


def _other_experts(layer: FeedForward, used: Tensor, generator: torch.Generator) -> dict[int, int]:
    """Another memory for each of those of experts that are edited as a whole; marks them."""
    starts = [one * layer.parts.size for one in range(layer.parts.experts)]
    experts = [slice(start, start + layer.parts.size) for start in starts]
    found: dict[int, int] = {}
    for own in [one for one in experts if used[one].all()]:
        free = [one for one in experts if not used[one].any()]
        other = free[_draw(len(free), layer, "experts", generator)]
        used[other] = True
        found |= zip(range(own.start, own.stop), range(other.start, other.stop), strict=True)
    return found


def _draw(able: int, layer: FeedForward, what: str, generator: torch.Generator) -> int:
    """One of as many experts or memories as are able to stand for another."""
    if not able:
        raise EditError(
            f"layer {layer.number} has too few {what} outside the set for random sets of its "
            "size; give a smaller set, or ask for no random sets"
        )
    return int(torch.randint(able, (1,), generator=generator))


@torch.no_grad()
def text_effect(
    model: LanguageModel,
    rows: Sequence[Tensor],
    edits: Sequence[Edit],
    controls: Sequence[Sequence[Edit]],
    generator: torch.Generator,
) -> TextEffect:
    """Read the text as the model is, under the edits, and under each control."""
    rows = [row for row in rows if len(row) > (0 if model.bos is not None else 1)]
    if not rows:
        raise CorpusError("the text has nothing to predict; give at least a sentence of two tokens")
    variants = [list(edits), *map(list, controls)]
    base, counts, sums = [], [], [[] for _ in variants]  # type: ignore[var-annotated]
    for tokens, lengths in _row_batches(model, rows):
        before = log_probabilities(model, tokens)[:, :-1]
        target = tokens[:, 1:]
        real = torch.arange(target.shape[1], device=lengths.device) < (lengths - 1)[:, None]
        own = before.gather(2, target[..., None])[..., 0]
        right = before.argmax(dim=2) == target
        base.append(_row_sums(real, -own, right))
        counts.append(real.sum(dim=1).cpu())
        for variant, parts in zip(variants, sums, strict=True):
            with edited(model, variant) if variant else nullcontext():
                after = log_probabilities(model, tokens)[:, :-1]
            lost = own - after.gather(2, target[..., None])[..., 0]
            kl = divergences(before, after)
            gained = (after.argmax(dim=2) == target).double() - right.double()
            parts.append(_row_sums(real, lost, kl, gained))
            del after
    every = torch.cat(counts)
    whole = torch.cat(base, dim=1).sum(dim=1) / every.sum()
    changes = [
        LossChange(*(pool_by_key(part, every, generator) for part in torch.cat(parts, dim=1)))
        for parts in sums
    ]
    own_loss = abs(changes[0].loss.estimate)
    return TextEffect(
        memories=sum(len(model.places_of(edit.address)) for edit in edits),
        sentences=len(rows),
        tokens=int(every.sum()),
        loss=float(whole[0]),
        top_1=float(whole[1]),
        edit=changes[0],
        random=tuple(changes[1:]),
        stronger=sum(abs(one.loss.estimate) >= own_loss for one in changes[1:]),
    )


def _row_sums(real: Tensor, *numbers: Tensor) -> Tensor:
    """Sums over the real columns of each row [number, row], on the CPU."""
    return torch.stack([(one.double() * real).sum(dim=1) for one in numbers]).cpu()


def read_tasks(path: str | Path) -> tuple[Task, ...]:
    """A file of JSON lines, each with a prompt and an answer."""
    found = []
    lines = file_text(path, f"the task file {path}", CorpusError).splitlines()
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            match json.loads(line):
                case {"prompt": str(prompt), "answer": str(answer)}:
                    found.append(Task(prompt, answer))
                    continue
        except (ValueError, RecursionError):
            pass
        raise CorpusError(
            f'line {number} of {path} is not a task; write {{"prompt": "...", "answer": "..."}}'
        )
    if not found:
        raise CorpusError(f"the task file {path} is empty; write a JSON object per line")
    return tuple(found)


@torch.no_grad()
def task_effect(
    model: LanguageModel,
    tasks: Sequence[Task],
    edits: Sequence[Edit],
    controls: Sequence[Sequence[Edit]] = (),
) -> TaskEffect:
    """Answer every task as the model is, under the edits, and under each control."""
    variants = [[], list(edits), *map(list, controls)]
    numbers = torch.zeros(len(variants), len(tasks), 2, dtype=torch.float64)
    for row, task in enumerate(tasks):
        prompt, whole = model.encode(task.prompt), model.encode(task.prompt + task.answer)
        first = prompt.shape[1]
        if whole.shape[1] <= first:
            raise CorpusError(
                f"the answer {task.answer!r} adds no token to its prompt; write it out"
            )
        target = whole[0, first:]
        for number, variant in enumerate(variants):
            with edited(model, variant) if variant else nullcontext():
                found = log_probabilities(model, whole)[0, first - 1 : -1]
            numbers[number, row, 0] = (found.argmax(dim=1) == target).all()
            numbers[number, row, 1] = found.gather(1, target[:, None]).sum()
    plain, changes = numbers[0].mean(dim=0), numbers[1:] - numbers[0]
    edit, *random = (_task_change(change) for change in changes)
    own = abs(edit.log_probability.estimate)
    return TaskEffect(
        tasks=len(tasks),
        accuracy=float(plain[0]),
        log_probability=float(plain[1]),
        edit=edit,
        random=tuple(random),
        stronger=sum(abs(one.log_probability.estimate) >= own for one in random),
    )


def _task_change(changes: Tensor) -> TaskChange:
    """The mean of changes [task, (right, log-probability)] with its interval."""
    ones = torch.ones(len(changes), dtype=torch.float64)
    right, likely = (torch.stack([column, ones], dim=1) for column in changes.T)
    return TaskChange(
        resample(right, _mean, bounds=(-1.0, 1.0)), resample(likely, _mean, largest=None)
    )


def _mean(sums: Tensor) -> Tensor:
    return sums[..., 0] / sums[..., 1]


def continuation(model: LanguageModel, text: str, edits: Sequence[Edit], most: int) -> Continuation:
    """How the model continues a text, the likeliest token each time: as it is, and edited."""
    tokens = model.encode(text)
    room = model.context_length - tokens.shape[1]
    if most > room:
        raise ModelError(
            f"{most:,} tokens cannot be written after {shorten(text)!r}, as {model.name} has room "
            f"for {room:,}; ask for fewer, or shorten the text"
        )
    plain = model.generate(text, most)
    with edited(model, edits):
        return Continuation(text, plain, model.generate(text, most))


@dataclass(frozen=True)
class EffectSettings:
    """How much is measured: sentences of the text, random sets, tokens that are written."""

    sentences: int = 2000
    random: int = 8
    most: int = 24
    seed: int = 0


def set_effect(
    model: LanguageModel,
    source: Source,
    edits: Sequence[str],
    settings: EffectSettings,
    tasks: Sequence[Task] | None = None,
    prompts: Sequence[str] = (),
) -> SetEffect:
    """Measure edits, written as for `--set`, on a text, on tasks and on what the model writes."""
    rows = first_sentences(model, source, settings.sentences)
    rates = coefficient_rates(model, rows)
    parsed = expand_edits(edits, model, rates.means)
    generator = torch.Generator().manual_seed(settings.seed)
    controls = random_sets(model, parsed, rates, settings.random, generator)
    return SetEffect(
        tuple(edits),
        text_effect(model, rows, parsed, controls, generator),
        None if tasks is None else task_effect(model, tasks, parsed, controls),
        tuple(continuation(model, text, parsed, settings.most) for text in prompts),
    )


def first_sentences(model: LanguageModel, source: Source, count: int) -> list[Tensor]:
    """The first sentences of a text as token ids."""
    settings = SentenceSettings()
    longest = min(settings.max_tokens, model.context_length - 1)
    found: list[Tensor] = []
    for shard in shards(documents(source)):
        read = tokenise(shard, model.tokenizer, replace(settings, max_tokens=longest))
        for start, end in zip(read.starts[:-1], read.starts[1:], strict=True):
            if len(found) == count:
                return found
            found.append(torch.from_numpy(read.tokens[start:end].astype("int64")))
    return found
