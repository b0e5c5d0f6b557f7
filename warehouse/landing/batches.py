"""A batch: one pull of one feed, and the scope that it claims (the manifest).

A batch never changes after landing. Timestamps are aware UTC.
"""

import hashlib
from datetime import datetime
from typing import Literal, get_args

import msgspec

from warehouse.errors import LandingError

Feed = Literal["export", "events", "event", "cancellations", "coins", "categories", "deliveries"]
FEEDS: tuple[Feed, ...] = get_args(Feed)
_IN_ORDER: tuple[Feed, ...] = (
    *("export", "events", "event", "cancellations", "deliveries", "coins", "categories"),
)
RANK = {feed: rank for rank, feed in enumerate(_IN_ORDER)}
"""Batches with equal times are applied in this order."""
ENOUGH_ROWS_SHARE = 0.98
"""An export with a smaller share of the expected rows is not complete, and does not prove that an
event is absent. The expected rows may be counted a little later than the export, so a small
difference is not a fault."""
FORMAT = 2
"""Of a manifest; from 2 on it ends in a seal (files/documents.py)."""
SEALED_SINCE = 2
KEY_MARK = "[API key removed]"
"""Replaces the API key in landed bytes where the service repeated it."""
_ID_DIGITS = 12


class Scope(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The scope that a batch claims: for events, those that overlap `[lower, upper]`.

    None means unbounded or unfiltered. `event_id` is for a look-up, `since` for cancellations. The
    fields and dates that the plan shows at `content_at` narrow it further.
    """

    lower: datetime | None = None
    upper: datetime | None = None
    coins: tuple[str, ...] | None = None
    categories: tuple[str, ...] | None = None
    event_id: str | None = None
    since: datetime | None = None


class LandedPage(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One body as received, as a part of the batch's bytes. Offset and length are in bytes."""

    offset: int
    length: int
    sha256: str
    status: int = 200
    received_at: datetime | None = None
    """The time of receipt. Only deliveries have one."""


class Pull(msgspec.Struct, frozen=True, kw_only=True):
    """A finished pull: all fields of a manifest that do not come from its bytes."""

    feed: Feed
    scope: Scope
    plan: str
    source: str
    """The base address or sandbox seed it was pulled from."""
    observed_at: datetime
    """The time of the observation: the service's Date at the last page."""
    content_at: datetime
    """The time at which the content was true."""
    landed_at: datetime
    """Time by the machine's clock, for people; no rule uses it."""
    requests: int
    rows_claimed: int | None = None
    """The number of rows that the service announced (`meta.total`); None if it announced none."""
    why_incomplete: str | None = None
    attested: bool = False
    """Imported: the user states `observed_at`."""
    export_columns: dict[str, str] | msgspec.UnsetType = msgspec.UNSET
    """The field of each column of an export with another name, as the user states it."""
    etag: str | None = None
    """The service's name of the snapshot, with which an export is asked for again."""
    date_doubt: str | None = None
    """The reason if `observed_at` is not the service's own Date, else None."""


class Manifest(Pull, frozen=True, kw_only=True):
    """The record of a batch. It is written last; a batch without it was never landed."""

    batch_id: str
    sha256: str
    """The sha256 of all bytes together, which names the body."""
    bytes: int
    pages: tuple[LandedPage, ...]
    complete: bool
    redacted: int = 0
    """How often `KEY_MARK` occurs in the bytes."""
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


def parse_feed(batch_id: str) -> Feed:
    name = batch_id.split("-")[1]
    return next(feed for feed in FEEDS if feed == name)


def make_batch_id(pull: Pull, sha256: str) -> str:
    """Return the id, a hash of the batch's identity: the same pull landed twice is one batch."""
    times = pull.observed_at, pull.content_at
    text = msgspec.json.encode((pull.feed, pull.scope, pull.plan, pull.source, *times, sha256))
    digest = hashlib.sha256(text).hexdigest()[:_ID_DIGITS]
    return f"{pull.observed_at:%Y%m%dT%H%M%SZ}-{pull.feed}-{digest}"
