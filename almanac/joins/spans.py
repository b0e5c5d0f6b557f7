"""Spans of time as step functions: what holds at an instant, found for a million rows at once.

Belongs here: the steps of spans, and where an instant lies in them. Does not: what a span means
(known, blackouts). Instants are whole microseconds, keys small whole numbers.

DuckDB's ASOF join picks any row where several have the same instant (duckdb issue 25536). Here each
key has one step for an instant, so that an answer depends on the spans alone.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt
    import pyarrow as pa

    Numbers = npt.NDArray[np.int64]

NONE: Final = -1


@dataclass(frozen=True, slots=True)
class Steps:
    """What holds from each step until the next one of its key. Steps are sorted by key, instant.

    Attributes:
        keys, instants: of the steps; unique together.
        first: the number of the span that goes before the others at the step, `NONE` without any.
        counts: how many spans hold.
    """

    keys: "Numbers"
    instants: "Numbers"
    first: "Numbers"
    counts: "Numbers"

    def places(self, keys: "Numbers", instants: "Numbers") -> "Numbers":
        """Return the number of the step that each instant of a key lies in; `NONE` before all."""
        import numpy as np

        found = np.full(len(keys), NONE, np.int64)
        if not len(self.keys):
            return found
        # Numpy sorts numbers of 16 bits by radix, several times as fast.
        is_small = len(keys) and max(keys.max(), -keys.min()) < 2**15
        order = np.argsort(keys.astype(np.int16) if is_small else keys, kind="stable")
        wanted, begins = np.unique(keys[order], return_index=True)
        ends = np.append(begins, len(order))[1:]
        lows = np.searchsorted(self.keys, wanted, "left")
        highs = np.searchsorted(self.keys, wanted, "right")
        for begin, end, low, high in zip(begins, ends, lows, highs, strict=True):
            if low < high:
                rows = order[begin:end]
                after = np.searchsorted(self.instants[low:high], instants[rows], "right")
                found[rows] = np.where(after == 0, NONE, low + after - 1)
        return found


def steps_of(spans: "pa.Table") -> Steps:
    """Return the steps of spans (code, starts, ends), which are in order of precedence."""
    import numpy as np

    keys, starts, ends = (_numbers(spans.column(name)) for name in ("code", "starts", "ends"))
    keys_twice, edges = np.concatenate([keys, keys]), np.concatenate([starts, ends])
    order = np.lexsort((edges, keys_twice))
    sorted_keys, sorted_edges = keys_twice[order], edges[order]
    is_new = np.ones(len(order), bool)
    is_new[1:] = (np.diff(sorted_keys) != 0) | (np.diff(sorted_edges) != 0)
    step_of = np.empty(len(order), np.int64)
    step_of[order] = np.cumsum(is_new) - 1
    count = int(is_new.sum())
    begins, ends_at = step_of[: len(keys)], step_of[len(keys) :]
    # The last step of a key is the end of its last span: nothing leaks into the next key.
    changes = np.bincount(begins, minlength=count) - np.bincount(ends_at, minlength=count)
    return Steps(
        sorted_keys[is_new],
        sorted_edges[is_new],
        np.array(_first_spans(begins.tolist(), ends_at.tolist(), count), np.int64),
        np.cumsum(changes),
    )


def _first_spans(begins: list[int], ends: list[int], count: int) -> list[int]:
    """Return the first span that holds at each step.

    Each span takes the steps that no earlier one took; `free` leads to the next step without any,
    with paths that are shortened on the way, so that each step is visited about once.
    """
    first, free = [NONE] * count, list(range(count + 1))
    for number, (begin, end) in enumerate(zip(begins, ends, strict=True)):
        step = _next_free(free, begin)
        while step < end:
            first[step] = number
            free[step] = step + 1
            step = _next_free(free, step + 1)
    return first


def _next_free(free: list[int], step: int) -> int:
    while free[step] != step:
        free[step] = free[free[step]]
        step = free[step]
    return step


def _numbers(column: "pa.ChunkedArray") -> Any:
    import numpy as np

    return column.to_numpy().astype(np.int64, copy=False)
