"""Reads and writes one snapshot of an Iceberg table: its manifests, and the commit.

A transaction of pyiceberg copies all metadata about twenty times, and keeps the manifest of every
deletion. This module writes the same files with pyiceberg's writers, and commits through its
catalog. A commit joins small manifests, so that few exist, each of a range of days.
"""

import uuid
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from pyiceberg.manifest import DataFile, ManifestEntry, ManifestFile
    from pyiceberg.table import Table
    from pyiceberg.table.metadata import TableMetadata
    from pyiceberg.table.snapshots import Summary

FILES_IN_MANIFEST: Final = 64
"""A manifest with so many files is only written again if one of them is replaced."""
_CODEC: Final = "deflate"
_FORMAT: Final = 2


@dataclass(frozen=True)
class TableSnapshot:
    """The manifests of a table's newest snapshot, with the entries of their files."""

    table: "Table"
    manifests: "Sequence[tuple[ManifestFile, Sequence[ManifestEntry]]]"

    @cached_property
    def files(self) -> "list[DataFile]":
        return [entry.data_file for _, entries in self.manifests for entry in entries]


def read_snapshot(table: "Table") -> TableSnapshot:
    """Read the newest snapshot of a table, which may have none."""
    current = table.current_snapshot()
    if current is None:
        return TableSnapshot(table, ())
    manifests = current.manifests(table.io)
    return TableSnapshot(
        table, [(manifest, manifest.fetch_manifest_entry(table.io)) for manifest in manifests]
    )


def write_snapshot(
    before: TableSnapshot,
    gone: "Collection[DataFile]",
    added: "Collection[DataFile]",
    properties: Mapping[str, str],
    expired: Collection[int],
    now: datetime,
) -> int:
    """Replace files in one snapshot, and remove expired snapshots; return the snapshot's id.

    `now` is its time, or the time of the snapshot before if the clock was set back.

    Raises:
        CommitFailedException: the table changed since it was read; nothing was committed.
    """
    from pyiceberg.manifest import write_manifest_list
    from pyiceberg.table.refs import MAIN_BRANCH, SnapshotRefType
    from pyiceberg.table.snapshots import Snapshot
    from pyiceberg.table.update import (
        AddSnapshotUpdate,
        AssertRefSnapshotId,
        AssertTableUUID,
        RemoveSnapshotsUpdate,
        SetSnapshotRefUpdate,
    )

    table = before.table
    metadata, current = table.metadata, table.current_snapshot()
    snapshot_id: int = metadata.new_snapshot_id()
    number = metadata.next_sequence_number()
    parent_id = None if current is None else current.snapshot_id
    commit = uuid.uuid4()
    manifests = _write_manifests(before, gone, added, snapshot_id, str(commit))
    location = table.location_provider().new_metadata_location(f"snap-{snapshot_id}-{commit}.avro")
    with write_manifest_list(
        format_version=_FORMAT,
        output_file=table.io.new_output(location),
        snapshot_id=snapshot_id,
        parent_snapshot_id=parent_id,
        sequence_number=number,
        avro_compression=_CODEC,
    ) as writer:
        writer.add_manifests(manifests)
    snapshot = Snapshot(
        snapshot_id=snapshot_id,
        parent_snapshot_id=parent_id,
        manifest_list=location,
        sequence_number=number,
        timestamp_ms=max(round(now.timestamp() * 1000), metadata.last_updated_ms),
        summary=_summarise(table, gone, added, properties),
        schema_id=metadata.current_schema_id,
    )
    branch = SetSnapshotRefUpdate(
        ref_name=MAIN_BRANCH, type=SnapshotRefType.BRANCH, snapshot_id=snapshot_id
    )
    removed = (RemoveSnapshotsUpdate(snapshot_ids=[*expired]),) if expired else ()
    response = table.catalog.commit_table(
        table,
        (
            AssertTableUUID(uuid=metadata.table_uuid),
            AssertRefSnapshotId(ref=MAIN_BRANCH, snapshot_id=parent_id),
        ),
        (AddSnapshotUpdate(snapshot=snapshot), branch, *removed),
    )
    _remove_metadata(table, response.metadata)
    return snapshot_id


def _write_manifests(
    before: TableSnapshot,
    gone: "Collection[DataFile]",
    added: "Collection[DataFile]",
    snapshot_id: int,
    name: str,
) -> "list[ManifestFile]":
    """Return the manifests to keep, and new ones with the files of all others."""
    from pyiceberg.manifest import ManifestEntry, ManifestEntryStatus, write_manifest

    table = before.table
    paths = {file.file_path for file in gone}
    kept: list[ManifestFile] = []
    rewritten = [
        ManifestEntry.from_args(
            status=ManifestEntryStatus.ADDED,
            snapshot_id=snapshot_id,
            sequence_number=None,
            file_sequence_number=None,
            data_file=file,
        )
        for file in added
    ]
    for manifest, entries in before.manifests:
        is_full = len(entries) >= FILES_IN_MANIFEST
        if is_full and not any(entry.data_file.file_path in paths for entry in entries):
            kept.append(manifest)
        else:
            for entry in entries:
                entry.status = ManifestEntryStatus.EXISTING
            rewritten += entries
    # The name of a file begins with its part, so that a manifest has a range of days or months.
    rewritten.sort(key=lambda entry: str(entry.data_file.file_path))
    written: list[ManifestFile] = []
    for number, first in enumerate(range(0, len(rewritten), FILES_IN_MANIFEST)):
        location = table.location_provider().new_metadata_location(f"{name}-m{number}.avro")
        with write_manifest(
            format_version=_FORMAT,
            spec=table.spec(),
            schema=table.schema(),
            output_file=table.io.new_output(location),
            snapshot_id=snapshot_id,
            avro_compression=_CODEC,
        ) as writer:
            for entry in rewritten[first : first + FILES_IN_MANIFEST]:
                if entry.data_file.file_path in paths:
                    writer.delete(entry)
                elif entry.status == ManifestEntryStatus.EXISTING:
                    writer.existing(entry)
                else:
                    writer.add_entry(entry)
        written.append(writer.to_manifest_file())
    return [*written, *kept]


def _summarise(
    table: "Table",
    gone: "Collection[DataFile]",
    added: "Collection[DataFile]",
    properties: Mapping[str, str],
) -> "Summary":
    from pyiceberg.table.snapshots import (
        Operation,
        SnapshotSummaryCollector,
        Summary,
        update_snapshot_summaries,
    )

    counts = SnapshotSummaryCollector()
    for file in added:
        counts.add_file(file, table.schema(), table.spec())
    for file in gone:
        counts.remove_file(file, table.schema(), table.spec())
    current = table.current_snapshot()
    operation = Operation.OVERWRITE if gone else Operation.APPEND
    return update_snapshot_summaries(
        Summary(operation=operation, **counts.build(), **properties),
        None if current is None else current.summary,
    )


def _remove_metadata(table: "Table", committed: "TableMetadata") -> None:
    """Remove the metadata files that the committed metadata no longer lists."""
    listed = {entry.metadata_file for entry in committed.metadata_log}
    for entry in table.metadata.metadata_log:
        if entry.metadata_file not in listed:
            with suppress(OSError):  # `remove_orphans` tries again.
                table.io.delete(entry.metadata_file)
