"""A finished study on disk: results, charts, data frames, memories.

Also the advice for each of its files if it is damaged.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ffmem.address import Address
from ffmem.errors import FfmemError, StoreError, whole_number
from ffmem.scan.settings import UNIT
from ffmem.store.folder import StudyFolder
from ffmem.store.lookup import MemoryIndex
from ffmem.store.memory_page import MemoryPage, MemoryPages, memory_pages
from ffmem.store.parquet_tables import all_pushes
from ffmem.store.result_files import ResultFile, read_result, restore
from ffmem.store.scan_store import ScanStore
from ffmem.store.verification import Damage, inventory
from ffmem.studies.registry import ANALYSES

if TYPE_CHECKING:
    import pandas


class Study:
    """A scan and its results; each part is read when it is first used.

    Returned by `run_scan`, `run_study` or `open_study`. `memory("L3.7")` is one memory's page,
    `memories()` a data frame of all; `names` are the analyses that have a result, `result(name)`
    is one of them, `chart(figure)` and `frame(figure)` are its figures and their numbers.
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
    def twin(self) -> Study | None:
        """The study of the untrained twin, with which verdicts compare.

        None if there is none, or if it was scanned on another amount of text.
        """
        folder = self.store.folder.control
        if not folder.manifest.exists():
            return None
        found = open_study(folder.root)
        mine, other = (one.store.manifest.counts["sentences"] for one in (self, found))
        return found if mine == other else None

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
        """The result of an analysis, such as an `ffmem.analyses.values.Values`."""
        if name not in self._results:
            record = self.record(name)
            try:
                self._results[name] = restore(ANALYSES[name].result, record.result)
            except (TypeError, ValueError, KeyError, AttributeError):
                raise StoreError(
                    f"{self.store.folder.result(name)} was written by another version of ffmem; "
                    f"make it again with `ffmem analyse {self.folder} --only {name} --again {name}`"
                ) from None
        return self._results[name]

    @cached_property
    def _charts(self) -> dict[str, dict[str, Any]]:
        return {}

    def _charts_of(self, name: str) -> dict[str, Any]:
        """The figures of one analysis; drawn for files and for the report from the same charts."""
        if name not in self._charts:
            self._charts[name] = charts_of(name, self.result(name))
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
        pandas = import_pandas()
        from ffmem.figures.saving import rows_of, spec_of

        return pandas.DataFrame(rows_of(spec_of(self.chart(figure))))

    @cached_property
    def search(self) -> MemoryIndex:
        """The index that searches all memories by token, words or numbers."""
        return MemoryIndex.at_once(self.store)

    def memory(self, address: Address | str) -> MemoryPage | MemoryPages:
        """One memory: triggers, value tokens, counts; a notebook shows it as a page.

        A gated memory has a page for each sign: `L2.10` gives both, `L2.10+` one.
        """
        wanted = address if isinstance(address, Address) else Address.parse(address)
        pages = memory_pages(self.search, wanted)
        return pages[0] if len(pages) == 1 else pages

    def memories(self, tokens: int = 5) -> pandas.DataFrame:
        """All memories as a data frame, one row per memory; in a gated model one per sign.

        Columns: address, layer, index, sign, fires (prefixes that fire it), positive (prefixes with
        a coefficient above 0), mean (of those), largest, and top_tokens: the first tokens that its
        value promotes. In a mixture of experts also expert: E3, or S for a shared one.
        """
        tokens, pandas = whole_number(tokens, "tokens"), import_pandas()
        store, words = self.store, self.search.words
        pushes = all_pushes(store, "promoted")
        order = pushes.rows.argsort()
        cells = store.cells.addresses(pushes.rows[order])
        positive = store.array("fires").astype("int64")
        return pandas.DataFrame(
            {
                "address": [str(cell) for cell in cells],
                "layer": [cell.layer for cell in cells],
                **({"expert": [cell.part for cell in cells]} if store.cells.mixtures else {}),
                "index": [cell.index for cell in cells],
                "sign": [cell.sign for cell in cells],
                "fires": store.fires.astype("int64"),
                "positive": positive,
                "mean": store.array("totals") * UNIT / positive.clip(min=1),
                "largest": store.array("largest"),
                "top_tokens": [
                    [words[token] for token in row[:tokens]]
                    for row in pushes.tokens[order].tolist()
                ],
            }
        )

    def _repr_html_(self) -> str:
        counts = self.store.manifest.counts
        return (
            f"<b>ffmem study</b> of {self.model_name}: {sum(self.store.memories.values()):,} "
            f"memories, {counts['sentences']:,} sentences, {counts['tokens']:,} tokens; "
            f"results: {', '.join(self.names) or 'none yet'}"
        )


def import_pandas() -> Any:
    """The pandas module; without it, an error that says how to install it."""
    try:
        import pandas
    except ImportError:
        raise FfmemError("data frames need pandas; run `pip install pandas`") from None
    return pandas


def charts_of(name: str, result: Any) -> dict[str, Any]:
    """The figures of one result, as Altair charts by name."""
    figures = ANALYSES[name].figures
    if figures is None:
        return {}
    from ffmem.figures.saving import unchecked_charts

    return unchecked_charts(figures().charts, result)


def save_charts(folder: Path, charts: dict[str, Any]) -> None:
    """Write figures as pages, pictures and tables."""
    from ffmem.figures.saving import save

    for figure, chart in charts.items():
        save(chart, StudyFolder(folder).figures, figure)


def draw_other_settings(folder: Path, name: str) -> None:
    """Write the figures of a result with other settings next to that result."""
    record = read_result(StudyFolder(folder).result(name))
    result = restore(ANALYSES[name].result, record.result)
    save_charts(folder, charts_of(name, result))


def open_study(folder: str | Path) -> Study:
    """Open the study, or the scan alone, in a folder or at a URL; the model is not loaded."""
    if not isinstance(folder, str | Path):
        raise StoreError(f"{folder!r} is not a folder; give the folder that a scan or study wrote")
    return Study(ScanStore.open(folder))


def remedy(root: Path, file: str) -> str:
    """The advice for a damaged file of the study."""
    inside = holding_study(root, file)
    match inside.role(root / file):
        case "notes":
            return "delete it; files that are written from now on are noted again"
        case "index":
            return f"delete the folder {inside.index}; it is made again when it is needed"
        case "result":
            return _analyse_again(StudyFolder(root), inside, (root / file).stem)
        case "figure" | "report":
            return f"run `ffmem report {inside.root}`"
        case "scan":
            return inside.remedy


def holding_study(root: Path, file: str) -> StudyFolder:
    """The study that a file belongs to: the one in the folder, or one inside it."""
    inside = StudyFolder(root / file.split("/")[0])
    return inside if inside.manifest.exists() else StudyFolder(root)


def _analyse_again(study: StudyFolder, inside: StudyFolder, name: str) -> str:
    analysis = next((one for one, row in ANALYSES.items() if name in (one, *row.arrays)), None)
    if analysis is None:
        return "delete it and run the command that made it again"
    words = f"{inside.root} --only {analysis} --again {analysis}"
    if inside == study.control:
        words = f"{study.root} --only {analysis} --again {analysis} --control random-weights"
    return f"run `ffmem analyse {words}`, as it was run before"


def damage_sentence(root: Path, damage: Damage) -> str:
    """The message for one damaged file, with advice."""
    return f"{root / damage.file} {damage.what}; {remedy(root, damage.file)}"


def first_damage(root: Path) -> str | None:
    """The message for the first damaged file of a study, or None if none is found."""
    with suppress(FfmemError):
        for damage in inventory(root).all_damage():
            return damage_sentence(root, damage)
    return None
