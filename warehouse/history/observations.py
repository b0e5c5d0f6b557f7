"""The observations of a day in fold order, their visible scope, and the outcome of each batch.

A batch is one observation, but each delivery has its own time of receipt: other observations may
lie between two deliveries of one batch, and are folded between them. Absence has a meaning only
within the visible scope, which the window and coverage of the plan narrow (interface 8.3). Bounds
are inclusive; timestamps are aware UTC.
"""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import date, datetime
from typing import Any, Final, Literal

import duckdb

from almanac.core.errors import QUERY_INTERRUPTED, WarehouseError
from catalog.contract.plans import Plan, find_plan_window
from warehouse.batch_problems import FAILED
from warehouse.codecs import storable_text
from warehouse.errors import BatchFailed, DamagedBatch, LandingError, is_of_the_disk
from warehouse.landing.batches import Manifest
from warehouse.schema.columns import find_plan

FoldKey = tuple[datetime, datetime, int, str]
Status = Literal["merged", "quarantined"]
_OF_OUTCOME: Final = (
    *("status", "why", "flagged", "released", "arrived", "good", "rejected", "duplicates"),
    *("ignored", "stale", "missing", "versions", "changes", "notes"),
)
_TIMES: Final = ("observed_at", "content_at", "landed_at")
_OF_MANIFEST: Final = (
    *("source", "plan", "complete", "why_incomplete", "attested", "date_doubt", "requests"),
    *("rows_claimed", "bytes"),
)
"""The fields of a record, in order."""
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


@dataclass(frozen=True, slots=True)
class Observation:
    """A batch, or a run of deliveries in it: positions `first` to `last`, in order of receipt."""

    manifest: Manifest
    key: FoldKey
    positions: tuple[int, ...] | None = None

    @property
    def day(self) -> date:
        return self.manifest.observed_at.date()


def list_receipts(manifest: Manifest) -> list[tuple[FoldKey, int]]:
    observed_at, content_at, rank, batch_id = manifest.fold_key()
    return sorted(
        ((page.received_at or observed_at, content_at, rank, batch_id), position)
        for position, page in enumerate(manifest.pages)
    )


def find_first_key(manifest: Manifest) -> FoldKey:
    if manifest.feed == "deliveries" and manifest.pages:
        return list_receipts(manifest)[0][0]
    return manifest.fold_key()


def order_observations(manifests: Iterable[Manifest]) -> list[Observation]:
    """Return the observations of some batches; consecutive deliveries are one observation."""
    keyed: list[tuple[FoldKey, int, Manifest]] = []
    for manifest in manifests:
        if manifest.feed == "deliveries":
            keyed.extend((key, position, manifest) for key, position in list_receipts(manifest))
        else:
            keyed.append((manifest.fold_key(), -1, manifest))
    keyed.sort(key=lambda entry: (entry[0], entry[1]))
    observations: list[Observation] = []
    for key, position, manifest in keyed:
        last = observations[-1] if observations else None
        if position < 0:
            observations.append(Observation(manifest, key))
        elif last is not None and last.manifest is manifest and last.positions is not None:
            observations[-1] = Observation(manifest, last.key, (*last.positions, position))
        else:
            observations.append(Observation(manifest, key, (position,)))
    return observations


@dataclass(frozen=True, slots=True)
class VisibleScope:
    """The dates, coins and categories within which every event is shown. None means unbounded."""

    plan: Plan
    lower: datetime
    upper: datetime | None
    coins: tuple[str, ...] | None
    categories: tuple[str, ...] | None

    @property
    def covers_all_coins(self) -> bool:
        return self.plan.coverage_top is None


def find_visible_scope(manifest: Manifest) -> VisibleScope:
    """Return the visible scope of an events or export batch.

    The window of a plan moves at midnight, and content is older than the answer: only dates in
    both windows are sure to have been shown.
    """
    plan, scope = find_plan(manifest.plan), manifest.scope
    windows = [find_plan_window(plan, at) for at in (manifest.content_at, manifest.observed_at)]
    lowers = [window.lower for window in windows]
    uppers = [window.upper for window in windows if window.upper is not None]
    if scope.lower is not None:
        lowers.append(scope.lower)
    if scope.upper is not None:
        uppers.append(scope.upper)
    return VisibleScope(plan, max(lowers), min(uppers, default=None), scope.coins, scope.categories)


def proves_withdrawal(plan: Plan) -> bool:
    """Whether a 404 of an event within the window means that it was withdrawn.

    False if the plan also answers 404 for events beyond its horizon or without a top coin, since
    the event may have moved there.
    """
    return plan.horizon_days is None and plan.coverage_top is None


@dataclass(slots=True)
class Outcome:
    """The account of one batch. good + rejected + ignored = arrived."""

    manifest: Manifest
    arrived: int = 0
    good: int = 0
    rejected: int = 0
    duplicates: int = 0
    ignored: int = 0
    notes: tuple[str, ...] = ()
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
        return self.manifest.observed_at.date()

    def quarantine(self, why: str) -> "Outcome":
        self.status, self.why = "quarantined", why
        return self

    def count(self, kinds: dict[str, int]) -> None:
        """Add versions by kind; a version may have several kinds, `versions` is counted once."""
        self.versions += kinds.pop("versions", kinds.get("withdrawn", 0))
        for kind, number in kinds.items():
            self.changes[kind] = self.changes.get(kind, 0) + number

    def joined_with(self, later: "Outcome") -> "Outcome":
        """Return this outcome with that of more deliveries of the same batch."""
        self.stale += later.stale
        self.missing += later.missing
        self.versions += later.versions
        for kind, number in later.changes.items():
            self.changes[kind] = self.changes.get(kind, 0) + number
        return self

    def record(self) -> dict[str, Any]:
        """Return the account that the warehouse stores."""
        manifest, scope = self.manifest, self.manifest.scope
        return {
            "batch_id": manifest.batch_id,
            "feed": manifest.feed,
            **{name: getattr(self, name) for name in _OF_OUTCOME},
            **{name: _text(getattr(manifest, name)) for name in _TIMES},
            **{name: getattr(manifest, name) for name in _OF_MANIFEST},
            **({"redacted": manifest.redacted} if manifest.redacted else {}),
            "scope": {
                **{name: _text(getattr(scope, name)) for name in ("lower", "upper", "since")},
                **{name: getattr(scope, name) for name in ("coins", "categories", "event_id")},
            },
        }


def _text(at: datetime | None) -> str | None:
    return None if at is None else at.isoformat()


@contextmanager
def unify_disk_errors() -> Iterator[None]:
    """Raise duckdb.IOException for every disk error. For a commit, DuckDB raises another."""
    try:
        yield
    except duckdb.IOException:
        raise
    except duckdb.Error as error:
        if is_of_the_disk(error):
            raise duckdb.IOException(str(error)) from error
        raise


@contextmanager
def classify_failures(manifest: Manifest) -> Iterator[None]:
    """Turn any failure during the merge of a batch into an error that gives its cause.

    Raises:
        BatchFailed: the batch, even if unforeseen: it must not stop every later merge.
        KeyboardInterrupt: a signal arrived during a query.
        WarehouseError: Almanac has an error or the machine too little memory, and the batch waits;
            or the batch is damaged.
    """
    try:
        with unify_disk_errors():
            yield
    except DamagedBatch:
        raise
    except LandingError as error:
        raise _failed(manifest, str(error)) from error
    except (WarehouseError, *_OF_THE_MACHINE):
        raise
    except _TOO_LITTLE_MEMORY as error:
        # The size of a body is limited, so the machine is at fault.
        raise WarehouseError(
            f"there was not enough memory, or disk to spill to, for batch {manifest.batch_id}: "
            f"{_first_line(error)}. Earlier merges are kept, and the batch waits. Free memory or "
            "disk, then run the same command again."
        ) from error
    except Exception as error:
        if isinstance(error, RuntimeError) and str(error) == QUERY_INTERRUPTED:
            raise KeyboardInterrupt from error
        if _is_own(error):
            raise WarehouseError(
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
