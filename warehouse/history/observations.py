"""The observations of a day, in the order in which history is folded, and what each would show.

A batch is one observation, but each delivery was received on its own: other observations may lie
between two deliveries of one batch, and are folded between them. Absence means something only
within the visible scope, which the plan's window and coverage narrow (interface 8.3). Bounds are
inclusive; instants are aware UTC.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime

from catalog.contract.plans import Plan
from catalog.contract.windows import plan_window
from warehouse.landing.batches import RANK, Manifest
from warehouse.schema.columns import plan_named

FoldKey = tuple[datetime, datetime, int, str]


@dataclass(frozen=True, slots=True)
class Observation:
    """A batch, or a run of deliveries in it: positions `first` to `last`, in order of receipt."""

    manifest: Manifest
    key: FoldKey
    until: FoldKey
    positions: tuple[int, ...] | None = None


def receipts(manifest: Manifest) -> list[tuple[FoldKey, int]]:
    """Return the fold key and position of each delivery of a batch, in fold order."""
    rank = RANK[manifest.feed]
    return sorted(
        (
            (
                page.received_at or manifest.observed_at,
                manifest.content_at,
                rank,
                manifest.batch_id,
            ),
            position,
        )
        for position, page in enumerate(manifest.pages)
    )


def first_key(manifest: Manifest) -> FoldKey:
    """Return the fold key of the first look in a batch."""
    if manifest.feed == "deliveries" and manifest.pages:
        return receipts(manifest)[0][0]
    return manifest.fold_key()


def in_fold_order(manifests: Iterable[Manifest]) -> list[Observation]:
    """Return the looks of some batches; deliveries with nothing in between are one look."""
    keyed: list[tuple[FoldKey, int, Manifest]] = []
    for manifest in manifests:
        if manifest.feed == "deliveries":
            keyed.extend((key, position, manifest) for key, position in receipts(manifest))
        else:
            keyed.append((manifest.fold_key(), -1, manifest))
    keyed.sort(key=lambda entry: (entry[0], entry[1]))
    observations: list[Observation] = []
    for key, position, manifest in keyed:
        last = observations[-1] if observations else None
        if position < 0:
            observations.append(Observation(manifest, key, key))
        elif last is not None and last.manifest is manifest and last.positions is not None:
            observations[-1] = Observation(manifest, last.key, key, (*last.positions, position))
        else:
            observations.append(Observation(manifest, key, key, (position,)))
    return observations


@dataclass(frozen=True, slots=True)
class VisibleScope:
    """The dates, coins and categories in which a look shows every event. None is no bound."""

    plan: Plan
    lower: datetime
    upper: datetime | None
    coins: tuple[str, ...] | None
    categories: tuple[str, ...] | None

    @property
    def covers_all_coins(self) -> bool:
        return self.plan.coverage_top is None


def visible_scope(manifest: Manifest) -> VisibleScope:
    """Return the reach of an events or export look.

    A plan's window moves at midnight, and content is older than the answer: only what lies in
    the windows of both instants is sure to have been shown.
    """
    plan, scope = plan_named(manifest.plan), manifest.scope
    windows = [plan_window(plan, at) for at in (manifest.content_at, manifest.observed_at)]
    lowers = [window.lower for window in windows]
    uppers = [window.upper for window in windows if window.upper is not None]
    if scope.lower is not None:
        lowers.append(scope.lower)
    if scope.upper is not None:
        uppers.append(scope.upper)
    return VisibleScope(plan, max(lowers), min(uppers, default=None), scope.coins, scope.categories)


def proves_withdrawal(plan: Plan) -> bool:
    """Whether a 404 of an event within the window means that it was withdrawn.

    Not where events beyond a horizon, or without a top coin, are 404 as well: it may have moved.
    """
    return plan.horizon_days is None and plan.coverage_top is None
