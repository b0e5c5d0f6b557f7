"""Signed deliveries of the documented form, as a service would send them, prepared as bytes.

Each is a new event, about 1.5 KB. Belongs here: what is sent. Does not: sending it.
"""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import count

from catalog.contract.constants import SIGNATURE_HEADER
from catalog.contract.signatures import sign

SECRET = "whsec_bench_0123456789abcdef"
_WORDS = "The network moves to the next release, and holders must act before it. " * 12


@dataclass(frozen=True, slots=True)
class Prepared:
    """A delivery: the id of its event, its raw body, and the value of the signature's header."""

    event_id: str
    body: bytes
    signature: str

    def request(self, path: str) -> bytes:
        """Return the whole HTTP request."""
        return (
            f"POST {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
            f"User-Agent: bench\r\n{SIGNATURE_HEADER}: {self.signature}\r\n"
            f"Content-Length: {len(self.body)}\r\n\r\n"
        ).encode() + self.body


class Deliveries:
    """Makes deliveries with ids that are used once in a run."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._numbers = count()

    def requests(self, number: int) -> Sequence[bytes]:
        return [delivery.request(self._path) for delivery in self.prepared(number)]

    def prepared(self, number: int) -> Iterator[Prepared]:
        now = datetime.now(UTC)
        for _ in range(number):
            event_id = f"evt_pushed_{next(self._numbers):07d}"
            body = _body(event_id, now.strftime("%Y-%m-%dT%H:%M:%SZ"))
            yield Prepared(event_id, body, sign(body, secrets=[SECRET], at=now))


def _body(event_id: str, at: str) -> bytes:
    event = {
        **{"id": event_id, "slug": event_id.replace("_", "-"), "title": f"Upgrade {event_id}"},
        **{"description": _WORDS, "displayedDate": "01 Jun 2027", "date": "2027-06-01T00:00:00Z"},
        **{"dateEnd": None, "dateType": "date", "isEstimated": False, "categories": ["Other"]},
        **{"coins": [{"slug": "coin-1", "symbol": "c1", "name": "Coin 1"}], "impact": 5.5},
        **{"impactSummary": "It may matter to holders.", "sourceUrl": "https://example.org/a"},
        **{"snapshotUrl": None, "lastVerifiedAt": None, "createdAt": at, "updatedAt": at},
    }
    body = {
        **{"id": f"dlv_{event_id}", "type": "events.created", "apiVersion": "2.0"},
        **{"deliveredAt": at, "data": event},
    }
    return json.dumps(body, separators=(",", ":")).encode()
