"""The machine's clock, as an argument that tests can replace."""

from datetime import UTC, datetime


def utc_now() -> datetime:
    """Return the current time, aware, in UTC."""
    return datetime.now(UTC)
