"""The outcome of each folded batch: its counts, why it is quarantined, the cause of a failure.

Belongs here: the outcome of one batch, and the distinction between failures of the batch, the
machine and Almanac itself. Does not: outcomes of a day or a merge (day, merge_report).
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import date, datetime
from typing import Any, Final, Literal

import duckdb

from warehouse.batch_problems import FAILED
from warehouse.codecs import storable_text
from warehouse.errors import (
    QUERY_INTERRUPTED,
    BatchFailed,
    DamagedBatch,
    LandingError,
    OwnFault,
    WarehouseError,
)
from warehouse.landing.batches import Manifest
from warehouse.normalise.normalise import NormalisedBatch

Status = Literal["merged", "quarantined"]


@dataclass(slots=True)
class Outcome:
    """The account of one batch. good + rejected + ignored = arrived."""

    manifest: Manifest
    arrived: int
    good: int
    rejected: int
    duplicates: int
    ignored: int
    notes: tuple[str, ...]
    status: Status = "merged"
    why: str | None = None
    flagged: str | None = None
    released: bool = False
    stale: int = 0
    missing: int = 0
    versions: int = 0
    changes: dict[str, int] = field(default_factory=dict)

    @property
    def day(self) -> date:
        """The day on which it was observed."""
        return self.manifest.observed_at.date()

    def quarantined(self, why: str) -> "Outcome":
        self.status, self.why = "quarantined", why
        return self

    def count(self, kinds: dict[str, int]) -> None:
        """Add versions by kind; a version may have several kinds, `versions` is counted once."""
        self.versions += kinds.pop("versions", kinds.get("withdrawn", 0))
        for kind, number in kinds.items():
            self.changes[kind] = self.changes.get(kind, 0) + number

    def record(self) -> dict[str, Any]:
        """Return the record that the day's file stores."""
        manifest = self.manifest
        scope = manifest.scope
        return {
            "batch_id": manifest.batch_id,
            "feed": manifest.feed,
            "status": self.status,
            "why": self.why,
            "flagged": self.flagged,
            "released": self.released,
            **{
                name: getattr(self, name)
                for name in (
                    *("arrived", "good", "rejected", "duplicates", "ignored"),
                    *("stale", "missing", "versions", "changes", "notes"),
                )
            },
            "observed_at": _text(manifest.observed_at),
            "content_at": _text(manifest.content_at),
            "landed_at": _text(manifest.landed_at),
            "plan": manifest.plan,
            "complete": manifest.complete,
            "why_incomplete": manifest.why_incomplete,
            "attested": manifest.attested,
            "date_doubt": manifest.date_doubt,
            "requests": manifest.requests,
            "rows_claimed": manifest.rows_claimed,
            "bytes": manifest.bytes,
            **({"redacted": manifest.redacted} if manifest.redacted else {}),
            "scope": {
                "lower": _text(scope.lower),
                "upper": _text(scope.upper),
                "since": _text(scope.since),
                "coins": scope.coins,
                "categories": scope.categories,
                "event_id": scope.event_id,
            },
        }


def outcome_of(manifest: Manifest, read: NormalisedBatch) -> Outcome:
    """Return the outcome of a batch with the counts of its rows."""
    return Outcome(
        manifest,
        arrived=read.arrived,
        good=read.good,
        rejected=read.rejected,
        duplicates=read.duplicates,
        ignored=read.ignored,
        notes=read.notes,
    )


def unread(manifest: Manifest, why: str, *, released: bool) -> Outcome:
    """Return the outcome of a batch that could not be read: all its counts are 0."""
    outcome = Outcome(
        manifest,
        arrived=0,
        good=0,
        rejected=0,
        duplicates=0,
        ignored=0,
        notes=(),
        released=released,
    )
    return outcome.quarantined(why)


def _text(instant: datetime | None) -> str | None:
    return None if instant is None else instant.isoformat()


_OF_THE_MACHINE: Final = (OSError, duckdb.IOException, duckdb.InterruptException)
"""A full disk or Ctrl-C."""
_TOO_LITTLE_MEMORY: Final = (MemoryError, duckdb.OutOfMemoryException)
_OWN: Final = (
    *(NameError, ImportError, SyntaxError, AssertionError, NotImplementedError),
    # A statement is wrong, whatever the rows contain.
    *(duckdb.ParserException, duckdb.SyntaxException, duckdb.BinderException),
    *(duckdb.CatalogException, duckdb.PermissionException, duckdb.DependencyException),
    # The database can't be used after these.
    *(duckdb.InternalException, duckdb.FatalException, duckdb.ConnectionException),
    *(duckdb.TransactionException, duckdb.ResourceInUseException),
)
"""Errors that the content of a batch can't cause: values are bound, never part of a statement."""
_CONTENT: Final = (str, bytes, int, float, list, dict, type(None))
"""The types that a body is read into. An AttributeError on one of these means that the service
sent a value of an unexpected type; on any other type it is an error in the code."""
_WHY_CHARS: Final = 200


@contextmanager
def failures_sorted(manifest: Manifest) -> Iterator[None]:
    """Turn any failure while a batch is folded into an error that gives its cause.

    Raises:
        BatchFailed: the batch, even if unforeseen: it must not stop every later merge.
        KeyboardInterrupt: a signal arrived during a query.
        OwnFault: an error in Almanac; the batch is not affected.
        WarehouseError: the machine has too little memory; or the batch is damaged.
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
        # The size of a body is limited, so the machine has too little memory, or its disk is full
        # and nothing can be spilled.
        raise WarehouseError(
            f"there was not enough memory, or disk to spill to, for batch {manifest.batch_id}: "
            f"{_first_line(error)}. Earlier merges are kept, and the batch waits. Free memory or "
            "disk, then run the same command again."
        ) from error
    except Exception as error:
        if isinstance(error, RuntimeError) and str(error) == QUERY_INTERRUPTED:
            raise KeyboardInterrupt from error
        if _is_own(error):
            raise OwnFault(
                f"batch {manifest.batch_id} could not be folded because of an error in Almanac, "
                f"not in the batch: {type(error).__name__}: {_first_line(error)}. Nothing was "
                "quarantined or lost: the batch waits, and the warehouse is as last published. "
                "Report the error, and run `almanac merge` with a version that fixes it, or with "
                "the version used before."
            ) from error
        reason = f"{FAILED}{type(error).__name__}: {_first_line(error)}"
        raise _failed(manifest, reason) from error


def _is_own(error: Exception) -> bool:
    if isinstance(error, AttributeError):
        return not isinstance(error.obj, _CONTENT)
    return isinstance(error, _OWN)


def _failed(manifest: Manifest, why: str) -> BatchFailed:
    return BatchFailed(manifest.batch_id, storable_text(why)[:_WHY_CHARS])


def _first_line(error: BaseException) -> str:
    return (str(error).strip().splitlines() or ["it does not say more"])[0]
