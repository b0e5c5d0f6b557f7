"""The hash of a change log: proof that a client of a replay received every change.

digest = ChangeDigest()
for change in changes:  # of /v2/events/changes, in the order of the answer
    digest.add(change["id"], change["version"], datetime.fromisoformat(change["knownFrom"]))
assert digest.hexdigest() == clock["changes"]["sha256"]  # of /replay/clock
"""

import hashlib
from datetime import UTC, datetime


class ChangeDigest:
    """SHA-256 over a line `event version known_from` for each change, with the count of changes.

    `known_from` is written in UTC with six decimals: `2026-03-01T06:00:00.000000Z`.
    """

    def __init__(self) -> None:
        self.count = 0
        self._hash = hashlib.sha256()

    def add(self, event_id: str, version: int, known_from: datetime) -> None:
        """Add the next change; `known_from` has a time zone."""
        instant = known_from.astimezone(UTC)
        self._hash.update(f"{event_id} {version} {instant:%Y-%m-%dT%H:%M:%S.%fZ}\n".encode())
        self.count += 1

    def hexdigest(self) -> str:
        return self._hash.hexdigest()
