"""The known events that an observation covers, and the time that a pull of cancellations covers."""

from dataclasses import dataclass
from datetime import datetime

from tests.history.model.observations import Content, Row, SeenObservation, VisibleScope


@dataclass(frozen=True, slots=True)
class Watch:
    """A complete pull of the cancellations; with earlier ones it covers the time from `since`."""

    number: int
    content_at: datetime
    since: datetime


@dataclass(frozen=True, slots=True)
class Listed:
    """The scope of a list or export; `trusted` when it was complete and not flagged."""

    observation: SeenObservation
    visible_scope: VisibleScope
    categories: frozenset[str] | None
    trusted: bool = False

    def covers(self, content: Content) -> bool:
        """Whether an event as it is known is in the dates and filters."""
        if not self.visible_scope.holds(content["date"]):
            return False
        if self.observation.coins is not None and self.observation.coins.isdisjoint(
            content["coins"]
        ):
            return False
        if self.categories is None:
            return True
        return not self.categories.isdisjoint(content.get("categories", ()))


def passes(observation: SeenObservation, row: Row) -> bool:
    """Whether an event, as it is known, passes the requested coins."""
    return observation.categories is None and (
        observation.coins is None or bool(observation.coins.intersection(row.content["coins"]))
    )
