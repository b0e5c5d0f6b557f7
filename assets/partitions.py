"""What the assets share: an asset with a partition for each observed day, UTC, and its records.

Belongs here: what all assets with a partition per day share. Does not: the assets, their names.
"""

import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import date, timedelta
from typing import Any, Final

import dagster as dg

from assets.layout import Layout

FRESH_WITHIN: Final = timedelta(hours=36)
"""The largest accepted age of the newest pull of events, and of the published file."""
CATALOG_POOL: Final = "catalog"
"""Pulls of a home run one after the other, since they share one rate."""
INBOX_POOL: Final = "inbox"
"""Deliveries are landed by one run at a time, and never wait for a pull."""
WAREHOUSE_POOL: Final = "warehouse"
"""Merges of a home run one after the other; each holds the merge lock."""

YESTERDAY: Final = dg.TimeWindowPartitionMapping(start_offset=-1, end_offset=-1)

AssetFn = Callable[..., dg.MaterializeResult[None]]


def day_asset(
    layout: Layout,
    name: str,
    *,
    group: str,
    pool: str,
    kinds: set[str],
    description: str,
    deps: Sequence[dg.AssetKey | dg.AssetDep] = (),
) -> Callable[[AssetFn], dg.AssetsDefinition]:
    """Return a decorator for an asset with a partition for each observed day.

    Its function gets `home` and `catalog` by `layout.resource`. A range of days is one run, since a
    refold from a day also folds all days after it.
    """

    def decorate(function: AssetFn) -> dg.AssetsDefinition:
        with quiet_about_beta():
            return dg.asset(
                key=layout.key(name),
                partitions_def=layout.observed_days,
                backfill_policy=dg.BackfillPolicy.single_run(),
                group_name=layout.group(group),
                pool=layout.name(pool),
                required_resource_keys=layout.names("home", "catalog"),
                kinds=kinds,
                description=description,
                deps=deps,
            )(function)

    return decorate


@contextmanager
def quiet_about_beta() -> Iterator[None]:
    """Hide Dagster's warning that `backfill_policy` is beta: users can't act on it."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", dg.BetaWarning)
        yield


def days_of(context: dg.AssetExecutionContext) -> list[date]:
    """Return the observed days of this run, in order."""
    return [date.fromisoformat(key) for key in sorted(context.partition_keys)]


def log_left_out(context: dg.AssetExecutionContext, layout: Layout) -> None:
    """Log the days of a run's range that were never landed, and are no partitions."""
    if not context.has_partition_key_range:
        return
    span = context.partition_key_range
    left_out = [day for day in layout.not_landed if span.start <= day.isoformat() <= span.end]
    if left_out:
        context.log.warning(
            "Left out, since nothing was landed and the service gives today's data only: %s",
            ", ".join(day.isoformat() for day in left_out),
        )


def record_so_far(
    context: dg.AssetExecutionContext, metadata_of_days: Mapping[date, dict[str, Any]]
) -> None:
    """Record the days that were done before a failure; without this Dagster would lose them."""
    for day, metadata in metadata_of_days.items():
        context.log_event(
            dg.AssetMaterialization(context.asset_key, partition=day.isoformat(), metadata=metadata)
        )
