"""What a look covers of events as they are known, and how far back one at cancellations reaches.

Belongs here: scopes, from the design and not from the code. Does not: what follows where an event
is absent (oracle). Instants are aware UTC.
"""

from dataclasses import dataclass
from datetime import datetime

from tests.history.model.observations import Content, Reach, Row, SeenObservation


@dataclass(frozen=True, slots=True)
class Watch:
    """A complete look at the cancellations, which with those before it reaches back to `since`."""

    number: int
    content_at: datetime
    since: datetime


@dataclass(frozen=True, slots=True)
class Listed:
    """What a list or export would show; `trusted` when it was whole and not flagged."""

    number: int
    look: SeenObservation
    reach: Reach
    categories: frozenset[str] | None
    trusted: bool = False

    def covers(self, content: Content) -> bool:
        """Whether an event as it is known lies in the dates and filters."""
        if not self.reach.holds(content["date"]):
            return False
        if self.look.coins is not None and self.look.coins.isdisjoint(content["coins"]):
            return False
        if self.categories is None:
            return True
        return not self.categories.isdisjoint(content.get("categories", ()))


def passes(look: SeenObservation, row: Row) -> bool:
    """Whether an event, by what is known of it, passes the coins that a look asked for."""
    return look.categories is None and (
        look.coins is None or bool(look.coins.intersection(row.content["coins"]))
    )
