"""A model reading batches while every layer keeps its strongest triggers."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from types import TracebackType

import torch
from torch import Tensor, nn

from ffmem.corpus.batches import Batch
from ffmem.errors import ScanError
from ffmem.models.experts.mixture_reading import MixtureReading
from ffmem.models.feedforward import FeedForward
from ffmem.models.language_model import LanguageModel
from ffmem.scan.launch_queue import LaunchQueue
from ffmem.scan.layer_scan import LayerScan, LayerState
from ffmem.scan.settings import ScanSettings

ScanState = dict[int, LayerState]  # by layer number


class _LastKeyRead(Exception):  # noqa: N818 - no error: the rest of the pass is not needed
    """Ends a forward pass after the last layer's coefficients."""


class Scanner:
    """Feeds each layer's coefficients to its running state; use it as a context manager.

    One forward pass serves all layers and ends at the last key: no language-model head, and no
    value map of the last layer, is computed. The model is as before once the `with` is left.
    """

    def __init__(
        self, model: LanguageModel, settings: ScanSettings, layers: Sequence[int] | None = None
    ) -> None:
        self.model = model
        self.settings = settings
        chosen = range(1, len(model.layers) + 1) if layers is None else sorted(set(layers))
        self.layers = list(chosen)
        self._layers = [model.layer(number) for number in chosen]
        self._shared = LaunchQueue(settings)
        self._scans = {
            layer.number: LayerScan(
                layer.memories,
                settings,
                layer.device,
                self._shared,
                expert_size=layer.parts.size if layer.mixture is not None else 0,
            )
            for layer in self._layers
        }
        self._hooks = ExitStack()
        self._batch: Batch | None = None
        self._done: set[int] = set()  # layers that have seen the batch under way

    def __enter__(self) -> Scanner:
        self._hooks.enter_context(attention_for_any_shape())
        for layer in self._layers:
            if layer.mixture is not None:
                self._hooks.callback(layer.mixture.listen(self._mixture_hook(layer)))
                continue
            handle = layer.value_map.module.register_forward_pre_hook(self._hook(layer))
            self._hooks.callback(handle.remove)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._hooks.close()

    def read(self, batch: Batch) -> None:
        """Let the model read one batch; one that does not fit in memory is read in halves."""
        self._read(batch, frozenset())

    def _read(self, batch: Batch, done: frozenset[int]) -> None:
        """Feed a batch to the layers that are not `done` with its sentences."""
        self._batch, self._done = batch, set(done)
        try:
            self._forward(batch)
            return
        except RuntimeError as error:
            if not _out_of_memory(error):
                raise
        finally:
            self._batch = None
        self._shared.settle()
        torch.cuda.empty_cache()
        done = frozenset(self._done)
        for half in batch.halves():
            self._read(half, done)

    def state(self) -> ScanState:
        """The state of every layer so far."""
        return {number: scan.state() for number, scan in self._scans.items()}

    def end(self) -> ScanState:
        """The same without a copy, where nothing more is read."""
        return {number: scan.end() for number, scan in self._scans.items()}

    def resume(self, state: ScanState) -> None:
        """Go on from a state as if its sentences had been read here."""
        if set(state) != set(self._scans):
            raise ScanError(
                f"the saved state has {len(state)} layers where this scan has {len(self._scans)}; "
                "resume it with the layers it began with"
            )
        for number, kept in state.items():
            self._scans[number].resume(kept)

    @torch.inference_mode()
    def _forward(self, batch: Batch) -> None:
        # Before the pass, which may wait for the one before: a GPU is busy until then.
        self._shared.rows(batch, self.model.device)
        tokens = send_to_device(batch.tokens, self.model.device)
        with suppress(_LastKeyRead):
            self.model.run_blocks(tokens)

    def _hook(self, layer: FeedForward) -> Callable[..., None]:
        scan, number, last = self._scans[layer.number], layer.number, layer is self._layers[-1]

        def hook(_module: nn.Module, inputs: tuple[Tensor, ...]) -> None:
            if self._batch is not None and number not in self._done:
                m = inputs[0].to(scan.device)
                self._take_in(m, partial(scan.take_in, m, self._batch))
                self._done.add(number)
            if self._batch is not None and last:
                raise _LastKeyRead

        return hook

    def _mixture_hook(self, layer: FeedForward) -> Callable[[MixtureReading], None]:
        scan, number, last = self._scans[layer.number], layer.number, layer is self._layers[-1]

        def hook(reading: MixtureReading) -> None:
            if self._batch is not None and number not in self._done:
                routed = reading.routed
                shared = range(len(reading.mixture.shared))
                beside = [reading.shared_coefficients(one).to(scan.device) for one in shared]
                take_in = partial(scan.take_in_mixture, routed, beside, self._batch)
                self._take_in(routed.coefficients, take_in)
                self._done.add(number)
            if self._batch is not None and last:
                raise _LastKeyRead

        return hook

    def _take_in(self, m: Tensor, take_in: Callable[[], None]) -> None:
        try:
            with torch.cuda.device_of(m):  # kernels run on the device at hand; no-op on a CPU
                take_in()
        except RuntimeError as error:
            if not _out_of_memory(error):
                raise
            raise ScanError(
                "memory ran out while triggers were kept; choose a smaller token budget, "
                "fewer triggers (--top, --sample), or fewer layers or experts at a time "
                "(--layers, --experts)"
            ) from error


def send_to_device(tokens: Tensor, device: torch.device) -> Tensor:
    """The tokens on the model's device; pinned, so that nothing waits for the copy."""
    if device.type != "cuda":
        return tokens.to(device)
    return tokens.pin_memory().to(device, non_blocking=True)


def _out_of_memory(error: BaseException) -> bool:
    """Whether an error says that memory ran out, on a GPU or on the CPU."""
    return isinstance(error, torch.OutOfMemoryError) or "can't allocate memory" in str(error)


@contextmanager
def attention_for_any_shape() -> Iterator[None]:
    """Leave out cuDNN's attention on a GPU, which makes a plan for every new shape it meets.

    The plan costs as much as the pass itself, and with batches of like length nearly every batch
    has a shape of its own; the other kernels are as fast and need none.
    """
    before = torch.backends.cuda.cudnn_sdp_enabled()
    torch.backends.cuda.enable_cudnn_sdp(False)
    try:
        yield
    finally:
        torch.backends.cuda.enable_cudnn_sdp(before)
