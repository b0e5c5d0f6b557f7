"""A look that found nothing new: the service answered 304 to what the last look received.

It is landed as a batch of its own that refers to the same body: a complete look, observed when the
304 was sent, with the scope of the look before. No bytes and no rows arrive. The feeds are those
whose answers have an ETag for the whole of a scope: the export, and the categories. Belongs here:
which batch a request may name, and the batch of its 304. Does not: what a look proves
(warehouse/history).
"""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from typing import Final

from resources.http.list_query import Validators
from resources.ingest.context import Landed, PullContext
from warehouse.errors import DamagedBatch, LakeDamaged
from warehouse.files.documents import sha256_of
from warehouse.history.change_log import ChangeLog
from warehouse.home import Home
from warehouse.landing.batches import Feed, Manifest, Scope, feed_of
from warehouse.landing.landing import Landing

_BACK: Final = timedelta(days=1)
"""How many days back a look is searched, besides today: an older export has changed."""
_CHARS: Final = 200


@dataclass(frozen=True, slots=True)
class NotModifiedAnswer:
    """A 304. `content_at` is when its content is true, None if the answer does not say so."""

    date: datetime
    date_doubt: str
    content_at: datetime | None
    requests: int


def last_look(context: PullContext, feed: Feed, scope: Scope) -> Manifest | None:
    """Return the newest complete look of exactly this scope whose body can be used again.

    It is of today or yesterday, of the same plan and source; None if there is none, or if the merge
    has quarantined or flagged it: the service has to send the body again.
    """
    landing = context.room.landing
    for manifest in _newest_first(landing, feed, context.service.now().date()):
        is_same = (manifest.scope, manifest.plan, manifest.source) == (
            *(scope, context.plan.name, context.source),
        )
        if is_same and manifest.complete and not manifest.attested:
            is_usable = validators_of(manifest) is not None and not manifest.redacted
            is_usable = is_usable and _is_whole(landing, manifest)
            return manifest if is_usable and _is_accepted(landing, manifest) else None
    return None


def validators_of(manifest: Manifest) -> Validators | None:
    """Return what to send so that the service can answer 304; None if it named nothing."""
    if manifest.etag is None and manifest.last_modified is None:
        return None
    return Validators(manifest.etag, manifest.last_modified)


def kept_validator(text: str | None) -> str | None:
    """Return a header of an answer as it may be sent back, None if it may not."""
    if text is None or not text.isascii() or not text.isprintable():
        return None
    return text if 0 < len(text) <= _CHARS else None


def land_unchanged(context: PullContext, before: Manifest, answer: NotModifiedAnswer) -> Landed:
    """Land a 304 as a look that refers to the body of the look before."""
    content_at = answer.content_at or before.content_at
    pull = context.describe_batch(
        before.feed,
        before.scope,
        observed_at=answer.date,
        content_at=max(content_at, before.content_at),
        requests=answer.requests,
        rows_claimed=before.rows_claimed,
        date_doubt=answer.date_doubt,
        etag=before.etag,
        last_modified=before.last_modified,
    )
    manifest = context.room.landing.land_unchanged(pull, before)
    warnings = (answer.date_doubt,) if answer.date_doubt else ()
    return Landed(manifest, answer.requests, 0, warnings=warnings, unchanged=True)


def _newest_first(landing: Landing, feed: Feed, today: date) -> Iterator[Manifest]:
    for day in (today, today - _BACK):
        ids = [batch_id for batch_id in landing.batch_ids(day=day) if feed_of(batch_id) == feed]
        readable, _ = landing.readable(ids)
        yield from sorted(readable, key=lambda manifest: manifest.observed_at, reverse=True)


def _is_whole(landing: Landing, manifest: Manifest) -> bool:
    """Whether the body is as it was landed: a 304 would be no use without it."""
    try:
        if manifest.stored_sha256 is not None:
            return sha256_of(landing.body_path(manifest)) == manifest.stored_sha256
        landing.check(manifest)
    except (OSError, DamagedBatch):
        return False
    return True


def _is_accepted(landing: Landing, manifest: Manifest) -> bool:
    """Whether a merge has accepted the batch without a warning, or has not seen it yet."""
    # The landing folder lies in its home.
    log = ChangeLog.of(Home(landing.storage.root.parent))
    try:
        record = log.records_on(manifest.observed_at.date()).get(manifest.batch_id)
    except LakeDamaged:
        return False
    return record is None or (record["status"] == "merged" and not record["flagged"])
