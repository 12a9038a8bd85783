"""A finished study on disk: results, charts, data frames, memories."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ffmem.address import Address
from ffmem.analyses.catalogue import ANALYSES, judge
from ffmem.analyses.result_files import ResultFile, read_result
from ffmem.analyses.verdicts import Verdict
from ffmem.errors import FfmemError, StoreError, whole_number
from ffmem.records import UNRESTORABLE, data_frame, restore
from ffmem.scan.settings import UNIT
from ffmem.store.folder import StudyFolder
from ffmem.store.memory_page import MemoryPage, memory_page
from ffmem.store.parquet_tables import all_pushes
from ffmem.store.scan_store import ScanStore
from ffmem.store.search.lookup import MemoryIndex
from ffmem.store.slots import read_slots, trigger_columns

if TYPE_CHECKING:
    import pandas


class Study:
    """A scan and its results; each part is read when it is first used.

    Returned by `run_scan`, `run_study` or `open_study`.
    """

    def __init__(self, store: ScanStore) -> None:
        self.store = store

    def __repr__(self) -> str:
        failures = f"; failed: {', '.join(self.failures)}" if self.failures else ""
        return f"<Study of {self.store!r}; results: {', '.join(self.names) or 'none'}{failures}>"

    @property
    def folder(self) -> Path:
        """The study's folder."""
        return self.store.folder.root

    @property
    def model_name(self) -> str:
        """The model that was studied."""
        return self.store.manifest.key.model["name"]

    @property
    def names(self) -> tuple[str, ...]:
        """The analyses that have a result, in the paper's order."""
        return tuple(name for name in ANALYSES if self.store.folder.result(name).exists())

    @property
    def failures(self) -> tuple[str, ...]:
        """The analyses that ended with a traceback."""
        return tuple(name for name in ANALYSES if self.store.folder.failure(name).exists())

    @cached_property
    def scanned_controls(self) -> tuple[Study, ...]:
        """The studies of the controls that were scanned on as much text as this one."""
        every = self.store.folder.controls.values()
        found = [open_study(one.root) for one in every if one.manifest.exists()]
        sentences = self.store.manifest.counts["sentences"]
        return tuple(one for one in found if one.store.manifest.counts["sentences"] == sentences)

    @cached_property
    def controls(self) -> dict[str, tuple[dict[str, Any], ...]]:
        """The results of models without what was learned, with which verdicts compare.

        Of each kind, such as `permuted weights`, one dictionary by analysis per seed. Results of
        another text or seed of prefixes are left out.
        """
        scanned = {one.store.folder for one in self.scanned_controls}
        found: dict[str, tuple[dict[str, Any], ...]] = {}
        for name, folder in self.store.folder.controls.items():
            if folder.manifest.exists() and folder not in scanned:
                continue
            kind = name.rstrip("-0123456789").replace("-", " ")
            found[kind] = (*found.get(kind, ()), self._results_beside(folder))
        return found

    def controls_of(self, name: str) -> list[Any]:
        """The results of one analysis in all models without what was learned."""
        every = [found for kind in self.controls.values() for found in kind]
        return [found[name] for found in every if name in found]

    def _results_beside(self, folder: StudyFolder) -> dict[str, Any]:
        """The results in a control's folder that were made as this study's were."""

        def made_with(one: StudyFolder, name: str) -> list[Any]:
            found = read_result(one.result(name)).made_from
            return [found.get(part) for part in ("seed", "valid", "ffmem")]

        own = self.store.folder
        names = [name for name in self.names if folder.result(name).exists()]
        same = [name for name in names if made_with(folder, name) == made_with(own, name)]
        return {name: _restore_result(folder, name) for name in same}

    def record(self, name: str) -> ResultFile:
        """A result as it is on disk, with its sources and the seconds it took."""
        if name not in self.names:
            raise StoreError(
                f"{self.folder} has no result {name!r}; make it with "
                f"`ffmem analyse {self.folder} --only {name}`"
            )
        return read_result(self.store.folder.result(name))

    @cached_property
    def _results(self) -> dict[str, Any]:
        return {}

    def result(self, name: str) -> Any:
        """The result of an analysis, such as an `ffmem.analyses.values.record.Values`."""
        if name not in self._results:
            self.record(name)  # which says what to do where there is none
            self._results[name] = _restore_result(self.store.folder, name)
        return self._results[name]

    @cached_property
    def verdicts(self) -> tuple[Verdict, ...]:
        """Every claim of the paper with its outcome here, its finding and its reason."""
        return tuple(judge(self))

    @cached_property
    def _charts(self) -> dict[str, dict[str, Any]]:
        return {}

    def _charts_of(self, name: str) -> dict[str, Any]:
        """The figures of one analysis; drawn for files and for the report from the same charts."""
        if name not in self._charts:
            self._charts[name] = charts_of(name, self.result(name), self.controls_of(name))
        return self._charts[name]

    @property
    def charts(self) -> dict[str, Any]:
        """Every figure of every analysis, as Altair charts by name."""
        every = map(self._charts_of, self.names)
        return {figure: chart for found in every for figure, chart in found.items()}

    def chart(self, figure: str) -> Any:
        """One figure as an Altair chart."""
        if figure not in list(self.charts):
            known = ", ".join(self.charts)
            choice = (
                f"choose among {known}" if known else f"`ffmem analyse {self.folder}` makes some"
            )
            raise FfmemError(f"the study has no figure {figure!r}; {choice}")
        return self.charts[figure]

    def draw(self, names: Sequence[str] | None = None) -> None:
        """Write the figures of some analyses, or of all, as pages, pictures and tables."""
        for name in self.names:
            if names is None or name in names:
                save_charts(self.folder, self._charts_of(name))

    def frame(self, figure: str) -> pandas.DataFrame:
        """The numbers behind one figure as a data frame."""
        from ffmem.figures.saving import rows_of, spec_of

        return data_frame(rows_of(spec_of(self.chart(figure))))

    @cached_property
    def search(self) -> MemoryIndex:
        """The index that searches all memories by token, words or numbers."""
        return MemoryIndex.at_once(self.store)

    def memory(self, address: Address | str) -> MemoryPage:
        """One memory: triggers, value tokens, counts; a notebook shows it as a page.

        A gated memory is two cells: `L2.10-` is where its coefficient is negative, and `L2.10` is
        `L2.10+`.
        """
        return memory_page(self.search, _parse_address(address))

    def triggers(
        self,
        layer: int | Sequence[int] | None = None,
        memories: Address | str | Sequence[Address | str] | None = None,
        top: int | None = None,
    ) -> pandas.DataFrame:
        """All triggers of a layer, of several, or of some memories as a data frame.

        `triggers(layer=12)`, `triggers(layer=[11, 12])` or `triggers(memories=["L12.691"])`; `top`
        leaves out all but the strongest of each memory. A gated memory is two cells, and both where
        it is named without a sign. Columns: address, rank (from 1), coefficient, prefix (the text
        that was read, with its last token), last, next (the token that followed), sentence (its
        number in the corpus) and position (tokens that were read).
        """
        cells = self.store.cells
        if (layer is None) == (memories is None):
            raise FfmemError("give a layer or memories: layer=12, or memories=['L12.691']")
        if memories is not None:
            named = [memories] if isinstance(memories, Address | str) else memories
            every = (cell for one in named for cell in cells.resolve(_parse_address(one)))
            rows = [cells.row(cell) for cell in dict.fromkeys(every)]
        else:
            numbers = layer if isinstance(layer, Sequence) else [layer]
            wanted = [whole_number(number, "the layer") for number in numbers]
            for number in wanted:
                cells.check_layer(number)
            rows = [row for number in wanted for row in range(cells.count)[cells.rows_of(number)]]
        slots = self.store.slots(rows, top=top)
        owners = cells.addresses(rows)
        return data_frame(
            trigger_columns([owners[place] for place in slots.cell.tolist()], read_slots(slots))
        )

    def label(self, address: Address | str, text: str, note: str | None = None) -> None:
        """Call a memory something, which the explorer, `ffmem show` and `ffmem why` then show.

        `note` says more; without one the note that is there stays. An empty text takes the label
        back. The label is kept in the study's folder, and so is every earlier one.
        """
        from ffmem.store.people.memory_labels import parse_label, study_labels

        cell = str(self.store.cells.resolve(_parse_address(address))[0])
        with study_labels(self.store) as labels:
            kept = labels.label(cell).note if note is None else note
            labels.set_label(cell, parse_label(text, kept))

    @property
    def labels(self) -> dict[str, str]:
        """What people call memories, by address."""
        from ffmem.store.people.memory_labels import label_texts

        return label_texts(self.store)

    def memories(self, tokens: int = 5) -> pandas.DataFrame:
        """All memories as a data frame, one row per memory; in a gated model one per sign.

        Columns: address, layer, index, sign, fires (prefixes that fire it), positive (prefixes with
        a coefficient above 0), mean (of those), largest, and top_tokens: the first tokens that its
        value promotes (none before values are ranked). In a mixture of experts also expert: E3, or
        S for a shared one.
        """
        tokens = whole_number(tokens, "tokens")
        store, words = self.store, self.search.words
        cells = store.cells.addresses(range(store.cells.count))
        first: list[list[int]] = [[]] * len(cells)
        if store.has_rankings:
            pushes = all_pushes(store, "promoted")
            first = pushes.tokens[pushes.rows.argsort(), :tokens].tolist()
        positive = store.positive_counts.astype("int64")
        return data_frame(
            {
                "address": [str(cell) for cell in cells],
                "layer": [cell.layer for cell in cells],
                **({"expert": [cell.part for cell in cells]} if store.cells.mixtures else {}),
                "index": [cell.index for cell in cells],
                "sign": [cell.sign for cell in cells],
                "fires": store.fire_counts.astype("int64"),
                "positive": positive,
                "mean": store.array("totals") * UNIT / positive.clip(min=1),
                "largest": store.array("largest"),
                "top_tokens": [[words[token] for token in row] for row in first],
            }
        )

    def _repr_html_(self) -> str:
        counts = self.store.manifest.counts
        return (
            f"<b>ffmem study</b> of {self.model_name}: {sum(self.store.memories.values()):,} "
            f"memories, {counts['sentences']:,} sentences, {counts['tokens']:,} tokens; "
            f"results: {', '.join(self.names) or 'none yet'}"
        )


def _restore_result(folder: StudyFolder, name: str) -> Any:
    """The record of an analysis from a folder that has it."""
    try:
        return restore(ANALYSES[name].record, read_result(folder.result(name)).result)
    except UNRESTORABLE:
        raise StoreError(
            f"{folder.result(name)} is damaged or was written by another version of ffmem; "
            f"{folder.again(name)}"
        ) from None


def _parse_address(address: Address | str) -> Address:
    """An address, also from its text."""
    return address if isinstance(address, Address) else Address.parse(address)


def charts_of(name: str, result: Any, controls: Sequence[Any] = ()) -> dict[str, Any]:
    """The figures of one result, as Altair charts by name, with its controls beside it."""
    figures = ANALYSES[name].figures()
    if not figures:
        return {}
    from ffmem.figures.saving import show_as_pictures, without_schema

    show_as_pictures()
    with without_schema():
        return {one.name: one.draw(result, controls) for one in figures if one.drawn_if(result)}


def save_charts(folder: Path, charts: dict[str, Any]) -> None:
    """Write figures as pages, pictures and tables."""
    from ffmem.figures.saving import save

    for figure, chart in charts.items():
        save(chart, StudyFolder(folder).figures, figure)


def open_study(folder: str | Path) -> Study:
    """Open the study, or the scan alone, in a folder or at a URL; the model is not loaded."""
    if not isinstance(folder, str | Path):
        raise StoreError(f"{folder!r} is not a folder; give the folder that a scan or study wrote")
    return Study(ScanStore.open(folder))
