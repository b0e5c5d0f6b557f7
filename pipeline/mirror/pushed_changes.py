"""The changes that webhooks report of a version."""

from collections.abc import Iterator
from typing import Final

from catalog.server.store import CatalogChange, ChangeKind
from pipeline.mirror.published_catalog import CatalogVersion, PublishedCatalog

_MATERIAL: Final = frozenset(
    {
        *("date", "date_end", "date_type", "is_estimated"),
        *("impact", "impact_band", "description", "source_url"),
    }
)


def catalog_changes(version: CatalogVersion, catalog: PublishedCatalog) -> Iterator[CatalogChange]:
    """Yield what webhooks report of a version: nothing, one kind or two.

    As the service, they report new and restored events, material changes and cancellations, and no
    withdrawal.
    """
    event, at, number = version.event, version.known_from, version.version
    if event is None or version.status == "withdrawn":
        return
    if version.status == "cancelled":
        if version.cancelled_at is not None:
            yield CatalogChange(at, "events.cancelled", event, version.cancelled_at, number)
        return
    is_first = number == 1
    if not (is_first or "restored" in version.kinds or _MATERIAL.intersection(version.changed)):
        return
    kind: ChangeKind = "events.created" if is_first else "events.updated"
    yield CatalogChange(at, kind, event, version=number)
    if event.is_major and not _was_major_before(version, catalog):
        yield CatalogChange(at, "events.high-impact", event, version=number)


def _was_major_before(version: CatalogVersion, catalog: PublishedCatalog) -> bool:
    if version.version == 1:
        return False
    earlier = catalog.history(version.event_id, version.known_from)
    return any(
        each.version < version.version and each.event is not None and each.event.is_major
        for each in earlier
    )
