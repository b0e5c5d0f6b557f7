"""Rows of a back-test made from a sandbox's truth: planted leaks of each kind, and clean rows.

Belongs here: what the rows are and what an audit must say of them, in plain Python over what pulls
every eight hours would have shown. It shares no code with the audit.
"""

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from random import Random
from typing import Any

from tests.warehouse.answers.handmade import Known
from tests.warehouse.answers.watched_sandbox import LAST, PULLS

LEAKS = {
    "date": "date_not_moved_yet",
    "date_end": "date_not_moved_yet",
    "displayed_date": "date_not_moved_yet",
    "impact": "scored_later",
    "status": "status_later",
    "title": "edited_later",
    "categories": "edited_later",
}
KINDS = ("not_announced", "estimated_as_exact", *LEAKS)
INSTANT = timedelta(microseconds=1)


@dataclass(frozen=True, slots=True)
class PlantedRow:
    """A row of a back-test; `verdict` and `knowable_from` are what an audit must say of it."""

    used: dict[str, Any]
    verdict: str
    knowable_from: datetime | None


class Planter:
    """Draws rows from the versions of watched events."""

    def __init__(self, versions: Sequence[Known], seed: int) -> None:
        self._random = Random(seed)
        self._histories: dict[str, list[Known]] = defaultdict(list)
        for version in versions:
            self._histories[version.event_id].append(version)
        self._places: dict[str, list[Any]] = {
            "not_announced": [
                history[0]
                for history in self._histories.values()
                if history[0].change_kinds == ("created",)
            ],
            "estimated_as_exact": list(self._estimated()),
            **{field: list(self._changed_later(field)) for field in LEAKS},
        }

    def leak(self, kind: str) -> PlantedRow:
        """Return a row that uses what nobody could have known: only this."""
        place = self._random.choice(self._places[kind])
        if kind == "not_announced":
            decided = self._between(PULLS[0], place.known_from)
            used = {"event_id": place.event_id, "decided_at": decided, **_content(place)}
            return PlantedRow(used, kind, place.known_from)
        if kind == "estimated_as_exact":
            version, end, exact_from = place
            used = self._row(version, end)
            # Without its own word that the date is a period.
            used["is_estimated"] = None
            return PlantedRow(used, kind, exact_from)
        version, end, later = place
        used = self._row(version, end)
        used[kind] = getattr(later, kind)
        if kind == "date":
            used["is_estimated"] = None
        return PlantedRow(used, LEAKS[kind], later.known_from)

    def clean(self) -> PlantedRow:
        """Return a row that uses what was known at its decision."""
        history = self._random.choice(list(self._histories.values()))
        version, end = self._random.choice(list(_spans(history)))
        return PlantedRow(self._row(version, end), "clean", None)

    def _row(self, version: Known, end: datetime) -> dict[str, Any]:
        decided = self._between(version.known_from, end)
        return {"event_id": version.event_id, "decided_at": decided, **_content(version)}

    def _between(self, start: datetime, end: datetime) -> datetime:
        """Return an instant from `start` until before `end`; the two edges are drawn often."""
        share = self._random.choice([0.0, 1.0, self._random.random()])
        return min(start + (end - start) * share, end - INSTANT)

    def _estimated(self) -> Iterator[tuple[Known, datetime, datetime | None]]:
        for history in self._histories.values():
            for place, (version, end) in enumerate(_spans(history)):
                if version.is_estimated:
                    exact = [
                        later.known_from
                        for later in history[place + 1 :]
                        if _is_exact(later) and later.date == version.date
                    ]
                    yield version, end, min(exact, default=None)

    def _changed_later(self, field: str) -> Iterator[tuple[Known, datetime, Known]]:
        """Yield a version, its end, and the first later one with a value that none had before."""
        is_taken: Callable[[Known], bool] = _is_exact if field == "date" else lambda version: True
        for history in self._histories.values():
            for place, (version, end) in enumerate(_spans(history)):
                before = {getattr(earlier, field) for earlier in history[: place + 1]}
                for later in history[place + 1 :]:
                    value = getattr(later, field)
                    if value not in before and is_taken(later):
                        yield version, end, later
                        before.add(value)


def _spans(history: Sequence[Known]) -> Iterator[tuple[Known, datetime]]:
    ends = [version.known_from for version in history[1:]]
    return zip(history, [*ends, LAST + INSTANT], strict=True)


def _content(version: Known) -> dict[str, Any]:
    return {name: getattr(version, name) for name in (*LEAKS, "is_estimated")}


def _is_exact(version: Known) -> bool:
    return not version.is_estimated and version.date_type == "date"
