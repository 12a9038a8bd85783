"""The running state of one layer while a model reads."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from ffmem.errors import ScanError
from ffmem.models.experts.routing import RoutedCoefficients
from ffmem.scan.batch_rows import BatchRows, PaddedBatch
from ffmem.scan.candidates import Candidates, tables
from ffmem.scan.expert_rows import (
    LineTable,
    content_lines,
    line_table,
    routed_rows,
    table_of_columns,
)
from ffmem.scan.launch_queue import LaunchQueue
from ffmem.scan.passes.selection import PassResult, candidates
from ffmem.scan.passes.torch_pass import CompiledPass
from ffmem.scan.settings import UNIT, ScanSettings
from ffmem.scan.tallies import Tallies, not_finite, steps_of
from ffmem.scan.triggers import Sample, Thresholds, Triggers

if TYPE_CHECKING:
    from ffmem.scan.passes.triton_pass import ExpertPass, Redo, TritonPass


COMPILED_SLOTS = 256  # slots of a cell's triggers, or sample, that compiled code puts in order
SMALLEST = 16  # memories of an expert that the GPU kernel is worth
_Span = tuple[int, int, int]  # a pass's first memory, how many there are, and in one line


@dataclass(frozen=True)
class LayerState:
    """The state of a scan for one layer; its size does not grow with the corpus."""

    triggers: Triggers
    tallies: Tallies
    sample: Sample

    @classmethod
    def empty(
        cls, memories: int, settings: ScanSettings, device: torch.device | str = "cpu"
    ) -> LayerState:
        """The state before anything is read."""
        cells = settings.cells(memories)
        grouped = settings.dedupe != "none"
        return cls(
            Triggers.empty(cells, settings.top, grouped, device),
            Tallies.empty(cells, device),
            Sample.empty(cells, settings.sample, device),
        )

    def merge(self, other: LayerState) -> LayerState:
        """What reading both sides' sentences gives, here; they must share no sentence."""
        other = other.to(self.triggers.places.device)
        return LayerState(
            self.triggers.merge(other.triggers),
            self.tallies.merge(other.tallies),
            self.sample.merge(other.sample),
        )

    def to(self, device: torch.device | str) -> LayerState:
        """The same state on another device."""
        return LayerState(self.triggers.to(device), self.tallies.to(device), self.sample.to(device))


class LayerScan:
    """Takes in the coefficients of one layer batch by batch and keeps its state.

    Layers of one scan should be given one `LaunchQueue`. On a GPU coefficients of experts must stay
    unchanged after they were seen: the work on them is looked at later. `expert_size` is how many
    memories an expert has, in a mixture.
    """

    _triggers: Triggers
    _prefixes: int

    def __init__(
        self,
        memories: int,
        settings: ScanSettings,
        device: torch.device | str = "cpu",
        shared: LaunchQueue | None = None,
        use_kernel: bool = True,
        expert_size: int = 0,
    ) -> None:
        self.memories = memories
        self.settings = settings
        self.device = torch.empty(0, device=device).device  # "cuda" becomes "cuda:0"
        self._shared = shared if shared is not None else LaunchQueue(settings)
        self._folding: TritonPass | CompiledPass | None = None
        self._kernel: ExpertPass | None = None
        if use_kernel and not expert_size:
            self._folding = _folding_pass_for(memories, settings, self.device, self._shared)
        elif use_kernel and expert_size >= SMALLEST:
            self._kernel = _expert_pass_for(memories, settings, self.device)
        self._loose: list[Candidates] = []
        self._begin_at(LayerState.empty(memories, settings, self.device))

    @property
    def uses_kernel(self) -> bool:
        """Whether batches are read by the GPU's kernels."""
        return self._folding is not None or self._kernel is not None

    def resume(self, state: LayerState) -> None:
        """Go on from a state as if its sentences, and no others, had been read here."""
        self._fold()  # what is under way belongs to the old state
        expected = self._triggers.places.shape
        if state.triggers.places.shape != expected:
            raise ScanError(
                f"the saved state has triggers of {list(state.triggers.places.shape)} where this "
                f"scan has {list(expected)}; resume it with the model and settings it began with"
            )
        self._begin_at(self._copy(state.to(self.device)))

    def take_in(self, m: Tensor, batch: PaddedBatch) -> None:
        """Take in a batch's coefficients: [b, width, memories], or the same with b*width first."""
        rows = self._shared.rows(batch, self.device)
        if m.shape[-1] != self.memories or m.numel() % max(len(rows) * self.memories, 1):
            raise ValueError(
                f"{list(m.shape)} are not {len(rows)} rows of {self.memories} memories"
            )
        if not rows.prefixes:
            return
        m = rows.select(m.detach().view(len(rows), -1, self.memories))
        if self._folding is not None and rows.lines is None and self._folding.reads(m):
            self._scan_by_folding(self._folding, m, rows)
        else:
            self._scan_by_torch(m, rows, (0, self.memories, self.memories))
        self._prefixes += rows.prefixes

    def take_in_mixture(
        self, routed: RoutedCoefficients, beside: Sequence[Tensor], batch: PaddedBatch
    ) -> None:
        """The same for a mixture: its experts' lines, and the coefficients of shared experts."""
        rows = self._shared.rows(batch, self.device)
        if not rows.prefixes:
            return
        self._expect_weights()
        scan = self._scan_experts_by_torch
        if self._kernel is not None and self._prefixes and rows.lines is None:
            scan = partial(self._scan_experts_by_kernel, self._kernel)
        routed = replace(routed, scores=routed.weights)  # which lets go of many numbers
        scan(routed, [m.detach() for m in beside], rows, batch.tokens.shape[1])
        self._prefixes += rows.prefixes

    def state(self) -> LayerState:
        """The state after all that was seen; seeing more leaves it as it is."""
        return self._copy(self.end())

    def end(self) -> LayerState:
        """The same without a copy, where nothing more is read."""
        self._fold()
        if self._folding is not None and not self._folding.is_finite():
            raise not_finite()
        tallies = Tallies(
            self._fires,
            self._totals,
            self._triggers.coefficients[:, 0],
            self._prefixes,
            self._histogram,
        )
        if self._routed is not None and self._weights is not None:
            tallies = replace(tallies, routed=self._routed, weights=self._weights)
        return LayerState(self._triggers, tallies, self._sample)

    def _begin_at(self, state: LayerState) -> None:
        """Take over a state, which nobody else may hold."""
        self._triggers, self._sample = state.triggers, state.sample
        self._fires, self._totals = state.tallies.fires, state.tallies.totals
        self._prefixes = state.tallies.prefixes
        self._routed, self._weights = state.tallies.routed, state.tallies.weights
        self._histogram = state.tallies.histogram
        self._thresholds = Thresholds.of(self._triggers, self._sample)

    @property
    def _enough(self) -> int:
        """How many candidates are worth a fold: about what as many sentences again bring."""
        return self._triggers.places.shape[0] * (self.settings.top + self.settings.sample)

    def _scan_experts_by_torch(
        self, routed: RoutedCoefficients, beside: Sequence[Tensor], rows: BatchRows, width: int
    ) -> None:
        routed = content_lines(rows, routed, len(rows) * width)
        lines = routed_rows(rows, routed, width)
        size = routed.coefficients.shape[1]
        first = self.memories - sum(m.shape[-1] for m in beside)
        if len(lines):
            self._scan_by_torch(routed.coefficients.detach(), lines, (0, first, size))
        assert lines.routing is not None
        admissible = torch.zeros_like(routed.places, dtype=torch.bool)
        admissible[lines.routing.admissible] = True
        self._count_routing(routed, admissible, first // size)
        for m in beside:
            size = m.shape[-1]
            own = rows.select(m.view(len(rows), -1, size))
            self._scan_by_torch(own, rows, (first, size, size))
            first += size

    def _scan_experts_by_kernel(
        self,
        kernel: ExpertPass,
        routed: RoutedCoefficients,
        beside: Sequence[Tensor],
        rows: BatchRows,
        width: int,
    ) -> None:
        size = routed.coefficients.shape[1]
        first = self.memories - sum(m.shape[-1] for m in beside)
        table, span = line_table(rows, routed, width, first // size), (0, first, size)
        self._count_routing(routed, table.admissible, table.experts)

        def redo(m: Tensor, rows: BatchRows) -> None:
            self._redo(m, routed_rows(rows, routed, width), span)

        self._launch_lines(kernel, routed.coefficients.detach(), table, 0, redo)
        for m in beside:
            size = m.shape[-1]
            again = partial(self._redo_columns, span=(first, size, size))
            table = table_of_columns(rows, width)
            self._launch_lines(kernel, m.reshape(-1, size), table, first, again)
            first += size

    def _launch_lines(
        self, kernel: ExpertPass, m: Tensor, table: LineTable, first_cell: int, redo: Redo
    ) -> None:
        self._make_room(kernel)
        tallies = self._fires, self._totals
        launch = kernel.launch_lines(m, table, first_cell, self._thresholds, tallies, redo)
        kernel.count_bins_of_lines(m, table, first_cell, self._histogram)
        self._shared.enqueue(launch)

    def _count_routing(self, routed: RoutedCoefficients, admissible: Tensor, experts: int) -> None:
        """How often each expert was chosen for a prefix, and with which weights."""
        none = torch.zeros(experts, dtype=torch.int64, device=self.device)
        counts = none.index_add(0, routed.experts, admissible.long())
        steps = (routed.weights.double() / UNIT).round_().long() * admissible
        sums = none.index_add(0, routed.experts, steps)
        self._routed = counts if self._routed is None else self._routed + counts
        self._weights = sums if self._weights is None else self._weights + sums

    def _scan_by_torch(self, m: Tensor, rows: BatchRows, span: _Span) -> None:
        for sign in (1, -1) if self.settings.signed else (1,):
            result = self._run_pass(m, rows, sign, span)
            cells = self._cells(sign, span)
            self._fires[cells] += result.found.fires
            self._totals[cells] += steps_of(result.found.sums)
            torch_pass = self._shared.torch_pass(span[2], self.device)
            torch_pass.count_bins(m, rows, sign, self._histogram[cells])
            self._collect(result, span)
        if sum(map(len, self._loose)) >= (1 if self._kernel else self._enough):
            self._fold()

    def _run_pass(self, m: Tensor, rows: BatchRows, sign: int, span: _Span) -> PassResult:
        cells = self._cells(sign, span)
        thresholds = self._thresholds.at(cells)
        found = self._shared.torch_pass(span[2], self.device).run(m, rows, sign, thresholds)
        return PassResult(m, rows, found, sign, thresholds, cells.start)

    def _collect(self, result: PassResult, span: _Span) -> None:
        torch_pass = self._shared.torch_pass(span[2], self.device)
        found = candidates(result, self.settings, torch_pass)
        if found is not None:
            self._loose.append(replace(found, weights=self._weights_of(found)))

    def _expect_weights(self) -> None:
        """Keep the router's weights from the first batch on."""
        self._triggers = self._triggers.with_weights()

    def _weights_of(self, found: Candidates) -> Tensor | None:
        """The router's weights of candidates, if the triggers have any: 0 in shared experts."""
        if self._triggers.weights is None or found.weights is not None:
            return None if self._triggers.weights is None else found.weights
        return torch.zeros_like(found.coefficients, dtype=torch.float16)

    def _cells(self, sign: int, span: _Span) -> slice:
        first = span[0] if sign > 0 else self.memories + span[0]
        return slice(first, first + span[1])

    def _scan_by_folding(
        self, folding: TritonPass | CompiledPass, m: Tensor, rows: BatchRows
    ) -> None:
        state = self._triggers, self._sample, self._thresholds
        folding.take_in(m, rows, state, (self._fires, self._totals))
        folding.count_bins(m, rows, self._histogram)

    def _copy(self, state: LayerState) -> LayerState:
        """The same state in memory of its own, as far as something is written into it."""
        triggers, sample = state.triggers, state.sample
        if self._folding is not None:
            triggers, sample = triggers.clone(), sample.clone()
        tallies = replace(
            state.tallies,
            fires=state.tallies.fires.clone(),
            totals=state.tallies.totals.clone(),
            largest=triggers.coefficients[:, 0],
            histogram=state.tallies.histogram.clone(),
        )
        return LayerState(triggers, tallies, sample)

    def _make_room(self, kernel: ExpertPass) -> None:
        """Look at the kernel's latest launch, and fold where there is enough to."""
        kernel.settle()
        if kernel.found >= min(self._enough, kernel.capacity // 2) or self._loose:
            self._fold()

    def _redo(self, m: Tensor, rows: BatchRows, span: _Span) -> None:
        """Collect plainly the candidates of a batch that had too many for the kernel's buffer."""
        for sign in (1, -1) if self.settings.signed else (1,):
            self._collect(self._run_pass(m, rows, sign, span), span)

    def _redo_columns(self, m: Tensor, rows: BatchRows, span: _Span) -> None:
        """The same for a shared expert, whose lines are columns of rows."""
        self._redo(m.view(len(rows), -1, span[2]), rows, span)

    def _fold(self) -> None:
        """Put all candidates into the state and raise the thresholds."""
        if self._kernel is not None:
            self._kernel.settle()
            for some in self._kernel.take_candidates():
                self._loose.append(replace(some, weights=self._weights_of(some)))
        if not self._loose:
            return
        found = tables(Candidates.join(self._loose), self._triggers.places.shape[0])
        self._loose = []
        self._triggers = self._triggers.take_in(found)
        self._sample = self._sample.take_in(found, self.settings)
        self._thresholds = Thresholds.of(self._triggers, self._sample)


def _expert_pass_for(
    memories: int, settings: ScanSettings, device: torch.device
) -> ExpertPass | None:
    """The one-read pass over experts for a GPU, or None where plain torch must do."""
    if settings.per_sentence == "all":
        return None
    try:
        from ffmem.scan.passes.triton_pass import ExpertPass, runs_on
    except ImportError:
        return None
    return ExpertPass(memories, settings, device) if runs_on(device) else None


def _folding_pass_for(
    memories: int, settings: ScanSettings, device: torch.device, shared: LaunchQueue
) -> TritonPass | CompiledPass | None:
    """The kernels of a GPU, or the loops of a CPU; None where plain torch must do."""
    if settings.per_sentence == "all" or max(settings.top, settings.sample) > COMPILED_SLOTS:
        return None
    with suppress(ImportError):
        from ffmem.scan.passes.triton_pass import TritonPass, runs_on

        if runs_on(device):
            lists = shared.lists(settings.cells(memories), device)
            return TritonPass(memories, settings, lists)
    torch_pass = shared.torch_pass(memories, device)
    if settings.dedupe == "none" and torch_pass.has_loop:
        return CompiledPass(memories, settings, torch_pass)
    return None
