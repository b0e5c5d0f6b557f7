"""Repair of a damaged landing: rewrite markers, and bodies whose content is intact.

Landing has the only copy of anything else: a damaged batch is set aside and reported, and used
again once someone restored it. Belongs here: the repair. Does not: when it runs (merge.py, at a
replay).
"""

from collections.abc import Iterable
from contextlib import suppress

from warehouse.errors import DamagedBatch, DamagedManifest, UnknownBatch
from warehouse.files.hashes import sha256_of
from warehouse.landing.batches import Manifest
from warehouse.landing.body_files import RedactionCounter, compress
from warehouse.landing.landing import MARKER, Landing

_MARKERS = ("pending", "released", "dismissed")


def repair_landing(landing: Landing, released: Iterable[str]) -> None:
    """Rewrite the files that can be rewritten; `released` are the batches known to be trusted.

    Those that wait again were taken back since.
    """
    for folder in _MARKERS:
        for batch_id in landing.marked(folder):
            _rewrite_marker(landing, f"{folder}/{batch_id}.json")
    for batch_id in set(released) - set(landing.marked("pending")):
        _rewrite_marker(landing, f"released/{batch_id}.json")
    seen: set[str] = set()
    for batch_id in landing.batch_ids():
        with suppress(DamagedBatch, OSError):
            manifest = landing.manifest(batch_id)
            if manifest.sha256 not in seen:
                seen.add(manifest.sha256)
                _repair_body(landing, manifest)


def restore_whole(landing: Landing) -> list[str]:
    """Use batches again that were set aside and are intact now, as from a copy; return the ids."""
    whole: list[str] = []
    for batch_id in landing.damaged():
        with suppress(DamagedBatch, UnknownBatch):
            landing.check(landing.manifest(batch_id))
            landing.clear_set_aside(batch_id)
            whole.append(batch_id)
    return whole


def lost_batch(batch_id: str) -> DamagedManifest:
    """Return the error for a batch that took effect and is missing from landing."""
    return DamagedManifest(
        f"batch {batch_id}: its manifest is missing from landing. Restore {batch_id}.json from a "
        "backup; `almanac replay` continues without it."
    )


def _rewrite_marker(landing: Landing, name: str) -> None:
    path = landing.storage.path(name)
    if not path.is_file() or path.read_bytes() != MARKER:
        landing.storage.put(name, MARKER)


def _repair_body(landing: Landing, manifest: Manifest) -> None:
    """Rewrite a body's file as it was landed, if only its compressed form changed."""
    path = landing.body_path(manifest)
    if manifest.stored_sha256 is None or sha256_of(path) == manifest.stored_sha256:
        return
    with landing.storage.staging() as staged:
        bodies = [(iter((page,)), about.received_at) for about, page in landing.pages(manifest)]
        compress(iter(bodies), staged, 200, RedactionCounter())
        if sha256_of(staged) == manifest.stored_sha256:
            landing.storage.adopt(staged, path.relative_to(landing.storage.root).as_posix())
