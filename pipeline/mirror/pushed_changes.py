"""The changes that webhooks report."""

from collections.abc import Iterable, Iterator
from typing import Final

from catalog.contract.constants import WEBHOOK_MATERIAL
from catalog.server.store import CatalogChange, ChangeKind
from pipeline.mirror.published_catalog import CatalogVersion, PublishedCatalog

_MATERIAL: Final = frozenset({*WEBHOOK_MATERIAL, "impact_band"})


def catalog_changes(
    versions: Iterable[CatalogVersion], catalog: PublishedCatalog
) -> Iterator[CatalogChange]:
    """Yield what webhooks report of versions: of each nothing, one kind or two.

    As the service, they report new and restored events, material changes and cancellations, and no
    withdrawal.
    """
    versions = list(versions)
    first_major = catalog.first_major_versions({each.event_id for each in versions})
    for version in versions:
        event, at, number = version.event, version.known_from, version.version
        if event is None or version.status == "withdrawn":
            continue
        if version.status == "cancelled":
            if version.cancelled_at is not None:
                yield CatalogChange(at, "events.cancelled", event, version.cancelled_at, number)
            continue
        is_first, is_restored = number == 1, "restored" in version.kinds
        if not (is_first or is_restored or _MATERIAL.intersection(version.changed)):
            continue
        kind: ChangeKind = "events.created" if is_first else "events.updated"
        yield CatalogChange(at, kind, event, version=number)
        if event.is_major and first_major.get(event.id) == number:
            yield CatalogChange(at, "events.high-impact", event, version=number)
