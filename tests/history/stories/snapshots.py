"""What hand-made batches showed, in the form that the oracle folds."""

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
    HandmadeBatch,
    cancels,
    first_of,
    receipts,
)
from warehouse.landing.batches import Manifest


class HandmadeShowing(Showing):
    """Shows hand-made batches in place of a world."""

    def __init__(
        self, handmade_batches: Sequence[HandmadeBatch], manifests: Sequence[Manifest]
    ) -> None:
        self._batches: dict[str, HandmadeBatch] = {}
        self.observations: list[SeenObservation] = []
        for number, (batch, manifest) in enumerate(zip(handmade_batches, manifests, strict=True)):
            empty = batch.feed == "export" and not batch.shown
            if manifest.batch_id not in self._batches and not empty:
                self._batches[manifest.batch_id] = batch
                self.observations += _observations_of(batch, manifest, number)
        self.observations.sort(key=lambda observation: observation.fold_key)

    def rows(self, observation: SeenObservation) -> list[Row]:
        shown = self._batches[observation.batch_id].shown
        return [Row(IDS[index], _content(index, content, observation)) for index, content in shown]

    def looked_up(self, observation: SeenObservation) -> Row | datetime | None:
        batch = self._batches[observation.batch_id]
        index, content = first_of(batch)
        if batch.status == 410:
            return observation.content_at - content.step * HOUR
        return (
            Row(IDS[index], _content(index, content, observation)) if batch.status == 200 else None
        )

    def cancellations(self, observation: SeenObservation) -> Iterator[tuple[datetime, str]]:
        for index, content in self._batches[observation.batch_id].shown:
            yield observation.content_at - content.step * HOUR, IDS[index]

    def delivered(self, observation: SeenObservation) -> Row:
        batch = self._batches[observation.batch_id]
        index, content = (batch.shown or (first_of(batch),))[observation.place]
        known = _content(index, content, observation)
        if cancels(batch, content):
            return Row(IDS[index], known, "cancelled", observation.content_at)
        return Row(IDS[index], known)

    def top(self, observation: SeenObservation, count: int = 100) -> frozenset[str]:
        return frozenset(COINS[: self._batches[observation.batch_id].lag + 1])


def _observations_of(
    batch: HandmadeBatch, manifest: Manifest, number: int
) -> Iterator[SeenObservation]:
    scope = manifest.scope
    content_at = STARTS + (batch.hour - batch.lag) * HOUR
    common: dict[str, Any] = {
        "kind": manifest.feed,
        "plan": manifest.plan,
        "batch_id": manifest.batch_id,
        "complete": manifest.complete,
    }
    if batch.feed != "deliveries":
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
    shown = batch.shown or (first_of(batch),)
    for place, received_at in enumerate(receipts(batch, number)):
        index, content = shown[place]
        yield SeenObservation(
            **common,
            observed_at=received_at,
            change_at=content_at - content.step * HOUR,
            event_id=IDS[index],
            place=place,
        )


def _content(index: int, content: Content, observation: SeenObservation) -> dict[str, Any]:
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
    rules = PLAN_RULES[observation.plan]
    hidden = rules.hides - {"impact"} if rules.banded and content.score is None else rules.hides
    return {name: value for name, value in whole.items() if name not in hidden}
