"""The state of the Iceberg tables, from the note that the last merge left."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime

from warehouse.home import Home
from warehouse.iceberg.publication_commit import read_iceberg_note


@dataclass(frozen=True, slots=True)
class IcebergHealth:
    """The newest publication in the Iceberg tables, with the snapshot id of each table.

    `lag_s` is by how many seconds the published file is newer; None if nothing was committed.
    `why_failed` is empty if the last commit succeeded.
    """

    publication: str = ""
    published_at: datetime | None = None
    committed_at: datetime | None = None
    snapshots: Mapping[str, int] = field(default_factory=dict)
    lag_s: float | None = None
    failed_at: datetime | None = None
    why_failed: str = ""


def read_iceberg(home: Home, published_at: datetime | None) -> IcebergHealth | None:
    """Return the state of the Iceberg tables of a home; None if they are off."""
    if home.iceberg is None:
        return None
    note = read_iceberg_note(home)
    if note is None:
        return IcebergHealth()
    lag_s = None
    if published_at is not None and note.published_at is not None:
        lag_s = max(0.0, (published_at - note.published_at).total_seconds())
    return IcebergHealth(
        publication=note.publication,
        published_at=note.published_at,
        committed_at=note.committed_at,
        snapshots=note.snapshots,
        lag_s=lag_s,
        failed_at=note.failed_at,
        why_failed=note.why_failed,
    )
