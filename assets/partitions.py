"""The partitions that assets share: observed days, UTC.

Belongs here: partitions, and what all assets with a partition per day share. Does not: the assets.
"""

import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import date, timedelta
from typing import Any, Final

import dagster as dg

FIRST_DAY: Final = "2017-01-01"
"""Imported exports may be as old as the catalog."""
FRESH_WITHIN: Final = timedelta(hours=36)
"""The largest accepted age of the newest pull of events, and of the published file."""
CATALOG_POOL: Final = "catalog"
"""Pulls of a home run one after the other, since they share one rate."""
WAREHOUSE_POOL: Final = "warehouse"
"""Merges of a home run one after the other; each holds the merge lock."""

# Dagster counts by the machine's day. The offset adds today, since by default only ended days are
# partitions, and two days more for a service whose day is ahead. A day that has not begun for the
# service is refused.
OBSERVED_DAYS: Final = dg.DailyPartitionsDefinition(FIRST_DAY, end_offset=3)

YESTERDAY: Final = dg.TimeWindowPartitionMapping(start_offset=-1, end_offset=-1)

AssetFn = Callable[..., dg.MaterializeResult[None]]


def day_asset(
    *,
    group: str,
    pool: str,
    kinds: set[str],
    description: str,
    deps: Sequence[str | dg.AssetDep] = (),
    tags: Mapping[str, str] | None = None,
) -> Callable[[AssetFn], dg.AssetsDefinition]:
    """Return a decorator for an asset with a partition for each observed day.

    A range of days is one run, since a refold from a day also folds all days after it.
    """

    def decorate(function: AssetFn) -> dg.AssetsDefinition:
        with quiet_about_beta():
            return dg.asset(
                partitions_def=OBSERVED_DAYS,
                backfill_policy=dg.BackfillPolicy.single_run(),
                group_name=group,
                pool=pool,
                kinds=kinds,
                description=description,
                deps=deps,
                tags=tags,
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


def record_so_far(
    context: dg.AssetExecutionContext, metadata_of_days: Mapping[date, dict[str, Any]]
) -> None:
    """Record the days that were done before a failure; without this Dagster would lose them."""
    for day, metadata in metadata_of_days.items():
        context.log_event(
            dg.AssetMaterialization(context.asset_key, partition=day.isoformat(), metadata=metadata)
        )
