"""The looks of a day, in the order in which history is folded.

A batch is one look, but each delivery was received on its own: other looks may lie between two
deliveries of one batch, and are folded between them. Instants are aware UTC.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime

from warehouse.batches import RANK, Manifest

FoldKey = tuple[datetime, datetime, int, str]


@dataclass(frozen=True, slots=True)
class Look:
    """A batch, or a run of deliveries in it: positions `first` to `last`, in order of receipt."""

    manifest: Manifest
    key: FoldKey
    until: FoldKey
    positions: tuple[int, ...] | None = None


def receipts(manifest: Manifest) -> list[tuple[FoldKey, int]]:
    """Return the fold key and position of each delivery of a batch, in fold order."""
    rank = RANK[manifest.feed]
    return sorted(
        (
            (
                page.received_at or manifest.observed_at,
                manifest.content_at,
                rank,
                manifest.batch_id,
            ),
            position,
        )
        for position, page in enumerate(manifest.pages)
    )


def first_key(manifest: Manifest) -> FoldKey:
    """Return the fold key of the first look in a batch."""
    if manifest.feed == "deliveries" and manifest.pages:
        return receipts(manifest)[0][0]
    return manifest.fold_key()


def in_fold_order(manifests: Iterable[Manifest]) -> list[Look]:
    """Return the looks of some batches; deliveries with nothing in between are one look."""
    keyed: list[tuple[FoldKey, int, Manifest]] = []
    for manifest in manifests:
        if manifest.feed == "deliveries":
            keyed.extend((key, position, manifest) for key, position in receipts(manifest))
        else:
            keyed.append((manifest.fold_key(), -1, manifest))
    keyed.sort(key=lambda entry: (entry[0], entry[1]))
    looks: list[Look] = []
    for key, position, manifest in keyed:
        last = looks[-1] if looks else None
        if position < 0:
            looks.append(Look(manifest, key, key))
        elif last is not None and last.manifest is manifest and last.positions is not None:
            looks[-1] = Look(manifest, last.key, key, (*last.positions, position))
        else:
            looks.append(Look(manifest, key, key, (position,)))
    return looks
