"""What hand-made batches showed, in the form in which the oracle takes it.

Belongs here: rows and looks of glances. Does not: their bodies (handmade).
"""

from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import Any

from tests.history.model.observations import PLAN_RULES, Row, SeenObservation, Showing, impact_band
from tests.history.stories.handmade import (
    COINS,
    CREATED,
    DAY,
    HOUR,
    IDS,
    PROVEN,
    STARTS,
    Content,
    Glance,
    cancels,
    first_of,
    receipts,
)
from warehouse.landing.batches import Manifest


class Glanced(Showing):
    """Stands in the place of a world's looks."""

    def __init__(self, glances: Sequence[Glance], manifests: Sequence[Manifest]) -> None:
        self._glances: dict[str, Glance] = {}
        self.looks: list[SeenObservation] = []
        for number, (glance, manifest) in enumerate(zip(glances, manifests, strict=True)):
            empty = glance.feed == "export" and not glance.shown
            if manifest.batch_id not in self._glances and not empty:
                self._glances[manifest.batch_id] = glance
                self.looks += _looks_of(glance, manifest, number)
        self.looks.sort(key=lambda look: look.fold_key)

    def rows(self, look: SeenObservation) -> list[Row]:
        shown = self._glances[look.batch_id].shown
        return [Row(IDS[index], _content(index, content, look)) for index, content in shown]

    def looked_up(self, look: SeenObservation) -> Row | datetime | None:
        glance = self._glances[look.batch_id]
        index, content = first_of(glance)
        if glance.status == 410:
            return look.content_at - content.step * HOUR
        return Row(IDS[index], _content(index, content, look)) if glance.status == 200 else None

    def cancellations(self, look: SeenObservation) -> Iterator[tuple[datetime, str]]:
        for index, content in self._glances[look.batch_id].shown:
            yield look.content_at - content.step * HOUR, IDS[index]

    def delivered(self, look: SeenObservation) -> Row:
        glance = self._glances[look.batch_id]
        index, content = (glance.shown or (first_of(glance),))[look.place]
        known = _content(index, content, look)
        if cancels(glance, content):
            return Row(IDS[index], known, "cancelled", look.content_at)
        return Row(IDS[index], known)

    def top(self, look: SeenObservation, count: int = 100) -> frozenset[str]:
        return frozenset(COINS[: self._glances[look.batch_id].lag + 1])


def _looks_of(glance: Glance, manifest: Manifest, number: int) -> Iterator[SeenObservation]:
    scope = manifest.scope
    content_at = STARTS + (glance.hour - glance.lag) * HOUR
    common: dict[str, Any] = {
        "kind": manifest.feed,
        "plan": manifest.plan,
        "batch_id": manifest.batch_id,
        "complete": manifest.complete,
    }
    if glance.feed != "deliveries":
        yield SeenObservation(
            **common,
            observed_at=manifest.observed_at,
            change_at=content_at,
            lower=scope.lower,
            upper=scope.upper,
            event_id=scope.event_id,
            since=scope.since,
        )
        return
    shown = glance.shown or (first_of(glance),)
    for place, received_at in enumerate(receipts(glance, number)):
        index, content = shown[place]
        yield SeenObservation(
            **common,
            observed_at=received_at,
            change_at=content_at - content.step * HOUR,
            event_id=IDS[index],
            place=place,
        )


def _content(index: int, content: Content, look: SeenObservation) -> dict[str, Any]:
    start = STARTS + content.day * DAY
    whole = {
        "slug": f"event-{index}",
        "title": content.title.strip(),
        "description": f"It is {content.title.strip()}.",
        "displayed_date": f"{start:%d %b}",
        "date": start,
        "date_end": None,
        "date_type": "date",
        "is_estimated": content.estimated,
        "categories": ["Release"],
        "coins": sorted(content.coins),
        "impact": content.score,
        "impact_band": impact_band(content.score),
        **dict.fromkeys(("impact_summary", "source_url", "snapshot_url"), PROVEN),
        "last_verified_at": CREATED,
        "created_at": CREATED,
        "updated_at": CREATED + content.step * DAY,
    }
    rules = PLAN_RULES[look.plan]
    hidden = rules.hides - {"impact"} if rules.banded and content.score is None else rules.hides
    return {name: value for name, value in whole.items() if name not in hidden}
