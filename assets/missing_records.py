"""The materialisations that a Dagster instance lacks of a home, for `almanac dagster report`.

An instance that is new, or that lost its records, does not show data landed before.
"""

from collections.abc import Iterator

import dagster as dg

from assets.calendar import covered_months
from assets.changes import CHANGES, code_version
from assets.feed_day import DayNotLanded, landed_feed_day
from assets.landed import FEEDS_LANDED, asset_of
from assets.layout import Layout
from assets.metadata import day_metadata, pull_metadata
from assets.published import (
    CODE_VERSION,
    DATA_VERSION,
    PUBLISHED,
    recorded_versions,
    table_content,
    table_metadata,
)
from warehouse.history.warehouse_file import read_published, read_records
from warehouse.home import Home
from warehouse.queries import connected


def find_missing_records(
    layout: Layout, home: Home, instance: dg.DagsterInstance
) -> Iterator[dg.AssetMaterialization]:
    """Yield landed, merged and published data that the instance has not recorded.

    Raises:
        WarehouseError: the published file can't be read.
    """
    yield from _landed(layout, home, instance)
    if not home.warehouse.exists():
        return
    yield from _changes(layout, home, instance)
    yield from _tables(layout, home, instance)
    with connected(home.warehouse, own_files=True) as connection:
        yield from covered_months(instance, layout, connection)


def _landed(
    layout: Layout, home: Home, instance: dg.DagsterInstance
) -> Iterator[dg.AssetMaterialization]:
    keys = {feed: layout.key(asset_of(feed)) for feed in FEEDS_LANDED}
    recorded = {feed: instance.get_materialized_partitions(key) for feed, key in keys.items()}
    for day in home.landing.days():
        partition = day.isoformat()
        missing = [feed for feed in FEEDS_LANDED if partition not in recorded[feed]]
        if not missing:
            continue
        # A batch that can't be read is left out; `almanac status` and `verify` show it.
        of_day, _ = home.landing.readable(home.landing.batch_ids(day=day))
        for feed in missing:
            try:
                feed_day = landed_feed_day(feed, day, of_day, home.landing)
            except DayNotLanded:
                continue
            metadata = pull_metadata(feed_day, home.landing, quota_left=None)
            yield dg.AssetMaterialization(keys[feed], partition=partition, metadata=metadata)


def _changes(
    layout: Layout, home: Home, instance: dg.DagsterInstance
) -> Iterator[dg.AssetMaterialization]:
    key, published = layout.key(CHANGES), read_published(home.warehouse)
    recorded = instance.get_materialized_partitions(key)
    for day, content in ({} if published is None else published.days).items():
        partition = day.isoformat()
        if partition not in recorded:
            records = read_records(home.warehouse, since=day, until=day)
            yield dg.AssetMaterialization(
                key,
                partition=partition,
                metadata=day_metadata(list(records.values())),
                tags={DATA_VERSION: content},
            )


def _tables(
    layout: Layout, home: Home, instance: dg.DagsterInstance
) -> Iterator[dg.AssetMaterialization]:
    recorded = recorded_versions(instance, [layout.key(table.name) for table in PUBLISHED])
    with connected(home.warehouse, own_files=True) as connection:
        for table in PUBLISHED:
            key, content = layout.key(table.name), table_content(connection, table)
            if key in recorded and content == recorded[key][0]:
                continue
            yield dg.AssetMaterialization(
                key,
                metadata=table_metadata(connection, table, home),
                tags={DATA_VERSION: content, CODE_VERSION: code_version()},
            )
