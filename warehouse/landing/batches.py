"""A batch: one pull of one feed, and what it claims to cover (the manifest).

Never changed once landed. Belongs here: what is known of a batch, and its id. Does not:
where it lies (landing), what its rows say (normalise). Instants are aware UTC.
"""

import hashlib
from datetime import datetime
from typing import Literal

import msgspec

from warehouse.errors import LandingError

Feed = Literal["export", "events", "event", "cancellations", "coins", "categories", "deliveries"]
FEEDS: tuple[Feed, ...] = (
    *("export", "events", "event", "cancellations"),
    *("coins", "categories", "deliveries"),
)
RANK: dict[Feed, int] = {
    "export": 0,
    "events": 1,
    "event": 2,
    "cancellations": 3,
    "deliveries": 4,
    "coins": 5,
    "categories": 6,
}
"""Among batches of equal times, the later rank is folded later."""
ENOUGH_ROWS_SHARE = 0.98
"""An export with a smaller share of the rows expected is not complete, and proves nothing absent.
What is expected may be counted a little later than the export, so a few more or less are no
fault."""
FORMAT = 2
"""Of a manifest; from 2 on it ends in a seal (hashes.py)."""
SEALED_SINCE = 2
KEY_MARK = "[API key removed]"
"""Stands in landed bytes where the service had repeated the key of the request."""
_ID_DIGITS = 12


class Scope(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a batch claims to cover: of events, those that overlap `[lower, upper]`.

    None is no bound or no filter. `event_id` is for a single look-up, `since` for
    cancellations. What the plan shows at `content_at` narrows it further.
    """

    lower: datetime | None = None
    upper: datetime | None = None
    coins: tuple[str, ...] | None = None
    categories: tuple[str, ...] | None = None
    event_id: str | None = None
    since: datetime | None = None


class LandedPage(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One body as it came, as a part of the batch's bytes. Offset and length are in bytes."""

    offset: int
    length: int
    sha256: str
    status: int = 200
    received_at: datetime | None = None
    """For a delivery, its receipt: each has its own."""


class Manifest(msgspec.Struct, frozen=True, kw_only=True):
    """All that is known of a batch. Written last; a batch without it was never landed."""

    batch_id: str
    feed: Feed
    scope: Scope
    plan: str
    source: str
    """The base address or sandbox seed it was pulled from."""
    observed_at: datetime
    """When we knew: the service's Date at the last page."""
    content_at: datetime
    """When it was true."""
    landed_at: datetime
    """The machine's clock, for people; no rule reads it."""
    requests: int
    rows_claimed: int | None
    """What the service said would come (`meta.total`); None where it said nothing."""
    sha256: str
    """Of all bytes together, which name the body."""
    bytes: int
    pages: tuple[LandedPage, ...]
    complete: bool
    why_incomplete: str | None = None
    attested: bool = False
    """Imported: `observed_at` is the user's word."""
    redacted: int = 0
    """How often `KEY_MARK` stands in the bytes."""
    date_doubt: str | None = None
    """Why `observed_at` is not the service's own Date; None where it is."""
    stored_sha256: str | None = None
    """Of the compressed file; None: an older Almanac landed it."""
    format: int = FORMAT

    def __post_init__(self) -> None:
        for name in ("observed_at", "content_at", "landed_at"):
            if getattr(self, name).tzinfo is None:
                raise LandingError(f"{name} of batch {self.batch_id} has no timezone")
        if self.complete == (self.why_incomplete is not None):
            raise LandingError(
                f"batch {self.batch_id}: complete is {self.complete}, and the reason for being "
                f"incomplete is {self.why_incomplete!r}; one of them is wrong"
            )

    def fold_key(self) -> tuple[datetime, datetime, int, str]:
        """Return the order in which history is folded."""
        return self.observed_at, self.content_at, RANK[self.feed], self.batch_id


def feed_of(batch_id: str) -> Feed:
    """Return the feed that an id names."""
    name = batch_id.split("-")[1]
    return next(feed for feed in FEEDS if feed == name)


def batch_id_of(
    *,
    feed: Feed,
    scope: Scope,
    plan: str,
    source: str,
    observed_at: datetime,
    content_at: datetime,
    sha256: str,
) -> str:
    """Return the id, which says what a batch is: the same pull landed twice is one batch."""
    text = msgspec.json.encode((feed, scope, plan, source, observed_at, content_at, sha256))
    digest = hashlib.sha256(text).hexdigest()[:_ID_DIGITS]
    return f"{observed_at:%Y%m%dT%H%M%SZ}-{feed}-{digest}"
