"""The digest that is posted to an address of the settings, and the record of the last one.

    state/digest.json    {until, at}: what became known by `until` was posted at `at`

A digest has what became known after the last one, until the last pull that is published: a day
without a post is in the next one, and no change is posted twice. It is recorded after the receiver
has accepted it. Changes that are dated before the last digest afterwards (an import, a batch that
was released) are in none. The command line and the daemon share the file, under a lock.
"""

from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Annotated, Any, Final

import httpx
import msgspec
from pydantic import SecretStr

from almanac.digest import LISTED, Digest, as_json, as_slack, digest_of, last_known, summary
from almanac.reader import Reader
from pipeline.hooks import TIMEOUT_S, NotPosted, post_json, posting_alone
from pipeline.settings import Settings, SettingsError
from warehouse.files.documents import put_note, read_note
from warehouse.files.storage import Storage
from warehouse.home import Home

FIRST_PERIOD: Final = timedelta(hours=24)
"""The first digest of a home covers this time before its last pull."""
_FILE: Final = "digest.json"
_LOCK: Final = "digest.lock"
_SLACK: Final = frozenset({"hooks.slack.com", "hooks.slack-gov.com"})
_ROWS_OF_KIND: Final = 200
"""Events of a kind in a body of JSON, so that a digest after a long time is not too large."""
_Instant = Annotated[datetime, msgspec.Meta(tz=True)]


class PostedDigest(msgspec.Struct, frozen=True, kw_only=True):
    """The digest that was posted last: the end of its period, and when it was posted."""

    until: _Instant
    at: _Instant


class DigestNotPosted(NotPosted):
    """The receiver did not accept the digest."""


@dataclass(frozen=True, slots=True)
class Posted:
    """A digest that was accepted, in a line."""

    since: datetime
    until: datetime
    summary: str


def last_posted(state: Path) -> PostedDigest | None:
    """Return the last digest of a home; an unreadable record counts as none."""
    return read_note(Storage(state), _FILE, PostedDigest)


def post_digest(
    settings: Settings, home: Home, now: datetime, *, timeout_s: float = TIMEOUT_S
) -> Posted | None:
    """Post what became known since the last digest; None if no pull was published since.

    Raises:
        SettingsError: no address is set, or it can't be used.
        WarehouseError: there is no published file, or it can't be read.
        DigestNotPosted: the receiver did not accept it.
    """
    address = settings.digest_address()
    if address is None:
        raise SettingsError(
            "ALMANAC_DIGEST_URL is not set. Set it to the address that receives digests."
        )
    with posting_alone(home.state, _LOCK):
        digest = _due(home, last_posted(home.state), now, is_chat=is_slack(address))
        if digest is None:
            return None
        body = body_of(digest, home, is_chat=is_slack(address))
        post_json(
            address,
            body,
            DigestNotPosted,
            "The digest",
            timeout_s=timeout_s,
            network=settings.network(),
        )
        put_note(Storage(home.state), _FILE, PostedDigest(until=digest.until, at=now))
    return Posted(digest.since, digest.until, summary(digest))


def is_slack(address: SecretStr) -> bool:
    """Return whether an address is one of Slack's webhooks, which take messages of their form."""
    return httpx.URL(address.get_secret_value()).host in _SLACK


def body_of(digest: Digest, home: Home, *, is_chat: bool) -> dict[str, Any]:
    """Return the body of a post. It names no folder of this machine."""
    stamp = home.stamp()
    source = None if stamp is None else stamp.source
    return as_slack(digest) if is_chat else {**as_json(digest), "source": source}


def _due(home: Home, posted: PostedDigest | None, now: datetime, *, is_chat: bool) -> Digest | None:
    reader = Reader(home.warehouse, clock=lambda: now)
    try:
        with reader.pinned():
            until = last_known(reader)
            if until is None or (posted is not None and until <= posted.until):
                return None
            since = until - FIRST_PERIOD if posted is None else posted.until
            limit = LISTED if is_chat else _ROWS_OF_KIND
            return digest_of(reader, since=since, until=until, limit=limit)
    finally:
        reader.close()
