"""Models of programs that subscribe to a feed, from what is known of their behaviour.

| program | takes an update if | cancelled events |
|---|---|---|
| Google Calendar | SEQUENCE or LAST-MODIFIED is newer | removed from view |
| Outlook | SEQUENCE is greater, or equal with a later DTSTAMP | shown |
| Apple Calendar | SEQUENCE is not smaller | shown |

Outlook needs METHOD:PUBLISH and DTSTAMP. Each removes events that a later fetch lacks.
"""

from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

import icalendar

PROGRAMS: Final = ("google", "outlook", "apple")


class Shown(NamedTuple):
    """An event as a person sees it."""

    start: Any
    title: str
    is_cancelled: bool


@dataclass
class Subscription:
    """A subscription of one program: `fetch` takes what the feed answers."""

    program: str
    known: dict[str, Any] = field(default_factory=dict)

    def fetch(self, content: bytes) -> None:
        calendar = icalendar.Calendar.from_ical(content)
        assert str(calendar["method"]) == "PUBLISH"
        found = {}
        for event in calendar.walk("VEVENT"):
            uid = str(event["uid"])
            assert uid not in found, "a UID is there twice"
            assert "dtstamp" in event
            before = self.known.get(uid)
            found[uid] = event if before is None or self._is_newer(event, before) else before
        self.known = found

    def _is_newer(self, event: Any, before: Any) -> bool:
        sequences = event["sequence"], before["sequence"]
        if self.program == "google":
            is_later = event["last-modified"].dt > before["last-modified"].dt
            return sequences[0] > sequences[1] or is_later
        if self.program == "outlook":
            stamps = event["dtstamp"].dt, before["dtstamp"].dt
            return (sequences[0], stamps[0]) > (sequences[1], stamps[1])
        return sequences[0] >= sequences[1]

    @property
    def shown(self) -> dict[str, Shown]:
        events = {
            uid.partition("@")[0]: Shown(
                event["dtstart"].dt, str(event["summary"]), str(event["status"]) == "CANCELLED"
            )
            for uid, event in self.known.items()
        }
        if self.program == "google":
            return {uid: event for uid, event in events.items() if not event.is_cancelled}
        return events
