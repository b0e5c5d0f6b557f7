"""A response of the service as a value, with or without its body."""

from dataclasses import dataclass, field
from datetime import datetime


@dataclass(frozen=True, slots=True)
class ResponseHead:
    """A response whose headers are received. `date` is when it was sent, by the service's clock.

    `date_doubt` is why that is not the response's own Date; empty if it is. `headers` are those to
    keep, names in lower case.
    """

    status: int
    headers: dict[str, str] = field(repr=False)
    date: datetime
    date_doubt: str
    received_at: datetime
    attempts: int

    def fields(self) -> tuple[int, dict[str, str], datetime, str, datetime, int]:
        """Return the values of a response without its body, to build a class with further
        fields."""
        doubt, received_at = self.date_doubt, self.received_at
        return self.status, self.headers, self.date, doubt, received_at, self.attempts


@dataclass(frozen=True, slots=True)
class Answer(ResponseHead):
    """A response that is read: `body` is decompressed."""

    body: bytes = field(repr=False, default=b"")
