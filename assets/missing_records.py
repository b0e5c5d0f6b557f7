"""The materialisations that a Dagster instance lacks of a home, for `almanac dagster report`.

An instance that is new, or that lost its records, does not show data landed before.
"""

from collections.abc import Iterator

import dagster as dg

from assets.calendar import covered_months
from assets.changes import CHANGES
from assets.feed_day import DayNotLanded, landed_feed_day
from assets.landed import FEEDS_LANDED, asset_of
from assets.layout import Layout
from assets.metadata import day_metadata, pull_metadata
from assets.published import (
    CODE_VERSION,
    DATA_VERSION,
    PUBLISHED,
    code_version,
    recorded_versions,
    table_metadata,
)
from warehouse.history.change_log import ChangeLog
from warehouse.home import Home
from warehouse.publish.published_file import read_published
from warehouse.queries import connected


def find_missing_records(
    layout: Layout, home: Home, instance: dg.DagsterInstance
) -> Iterator[dg.AssetMaterialization]:
    """Yield landed, merged and published data that the instance has not recorded.

    Raises:
        WarehouseError: lake or published file can't be read.
    """
    yield from _landed(layout, home, instance)
    yield from _changes(layout, home, instance)
    if not home.warehouse.exists():
        return
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
    key, log = layout.key(CHANGES), ChangeLog.of(home)
    recorded = instance.get_materialized_partitions(key)
    for day_file in log.days():
        partition = day_file.day.isoformat()
        if partition not in recorded:
            yield dg.AssetMaterialization(
                key,
                partition=partition,
                metadata=day_metadata(list(log.records_on(day_file.day).values())),
                tags={DATA_VERSION: day_file.sha256},
            )


def _tables(
    layout: Layout, home: Home, instance: dg.DagsterInstance
) -> Iterator[dg.AssetMaterialization]:
    published = read_published(home.warehouse)
    assert published is not None
    recorded = recorded_versions(instance, [layout.key(table.name) for table in PUBLISHED])
    with connected(home.warehouse, own_files=True) as connection:
        for table in PUBLISHED:
            key, content = layout.key(table.name), published.contents.get(table.name)
            if key in recorded and content in (None, recorded[key][0]):
                continue
            yield dg.AssetMaterialization(
                key,
                metadata=table_metadata(connection, table, home),
                tags={}
                if content is None
                else {DATA_VERSION: content, CODE_VERSION: code_version()},
            )
