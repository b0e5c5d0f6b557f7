"""Whose fault it is that folding a batch failed: the batch's, the machine's or Almanac's own.

Only a batch with a fault of its own is set aside. A fault of the machine or of Almanac would set
aside every good batch, one after the other: it ends the merge, and the batch waits. Belongs here:
which error is whose. Does not: what becomes of the batch (fold.py, merge.py).
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

import duckdb

from warehouse.batches import Manifest
from warehouse.cells import storable_text
from warehouse.errors import BatchFailed, DamagedBatch, LandingError, OwnFault, WarehouseError

_OF_THE_MACHINE: Final = (OSError, duckdb.IOException, duckdb.InterruptException)
"""A full disk or Ctrl-C."""
_TOO_LITTLE_MEMORY: Final = (MemoryError, duckdb.OutOfMemoryException)
_OWN: Final = (
    *(NameError, ImportError, SyntaxError, AssertionError, NotImplementedError),
    # A statement that is wrong, whatever the rows hold.
    *(duckdb.ParserException, duckdb.SyntaxException, duckdb.BinderException),
    *(duckdb.CatalogException, duckdb.PermissionException, duckdb.DependencyException),
    # The database, which is of no use after these.
    *(duckdb.InternalException, duckdb.FatalException, duckdb.ConnectionException),
    *(duckdb.TransactionException, duckdb.ResourceInUseException),
)
"""What the content of a batch can't bring about: values are bound, never part of a statement."""
_CONTENT: Final = (str, bytes, int, float, list, dict, type(None))
"""What a body is read into. An attribute that one of these lacks was asked of a value of another
type than was expected, which a service may send; of anything else it is a fault of the code."""
_WHY_CHARS: Final = 200


@contextmanager
def judged(manifest: Manifest) -> Iterator[None]:
    """Turn whatever goes wrong in folding a batch into an error that says whose fault it is.

    Raises:
        BatchFailed: the batch's, also where nobody foresaw it: it must not end each later merge.
        OwnFault: Almanac's; the batch is as good as it was.
        WarehouseError: the machine's, which has too little memory; or a damaged batch.
    """
    try:
        yield
    except DamagedBatch:
        raise
    except LandingError as error:
        raise _failed(manifest, str(error)) from error
    except (WarehouseError, *_OF_THE_MACHINE):
        raise
    except _TOO_LITTLE_MEMORY as error:
        # What a body may hold is bounded: it is the machine that has too little, as where the
        # disk is full and nothing can be spilled to it.
        raise WarehouseError(
            f"there was not enough memory, or disk to spill to, for batch {manifest.batch_id}: "
            f"{_first_line(error)}. What was merged before stands, and the batch waits. Free "
            "memory or disk, then run the same command again."
        ) from error
    except Exception as error:
        if _is_own(error):
            raise OwnFault(
                f"batch {manifest.batch_id} could not be folded by an error of Almanac's own, not "
                f"of the batch: {type(error).__name__}: {_first_line(error)}. Nothing was set "
                "aside: the batch waits, the warehouse is as it was published last, and a merge "
                "goes on from here. Report it, and run `almanac merge` with a version that mends "
                "it, or with the one that was used before."
            ) from error
        told = f"reading it failed: {type(error).__name__}: {_first_line(error)}"
        raise _failed(manifest, told) from error


def _is_own(error: Exception) -> bool:
    if isinstance(error, AttributeError):
        return not isinstance(error.obj, _CONTENT)
    return isinstance(error, _OWN)


def _failed(manifest: Manifest, why: str) -> BatchFailed:
    return BatchFailed(manifest.batch_id, storable_text(why)[:_WHY_CHARS])


def _first_line(error: BaseException) -> str:
    return (str(error).strip().splitlines() or ["it does not say more"])[0]
