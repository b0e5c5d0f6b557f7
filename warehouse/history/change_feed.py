"""The feed of changes: each version has its position, in the order in which it was published."""

import logging
import uuid
from collections.abc import Iterable
from datetime import date
from typing import Final

import duckdb

from almanac.reading.attached_file import attach_published
from warehouse.history.merge_plan import MergePlan
from warehouse.history.partitions import CHANGES_COLUMNS
from warehouse.history.warehouse_file import NextFile, find_file_damage
from warehouse.home import Home
from warehouse.schema import ddl
from warehouse.schema.columns import CONTENT_NAMED

_log = logging.getLogger(__name__)
_COMPARED: Final = {
    "versions_before": "before.main.event_versions",
    "versions_now": "event_versions",
}
"""The versions of a refold, and those that were published before it."""


def continue_feed(
    home: Home, plan: MergePlan, file: NextFile, folded: Iterable[date]
) -> dict[date, tuple[int, int]]:
    """Give each new version its position in the change feed, after the published versions.

    Returns the number of added and of removed versions on days that were merged before. Versions of
    a file with other tables are compared by the columns that both have. If the published file can't
    be compared, no numbers are returned: the next file replaces it and begins a new feed.
    """
    published, rows, feed_id = plan.published, [], uuid.uuid4().hex
    if published is not None and not plan.is_refold:
        feed_id = published.feed_id
    elif published is not None:
        attach_published(file.connection, home.warehouse, "before")
        shared = {name for (name,) in file.rows("list_shared_columns")}
        if not published.has_current_tables:
            shared.discard("unknown_fields")  # It names new columns, too.
        changes, content = (
            ddl.column_list([name for name in names if name in shared])
            for names in (CHANGES_COLUMNS, CONTENT_NAMED)
        )
        days = [day for day in folded if day in published.days]
        values = {"first_day": plan.first_day, "days": days}
        try:
            rows = file.rows("count_differences", {"columns": changes}, **values)
            for name, source in _COMPARED.items():
                parts = {"name": name, "source": source, "content": content}
                file.run("list_versions", parts, first_day=plan.first_day)
            file.run("list_removed_before")
        except duckdb.Error:
            why = find_file_damage(home, home.warehouse)
            if why is None and published.has_current_tables:
                raise
            why = why or "another version of Almanac made it"
            _log.warning("The feed of changes begins again after %s: %s", home.warehouse.name, why)
            rows = []
        else:
            feed_id = published.feed_id
            with file.transaction():
                file.run("keep_places")
                file.run("take_places")
                file.run("note_removed")
        file.connection.execute("DETACH before")
    with file.transaction():
        file.run("number_new")
        file.run("take_places")
        file.run("note_feed", feed_id=feed_id)
    return {day: (added, removed) for day, added, removed in rows}
