"""The headers we read: service time, Retry-After, and those worth keeping with a body."""

import re
from collections.abc import Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Final

USEFUL: Final = frozenset(
    {
        *("date", "etag", "last-modified", "content-type", "content-length", "content-encoding"),
        *("content-disposition", "cache-control", "retry-after", "deprecation", "sunset"),
        *("x-request-id", "server"),
    }
)
RETRY_AFTER_CEILING_S: Final = 366 * 86_400.0
"""Longer waits are read as this, so that no clock arithmetic overflows."""
_SINCE = re.compile(r"@[0-9]{1,11}", re.ASCII)
_SECONDS = re.compile(r"[0-9]{1,300}(\.[0-9]{0,300})?([eE]\+?[0-9]{1,3})?", re.ASCII)


def useful_headers(headers: Mapping[str, str]) -> dict[str, str]:
    """Return the headers worth keeping with a body, names in lower case."""
    return {name.lower(): value for name, value in headers.items() if name.lower() in USEFUL}


def read_http_date(text: str | None) -> datetime | None:
    """Return an HTTP date as aware UTC; None when it is absent or none."""
    if not text:
        return None
    try:
        read = parsedate_to_datetime(text)
        return read.replace(tzinfo=UTC) if read.tzinfo is None else read.astimezone(UTC)
    except (ValueError, TypeError, IndexError, OverflowError):
        return None


def read_deprecation(text: str | None) -> datetime | None:
    """Return since when `Deprecation` says so (RFC 9745: @ and seconds; earlier, an HTTP date)."""
    if text and _SINCE.fullmatch(text.strip()):
        return datetime.fromtimestamp(int(text.strip()[1:]), UTC)
    return read_http_date(text)


def retry_after_s(text: str | None, *, now: datetime) -> float | None:
    """Return how long the service asked us to wait, in seconds (interface section 7).

    Seconds and HTTP dates are read. A past date is 0.0; absent, negative or neither of the two
    is None, since a header that can't be read must not end a retry. Never over
    RETRY_AFTER_CEILING_S. `now` is the service's time.
    """
    if text is None:
        return None
    if _SECONDS.fullmatch(text.strip()):
        return min(float(text), RETRY_AFTER_CEILING_S)
    until = read_http_date(text)
    if until is None:
        return None
    return min(max(0.0, (until - now).total_seconds()), RETRY_AFTER_CEILING_S)
