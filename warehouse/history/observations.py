"""The observations of a day in the order of folding, and the visible scope of each.

A batch is one observation, but each delivery has its own time of receipt: other observations may
lie between two deliveries of one batch, and are folded between them. Absence has a meaning only
within the visible scope, which the window and coverage of the plan narrow (interface 8.3). Bounds
are inclusive; instants are aware UTC.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime

from catalog.contract.plans import Plan, plan_window
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
    """Return the fold key of the first observation in a batch."""
    if manifest.feed == "deliveries" and manifest.pages:
        return receipts(manifest)[0][0]
    return manifest.fold_key()


def in_fold_order(manifests: Iterable[Manifest]) -> list[Observation]:
    """Return the observations of some batches; consecutive deliveries are one observation."""
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
    """The dates, coins and categories within which every event is shown. None is no bound."""

    plan: Plan
    lower: datetime
    upper: datetime | None
    coins: tuple[str, ...] | None
    categories: tuple[str, ...] | None

    @property
    def covers_all_coins(self) -> bool:
        return self.plan.coverage_top is None


def visible_scope(manifest: Manifest) -> VisibleScope:
    """Return the visible scope of an events or export batch.

    The window of a plan moves at midnight, and content is older than the answer: only dates in
    the windows of both instants are sure to have been shown.
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

    False if the plan also answers 404 for events beyond its horizon or without a top coin, since
    the event may have moved there.
    """
    return plan.horizon_days is None and plan.coverage_top is None
