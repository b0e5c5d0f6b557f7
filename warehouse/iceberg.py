"""Writes the published tables to an Iceberg catalog of the user's, for the engines of a lake.

    python -m warehouse.iceberg HOME CATALOG[.NAMESPACE]

pyiceberg finds the catalog by its name, in `.pyiceberg.yaml` or the environment. Each table is
committed as a whole, in one snapshot with the id of the publication, and `publications` last: it
names the snapshot of each table, so that a reader of several tables never mixes two publications. A
second push of the same publication writes nothing. The next push continues a killed one.
"""

import re
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

import almanac
from almanac.core.errors import AlmanacError, WarehouseError
from almanac.core.timestamps import utc_now
from almanac.next_events import list_steps

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog
    from pyiceberg.io import FileIO
    from pyiceberg.table import Table
    from pyiceberg.table.snapshots import Snapshot

NAMESPACE: Final = "almanac"
PUBLICATION: Final = "almanac.publication"
"""The property of a snapshot with the id of its publication."""
_OURS: Final = "almanac.table"
"""The property that marks a table as created by this module, with its name."""
STEPS: Final = "event_steps"
TABLES: Final = ("event_versions", "events", "coins", "coin_snapshots", "cancellations", STEPS)
PUBLICATIONS: Final = "publications"
KEPT: Final = timedelta(days=7)
"""How long a snapshot can be read after the next one replaced it."""
_RETRIES: Final = "commit.retry.num-retries"
"""A repeated commit would add its rows beside rows of the other program, so none is repeated."""
_PROPERTIES: Final = {
    "write.parquet.compression-codec": "zstd",
    "write.metadata.delete-after-commit.enabled": "true",
    _RETRIES: "0",
}


@dataclass(frozen=True, slots=True)
class IcebergReport:
    """A publication in the catalog: the snapshot of each table, and the new tables."""

    publication: str
    published_at: datetime
    snapshots: dict[str, int]
    written: tuple[str, ...]


_CAUSES: Final = {
    "authori[sz]|authenticat|credential": "it refuses user, password or token",
    "refused": "nothing listens at its address",
    "resolve|not known|translate": "its host is unknown",
    "timed? ?out": "it does not respond",
    "has changed|concurrently|another process": "another program wrote to it at the same time",
}
_SECRET_SETTING: Final = re.compile("password|secret|token|credential|key|uri", re.IGNORECASE)


class IcebergError(WarehouseError):
    """The catalog can't be used now. The text has no part of a password."""


def push_to_named_catalog(home: str | Path, name: str) -> IcebergReport:
    """Write the published tables of a home to the catalog of a name, as CATALOG[.NAMESPACE].

    Raises:
        IcebergError: the catalog can't be found, reached or written.
        WarehouseError: as `push_publication`, and if pyiceberg is not installed.
    """
    try:
        return push_publication(home, *load_named_catalog(name))
    except AlmanacError:
        raise
    except Exception as error:  # noqa: BLE001  # Each kind of catalog has its own errors.
        catalog, text = name.partition(".")[0], str(error)
        found = (words for cause, words in _CAUSES.items() if re.search(cause, text, re.IGNORECASE))
        shown = "" if _has_secret(text, catalog) else f": {text.splitlines()[0][:200]}"
        # Without its cause, whose text may have a part of an address with a password.
        raise IcebergError(
            f"the Iceberg catalog {catalog!r} can't be used: {next(found, 'it failed')} "
            f"({type(error).__name__}{shown}). Committed tables stay, and the next push continues. "
            "Check `.pyiceberg.yaml` or the variables PYICEBERG_CATALOG__…; in an address, "
            "percent-encode user and password (docs/scale.md)."
        ) from None


def _has_secret(text: str, catalog: str) -> bool:
    """Return whether a text may have a part of a secret of a catalog's settings."""
    from pyiceberg.utils.config import Config

    try:
        settings = Config().get_catalog_config(catalog) or {}
    except Exception:  # noqa: BLE001  # The file can't be read, so nothing in it is known.
        return True
    # An unescaped password can end up in any part of an address.
    secrets = [
        re.sub(r"^[\w+.-]+://", "", str(value))
        for name, value in settings.items()
        if _SECRET_SETTING.search(name)
    ]
    parts = {part for secret in secrets for part in re.split(r"\W+", secret) if part}
    return not text or any(part in text for part in parts)


def load_named_catalog(name: str) -> tuple["Catalog", str]:
    """Return the catalog and the namespace of a name, as CATALOG or CATALOG.NAMESPACE."""
    try:
        from pyiceberg.catalog import load_catalog
    except ModuleNotFoundError as error:
        raise WarehouseError(
            f"the Iceberg tables need {error.name}, which is not installed. Nothing was written; "
            "pip install 'crypto-almanac[lake]'"
        ) from error
    catalog, _, namespace = name.partition(".")
    return load_catalog(catalog), namespace or NAMESPACE


def push_publication(
    home: str | Path, catalog: "Catalog", namespace: str = NAMESPACE, *, kept: timedelta = KEPT
) -> IcebergReport:
    """Write the published tables of a home to a catalog.

    Raises:
        WarehouseError: nothing was published yet, or a table is of another program. Errors of the
            catalog are those of pyiceberg. Tables that were committed stay, and the next push
            continues.
    """
    catalog.create_namespace_if_not_exists(namespace)
    with almanac.open(home, follow=False) as database:
        publication = database.publication
        push = _Push(catalog, namespace, publication.id, utc_now() - kept)
        for table in TABLES:
            if not push.has(table):
                is_steps = table == STEPS
                push.write(
                    table,
                    list_steps(database.reader)
                    if is_steps
                    else database.sql(f"FROM {table}").arrow(),
                )
        if not push.has(PUBLICATIONS):
            push.write(PUBLICATIONS, _list_snapshots(publication, push.snapshots))
    return IcebergReport(
        publication.id, publication.published_at, push.snapshots, tuple(push.written)
    )


def _list_snapshots(publication: Any, snapshots: dict[str, int]) -> pa.Table:
    count = len(snapshots)
    return pa.table(
        {
            "publication": pa.array([publication.id] * count),
            "published_at": pa.array([publication.published_at] * count, pa.timestamp("us", "UTC")),
            "table_name": pa.array(list(snapshots)),
            "snapshot_id": pa.array(list(snapshots.values()), pa.int64()),
        }
    )


class _Push:
    """The push of one publication to the tables of a namespace."""

    def __init__(
        self, catalog: "Catalog", namespace: str, publication: str, expired_before: datetime
    ) -> None:
        self._catalog = catalog
        self._namespace = namespace
        self._properties = {PUBLICATION: publication}
        self._expired_before_ms = expired_before.timestamp() * 1_000
        self.snapshots: dict[str, int] = {}
        self.written: list[str] = []

    def has(self, name: str) -> bool:
        """Whether the newest snapshot of a table is of the publication."""
        if not self._catalog.table_exists((self._namespace, name)):
            return False
        newest = self._catalog.load_table((self._namespace, name)).current_snapshot()
        if newest is None or newest.summary.get(PUBLICATION) != self._properties[PUBLICATION]:
            return False
        self.snapshots[name] = newest.snapshot_id
        return True

    def write(self, name: str, rows: pa.Table) -> None:
        """Replace all rows of a table in one commit; its new columns are added.

        If another push of the publication was faster, its rows stay.
        """
        from pyiceberg.exceptions import CommitFailedException

        table = self._catalog.create_table_if_not_exists(
            (self._namespace, name), rows.schema, properties={**_PROPERTIES, _OURS: name}
        )
        if table.properties.get(_OURS) != name:
            raise WarehouseError(
                f"the catalog has a table {self._namespace}.{name} of another program. It was not "
                "changed; name another namespace, as CATALOG.NAMESPACE."
            )
        if table.properties.get(_RETRIES) != "0":  # An earlier version made it.
            table.transaction().set_properties({_RETRIES: "0"}).commit_transaction()
        newest = table.current_snapshot()
        is_empty = newest is None or newest.summary.get("total-records") == "0"
        try:
            with table.transaction() as changes:
                with changes.update_schema() as schema:
                    schema.union_by_name(rows.schema)
                replace = changes.append if is_empty else changes.overwrite
                replace(rows, snapshot_properties=self._properties)
        except CommitFailedException:
            if self.has(name):
                return
            raise
        self.snapshots[name] = table.current_snapshot().snapshot_id
        self.written.append(name)
        _expire_snapshots(table, self._expired_before_ms)


def _expire_snapshots(table: "Table", before_ms: float) -> None:
    """Expire the snapshots that were replaced before a time, and remove the files that only they
    use.

    A file that is not in a snapshot is not in later snapshots either. So it is enough to compare
    with the oldest remaining snapshot, and with the tagged and branched ones.
    """
    ordered = sorted(table.snapshots(), key=lambda snapshot: snapshot.sequence_number)
    named = {reference.snapshot_id for reference in table.refs().values()}
    expired = [
        snapshot
        for snapshot, following in pairwise(ordered)
        if following.timestamp_ms < before_ms and snapshot.snapshot_id not in named
    ]
    if not expired:
        return
    gone = {snapshot.snapshot_id for snapshot in expired}
    stay = [snapshot for snapshot in ordered if snapshot.snapshot_id not in gone]
    compared = [stay[0], *(snapshot for snapshot in stay[1:] if snapshot.snapshot_id in named)]
    unused = {*_list_files(expired, table.io)} - {*_list_files(compared, table.io)}
    table.maintenance.expire_snapshots().by_ids(sorted(gone)).commit()
    for file in unused:
        table.io.delete(file)


def _list_files(snapshots: Iterable["Snapshot"], io: "FileIO") -> Iterator[str]:
    for snapshot in snapshots:
        yield snapshot.manifest_list
        for manifest in snapshot.manifests(io):
            yield manifest.manifest_path
            for entry in manifest.fetch_manifest_entry(io):
                yield entry.data_file.file_path


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit("almanac: expected python -m warehouse.iceberg HOME CATALOG[.NAMESPACE]")
    try:
        done = push_to_named_catalog(sys.argv[1], sys.argv[2])
    except AlmanacError as error:
        sys.exit(f"almanac: {error}")
    sys.stdout.write(f"{done.publication}: {', '.join(done.written) or 'nothing is new'}\n")
