"""Sixty days of a sandbox's truth, as pulls every eight hours would have shown it."""

from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from functools import cache
from random import Random

from tests.sandbox.true_world import TrueEvent, World
from tests.warehouse.answers.handmade import Absence, Known

FIRST = datetime(2017, 10, 1, 6, tzinfo=UTC)
PULLS = tuple(FIRST + number * timedelta(hours=8) for number in range(180))
LAST = PULLS[-1]
PAST = timedelta(days=10)
EVENTS = 160


@dataclass(frozen=True, slots=True)
class Watched:
    versions: list[Known]
    claims: list[Known]
    absences: list[Absence]


@cache
def watch() -> Watched:
    """Return what was seen. A withdrawn event is missing for two pulls before that is known."""
    world = World(3, pace=9)
    random = Random(3)
    before = {
        event_id
        for event_id, event in world.events_at(FIRST).items()
        if event.date > FIRST - PAST and world.status_at(event_id, FIRST) == "scheduled"
    }
    later = {change.event_id for change in world.changes(FIRST, LAST)} - before
    chosen = [random.sample(sorted(ids), min(EVENTS, len(ids))) for ids in (before, later)]
    seen = Watched([], [], [])
    for event_id in sorted(chosen[0] + chosen[1]):
        _see(world, event_id, seen)
    return seen


def _see(world: World, event_id: str, seen: Watched) -> None:
    number, last = 0, None
    history = world.history(event_id, LAST)
    for version, following in zip(history, [*history[1:], None], strict=True):
        pull = next(at for at in PULLS if at >= version.known_from)
        if following is not None and following.known_from <= pull:
            continue
        if number == 0 and version.status != "scheduled":
            return
        if version.status == "withdrawn":
            seen.absences.append(Absence(event_id, pull, pull))
            pull += timedelta(hours=16)
            seen.absences.append(Absence(event_id, pull, None))
            if following is not None and following.known_from <= pull:
                continue
        is_new = history[0].known_from > FIRST
        number += 1
        known = _known(version.event, version.status, number, pull, is_new=is_new)
        if number == 1 and version.event.updated_at <= version.event.created_at < pull:
            seen.claims.append(replace(known, version=0, change_kinds=("created",)))
        if (key := (version.status, version.event)) != last:
            seen.versions.append(known)
        else:
            number -= 1
        last = key


def _known(event: TrueEvent, status: str, version: int, pull: datetime, *, is_new: bool) -> Known:
    return Known(
        event_id=event.id,
        version=version,
        known_from=pull,
        change_kinds=("created" if is_new else "revealed",) if version == 1 else ("revised",),
        status=status,
        title=event.title,
        displayed_date=event.displayed_date,
        date=event.date,
        date_end=event.date_end,
        date_type=event.date_type,
        is_estimated=event.is_estimated,
        categories=event.categories,
        impact=event.impact,
        created_at=event.created_at,
        updated_at=event.updated_at,
    )
