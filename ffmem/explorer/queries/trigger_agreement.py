"""Whether values predict what follows their keys' triggers, cell by cell, where it was analysed."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from ffmem.store.folder import StudyFolder
from ffmem.store.weight_columns import next_token_ranks


@dataclass(frozen=True)
class Agreement:
    """Whether the value's top token is what follows the triggers."""

    strongest: bool | None  # of the strongest trigger; None where nothing follows it
    triggers: int  # triggers that are followed by a token
    agreeing: int  # those of them followed by the value's top token
    median_rank: float | None  # of the tokens that follow, under the value; 0 is the top


@dataclass(frozen=True, eq=False)
class AgreementTable:
    """The same for every cell, as arrays."""

    strongest: NDArray[np.int8]  # -1 where nothing follows
    triggers: NDArray[np.int32]
    agreeing: NDArray[np.int32]
    median_rank: NDArray[np.float32]

    @property
    def share(self) -> NDArray[np.float32]:
        """The share of triggers whose next token the value puts first."""
        return (self.agreeing / np.maximum(self.triggers, 1)).astype(np.float32)

    def of(self, row: int) -> Agreement:
        """One cell."""
        strongest, median = int(self.strongest[row]), float(self.median_rank[row])
        return Agreement(
            strongest=None if strongest < 0 else bool(strongest),
            triggers=int(self.triggers[row]),
            agreeing=int(self.agreeing[row]),
            median_rank=None if np.isnan(median) else median,
        )


def agreement_table(folder: StudyFolder, cells: int) -> AgreementTable | None:
    """What `ffmem analyse --only values` left, or None; read again only when it has changed."""
    path = folder.numbers("values")
    try:
        found = _read(folder, path.stat().st_mtime_ns)
    except OSError:
        return None
    return found if found is not None and len(found.triggers) == cells else None


@lru_cache(maxsize=4)
def _read(folder: StudyFolder, _changed: int) -> AgreementTable | None:
    ranks = next_token_ranks(folder)
    if ranks is None:
        return None
    known = ranks >= 0
    count = known.sum(axis=1).astype(np.int32)
    ordered = np.sort(np.where(known, ranks, np.iinfo(ranks.dtype).max), axis=1)
    rows = np.arange(len(ranks))
    low, high = (
        ordered[rows, np.clip(middle, 0, ranks.shape[1] - 1)]
        for middle in ((count - 1) // 2, count // 2)
    )
    median = np.where(count > 0, (low + np.minimum(high, np.int64(2**40))) / 2, np.nan)
    return AgreementTable(
        strongest=np.where(known[:, 0], ranks[:, 0] == 0, -1).astype(np.int8),
        triggers=count,
        agreeing=(ranks == 0).sum(axis=1).astype(np.int32),
        median_rank=median.astype(np.float32),
    )
