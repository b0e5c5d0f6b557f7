"""The partitions that assets share: the days on which we observed, UTC.

Belongs here: the partitions, what every asset of a day has in common. Does not: what it does.
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
"""How old the newest pull of a feed, and what is published of it, may be: a day and a half."""
CATALOG_POOL: Final = "catalog"
"""Pulls of a home take turns: two at once would only share one rate."""
WAREHOUSE_POOL: Final = "warehouse"
"""So do merges, which hold a lock of their own."""

# Dagster counts by the machine's day. The offset makes today a partition, not only days that have
# ended, and two days more: the service's day may be ahead. One that has not begun is refused.
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

    A range of days is one run: folding again from a day does all the days after it anyway.
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
    """`backfill_policy` is marked as beta; whoever starts Almanac can't do a thing."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", dg.BetaWarning)
        yield


def days_of(context: dg.AssetExecutionContext) -> list[date]:
    """Return the observed days of this run, in order."""
    return [date.fromisoformat(key) for key in sorted(context.partition_keys)]


def record_so_far(
    context: dg.AssetExecutionContext, metadata_of_days: Mapping[date, dict[str, Any]]
) -> None:
    """Keep the days that were done before a failure: only what is logged survives it."""
    for day, metadata in metadata_of_days.items():
        context.log_event(
            dg.AssetMaterialization(context.asset_key, partition=day.isoformat(), metadata=metadata)
        )
